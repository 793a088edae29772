//! The files of a checkpoint with their lengths and checksums: written last, so that an incomplete or changed checkpoint
//! is detected.

use super::RunError;
use super::durable::{entries, sync};
use super::screens::ScreenStore;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The manifest's own name.
pub(super) const MANIFEST: &str = "manifest.json";

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

/// The contents of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Iterations done.
    pub(super) step: u64,
    /// No earlier checkpoint was better.
    pub(super) best: bool,
    /// By their paths in the checkpoint's folder.
    files: BTreeMap<String, Contents>,
    /// By digest, in the run's store.
    screens: BTreeMap<String, Contents>,
}

/// A file's length and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    bytes: u64,
    crc32: u32,
}

impl Contents {
    fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hasher = crc32fast::Hasher::new();
        let (mut block, mut bytes) = (vec![0; BLOCK], 0);
        loop {
            let read = file.read(&mut block)?;
            if read == 0 {
                return Ok(Self { bytes, crc32: hasher.finalize() });
            }
            hasher.update(&block[..read]);
            bytes += read as u64;
        }
    }

    /// What is wrong with a file that should have these contents.
    fn problem(self, path: &Path) -> Option<String> {
        let problem = match Self::of(path) {
            Err(error) => format!("cannot be read: {error}"),
            Ok(found) if found.bytes != self.bytes => {
                format!("has {} bytes instead of {}", found.bytes, self.bytes)
            }
            Ok(found) if found.crc32 != self.crc32 => "has other contents than were written".to_owned(),
            Ok(_) => return None,
        };
        Some(problem)
    }
}

impl Manifest {
    /// The manifest of all files of a folder; also flushes them to the disk.
    pub(super) fn of(
        folder: &Path,
        step: u64,
        best: bool,
        store: &ScreenStore,
        screens: &BTreeSet<String>,
    ) -> Result<Self, RunError> {
        let mut files = BTreeMap::new();
        list(folder, "", &mut files)?;
        let screen = |digest: &String| {
            let path = store.path(digest)?;
            let contents = Contents::of(&path).map_err(RunError::io(&path, "read"))?;
            Ok((digest.clone(), contents))
        };
        let screens = screens.iter().map(screen).collect::<Result<_, RunError>>()?;
        Ok(Self { step, best, files, screens })
    }

    /// As the file's bytes.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("a manifest can be written as JSON");
        text.push(b'\n');
        text
    }

    /// The manifest of a checkpoint, or what is wrong with it.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let bytes =
            fs::read(folder.join(MANIFEST)).map_err(|error| format!("{MANIFEST} cannot be read: {error}"))?;
        serde_json::from_slice(&bytes).map_err(|error| format!("{MANIFEST} is not a manifest: {error}"))
    }

    /// Digests of the screenshots it refers to.
    pub(super) fn screens(&self) -> impl Iterator<Item = &String> {
        self.screens.keys()
    }

    /// Checks the length and checksum of every file; an error names the first that differs.
    pub(super) fn check(&self, folder: &Path, store: &ScreenStore) -> Result<(), String> {
        for (name, contents) in &self.files {
            if let Some(problem) = contents.problem(&folder.join(name)) {
                return Err(format!("{name} {problem}"));
            }
        }
        for (digest, contents) in &self.screens {
            let path = store.path(digest).map_err(|error| error.to_string())?;
            if let Some(problem) = contents.problem(&path) {
                return Err(format!("screenshot {digest} {problem}"));
            }
        }
        Ok(())
    }
}

fn list(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Contents>) -> Result<(), RunError> {
    for path in entries(folder)? {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            list(&path, &format!("{name}/"), files)?;
        } else {
            let contents = Contents::of(&path).map_err(RunError::io(&path, "read"))?;
            files.insert(name, contents);
        }
        sync(&path)?;
    }
    Ok(())
}
