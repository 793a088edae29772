//! Checkpoints of a run: written atomically; the last few are kept, and the best one's model. A run resumes from the
//! newest checkpoint whose files match its manifest.

use super::durable::{Draft, entries, make_folder, remove_folder, sync, write_file};
use super::manifest::{MANIFEST, Manifest};
use super::screens::ScreenStore;
use super::{RunError, RunFolder};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A checkpoint to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewCheckpoint<'a> {
    /// Iterations done.
    pub step: u64,
    /// No earlier evaluation was better: its model is also kept as `best`.
    pub best: bool,
    /// Digests of the screenshots it refers to; they must be in the store. Screenshots that neither it nor another kept
    /// checkpoint refers to are removed from the store.
    pub screens: &'a BTreeSet<String>,
    /// How many of the newest checkpoints are kept; at least one is.
    pub keep: usize,
}

/// A checkpoint whose files match its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCheckpoint {
    /// Iterations done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
}

/// The checkpoint to resume from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latest {
    /// The newest intact one.
    pub checkpoint: Option<FoundCheckpoint>,
    /// Newer ones that are damaged, and why: one line each for the user.
    pub skipped: Vec<String>,
}

impl RunFolder {
    /// Writes a checkpoint: `write` fills an empty folder, which is then renamed atomically. Earlier checkpoints survive
    /// any failure or kill on the way.
    pub fn save_checkpoint<E: From<RunError>>(
        &self,
        new: NewCheckpoint,
        write: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        make_folder(&self.checkpoints())?;
        let draft = Draft::of(&self.checkpoints().join(name(new.step)))?;
        write(draft.path())?;
        Ok(self.finish(new, draft)?)
    }

    fn finish(&self, new: NewCheckpoint, draft: Draft) -> Result<PathBuf, RunError> {
        // everything that the checkpoint refers to must be on the disk before it
        if self.metrics_file().exists() {
            sync(&self.metrics_file())?;
        }
        self.screens().sync(new.screens)?;
        let manifest = Manifest::of(draft.path(), new.step, new.best, self.screens(), new.screens)?;
        write_file(&draft.path().join(MANIFEST), &manifest.to_json())?;
        let path = draft.finish()?;
        sync(self.path())?;
        if new.best {
            self.keep_as_best(&path, new.step)?;
        }
        self.remove_old(new)?;
        Ok(path)
    }

    /// Removes checkpoints beyond the newest few, and unreferenced screenshots.
    fn remove_old(&self, new: NewCheckpoint) -> Result<(), RunError> {
        let mut steps = steps(&self.checkpoints())?;
        let kept = steps.split_off(steps.len().saturating_sub(new.keep.max(1)));
        for (_, path) in steps {
            remove_folder(&path)?;
        }
        let mut screens = new.screens.clone();
        screens.extend(referred(kept.iter().map(|(_, path)| path.as_path())));
        self.screens().evict_except(&screens)?;
        Ok(())
    }

    /// Keeps the model of a checkpoint under the name `best`, as hard links if the file system has them.
    fn keep_as_best(&self, checkpoint: &Path, step: u64) -> Result<(), RunError> {
        let draft = Draft::of(&self.best())?;
        link_folder(&checkpoint.join("model"), &draft.path().join("model"))?;
        let text = format!("{}\n", json!({"step": step}));
        write_file(&draft.path().join("best.json"), text.as_bytes())?;
        draft.finish()?;
        Ok(())
    }

    /// What to resume from. Damaged checkpoints are renamed to `damaged-…` for inspection, so that they no longer count
    /// among the newest.
    pub fn resume_point(&self) -> Result<Latest, RunError> {
        let latest = latest_good(self.path())?;
        let good = latest.checkpoint.as_ref();
        for (step, path) in steps(&self.checkpoints())? {
            if good.is_none_or(|good| step > good.step) {
                let aside = self.checkpoints().join(format!("damaged-{}", name(step)));
                if aside.exists() {
                    fs::remove_dir_all(&aside).map_err(RunError::io(&aside, "removed"))?;
                }
                fs::rename(&path, &aside).map_err(RunError::io(&path, "set aside"))?;
            }
        }
        if let Some(good) = good {
            // the run was killed between writing the checkpoint and linking `best`
            let best = Manifest::read(&good.path).is_ok_and(|manifest| manifest.best);
            if best && best_step(&self.best()) != Some(good.step) {
                self.keep_as_best(&good.path, good.step)?;
            }
        }
        // a killed run may have left screenshots that are incomplete on the disk
        let kept = steps(&self.checkpoints())?;
        let screens = referred(kept.iter().map(|(_, path)| path.as_path()));
        self.screens().evict_except(&screens)?;
        Ok(latest)
    }
}

/// The newest checkpoint of a run folder that matches its manifest. Changes nothing and needs no lock.
pub fn latest_good(run: &Path) -> Result<Latest, RunError> {
    let store = ScreenStore::new(&run.join("screens"));
    let mut latest = Latest::default();
    for (step, path) in steps(&run.join("checkpoints"))?.into_iter().rev() {
        let checked = Manifest::read(&path).and_then(|manifest| {
            if manifest.step != step {
                return Err(format!("{MANIFEST} is of step {}", manifest.step));
            }
            manifest.check(&path, &store)
        });
        match checked {
            Ok(()) => {
                latest.checkpoint = Some(FoundCheckpoint { step, path });
                break;
            }
            Err(problem) => latest
                .skipped
                .push(format!("checkpoint {} is damaged and left out: {problem}", path.display())),
        }
    }
    Ok(latest)
}

/// Iterations done by the model in `best`, if there is one.
pub fn best_step(best: &Path) -> Option<u64> {
    let bytes = fs::read(best.join("best.json")).ok()?;
    serde_json::from_slice::<serde_json::Value>(&bytes).ok()?["step"].as_u64()
}

fn name(step: u64) -> String {
    format!("step-{step:06}")
}

/// The checkpoints of a folder, oldest first, intact or not.
fn steps(checkpoints: &Path) -> Result<Vec<(u64, PathBuf)>, RunError> {
    let step = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok();
    let mut steps: Vec<(u64, PathBuf)> =
        entries(checkpoints)?.into_iter().filter_map(|path| Some((step(&path)?, path))).collect();
    steps.sort();
    Ok(steps)
}

/// Digests of the screenshots that checkpoints refer to; unreadable manifests are ignored.
fn referred<'a>(checkpoints: impl Iterator<Item = &'a Path>) -> BTreeSet<String> {
    checkpoints
        .filter_map(|path| Manifest::read(path).ok())
        .flat_map(|manifest| manifest.screens().cloned().collect::<Vec<_>>())
        .collect()
}

/// Hard links to the files of a folder; copies if the file system has no hard links.
fn link_folder(from: &Path, to: &Path) -> Result<(), RunError> {
    make_folder(to)?;
    for path in entries(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            link_folder(&path, &target)?;
        } else if fs::hard_link(&path, &target).is_err() {
            fs::copy(&path, &target).map_err(RunError::io(&target, "written"))?;
            sync(&target)?;
        }
    }
    sync(to)
}
