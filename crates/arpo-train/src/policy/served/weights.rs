//! The weights on their way to the servers: a folder in Hugging Face's layout for the newest version.
//!
//! The output head is always among them, also where it is the input embedding: vLLM on a CPU keeps a copy of its own of the
//! head and renews it only from a tensor of its own. Servers with tied embeddings skip that tensor.

use crate::TrainError;
use crate::run::RunError;
use crate::run::lock::lock_folder;
use crate::run::notices::Notices;
use arpo_core::trajectory::PolicyVersion;
use arpo_model::checkpoint::{self, Weights};
use arpo_model::config::ModelConfig;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const PREFIX: &str = "version-";

/// The file that keeps the runs apart. A name of its own: the folder may be the run's.
const LOCK: &str = ".weights.lock";

/// The folder of the weights, whose versions are removed with this.
#[derive(Debug)]
pub(super) struct WeightStore {
    root: PathBuf,
    config: ModelConfig,
    /// Tokenizer, image processor and the like: a server that is started reads them.
    side_files: BTreeMap<String, Vec<u8>>,
    /// Versions of all runs have the same names. `None` on a file system without locks.
    _lock: Option<File>,
}

impl WeightStore {
    /// A store in a folder of its own; what a killed run left there is removed.
    pub(super) fn new(
        root: &Path,
        config: &ModelConfig,
        side_files: BTreeMap<String, Vec<u8>>,
        notices: &Notices,
    ) -> Result<Self, TrainError> {
        let failed = |error| TrainError::Io(format!("{}: {error}", root.display()));
        fs::create_dir_all(root).map_err(failed)?;
        // servers are started elsewhere
        let root = root.canonicalize().map_err(failed)?;
        let lock = match lock_folder(&root, LOCK) {
            Ok(lock) => Some(lock),
            Err(RunError::InUse { process, .. }) => {
                return Err(TrainError::Io(format!(
                    "{}: in use by process {process}: expected a folder of its own for the weights of each run \
                     (`rollout.weights`)",
                    root.display()
                )));
            }
            // some shared file systems have none
            Err(error @ RunError::NoLock { .. }) => {
                notices
                    .say(&format!("{error}: expected no other run to have this folder (`rollout.weights`)"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        let store = Self { root, config: config.with_own_head(), side_files, _lock: lock };
        store.remove(|_| true);
        Ok(store)
    }

    /// The folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a version, and returns its folder. It appears complete or not at all.
    pub(super) fn save(&self, weights: &Weights, version: PolicyVersion) -> Result<PathBuf, TrainError> {
        let folder = self.root.join(format!("{PREFIX}{:06}", version.0));
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .map_err(|error| TrainError::Io(format!("{}: {error}", folder.display())))?;
        }
        let weights = weights.with_own_head(&self.config);
        checkpoint::save(&folder, &self.config, &weights, &self.side_files)?;
        Ok(folder)
    }

    /// Removes all versions but these.
    pub(super) fn keep_only(&self, folders: &[PathBuf]) {
        self.remove(|path| !folders.iter().any(|folder| folder == path));
    }

    /// What cannot be removed stays: the next start tries again.
    fn remove(&self, unwanted: impl Fn(&Path) -> bool) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            // six digits or more, and in a temporary name something behind them: not a folder that somebody else named so
            let rest = name.trim_start_matches('.').strip_prefix(PREFIX).unwrap_or_default();
            let digits = rest.chars().take_while(char::is_ascii_digit).count();
            let is_version = digits >= 6 && (digits == rest.len() || name.starts_with('.'));
            if is_version && path.is_dir() && unwanted(&path) {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

impl Drop for WeightStore {
    fn drop(&mut self) {
        self.remove(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_weights_of_one_run() {
        let root = std::env::temp_dir().join(format!("arpo-weights-{}", std::process::id()));
        let (model, notices) = (arpo_model::config::pocket(), Notices::default());
        let store = || WeightStore::new(&root, &model, BTreeMap::new(), &notices);
        let first = store().unwrap();
        let version = first.root().join("version-000003");
        fs::create_dir(&version).unwrap();
        let expected = format!(
            "{}: in use by process {}: expected a folder of its own for the weights of each run (`rollout.weights`)",
            first.root().display(),
            std::process::id()
        );
        assert_eq!(store().unwrap_err().to_string(), expected);
        assert!(version.is_dir(), "the first run's servers need it");
        drop(first);
        assert!(!version.exists());
        // what a killed run left is in nobody's way
        fs::create_dir_all(&version).unwrap();
        let _second = store().unwrap();
        assert!(!version.exists());
        fs::remove_dir_all(root).unwrap();
    }
}
