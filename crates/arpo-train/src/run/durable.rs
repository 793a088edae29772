//! Files and folders that appear atomically: written under a temporary name, synced, renamed. [`tidy`] cleans up what a
//! killed process left under temporary names.
//!
//! The temporary names are fixed: the lock of the run folder ensures that there is one writer.

use super::RunError;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Suffix of files and folders that are being written.
const WRITING: &str = ".writing";

/// Suffix of folders that are being replaced.
const REPLACED: &str = ".replaced";

/// Flushes a file or folder to the disk (fsync).
pub(super) fn sync(path: &Path) -> Result<(), RunError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(RunError::io(path, "written to the disk"))
}

/// Creates a folder with all its parents.
pub(super) fn make_folder(path: &Path) -> Result<(), RunError> {
    fs::create_dir_all(path).map_err(RunError::io(path, "created"))
}

/// Writes a file atomically, replacing an existing one.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let hidden = hidden(path, WRITING);
    let written = fs::write(&hidden, bytes).map_err(RunError::io(path, "written"));
    let written = written.and_then(|()| sync(&hidden));
    let written = written.and_then(|()| fs::rename(&hidden, path).map_err(RunError::io(path, "written")));
    if written.is_err() {
        let _ = fs::remove_file(&hidden);
    }
    written.and_then(|()| sync(parent(path)))
}

/// Replaces a file at once, without waiting for the disk: for what is replaced again in a moment.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let hidden = hidden(path, WRITING);
    let written = fs::write(&hidden, bytes).and_then(|()| fs::rename(&hidden, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&hidden);
        RunError::io(path, "written")(error)
    })
}

/// The path of a file while it is written.
pub(super) fn half_written(path: &Path) -> PathBuf {
    hidden(path, WRITING)
}

/// A folder under a temporary name, removed on drop unless it was finished.
#[derive(Debug)]
pub(super) struct Draft {
    hidden: PathBuf,
    target: PathBuf,
}

impl Draft {
    /// An empty folder next to its target.
    pub(super) fn of(target: &Path) -> Result<Self, RunError> {
        let hidden = hidden(target, WRITING);
        if hidden.exists() {
            fs::remove_dir_all(&hidden).map_err(RunError::io(&hidden, "removed"))?;
        }
        make_folder(&hidden)?;
        Ok(Self { hidden, target: target.to_path_buf() })
    }

    /// Its temporary path.
    pub(super) fn path(&self) -> &Path {
        &self.hidden
    }

    /// Renames it to its target. A previous folder of that name is removed only afterwards.
    pub(super) fn finish(self) -> Result<PathBuf, RunError> {
        sync(&self.hidden)?;
        let old = hidden(&self.target, REPLACED);
        let replaces = self.target.exists();
        if replaces {
            fs::rename(&self.target, &old).map_err(RunError::io(&self.target, "replaced"))?;
        }
        fs::rename(&self.hidden, &self.target).map_err(RunError::io(&self.target, "written"))?;
        sync(parent(&self.target))?;
        if replaces {
            fs::remove_dir_all(&old).map_err(RunError::io(&old, "removed"))?;
        }
        Ok(self.target.clone())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // after the rename there is nothing left under this name
        let _ = fs::remove_dir_all(&self.hidden);
    }
}

/// Removes a folder without leaving a part of it under its name.
pub(super) fn remove_folder(path: &Path) -> Result<(), RunError> {
    let old = hidden(path, WRITING);
    fs::rename(path, &old).map_err(RunError::io(path, "removed"))?;
    fs::remove_dir_all(&old).map_err(RunError::io(path, "removed"))
}

/// Cleans up what a killed process left in a folder: half-written entries are removed, and an entry that was being
/// replaced is restored unless its replacement exists.
pub(super) fn tidy(folder: &Path) -> Result<(), RunError> {
    for path in entries(folder)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(visible) = name.strip_prefix('.') else { continue };
        if let Some(visible) = visible.strip_suffix(REPLACED) {
            let target = folder.join(visible);
            if target.exists() {
                remove(&path)?;
            } else {
                fs::rename(&path, &target).map_err(RunError::io(&target, "put back"))?;
            }
        } else if visible.ends_with(WRITING) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// The paths in a folder, sorted; none if it does not exist.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    if !folder.exists() {
        return Ok(vec![]);
    }
    let read = fs::read_dir(folder).and_then(|all| all.map(|entry| entry.map(|one| one.path())).collect());
    let mut paths: Vec<PathBuf> = read.map_err(RunError::io(folder, "read"))?;
    paths.sort();
    Ok(paths)
}

fn remove(path: &Path) -> Result<(), RunError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map_err(RunError::io(path, "removed"))
}

fn hidden(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    path.with_file_name(format!(".{name}{ending}"))
}

/// The folder that contains a path.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
