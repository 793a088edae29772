//! The runs that are shown: the folders that were named, and the runs inside a named folder of runs.

use crate::ViewError;
use crate::results::is_results;
use crate::run::{Run, is_run};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs by their short names.
#[derive(Debug)]
pub struct Library {
    roots: Vec<PathBuf>,
    entries: Mutex<Vec<Entry>>,
}

/// One run: opened when it is first looked at.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its short name, unique here; a part of addresses.
    pub id: String,
    /// Its folder.
    pub path: PathBuf,
    run: Arc<Mutex<Option<Run>>>,
}

impl Library {
    /// Finds the runs. An error if a folder holds none.
    pub fn open(roots: &[PathBuf]) -> Result<Self, ViewError> {
        for root in roots {
            if found(root).is_empty() && !may_become_runs(root) {
                let problem = if root.is_dir() {
                    "expected a run folder, a folder of runs, or OSWorld's results"
                } else {
                    "no such folder; expected a run folder, a folder of runs, or OSWorld's results"
                };
                return Err(ViewError::file(root, problem));
            }
        }
        let library = Self { roots: roots.to_vec(), entries: Mutex::default() };
        library.rescan();
        Ok(library)
    }

    /// Looks for new runs.
    pub fn rescan(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for path in self.roots.iter().flat_map(|root| found(root)) {
            if entries.iter().any(|entry| entry.path == path) {
                continue;
            }
            let name = short_name(&path);
            let is_free = |id: &String| entries.iter().all(|entry| entry.id != *id);
            let numbered = (2..).map(|number| format!("{name}-{number}"));
            let id = std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name);
            entries.push(Entry { id, path, run: Arc::default() });
        }
    }

    /// Whether runs may still appear: a root is not itself one, but holds them.
    pub fn grows(&self) -> bool {
        let entries = self.entries();
        self.roots.iter().any(|root| entries.iter().all(|entry| entry.path != *root))
    }

    /// All runs.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A run by its short name.
    pub fn entry(&self, id: &str) -> Result<Entry, ViewError> {
        let known = self.entries();
        known.iter().find(|entry| entry.id == id).cloned().ok_or_else(|| {
            let shown: String = id.chars().take(60).collect();
            let names: Vec<&str> = known.iter().take(8).map(|entry| entry.id.as_str()).collect();
            ViewError::Missing(format!("there is no run {shown:?}; there are {}", names.join(", ")))
        })
    }
}

impl Entry {
    /// Works on the run as it is now.
    pub fn with<T>(&self, work: impl FnOnce(&mut Run) -> Result<T, ViewError>) -> Result<T, ViewError> {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *run {
            Some(run) => {
                run.refresh()?;
                work(run)
            }
            empty => work(empty.insert(Run::open(&self.path)?)),
        }
    }

    /// Works on the run as it was last read.
    pub fn with_known<T>(&self, work: impl FnOnce(&mut Run) -> Result<T, ViewError>) -> Result<T, ViewError> {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *run {
            Some(run) => work(run),
            empty => work(empty.insert(Run::open(&self.path)?)),
        }
    }
}

/// The runs of a folder: itself, or those one or two levels below it.
pub fn found(root: &Path) -> Vec<PathBuf> {
    if is_run(root) {
        return vec![root.to_path_buf()];
    }
    let mut runs = vec![];
    for folder in folders(root) {
        if is_run(&folder) {
            runs.push(folder);
        } else {
            runs.extend(folders(&folder).into_iter().filter(|inner| is_run(inner)));
        }
    }
    if runs.is_empty() && is_results(root) {
        runs.push(root.to_path_buf());
    }
    runs
}

/// An empty folder, or one that a run has just begun in.
fn may_become_runs(root: &Path) -> bool {
    root.is_dir()
        && fs::read_dir(root).is_ok_and(|mut entries| {
            entries.all(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with('.')))
        })
}

fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The last part of a path, in letters that need no escapes in an address.
fn short_name(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' }
    };
    let name: String = name.chars().map(plain).collect();
    if name.is_empty() || name.starts_with('.') { format!("run{name}") } else { name }
}
