//! Which paths `set`, `[sweep]` and `--set` may name.

use crate::input::{InputError, Path, Segment, suggestion};
use crate::profile::{GROUPS, PARAMETERS};

/// Keys of a scenario that may be changed by path.
pub(crate) const CHANGEABLE: [&str; 14] = [
    "title",
    "claim",
    "profile",
    "link",
    "seed",
    "settings",
    "run",
    "topology",
    "switch",
    "qp",
    "congestion",
    "srq",
    "program",
    "fault",
];

/// Keys that may not: they are what does the changing, what is sought, or what is compared with.
pub(crate) const FIXED: [&str; 4] = ["variant", "sweep", "tune", "expect"];

/// `record` changes what is recorded, never the run; it stands alone so that the list above
/// names what makes a difference.
pub(crate) const RECORD: &str = "record";

/// The path in the tree: `pcie.width` and `settings.pcie.width` are the same setting.
pub(crate) fn resolve(path: &Path) -> Result<Path, InputError> {
    let Some(first) = path.first() else {
        return Err(InputError::new(format!("`{path}` is not a path of a scenario"))
            .help("a path starts with a key such as `qp` or `program`"));
    };
    if FIXED.contains(&first) {
        return Err(InputError::new(format!("`{first}` cannot be changed by a path"))
            .help("edit the file, or change the settings that it is about"));
    }
    if first == "settings" {
        return Ok(setting(&path.segments()[1..]));
    }
    if CHANGEABLE.contains(&first) || first == RECORD {
        return Ok(path.clone());
    }
    if GROUPS.iter().any(|(group, _)| *group == first) {
        return Ok(setting(path.segments()));
    }
    let text = path.to_string();
    let known = CHANGEABLE.iter().copied().chain([RECORD]);
    // A slip in the group of a parameter: the whole path is nearer than the group alone.
    let parameter = crate::input::nearest(&text, PARAMETERS.iter().map(|p| p.path));
    let help = match parameter {
        Some(parameter) if path.segments().len() == 2 => format!("did you mean `{parameter}`?"),
        _ => suggestion(first, known.chain(GROUPS.iter().map(|(g, _)| *g)), "keys"),
    };
    Err(InputError::new(format!("unknown key `{first}` in `{path}`")).help(help))
}

/// Settings are one flat table whose keys are the paths of parameters.
fn setting(segments: &[Segment]) -> Path {
    let name = segments.iter().map(Segment::to_string).collect::<Vec<_>>().join(".");
    Path::from_segments(vec![Segment::Key("settings".to_owned()), Segment::Key(name)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<Vec<String>, String> {
        let path = Path::parse(text).map_err(|e| e.to_string())?;
        let path = resolve(&path).map_err(|e| e.remedy().unwrap_or("").to_owned())?;
        Ok(path.segments().iter().map(Segment::to_string).collect())
    }

    #[test]
    fn settings_have_two_spellings() {
        assert_eq!(resolved("pcie.width").unwrap(), ["settings", "pcie.width"]);
        assert_eq!(resolved("settings.pcie.width").unwrap(), ["settings", "pcie.width"]);
        assert_eq!(resolved("program.0.size").unwrap(), ["program", "0", "size"]);
        assert_eq!(resolved("seed").unwrap(), ["seed"]);
    }

    #[test]
    fn other_paths_are_refused_with_the_nearest() {
        assert_eq!(resolved("pci.width").unwrap_err(), "did you mean `pcie.width`?");
        assert_eq!(resolved("programm.0.size").unwrap_err(), "did you mean `program`?");
        assert!(resolved("expect.0.min").is_err());
        assert!(resolved("0.size").is_err());
    }
}
