//! Screenshots by digest: `screens/ab/abcd….png`, each once, however many episodes and checkpoints refer to it.
//!
//! They are written at once but synced to the disk only when a checkpoint refers to them, because most leave the replay
//! buffer before that.

use super::RunError;
use super::durable::{entries, make_folder, sync};
use arpo_core::trajectory::ImageRef;
use arpo_env::environment::{EnvironmentError, encode_png};
use image::{ImageReader, RgbImage};
use std::collections::BTreeSet;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The screenshots of a run.
#[derive(Debug)]
pub struct ScreenStore {
    folder: PathBuf,
    /// Counter for temporary file names.
    written: AtomicU64,
    /// Digests that have been synced to the disk.
    synced: Mutex<BTreeSet<String>>,
}

impl ScreenStore {
    /// The screenshots below a folder, which need not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), written: AtomicU64::new(0), synced: Mutex::default() }
    }

    /// Stores a screenshot under its digest, unless it is already stored.
    pub fn put(&self, digest: &str, screen: &RgbImage) -> Result<(), RunError> {
        self.put_encoded(digest, || encode_png(screen).map(Into::into))
    }

    /// The same for a screenshot whose PNG is there or is encoded by `png`, which is called only if it is to be stored.
    pub fn put_encoded(
        &self,
        digest: &str,
        png: impl FnOnce() -> Result<Arc<[u8]>, EnvironmentError>,
    ) -> Result<(), RunError> {
        let path = self.path(digest)?;
        if path.exists() {
            return Ok(());
        }
        let subfolder = path.parent().unwrap_or(&self.folder);
        make_folder(subfolder)?;
        let png = png().map_err(|error| RunError::file(&path, error.to_string()))?;
        self.write(digest, &path, &png)
    }

    /// Takes a screenshot over from another store, unless it is already stored; false if it is in neither.
    pub(crate) fn copy_from(&self, other: &Self, digest: &str) -> Result<bool, RunError> {
        let (from, to) = (other.path(digest)?, self.path(digest)?);
        if to.exists() {
            return Ok(true);
        }
        make_folder(to.parent().unwrap_or(&self.folder))?;
        // a link needs no space; where the file system has none, and if the other store has just removed it, a copy is tried
        if fs::hard_link(&from, &to).is_ok() {
            return Ok(true);
        }
        match fs::read(&from) {
            Ok(png) => self.write(digest, &to, &png).map(|()| true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(RunError::io(&from, "read")(error)),
        }
    }

    /// Writes a PNG under a temporary name and renames it.
    fn write(&self, digest: &str, path: &Path, png: &[u8]) -> Result<(), RunError> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let hidden = path.with_file_name(format!(".{digest}-{number}.writing"));
        let written = fs::write(&hidden, png).and_then(|()| fs::rename(&hidden, path));
        written.map_err(|error| {
            let _ = fs::remove_file(&hidden);
            RunError::io(path, "written")(error)
        })
    }

    /// Reads a screenshot's PNG.
    pub fn png(&self, screen: &ImageRef) -> Result<Vec<u8>, RunError> {
        let path = self.path(&screen.digest)?;
        fs::read(&path).map_err(RunError::io(&path, "read"))
    }

    /// Reads a screenshot back.
    pub fn get(&self, screen: &ImageRef) -> Result<RgbImage, RunError> {
        let path = self.path(&screen.digest)?;
        let bytes = self.png(screen)?;
        let decoded = ImageReader::with_format(Cursor::new(bytes), image::ImageFormat::Png).decode();
        let decoded = decoded.map_err(|error| RunError::file(&path, format!("not a whole PNG: {error}")))?;
        let (width, height) = (decoded.width(), decoded.height());
        if (width, height) != (screen.width, screen.height) {
            let wanted = format!("{} x {}", screen.width, screen.height);
            return Err(RunError::file(&path, format!("has {width} x {height} pixels: expected {wanted}")));
        }
        Ok(decoded.into_rgb8())
    }

    /// The path of a screenshot.
    pub fn path(&self, digest: &str) -> Result<PathBuf, RunError> {
        let plain = digest.len() > 2 && digest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !plain {
            let problem = format!("`{digest}` is not a digest: expected letters and digits, at least 3");
            return Err(RunError::file(&self.folder, problem));
        }
        Ok(self.folder.join(&digest[..2]).join(format!("{digest}.png")))
    }

    /// Syncs screenshots to the disk.
    pub(super) fn sync(&self, digests: &BTreeSet<String>) -> Result<(), RunError> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let mut subfolders = BTreeSet::new();
        for digest in digests.difference(&synced.clone()) {
            let path = self.path(digest)?;
            sync(&path)?;
            subfolders.extend(path.parent().map(Path::to_path_buf));
            synced.insert(digest.clone());
        }
        if !subfolders.is_empty() {
            subfolders.insert(self.folder.clone());
        }
        subfolders.iter().try_for_each(|subfolder| sync(subfolder))
    }

    /// Removes all screenshots but these, and half-written files of a killed process. Returns the number of removed
    /// screenshots.
    pub(super) fn evict_except(&self, kept: &BTreeSet<String>) -> Result<usize, RunError> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let mut evicted = 0;
        for subfolder in entries(&self.folder)?.into_iter().filter(|subfolder| subfolder.is_dir()) {
            for path in entries(&subfolder)? {
                let digest = path.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
                if kept.contains(&*digest) {
                    continue;
                }
                fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?;
                synced.remove(&*digest);
                evicted += usize::from(path.extension().is_some_and(|ending| ending == "png"));
            }
        }
        Ok(evicted)
    }
}
