//! Writing a file whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `text` to `path` through a file beside it that is renamed in the end, so that a reader
/// sees the old content or the new one and never a part. What is there and no regular file (a
/// device, a FIFO, a symbolic link) stays what it is: `text` is written through it.
///
/// # Errors
/// When the folder cannot be made or written; then nothing is left behind.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let whole = WholeFile::begin(path)?;
    (&whole.file).write_all(text.as_bytes())?;
    whole.finish()
}

/// A file that grows beside its place and comes there when it is complete. Dropped before, it
/// leaves nothing behind; what a process that was killed leaves, the next one that writes the same
/// result takes away.
#[derive(Debug)]
pub(crate) struct WholeFile {
    path: PathBuf,
    /// Where it grows; `None`: what is in its place is no regular file, and is written through.
    temporary: Option<PathBuf>,
    file: File,
}

impl WholeFile {
    /// Begins the file that will be at `path`.
    ///
    /// # Errors
    /// When the folder cannot be made, or the file in it.
    pub(crate) fn begin(path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        if fs::symlink_metadata(&path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            return Ok(Self { file: File::create(&path)?, path, temporary: None });
        }
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
        let name = name.to_string_lossy().into_owned();
        if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        remove_abandoned(&path, &name);
        // The process id keeps two runs that write the same result apart.
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create(&temporary)?;
        // Where there are no locks, what is left behind stays.
        let _ = file.try_lock();
        Ok(Self { path, temporary: Some(temporary), file })
    }

    /// Another handle of it, to write to.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// When it cannot be written to the end or renamed; then nothing is left behind.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        self.file.sync_all()?;
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The error that led here is the one to report.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Removes files that grew for the same result and whose process is gone: nobody holds their lock.
fn remove_abandoned(path: &Path, name: &str) {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(files) = fs::read_dir(folder) else { return };
    let begin = format!(".{name}.");
    for file in files.flatten() {
        let other = file.file_name().to_string_lossy().into_owned();
        let id = other.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(".tmp"));
        let ours = id.is_some_and(|id| id.parse::<u32>().is_ok_and(|n| n != std::process::id()));
        let free = || File::open(file.path()).is_ok_and(|f| f.try_lock().is_ok());
        if ours && free() {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_whole_and_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("doorbell-write-{}", std::process::id()));
        let path = folder.join("deep").join("report.json");
        write_whole(&path, "one").unwrap();
        write_whole(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // A folder stands where the file should be: an error, and no temporary file.
        assert!(write_whole(path.parent().unwrap(), "x").is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_not_finished_leaves_what_was_there() {
        let folder = std::env::temp_dir().join(format!("doorbell-torn-{}", std::process::id()));
        let path = folder.join("capture");
        write_whole(&path, "good").unwrap();
        let torn = WholeFile::begin(&path).unwrap();
        torn.writer().unwrap().write_all(b"half of").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "good");
        drop(torn);
        assert_eq!(fs::read_to_string(&path).unwrap(), "good");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_lives_is_not() {
        let folder = std::env::temp_dir().join(format!("doorbell-left-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (left, lives) = (folder.join(".r.json.4294967294.tmp"), folder.join(".r.json.1.tmp"));
        let others = [folder.join(".r.jsonx.7.tmp"), folder.join(".r.json.x.tmp")];
        for path in others.iter().chain([&left, &lives]) {
            fs::write(path, "part").unwrap();
        }
        let held = File::open(&lives).unwrap();
        held.try_lock().unwrap();
        write_whole(&folder.join("r.json"), "whole").unwrap();
        assert!(!left.exists() && lives.exists());
        assert!(others.iter().all(|p| p.exists()), "not of this result");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn writes_through_what_is_no_regular_file() {
        let folder = std::env::temp_dir().join(format!("doorbell-through-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (target, link) = (folder.join("target"), folder.join("link"));
        fs::write(&target, "a longer text that was there before").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_whole(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no temporary file");
        fs::remove_dir_all(&folder).unwrap();
    }
}
