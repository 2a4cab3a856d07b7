//! The `doorbell` command in a process of its own, and folders for its files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// What a process left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs `binary` with `args` to its end.
///
/// # Panics
/// When it does not start, or ends by a signal.
pub fn run(binary: &str, args: &[&str]) -> Ended {
    let Output { status, stdout, stderr } =
        Command::new(binary).args(args).env("NO_COLOR", "1").output().expect("it starts");
    Ended {
        status: status.code().expect("it ends by itself"),
        stdout: String::from_utf8(stdout).expect("UTF-8"),
        stderr: String::from_utf8(stderr).expect("UTF-8"),
    }
}

/// A folder of a test's own, removed in the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// `name` must be different for each test.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("doorbell-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file; gives its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a temporary file");
        path.to_str().expect("a plain path").to_owned()
    }

    /// The names in it, sorted.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("it is there").flatten();
        let mut names: Vec<String> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
