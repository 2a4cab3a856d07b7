//! Finding and reading profile files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::{contradictions, unused_timer};
use super::table::{Confidence, Entries, Entry, Provenance};
use super::{GROUPS, PARAMETERS, Profile};
use crate::input::{InputError, Key, Node, Origin, Source, Table, Value, read_file, suggestion};
use crate::library;

/// Longer chains of `base` are refused; they would be a circle or a riddle.
const MAX_BASES: usize = 8;

/// A profile whose values are not typed yet, so that settings can still replace them.
#[derive(Clone, Debug)]
pub struct RawProfile {
    /// The name that scenarios use.
    pub name: String,
    /// What hardware it stands for.
    pub title: String,
    entries: Entries,
    origin: Origin,
}

/// Where profiles are looked for, and those already read.
#[derive(Debug, Default)]
pub struct Profiles {
    directories: Vec<PathBuf>,
    read: BTreeMap<String, Arc<RawProfile>>,
}

impl Profiles {
    /// Profiles for a scenario in `directory`: beside it, in its folder `profiles` and in the
    /// folder `profiles` next to its folder; then the built-in ones.
    pub fn beside(directory: &Path) -> Self {
        let directories = vec![
            directory.to_owned(),
            directory.join("profiles"),
            directory.join("..").join("profiles"),
        ];
        Self { directories, read: BTreeMap::new() }
    }

    /// The profile `name`, a name or the path of a file. `at` is where it is asked for.
    ///
    /// # Errors
    /// When there is no such profile, or its file is wrong.
    pub fn load(&mut self, name: &str, at: Option<&Origin>) -> Result<Arc<RawProfile>, InputError> {
        self.load_below(name, at, 0)
    }

    fn load_below(
        &mut self,
        name: &str,
        at: Option<&Origin>,
        depth: usize,
    ) -> Result<Arc<RawProfile>, InputError> {
        if let Some(profile) = self.read.get(name) {
            return Ok(profile.clone());
        }
        if depth > MAX_BASES {
            let text = format!("more than {MAX_BASES} profiles are based on each other");
            return Err(InputError::new(text).at_opt(at));
        }
        let source = self.find(name, at)?;
        let profile = Arc::new(self.parse(name, &source, depth)?);
        self.read.insert(name.to_owned(), profile.clone());
        Ok(profile)
    }

    fn find(&self, name: &str, at: Option<&Origin>) -> Result<Arc<Source>, InputError> {
        let is_path = name.ends_with(".toml") || name.contains(['/', '\\']);
        let file = if is_path { name.to_owned() } else { format!("{name}.toml") };
        // A bare name beside the scenario would be another scenario.
        for directory in self.directories.iter().skip(usize::from(!is_path)) {
            let path = directory.join(&file);
            if path.is_file() {
                return read_file(&path).map_err(|e| e.at_opt(at));
            }
        }
        if is_path && Path::new(name).is_file() {
            return read_file(Path::new(name)).map_err(|e| e.at_opt(at));
        }
        if let Some(text) = library::profile(name) {
            return Ok(Source::new(format!("profiles/{name}.toml"), text));
        }
        if is_path {
            let error = InputError::new(format!("there is no profile \"{name}\": no such file"));
            let help = "the path is looked for beside the scenario file, and from where the \
                        command runs; a name without `/` and `.toml` is that of a shipped profile";
            return Err(error.help(help).at_opt(at));
        }
        let known = self.names();
        let error = InputError::new(format!("there is no profile \"{name}\""));
        Err(error.help(suggestion(name, known.iter().map(String::as_str), "profiles")).at_opt(at))
    }

    /// The names of all profiles that can be found.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = library::PROFILES.iter().map(|(n, _)| (*n).into()).collect();
        for directory in self.directories.iter().filter(|d| d.ends_with("profiles")) {
            let Ok(files) = std::fs::read_dir(directory) else { continue };
            for path in files.flatten().map(|f| f.path()) {
                if path.extension().is_some_and(|e| e == "toml") {
                    names.extend(path.file_stem().map(|s| s.to_string_lossy().into_owned()));
                }
            }
        }
        names.sort();
        names.dedup();
        names
    }

    fn parse(
        &mut self,
        name: &str,
        source: &Arc<Source>,
        depth: usize,
    ) -> Result<RawProfile, InputError> {
        let root = Node::parse(source)?;
        let table = root.table()?;
        let mut raw = RawProfile {
            name: short_name(name),
            title: String::new(),
            entries: Entries::new(),
            origin: Origin { source: source.clone(), start: 0, end: 0 },
        };
        if let Some(base) = table.get("base") {
            let base_name: String = base.read()?;
            raw.entries =
                self.load_below(&base_name, Some(&base.origin), depth + 1)?.entries.clone();
        }
        let known = || ["title", "base"].into_iter().chain(GROUPS.iter().map(|(g, _)| *g));
        for (key, node) in &table.entries {
            match key.name.as_str() {
                "title" => raw.title = node.read()?,
                "base" => {}
                group if GROUPS.iter().any(|(g, _)| *g == group) => {
                    for (name, value) in &node.table()?.entries {
                        let path = parameter_path(group, name)?;
                        raw.entries.insert(path, entry(value, name, &raw.name)?);
                    }
                }
                other => {
                    let known: Vec<&str> = known().collect();
                    return Err(InputError::new(format!("unknown key `{other}`"))
                        .help(suggestion(other, known, "keys"))
                        .at(&key.origin));
                }
            }
        }
        if raw.title.is_empty() {
            return Err(InputError::new(format!("profile \"{}\" has no title", raw.name))
                .help("write `title = \"what hardware it stands for\"` on the first line")
                .at(&raw.origin));
        }
        Ok(raw)
    }
}

/// A profile is called by its file's name without folder and ending. `Path::file_stem` would
/// also cut a name such as `generic-1.6t`.
fn short_name(name: &str) -> String {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    file.strip_suffix(".toml").unwrap_or(file).to_owned()
}

fn parameter_path(group: &str, name: &Key) -> Result<String, InputError> {
    let path = format!("{group}.{}", name.name);
    if PARAMETERS.iter().any(|p| p.path == path) {
        return Ok(path);
    }
    let known = PARAMETERS.iter().filter_map(|p| p.path.split_once('.'));
    let known: Vec<&str> = known.filter(|(g, _)| *g == group).map(|(_, n)| n).collect();
    Err(InputError::new(format!("unknown parameter `{path}`"))
        .help(suggestion(&name.name, known, "parameters of this group"))
        .at(&name.origin))
}

fn entry(node: &Node, key: &Key, profile: &str) -> Result<Entry, InputError> {
    const KEYS: [&str; 3] = ["value", "source", "confidence"];
    let example = format!(
        "write `{} = {{ value = …, source = \"C-PCIE-003\", confidence = \"read\" }}`",
        key.name
    );
    let Value::Table(table) = &node.value else {
        let error = InputError::new(format!("`{}` has no source and confidence", key.name));
        return Err(error.help(example).at(&node.origin));
    };
    if let Some((unknown, _)) = table.entries.iter().find(|(k, _)| !KEYS.contains(&&*k.name)) {
        return Err(InputError::new(format!("unknown key `{}`", unknown.name))
            .help(suggestion(&unknown.name, KEYS, "keys"))
            .at(&unknown.origin));
    }
    let need = |name: &str| {
        table.get(name).ok_or_else(|| {
            let error = InputError::new(format!("the key `{name}` is missing"));
            error.help(example.clone()).at(&node.origin)
        })
    };
    let source_node = need("source")?;
    let source: String = source_node.read()?;
    if source.trim().is_empty() {
        let error = InputError::new("the source is empty");
        let help = "name a calibration row or a publication, or write \"assumed: reason\"";
        return Err(error.help(help).at(&source_node.origin));
    }
    let assumed = source.starts_with("assumed");
    let confidence = match table.get("confidence") {
        None if assumed => Confidence::Assumed,
        _ => confidence(need("confidence")?)?,
    };
    if assumed != (confidence == Confidence::Assumed) {
        let text = format!("the source is \"{source}\", the confidence {}", confidence.word());
        let help = "what is assumed has a source that starts with \"assumed: \", and only that";
        return Err(InputError::new(text).help(help).at(&source_node.origin));
    }
    let provenance = Provenance { source, confidence, profile: profile.to_owned() };
    Ok(Entry { value: need("value")?.clone(), provenance })
}

fn confidence(node: &Node) -> Result<Confidence, InputError> {
    let text: String = node.read()?;
    let found = Confidence::WORDS.iter().find(|(word, _)| *word == text);
    found.map(|(_, c)| *c).ok_or_else(|| {
        InputError::new(format!("unknown confidence \"{text}\""))
            .help(suggestion(&text, Confidence::WORDS.map(|(word, _)| word), "confidences"))
            .at(&node.origin)
    })
}

impl RawProfile {
    /// The typed profile, with the scenario's `settings` (a flat table of paths) applied.
    ///
    /// # Errors
    /// When parameters are missing, unknown, of the wrong type or contradictory.
    pub fn with_settings(&self, settings: Option<&Table>) -> Result<Profile, InputError> {
        let mut entries = self.entries.clone();
        for (key, node) in settings.map_or(&[][..], |s| &s.entries) {
            check_setting(key)?;
            let provenance = Provenance {
                source: format!("set in {}", node.origin.source.name),
                confidence: Confidence::Set,
                profile: self.name.clone(),
            };
            entries.insert(key.name.clone(), Entry { value: node.clone(), provenance });
        }
        let missing: Vec<&str> =
            PARAMETERS.iter().map(|p| p.path).filter(|path| !entries.contains_key(*path)).collect();
        if !missing.is_empty() {
            let text = format!("profile \"{}\" lacks {} parameters", self.name, missing.len());
            let help = format!("add {}; or name a `base` profile", missing.join(", "));
            return Err(InputError::new(text).help(help).at(&self.origin));
        }
        let typed = |entries| Profile::from_entries(self.name.clone(), self.title.clone(), entries);
        let profile = typed(&entries)?;
        let unused = || unused_timer(&profile, || typed(&self.entries).ok());
        match contradictions(&profile).or_else(unused) {
            None => Ok(profile),
            Some(c) => {
                let at = entries.get(c.path).map(|e| &e.value.origin);
                Err(InputError::new(c.message).at_opt(at))
            }
        }
    }
}

fn check_setting(key: &Key) -> Result<(), InputError> {
    if PARAMETERS.iter().any(|p| p.path == key.name) {
        return Ok(());
    }
    Err(InputError::new(format!("unknown parameter `{}`", key.name))
        .help(suggestion(&key.name, PARAMETERS.iter().map(|p| p.path), "parameters"))
        .at(&key.origin))
}
