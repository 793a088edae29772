//! A run folder, locked by one process at a time.

use super::RunError;
use super::durable::{entries, half_written, make_folder, tidy, write_file};
use super::lock::lock_folder;
use super::metrics::MetricsLog;
use super::screens::ScreenStore;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A new run: the folder must not exist or be empty.
    New,
    /// A resumed run: the folder must hold one.
    Resume,
}

/// A run folder, locked by this process.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    screens: Arc<ScreenStore>,
    /// Held open: closing it releases the lock.
    _lock: File,
}

/// A changed key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// With its section.
    pub key: String,
    /// The old value as TOML; `None` if there was none.
    pub was: Option<String>,
    /// The new value; `None` if there is none.
    pub is: Option<String>,
}

impl RunFolder {
    /// Locks a folder and cleans up what a killed process left half-written; changes nothing else.
    pub fn start(path: &Path, start: Start) -> Result<Self, RunError> {
        // checked before the lock file is created, so that a folder that is not a run stays unchanged
        check(path, start)?;
        make_folder(path)?;
        let lock = lock_folder(path, LOCK)?;
        check(path, start)?;
        let folder = Self {
            path: path.to_path_buf(),
            screens: Arc::new(ScreenStore::new(&path.join("screens"))),
            _lock: lock,
        };
        tidy(path)?;
        tidy(&folder.checkpoints())?;
        tidy(&folder.episodes())?;
        Ok(folder)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The folder of the best checkpoint's model.
    pub fn best(&self) -> PathBuf {
        self.path.join("best")
    }

    /// The folder of collected episodes.
    pub fn episodes(&self) -> PathBuf {
        self.path.join("episodes")
    }

    /// The folder with reports of skipped updates.
    pub fn incidents(&self) -> PathBuf {
        self.path.join("incidents")
    }

    /// The folder through which weights go to inference servers, with the logs of those that the run starts.
    pub fn sampler(&self) -> PathBuf {
        self.path.join("sampler")
    }

    /// The file of metrics.
    pub fn metrics_file(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The screenshots.
    pub fn screens(&self) -> &Arc<ScreenStore> {
        &self.screens
    }

    /// The metrics, truncated to the position of a checkpoint; 0 for a new run.
    pub fn metrics_at(&self, position: u64) -> Result<MetricsLog, RunError> {
        MetricsLog::open_at(&self.metrics_file(), position)
    }

    /// The stored configuration, if there is one.
    pub fn config(&self) -> Result<Option<String>, RunError> {
        let path = config_file(&self.path);
        if !path.exists() {
            return Ok(None);
        }
        fs::read_to_string(&path).map(Some).map_err(RunError::io(&path, "read"))
    }

    /// Writes the resolved configuration.
    pub fn write_config(&self, toml: &str) -> Result<(), RunError> {
        write_file(&config_file(&self.path), toml.as_bytes())
    }

    /// Writes a file of the folder atomically; returns its path.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunError> {
        let path = self.path.join(name);
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        write_file(&path, bytes)?;
        Ok(path)
    }
}

/// The differences between two configurations, given as TOML.
pub fn config_changes(was: &str, is: &str) -> Vec<ConfigChange> {
    let parse = |text: &str| flattened(&text.parse().unwrap_or_default());
    let (was, is) = (parse(was), parse(is));
    let mut keys: Vec<&String> = was.iter().chain(&is).map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    let value = |list: &[(String, String)], wanted: &String| {
        list.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.clone())
    };
    let change = |key: &String| ConfigChange { key: key.clone(), was: value(&was, key), is: value(&is, key) };
    keys.into_iter().map(change).filter(|change| change.was != change.is).collect()
}

/// Whether a run can start in this folder.
fn check(path: &Path, start: Start) -> Result<(), RunError> {
    // a run may have been killed while it wrote its first file
    let first = half_written(&config_file(path));
    let occupied = entries(path)?.iter().any(|entry| !entry.ends_with(LOCK) && *entry != first);
    match start {
        Start::New if occupied => {
            // a running process is the more helpful error
            if path.join(LOCK).exists() {
                lock_folder(path, LOCK)?;
            }
            Err(RunError::NotEmpty { folder: path.to_path_buf() })
        }
        Start::Resume if !config_file(path).exists() => Err(RunError::NoRun { folder: path.to_path_buf() }),
        _ => Ok(()),
    }
}

/// The name of the file that is locked.
const LOCK: &str = ".lock";

/// Whether a process has locked a run folder, as a run does while it is going on.
pub fn is_in_use(folder: &Path) -> bool {
    let opened = File::open(folder.join(LOCK));
    opened.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("config.toml")
}

/// Every key that is not a table, with its section, and its value as TOML.
fn flattened(table: &toml::Table) -> Vec<(String, String)> {
    let mut flat = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                flat.extend(
                    flattened(inner).into_iter().map(|(rest, value)| (format!("{key}.{rest}"), value)),
                );
            }
            other => flat.push((key.clone(), other.to_string())),
        }
    }
    flat
}
