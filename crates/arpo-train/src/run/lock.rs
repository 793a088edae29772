//! The lock of a folder that one process uses at a time. The operating system holds it, so it ends with the process, however
//! that ends.

use super::RunError;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::Path;

/// Locks a folder by a file of this name in it, until the returned file is closed. The file names this process to others.
pub(crate) fn lock_folder(folder: &Path, name: &str) -> Result<File, RunError> {
    let path = folder.join(name);
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(RunError::io(&path, "opened"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let id = fs::read_to_string(&path).unwrap_or_default();
            let process = if id.trim().is_empty() { "?".into() } else { id.trim().to_owned() };
            return Err(RunError::InUse { folder: folder.to_path_buf(), process });
        }
        Err(TryLockError::Error(error)) => return Err(RunError::NoLock { path, error }),
    }
    let id = format!("{}\n", std::process::id());
    let written = file.set_len(0).and_then(|()| file.write_all(id.as_bytes()));
    written.map_err(RunError::io(&path, "written"))?;
    Ok(file)
}
