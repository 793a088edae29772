//! The lock of a folder that one process uses at a time. The operating system holds it, so it ends with the process, however
//! that ends.

use super::RunError;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The name of the file that is locked.
pub(crate) const LOCK: &str = ".lock";

/// Locks a folder until the returned file is closed. The file names this process to others.
pub(crate) fn lock_folder(folder: &Path) -> Result<File, RunError> {
    let path = folder.join(LOCK);
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(RunError::io(&path, "opened"))?;
    match file.try_lock() {
        // a file that its last process has just removed excludes nobody
        Ok(()) if file.metadata().is_ok_and(|metadata| metadata.nlink() > 0) => {}
        Ok(()) | Err(TryLockError::WouldBlock) => {
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

/// Ends a lock and removes its file, so that the folder may be empty.
pub(crate) fn remove_lock(folder: &Path, lock: Option<File>) {
    // while it is locked: afterwards it may be another's
    let _ = fs::remove_file(folder.join(LOCK));
    if let Some(file) = lock {
        // a process that is just being started may hold a copy of the file
        let _ = file.unlock();
    }
}
