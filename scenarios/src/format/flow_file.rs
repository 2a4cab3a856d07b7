//! Lists of flows and distributions of their sizes, as CSV.

use std::path::Path as FilePath;
use std::sync::Arc;

use super::{Flows, Scenario};
use crate::input::{InputError, Node, Origin, Path, Source, read_list};
use crate::library;

/// Flows that a file may list.
pub const MAX_FLOWS: usize = 1 << 20;

/// Bytes of the largest flow, 1024 TiB: sums over its packets stay exact.
pub const MAX_FLOW_BYTES: u64 = 1 << 50;

/// A flow of a file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FlowLine {
    /// Host that has the bytes.
    pub src: u32,
    /// Host that gets them.
    pub dst: u32,
    /// How many.
    pub bytes: u64,
    /// When it starts, in picoseconds.
    pub start_ps: u64,
}

/// A distribution of sizes: corners of its cumulative share, straight between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeCdf {
    /// Bytes, and the share of flows that have at most so many, in parts per million. The last
    /// share is a million.
    corners: Vec<(u64, u32)>,
}

/// A whole share.
const ALL: u32 = 1_000_000;

impl SizeCdf {
    /// The size below which `share` parts per million of all flows are; at least a byte.
    pub fn size(&self, share: u32) -> u64 {
        let i = self.corners.partition_point(|(_, s)| *s <= share).min(self.corners.len() - 1);
        let (to, upper) = self.corners[i];
        let (from, lower) = if i == 0 { (0, 0) } else { self.corners[i - 1] };
        if upper == lower || share >= upper {
            return to.max(1);
        }
        let part = u128::from(to - from) * u128::from(share.saturating_sub(lower));
        (from + (part / u128::from(upper - lower)) as u64).max(1)
    }

    /// Mean size, rounded down.
    pub fn mean(&self) -> u64 {
        let mut sum = 0u128;
        let (mut from, mut lower) = (0, 0);
        for &(to, upper) in &self.corners {
            sum += u128::from(upper - lower) * u128::from(from + to);
            (from, lower) = (to, upper);
        }
        ((sum / (2 * u128::from(ALL))) as u64).max(1)
    }
}

/// A cell of a CSV file, with its place.
struct Cell<'a> {
    text: &'a str,
    at: Origin,
}

/// What some editors put in front of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The lines of a CSV file with their cells; comments (`#`) and empty lines are left out.
fn rows(source: &Arc<Source>) -> impl Iterator<Item = Vec<Cell<'_>>> {
    let text = source.text.trim_start_matches(BYTE_ORDER_MARK);
    let mut offset = source.text.len() - text.len();
    text.split_inclusive('\n').filter_map(move |line| {
        let mut start = offset;
        offset += line.len();
        let line = line.trim_end_matches(['\n', '\r']);
        if line.trim().is_empty() || line.starts_with('#') {
            return None;
        }
        let cells = line.split(',').map(|raw| {
            let left = raw.len() - raw.trim_start().len();
            let text = raw.trim();
            let begin = start + left;
            start += raw.len() + 1;
            let end = begin + text.len();
            Cell { text, at: Origin { source: source.clone(), start: begin, end } }
        });
        Some(cells.collect())
    })
}

/// The columns of the first line that `names` asks for.
fn columns(header: &[Cell<'_>], names: &[&str]) -> Result<Vec<usize>, InputError> {
    let find = |name: &&str| {
        let mut places = (0..header.len()).filter(|i| header[*i].text == *name);
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(second)) => Err(InputError::new(format!("a second column `{name}`"))
                .help("name each column once")
                .at(&header[second].at)),
            (None, _) => Err(InputError::new(format!("no column `{name}`"))
                .help(format!("the first line names the columns: {}", names.join(",")))
                .at(&header[0].at)),
        }
    };
    names.iter().map(find).collect()
}

/// Refuses a line with more values than columns: most likely a number with commas in it.
fn no_longer(row: &[Cell<'_>], columns: usize) -> Result<(), InputError> {
    let Some(beyond) = row.get(columns) else { return Ok(()) };
    let text = format!("{} values for {columns} columns", row.len());
    Err(InputError::new(text).help("write numbers without commas: 1000000").at(&beyond.at))
}

fn number(row: &[Cell<'_>], column: usize, name: &str, most: u64) -> Result<u64, InputError> {
    let Some(cell) = row.get(column) else {
        return Err(InputError::new(format!("a line without `{name}`"))
            .help("each line has a value for each column, divided by commas")
            .at(&row[0].at));
    };
    let plain = !cell.text.is_empty() && cell.text.bytes().all(|b| b.is_ascii_digit());
    let value = cell.text.parse::<u64>().ok().filter(|n| plain && *n <= most);
    value.ok_or_else(|| {
        InputError::new(format!("`{name}` is \"{}\"", cell.text))
            .help(format!("a whole number, at most {most}"))
            .at(&cell.at)
    })
}

fn empty(source: &Arc<Source>) -> InputError {
    let at = Origin { source: source.clone(), start: 0, end: 0 };
    InputError::new("there is no line in it").help("name the columns first").at(&at)
}

/// Units of the column of starts, in picoseconds.
const STARTS: [(&str, u64); 4] =
    [("start_ns", 1_000), ("start_us", 1_000_000), ("start_ms", 1_000_000_000), ("start_ps", 1)];

/// Reads a list of flows between `hosts` hosts.
///
/// # Errors
/// What is wrong with the first bad cell, with its place.
pub fn read_flows(source: &Arc<Source>, hosts: u64) -> Result<Vec<FlowLine>, InputError> {
    let mut rows = rows(source);
    let header = rows.next().ok_or_else(|| empty(source))?;
    let given = |c: &Cell<'_>| STARTS.iter().find(|(name, _)| c.text == *name);
    let (start, ps) = *header.iter().find_map(given).unwrap_or(&STARTS[0]);
    if let Some(second) = header.iter().find(|c| given(c).is_some() && c.text != start) {
        let text = format!("starts in `{start}` and in `{}`", second.text);
        return Err(InputError::new(text).help("leave one of them out").at(&second.at));
    }
    let at = columns(&header, &["src", "dst", "bytes", start])?;
    let mut flows = Vec::new();
    for row in rows {
        no_longer(&row, header.len())?;
        let (last, longest) = (hosts - 1, u64::MAX / (4 * ps));
        let line = FlowLine {
            src: number(&row, at[0], "src", last)? as u32,
            dst: number(&row, at[1], "dst", last)? as u32,
            bytes: number(&row, at[2], "bytes", MAX_FLOW_BYTES)?,
            start_ps: number(&row, at[3], start, longest)? * ps,
        };
        if line.src == line.dst {
            let text = format!("a flow from host {} to itself", line.src);
            return Err(InputError::new(text).help("name two hosts").at(&row[at[1]].at));
        }
        if line.bytes == 0 {
            let text = "a flow of no bytes";
            return Err(InputError::new(text).help("at least 1").at(&row[at[2]].at));
        }
        if flows.len() == MAX_FLOWS {
            let text = format!("more than {MAX_FLOWS} flows");
            return Err(InputError::new(text).help("shorten the list").at(&row[0].at));
        }
        flows.push(line);
    }
    if flows.is_empty() {
        return Err(empty(source).help("a line for each flow"));
    }
    Ok(flows)
}

/// Reads a distribution of sizes.
///
/// # Errors
/// What is wrong with the first bad cell, with its place.
pub fn read_sizes(source: &Arc<Source>) -> Result<SizeCdf, InputError> {
    let mut rows = rows(source);
    let header = rows.next().ok_or_else(|| empty(source))?;
    let at = columns(&header, &["bytes", "percent"])?;
    let mut corners: Vec<(u64, u32)> = Vec::new();
    let mut last = None;
    for row in rows {
        no_longer(&row, header.len())?;
        last = Some(row[0].at.clone());
        let bytes = number(&row, at[0], "bytes", MAX_FLOW_BYTES)?;
        let cell = row.get(at[1]).unwrap_or(&row[0]);
        let share = percent(cell.text).ok_or_else(|| {
            InputError::new(format!("`percent` is \"{}\"", cell.text))
                .help("0 to 100, at most four digits behind the point")
                .at(&cell.at)
        })?;
        if corners.last().is_some_and(|(b, s)| bytes < *b || share < *s) {
            return Err(InputError::new("a distribution that falls")
                .help("`bytes` and `percent` of a line are at least those of the line before")
                .at(&row[0].at));
        }
        corners.push((bytes, share));
    }
    let help = "the last line has 100 percent, and more than 0 bytes";
    match (corners.last(), last) {
        (Some((1.., share)), _) if *share == ALL => {}
        (Some((_, share)), Some(at)) if *share == ALL => {
            return Err(InputError::new("a distribution of 0 bytes").help(help).at(&at));
        }
        (Some(_), Some(at)) => {
            return Err(InputError::new("a distribution that ends before 100 percent")
                .help(help)
                .at(&at));
        }
        _ => return Err(empty(source).help(help)),
    }
    Ok(SizeCdf { corners })
}

/// A number of percent as parts per million.
fn percent(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 4 {
        return None;
    }
    let part: u32 = format!("{part:0<4}").parse().ok()?;
    let ppm = whole.parse::<u32>().ok()?.checked_mul(10_000)?.checked_add(part)?;
    (ppm <= ALL).then_some(ppm)
}

/// Reads the files that programs of kind `flows` name, from `directory` on.
///
/// # Errors
/// When one is not there or is wrong.
pub(super) fn read_all(
    s: &mut Scenario,
    tree: &Node,
    directory: &FilePath,
) -> Result<(), InputError> {
    let hosts = s.topology.hosts.value();
    for (i, program) in s.program.iter_mut().enumerate() {
        let Some(flows) = &mut program.flows else { continue };
        let origin = |key: &str| {
            let path = Path::parse(&format!("program.{i}.flows.{key}")).ok()?;
            path.origin(tree).cloned()
        };
        read_one(flows, hosts, directory, &origin)?;
    }
    Ok(())
}

fn read_one(
    flows: &mut Flows,
    hosts: u64,
    directory: &FilePath,
    origin: &impl Fn(&str) -> Option<Origin>,
) -> Result<(), InputError> {
    let open = |name: &str, key| {
        read_list(&directory.join(name)).map_err(|e| e.at_opt(origin(key).as_ref()))
    };
    if let Some(file) = &flows.file {
        let source = match library::flow_list(file) {
            Some(text) if directory.as_os_str().is_empty() => Source::new(file.clone(), text),
            _ => open(file, "file")?,
        };
        flows.lines = read_flows(&source, hosts)?.into();
    }
    if let Some(name) = &flows.sizes {
        let source = match library::sizes(name) {
            Some(text) => Source::new(format!("sizes/{name}.csv"), text),
            None if name.ends_with(".csv") => open(name, "sizes")?,
            None => {
                let text = format!("there are no sizes \"{name}\"");
                return Err(InputError::new(text)
                    .help("`web-search`, `hadoop`, or the path of a file that ends in `.csv`")
                    .at_opt(origin("sizes").as_ref()));
            }
        };
        flows.cdf = Some(Arc::new(read_sizes(&source)?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::MAX_LIST_BYTES;

    fn source(text: &str) -> Arc<Source> {
        Source::new("list.csv", text)
    }

    fn wrong(text: &str, hosts: u64) -> (String, (usize, usize)) {
        let e = read_flows(&source(text), hosts).unwrap_err();
        assert!(e.remedy().is_some(), "{}", e.message());
        (e.message().to_owned(), e.origin().map_or((0, 0), Origin::line_column))
    }

    #[test]
    fn a_list_in_any_order_of_columns_and_with_comments() {
        let text = "# made by hand\nbytes, src,dst,start_us\n10,0,1,2\n\n20, 1,0 ,0\r\n";
        let flows = read_flows(&source(text), 2).unwrap();
        let line = |src, dst, bytes, start_ps| FlowLine { src, dst, bytes, start_ps };
        assert_eq!(flows, [line(0, 1, 10, 2_000_000), line(1, 0, 20, 0)]);
    }

    #[test]
    fn a_bad_cell_has_its_line_and_column() {
        let head = "src,dst,bytes,start_ns\n";
        let all = |line: &str| wrong(&format!("{head}0,1,5,0\n{line}\n"), 2);
        assert_eq!(all("0, 2,5,0"), ("`dst` is \"2\"".into(), (3, 4)));
        assert_eq!(all("0,1,-5,0"), ("`bytes` is \"-5\"".into(), (3, 5)));
        assert_eq!(all("0,1,0,0"), ("a flow of no bytes".into(), (3, 5)));
        assert_eq!(all("1,1,5,0"), ("a flow from host 1 to itself".into(), (3, 3)));
        assert_eq!(all("0,1,5"), ("a line without `start_ns`".into(), (3, 1)));
        assert_eq!(wrong("src,dst,size,start_ns\n", 2).0, "no column `bytes`");
        assert_eq!(wrong("src,dst,bytes,start\n", 2).0, "no column `start_ns`");
        assert_eq!(wrong("", 2).0, "there is no line in it");
        assert_eq!(wrong(head, 2).0, "there is no line in it");
        assert_eq!(wrong("# nothing\n\r\n", 2).0, "there is no line in it");
        assert_eq!(wrong("0,1,5,0\n", 2), ("no column `src`".into(), (1, 1)));
        assert_eq!(wrong("src;dst;bytes;start_ns\n", 2), ("no column `src`".into(), (1, 1)));
    }

    #[test]
    fn both_sides_of_the_numbers_of_a_line() {
        let one =
            |line: &str| read_flows(&source(&format!("src,dst,bytes,start_ns\n{line}\n")), 8192);
        let most = 1u64 << 50;
        assert_eq!(one(&format!("0,8191,{most},0")).unwrap()[0].bytes, most);
        let longest = u64::MAX / 4000;
        assert_eq!(one(&format!("0,1,1,{longest}")).unwrap()[0].start_ps, longest * 1000);
        for bad in [
            "8192,0,1,0".to_owned(),
            "0,8192,1,0".into(),
            "-1,0,1,0".into(),
            format!("0,1,{},0", most + 1),
            "0,1,99999999999999999999999,0".into(),
            "0,1,+5,0".into(),
            "0,1,1e6,0".into(),
            "0,1,0x10,0".into(),
            "0,1,,0".into(),
            "0,1,5,1.5".into(),
            format!("0,1,1,{}", longest + 1),
        ] {
            let e = one(&bad).unwrap_err();
            let place = e.origin().map(Origin::line_column).unwrap();
            assert!(place.0 == 2 && e.remedy().is_some(), "{bad}: {place:?}");
        }
    }

    /// Two flows between the same hosts at the same time are two flows.
    #[test]
    fn equal_lines_are_flows_of_their_own() {
        let flows = read_flows(&source("src,dst,bytes,start_ns\n0,1,5,0\n0,1,5,0\n"), 2).unwrap();
        assert_eq!((flows.len(), flows[0]), (2, flows[1]));
    }

    #[test]
    fn what_editors_and_spreadsheets_write_is_read_or_refused_by_name() {
        let mark = "\u{feff}src,dst,bytes,start_ns\r\n0,1,5,7\r\n";
        assert_eq!(read_flows(&source(mark), 2).unwrap()[0].start_ps, 7000);
        let bad = "\u{feff}src,dst,bytes,start_ns\r\n0,1,x,7\r\n";
        assert_eq!(wrong(bad, 2), ("`bytes` is \"x\"".into(), (2, 5)));
        let head = "src,dst,bytes,start_ns";
        let commas = wrong(&format!("{head}\n0,1,1,000,0\n"), 2);
        assert_eq!(commas, ("5 values for 4 columns".into(), (2, 11)));
        let twice = wrong("src,dst,bytes,bytes,start_ns\n0,1,5,5,0\n", 2);
        assert_eq!(twice, ("a second column `bytes`".into(), (1, 15)));
        let both = wrong(&format!("{head},start_us\n0,1,5,0,0\n"), 2);
        assert_eq!(both, ("starts in `start_ns` and in `start_us`".into(), (1, 24)));
        let others = format!("{head},note\n0,1,5,0,first\n");
        assert_eq!(read_flows(&source(&others), 2).unwrap().len(), 1, "a column of one's own");
    }

    /// What is wrong with the file as a whole is said in words of its own format.
    #[test]
    fn a_file_that_is_no_list_is_no_toml_either() {
        let dir = tempfile();
        let at = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let said = |path: &FilePath| {
            let e = read_list(path).unwrap_err();
            format!("{} / {}", e.message(), e.remedy().unwrap_or(""))
        };
        let bad = said(&at("bad.csv", b"src,dst\n0,\xff\n"));
        assert!(bad.contains("bad.csv:2:3: not UTF-8") && bad.contains("CSV files are UTF-8"));
        assert!(said(&dir).contains("expected a CSV file"));
        assert!(said(&dir.join("none.csv")).contains("seen from the folder of the scenario"));
        let large = at("large.csv", &[]);
        std::fs::File::options().write(true).open(&large).unwrap().set_len(MAX_LIST_BYTES).unwrap();
        assert!(read_list(&large).is_ok(), "zeros are UTF-8");
        let more = std::fs::File::options().write(true).open(&large).unwrap();
        more.set_len(MAX_LIST_BYTES + 1).unwrap();
        assert!(said(&large).contains("the limit is 67108864 / a line for each flow"));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    fn tempfile() -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("doorbell-lists-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn sizes_are_straight_between_corners() {
        let cdf = read_sizes(&source("bytes,percent\n0,0\n100,50\n1000,97.5\n2000,100\n")).unwrap();
        let at = |percent: u32| cdf.size(percent * 10_000);
        assert_eq!((at(0), at(25), at(50), at(100)), (1, 50, 100, 2000));
        assert_eq!(cdf.size(ALL - 1), 1999);
        // 25 + 0.475 x 550 + 0.025 x 1500
        assert_eq!(cdf.mean(), 323);
        for bad in ["0,0\n10,50", "0,0\n10,101", "9,10\n8,100", "9,10\n9,9\n10,100", "5,1.00001"] {
            assert!(read_sizes(&source(&format!("bytes,percent\n{bad}\n"))).is_err(), "{bad}");
        }
        let wrong = |text: &str| {
            let e = read_sizes(&source(&format!("bytes,percent\n{text}"))).unwrap_err();
            e.to_string()
        };
        let early = wrong("5,10\n9,99\n");
        assert!(early.contains("3:1") && early.contains("ends before 100 percent"), "{early}");
        let none = wrong("0,100\n");
        assert!(none.contains("2:1") && none.contains("of 0 bytes"), "{none}");
    }

    /// The means that the sources' own generators come to.
    #[test]
    fn the_built_in_sizes_have_their_published_means() {
        let mean = |name| read_sizes(&source(library::sizes(name).unwrap())).unwrap().mean();
        assert_eq!(mean("web-search"), 1_711_250);
        assert_eq!(mean("hadoop"), 120_420);
    }
}
