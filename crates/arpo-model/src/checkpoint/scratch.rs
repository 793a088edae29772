//! A folder that appears atomically: written under a temporary name, synced, renamed.

use crate::ModelError;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A folder under a temporary name, removed unless it is renamed to its final one.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn beside(folder: &Path) -> Result<Self, ModelError> {
        let name =
            folder.file_name().ok_or_else(|| ModelError::file(folder, "expected the name of a folder"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".writing-{}", std::process::id()));
        let path = folder.with_file_name(hidden);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(ModelError::io(&path))?;
        }
        fs::create_dir_all(&path).map_err(ModelError::io(&path))?;
        Ok(Self { path })
    }

    /// Its temporary path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ModelError> {
        let path = self.path.join(name);
        fs::write(&path, bytes).map_err(ModelError::io(&path))?;
        sync(&path)
    }

    pub(crate) fn rename_to(self, folder: &Path) -> Result<(), ModelError> {
        sync(&self.path)?;
        fs::rename(&self.path, folder).map_err(ModelError::io(folder))?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or(Path::new(".")))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // after the rename nothing has this name
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Waits until a file or folder is on the disk.
pub(crate) fn sync(path: &Path) -> Result<(), ModelError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(ModelError::io(path))
}
