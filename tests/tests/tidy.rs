//! Rules about the text of the repository that neither rustc, rustfmt nor clippy holds.
//!
//! What is looked at: the files that git tracks, or, in a copy without git (a source archive),
//! every file that is not build output. Each test lists all violations at once, as
//! `path:line: what`, so that one run is enough to repair them.
//!
//! The scan of Rust is a heuristic over text with comments and literals blanked, not a parser: it
//! finds `fn`, counts braces, and is exact for code that rustfmt has formatted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MAX_LINE_CHARS: usize = 100;
const MAX_FN_LINES: usize = 70;
const MAX_FILE_LINES: usize = 1_000;
const MAX_CONTRIBUTING_LINES: usize = 150;
const MAX_BLOB_BYTES: usize = 256 * 1024;

/// What a visitor of the repository expects at the root.
const ROOT_FILES: [&str; 14] = [
    ".ci/long",
    ".ci/run",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "TESTING.md",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
];

/// The README promises exactly these to a machine that has only Rust.
const README_COMMANDS: [&str; 2] =
    ["cargo run --release -- run scenarios/library/hello.toml", "cargo test --workspace"];

/// Each has a line of its own in the header comment of every scenario of the library.
const SCENARIO_HEADER: [&str; 3] = ["question", "expected", "closed form"];

/// Folders that exist on one machine only. Split, so that this file does not match itself.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("../sha", "red/"),
];

// ---- the files -------------------------------------------------------------------------------

/// One file: its path from the root with `/`, and its text if it is UTF-8.
struct File {
    path: String,
    bytes: usize,
    text: Option<String>,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Rust, shell and TOML that people write; data and prose have other measures.
    fn is_source(&self) -> bool {
        self.is_rust() || self.path.starts_with(".ci/") || self.path.ends_with(".toml")
    }

    /// Tests are read case by case, so the limit on functions is for the code they test.
    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let folder = |part| matches!(part, "tests" | "benches" | "examples");
        name == "tests.rs" || name.ends_with("_tests.rs") || self.path.split('/').any(folder)
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.iter().flat_map(|text| (1..).zip(text.lines()))
    }
}

fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().expect("the package is a folder of the workspace").to_path_buf()
}

/// All files of the repository, by path.
fn files() -> Vec<File> {
    let root = root();
    let mut paths = tracked(&root).unwrap_or_else(|| walk(&root));
    paths.sort();
    paths.into_iter().filter_map(|path| read(&root, path)).collect()
}

/// What git tracks, or `None` where git is missing or `root` is not the top of a checkout.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(root).args(arguments);
        // A hook sets these, and they would win over the folder.
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            command.env_remove(variable);
        }
        let output = command.output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).ok())?
    };
    // The prefix is empty at the top only: an archive unpacked inside another checkout is not it.
    if !git(&["rev-parse", "--show-prefix"])?.trim().is_empty() {
        return None;
    }
    let list = git(&["ls-files", "-z"])?;
    let paths: Vec<String> =
        list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    (!paths.is_empty()).then_some(paths)
}

/// Every file below `root`, without git's own and without folders that cargo marked as output.
fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a folder of the repository can be read");
        for entry in entries {
            let entry = entry.expect("an entry of a folder can be read");
            let path = entry.path();
            let kind = entry.file_type().expect("the kind of an entry is known");
            if kind.is_dir() {
                let output = path.join("CACHEDIR.TAG").exists();
                if !output && entry.file_name() != ".git" {
                    folders.push(path);
                }
            } else if kind.is_file() {
                let relative = path.strip_prefix(root).expect("found below the root");
                found.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found
}

/// `None` for what is no plain file: a link, or a tracked file that was deleted and not yet staged.
fn read(root: &Path, path: String) -> Option<File> {
    let full = root.join(&path);
    if !fs::symlink_metadata(&full).ok()?.is_file() {
        return None;
    }
    let content = fs::read(&full).ok()?;
    let bytes = content.len();
    Some(File { path, bytes, text: String::from_utf8(content).ok() })
}

#[track_caller]
fn assert_none(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n{}", violations.join("\n"));
}

// ---- the scan of Rust ------------------------------------------------------------------------

/// Blanks comments, strings and character literals; keeps every line break.
fn blank(source: &str) -> String {
    let source: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < source.len() {
        let end = literal_end(&source, at);
        if end > at {
            out.extend(source[at..end].iter().map(|&c| if c == '\n' { c } else { ' ' }));
            at = end;
        } else {
            out.push(source[at]);
            at += 1;
        }
    }
    out
}

/// Where the comment or literal that starts at `at` ends; `at` itself if none starts there.
fn literal_end(source: &[char], at: usize) -> usize {
    let next = source.get(at + 1).copied();
    match source[at] {
        '/' if next == Some('/') => find(source, at, |rest| rest[0] == '\n'),
        '/' if next == Some('*') => block_comment_end(source, at),
        '"' => string_end(source, at),
        'r' if at == 0 || !in_word(source[at - 1]) || is_prefix(source, at) => {
            raw_string_end(source, at)
        }
        '\'' if next == Some('\\') => (find(source, at + 3, |rest| rest[0] == '\'')) + 1,
        // 'a' is a character, 'a alone is a lifetime.
        '\'' if source.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
    .min(source.len())
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The `b` or `c` before an `r`, itself at the start of a word.
fn is_prefix(source: &[char], at: usize) -> bool {
    matches!(source[at - 1], 'b' | 'c') && (at < 2 || !in_word(source[at - 2]))
}

/// First position from `from` on at which `stop` holds of the rest, or the end.
fn find(source: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..source.len()).find(|&at| stop(&source[at..])).unwrap_or(source.len())
}

fn block_comment_end(source: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut here = at;
    while here < source.len() {
        if source[here..].starts_with(&['/', '*']) {
            depth += 1;
            here += 2;
        } else if source[here..].starts_with(&['*', '/']) {
            depth -= 1;
            here += 2;
            if depth == 0 {
                return here;
            }
        } else {
            here += 1;
        }
    }
    here
}

fn string_end(source: &[char], at: usize) -> usize {
    let mut here = at + 1;
    while here < source.len() && source[here] != '"' {
        here += if source[here] == '\\' { 2 } else { 1 };
    }
    here + 1
}

fn raw_string_end(source: &[char], at: usize) -> usize {
    let quote = find(source, at + 1, |rest| rest[0] != '#');
    if source.get(quote) != Some(&'"') {
        return at; // a word that starts with r, or a raw identifier
    }
    let mut close = vec!['"'];
    close.resize(quote - at, '#');
    find(source, quote + 1, |rest| rest.starts_with(&close)) + close.len()
}

/// A function with a body: its name, its first and its last line.
#[derive(Debug, PartialEq)]
struct Function {
    name: String,
    first: usize,
    last: usize,
}

/// The functions of blanked code, without those inside `#[cfg(test)]` items.
fn functions(code: &str) -> Vec<Function> {
    let code: Vec<char> = without_test_items(code).chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    for at in 0..code.len() {
        if code[at] == '\n' {
            line += 1;
        }
        let starts_word = at == 0 || !in_word(code[at - 1]);
        if !starts_word || !code[at..].starts_with(&['f', 'n', ' ']) {
            continue;
        }
        let name: String = code[at + 3..].iter().take_while(|&&c| in_word(c)).collect();
        // Without a name it is a type such as `fn (u8)`; without a body, a trait's signature.
        if let (false, Some(end)) = (name.is_empty(), body_end(&code, at)) {
            let lines = code[at..end].iter().filter(|&&c| c == '\n').count();
            found.push(Function { name, first: line, last: line + lines });
        }
    }
    found
}

/// One past the closing brace of the item that starts at `at`; `None` if `;` ends it first.
fn body_end(code: &[char], at: usize) -> Option<usize> {
    let mut brackets = 0_i32;
    let mut braces = 0_i32;
    for (here, &c) in code.iter().enumerate().skip(at) {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return Some(here + 1);
                }
            }
            ';' if braces == 0 && brackets == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Blanks each item behind `#[cfg(test)]`, keeping the line breaks.
fn without_test_items(code: &str) -> String {
    let marker = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(marker) {
        let (before, item) = rest.split_at(start);
        out.push_str(before);
        let chars: Vec<char> = item.chars().collect();
        let length = body_end(&chars, marker.len()).unwrap_or(marker.len());
        let cut: String = chars[..length].iter().collect();
        out.extend(cut.chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &item[cut.len()..];
    }
    out.push_str(rest);
    out
}

/// Whether `word` stands in `text` as a word of its own.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(in_word) && !after.is_some_and(in_word)
    })
}

// ---- other text ------------------------------------------------------------------------------

/// A line that cannot be broken: it holds an address, or is a row of a table in a doc comment.
fn is_unbreakable(line: &str) -> bool {
    let doc = line.trim_start();
    let row = doc.strip_prefix("//!").or_else(|| doc.strip_prefix("///"));
    line.contains("://") || row.is_some_and(|row| row.trim_start().starts_with('|'))
}

/// Whether the line holds a note about work left over that names no issue, as in `(#12)`.
fn has_anonymous_note(line: &str) -> bool {
    [concat!("TO", "DO"), concat!("FIX", "ME")].iter().any(|mark| {
        line.match_indices(mark).any(|(at, _)| {
            let issue = line[at + mark.len()..].strip_prefix("(#");
            !issue.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    })
}

/// The first machine path in a line: one of [`MACHINE_PATHS`] that is not the tail of another
/// path or of an address.
fn machine_path(line: &str) -> Option<&'static str> {
    MACHINE_PATHS.into_iter().find(|path| {
        line.match_indices(path).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| in_word(c) || matches!(c, '.' | '-' | '/' | '}' | '>'))
        })
    })
}

/// The parts of [`SCENARIO_HEADER`] that no line of the leading comment starts with.
fn missing_header_parts(text: &str) -> Vec<&'static str> {
    let header: Vec<String> = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim().to_lowercase().replace('-', " "))
        .collect();
    let stated = |part: &str| header.iter().any(|line| line.starts_with(part));
    SCENARIO_HEADER.into_iter().filter(|part| !stated(part)).collect()
}

/// The lines inside the fenced code blocks of a Markdown text.
fn fenced_lines(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside && !line.is_empty() {
            found.push(line);
        }
    }
    found
}

/// The targets of the links of a Markdown text that point into the repository, fragments cut off.
fn local_links(text: &str) -> Vec<&str> {
    text.match_indices("](")
        .filter_map(|(at, open)| text[at + open.len()..].split_once(')'))
        .map(|(link, _)| link)
        .filter(|link| !link.contains("://") && !link.starts_with(['#', '<']))
        .map(|link| link.split('#').next().unwrap_or(link))
        .collect()
}

// ---- the rules -------------------------------------------------------------------------------

#[test]
fn the_list_of_files_is_not_empty_by_accident() {
    let files = files();
    let rust = files.iter().filter(|file| file.is_rust()).count();
    assert!(rust >= 20, "only {rust} Rust files found below {}", root().display());
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for path in ROOT_FILES {
        assert!(paths.contains(&path), "{path} is missing, or not tracked");
    }
}

#[test]
fn git_and_the_walk_agree_on_what_the_repository_holds() {
    let root = root();
    let walked = walk(&root);
    for path in tracked(&root).unwrap_or_default() {
        let exists = fs::symlink_metadata(root.join(&path)).is_ok_and(|data| data.is_file());
        assert!(!exists || walked.contains(&path), "the walk misses {path}");
    }
}

#[test]
fn lines_are_at_most_100_characters() {
    let mut long = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() || file.path.starts_with(".ci/")) {
        for (number, line) in file.lines() {
            let chars = line.chars().count();
            if chars > MAX_LINE_CHARS && !is_unbreakable(line) {
                long.push(format!("{}:{number}: {chars} characters", file.path));
            }
        }
    }
    assert_none("lines over 100 characters", &long);
}

#[test]
fn functions_are_at_most_70_lines() {
    let mut long = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() && !file.is_test()) {
        for function in functions(&blank(file.text.as_deref().unwrap_or_default())) {
            let lines = function.last - function.first + 1;
            if lines > MAX_FN_LINES {
                let Function { name, first, .. } = function;
                long.push(format!("{}:{first}: fn {name} has {lines} lines", file.path));
            }
        }
    }
    assert_none("functions over 70 lines", &long);
}

#[test]
fn source_files_are_at_most_1000_lines() {
    let mut long = Vec::new();
    for file in files().iter().filter(|file| file.is_source()) {
        let lines = file.lines().count();
        if lines > MAX_FILE_LINES {
            long.push(format!("{}: {lines} lines", file.path));
        }
    }
    assert_none("files over 1,000 lines", &long);
}

#[test]
fn notes_about_work_left_over_name_an_issue() {
    let mut anonymous = Vec::new();
    for file in files().iter().filter(|file| file.is_source()) {
        for (number, line) in file.lines().filter(|(_, line)| has_anonymous_note(line)) {
            anonymous.push(format!("{}:{number}: {}", file.path, line.trim()));
        }
    }
    assert_none("notes without an issue number, written (#12)", &anonymous);
}

#[test]
fn no_blob_is_over_256_kib() {
    let large: Vec<String> = files()
        .iter()
        .filter(|file| file.bytes > MAX_BLOB_BYTES)
        .map(|file| format!("{}: {} bytes", file.path, file.bytes))
        .collect();
    assert_none("files over 256 KiB", &large);
}

#[test]
fn unsafe_code_is_in_hw_only() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() && !file.path.starts_with("hw/")) {
        let code = blank(file.text.as_deref().unwrap_or_default());
        for (number, _) in (1..).zip(code.lines()).filter(|(_, line)| has_word(line, "unsafe")) {
            found.push(format!("{}:{number}", file.path));
        }
    }
    assert_none("unsafe outside hw", &found);
}

#[test]
fn crates_keep_their_promises_in_their_first_lines() {
    let promises = [
        ("core/src/lib.rs", "#![no_std]"),
        ("core/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("sim/src/lib.rs", "#![forbid(unsafe_code)]"),
    ];
    for (path, promise) in promises {
        let text = fs::read_to_string(root().join(path)).expect("the crate has a lib.rs");
        assert!(text.lines().any(|line| line == promise), "{path}: {promise} is gone");
    }
    for member in ["core", "sim", "hw", "scenarios", "tests"] {
        let text = fs::read_to_string(root().join(member).join("Cargo.toml"))
            .expect("every member has a manifest");
        assert!(text.contains("[lints]\nworkspace = true"), "{member} keeps the workspace's lints");
    }
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    let mut found = Vec::new();
    for file in &files() {
        for (number, line) in file.lines() {
            if let Some(path) = machine_path(line) {
                found.push(format!("{}:{number}: {path}", file.path));
            }
        }
    }
    assert_none("paths of one machine", &found);
}

#[test]
fn every_scenario_states_question_expectation_and_closed_form() {
    let mut silent = Vec::new();
    let library = |path: &str| path.starts_with("scenarios/library/") && path.ends_with(".toml");
    for file in files().iter().filter(|file| library(&file.path)) {
        let missing = missing_header_parts(file.text.as_deref().unwrap_or_default());
        if !missing.is_empty() {
            silent.push(format!("{}:1: header lacks {}", file.path, missing.join(", ")));
        }
    }
    assert_none("scenarios whose header comment is incomplete", &silent);
}

#[test]
fn the_readme_has_exactly_the_two_commands_and_ci_runs_them() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let commands: Vec<&str> = fenced_lines(&readme);
    assert_eq!(commands, README_COMMANDS, "the fenced lines of README.md");
    let ci = fs::read_to_string(root().join(".ci/run")).expect("there is a .ci/run");
    for command in README_COMMANDS {
        assert!(ci.lines().any(|line| line.trim() == command), ".ci/run lacks `{command}`");
    }
}

#[test]
fn contributing_fits_in_150_lines() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("there is one");
    assert!(text.lines().count() <= MAX_CONTRIBUTING_LINES);
}

#[test]
fn local_links_lead_somewhere() {
    let root = root();
    let mut broken = Vec::new();
    for file in files().iter().filter(|file| file.path.ends_with(".md")) {
        let folder = root.join(&file.path).parent().expect("a file has a folder").to_path_buf();
        for link in local_links(file.text.as_deref().unwrap_or_default()) {
            if !folder.join(link).exists() {
                broken.push(format!("{}: {link}", file.path));
            }
        }
    }
    assert_none("links to files that do not exist", &broken);
}

// ---- the checks can fail ---------------------------------------------------------------------

/// A function of `lines` lines, after a line of its own.
fn sample_function(lines: usize) -> String {
    format!(
        "const X: [u8; 2] = [0; 2];\nfn f(a: [u8; 2]) {{\n{}}}\n",
        "    g();\n".repeat(lines - 2)
    )
}

#[test]
fn a_function_is_measured_from_its_fn_to_its_brace() {
    for lines in [2, MAX_FN_LINES, MAX_FN_LINES + 1] {
        let expected = Function { name: "f".to_owned(), first: 2, last: 1 + lines };
        assert_eq!(functions(&blank(&sample_function(lines))), [expected]);
    }
}

#[test]
fn signatures_types_and_test_modules_are_no_functions_of_their_own() {
    let code = "trait T { fn a(&self) -> [u8; 2]; }\ntype P = fn (u8);\n\
                #[cfg(test)]\nmod tests {\n    fn b() {}\n}\n#[cfg(test)]\nmod more;\nfn c() {}\n";
    let expected = Function { name: "c".to_owned(), first: 9, last: 9 };
    assert_eq!(functions(&blank(code)), [expected]);
}

#[test]
fn comments_and_literals_are_blanked_and_lines_kept() {
    let hidden = [
        "// unsafe {",
        "/* unsafe { /* nested */ unsafe */",
        r#""unsafe \" {""#,
        "r\"unsafe {\"",
        "br#\"unsafe \" {\"#",
        "'{'",
        r"'\''",
        r"'\u{7b}'",
        "/* two\nlines { */",
    ];
    for literal in hidden {
        let code = blank(&format!("a {literal}\nb"));
        assert!(!has_word(&code, "unsafe") && !code.contains('{'), "{literal:?} -> {code:?}");
        assert!(code.starts_with('a') && code.ends_with("\nb"), "{literal:?} -> {code:?}");
        assert_eq!(code.lines().count(), literal.lines().count() + 1);
    }
    for kept in ["fn f<'a>(x: &'a str) { }", "bar = r#fn; 1 / 2", "number", "x.r"] {
        assert_eq!(blank(kept), kept);
    }
    // An open literal ends with the file.
    for open in ["\"abc\\", "r#\"abc", "/* abc", "'\\"] {
        assert_eq!(blank(open).trim(), "", "{open:?}");
    }
}

#[test]
fn words_are_whole_words() {
    assert!(has_word("unsafe { }", "unsafe"));
    assert!(has_word("a unsafe", "unsafe"));
    assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
    assert!(!has_word("not_unsafe", "unsafe"));
}

#[test]
fn notes_need_a_number() {
    let mark = concat!("TO", "DO");
    assert!(has_anonymous_note(&format!("// {mark}: later")));
    assert!(has_anonymous_note(&format!("// {mark}(#): later")));
    assert!(has_anonymous_note(&format!("// {mark}(#12): {mark}")));
    assert!(!has_anonymous_note(&format!("// {mark}(#12): later")));
    assert!(!has_anonymous_note("// nothing"));
}

#[test]
fn machine_paths_are_told_from_other_paths() {
    for path in MACHINE_PATHS {
        assert_eq!(machine_path(&format!("see \"{path}x\"")), Some(path));
    }
    let work = MACHINE_PATHS[0];
    assert_eq!(machine_path(work), Some(work));
    for other in [format!("https://host{work}x"), format!("./a{work}x"), "/working/".to_owned()] {
        assert_eq!(machine_path(&other), None, "{other}");
    }
}

#[test]
fn a_scenario_header_ends_at_the_first_line_that_is_no_comment() {
    let full = "# Question: why?\n# more\n# Expected: x\n# Closed-form bound: y\n\n[a]\n";
    assert_eq!(missing_header_parts(full), [""; 0]);
    let late = "# Question: why?\n# Expected: x\n[a]\n# Closed form: y\n";
    assert_eq!(missing_header_parts(late), ["closed form"]);
    assert_eq!(missing_header_parts(""), SCENARIO_HEADER);
}

#[test]
fn unbreakable_lines_are_addresses_and_table_rows() {
    assert!(is_unbreakable("// https://example.org/x"));
    assert!(is_unbreakable("    /// | a | b |"));
    assert!(is_unbreakable("//! | a | b |"));
    assert!(!is_unbreakable("//! prose"));
    assert!(!is_unbreakable("// | no doc comment |"));
}

#[test]
fn links_and_fences_are_found() {
    let text = "[a](b.md#c) [d](https://e.org) ![f](g.svg) [h](#i)\n```sh\nx\n\n```\ny\n";
    assert_eq!(local_links(text), ["b.md", "g.svg"]);
    assert_eq!(fenced_lines(text), ["x"]);
}
