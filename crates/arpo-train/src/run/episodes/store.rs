//! Writes episodes: whole trajectories in files, one line each, their screenshots by digest, and the index. `arpo train` and
//! `arpo rollout` write with it.
//!
//! A file appears whole, after its screenshots and before its lines in the index. So an episode that the index names can
//! be read, whenever the process was killed.

use super::budget::{EpisodeFile, Purpose, next_to_remove};
use super::index::{EpisodeAbout, Index, IndexLine};
use crate::episode::EpisodeScreen;
use crate::run::RunError;
use crate::run::durable::{entries, make_folder, write_file};
use crate::run::screens::ScreenStore;
use arpo_core::trajectory::{EpisodeId, Trajectory};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An episode to be stored.
#[derive(Debug, Clone)]
pub struct EpisodeRecord {
    /// The episode.
    pub trajectory: Arc<Trajectory>,
    /// The screen of each step; `None` if it is in the screenshots of the run.
    pub screens: Vec<Option<EpisodeScreen>>,
    /// What else is known of it.
    pub about: EpisodeAbout,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of files and screenshots.
    pub bytes: u64,
    /// So many last iterations are removed only after all earlier ones.
    pub last: usize,
}

impl Budget {
    /// Nothing is ever removed.
    pub const UNLIMITED: Self = Self { bytes: u64::MAX, last: 1 };
}

/// The episodes of a run folder.
#[derive(Debug)]
pub struct EpisodeStore {
    folder: PathBuf,
    store: ScreenStore,
    /// Screenshots of the replay buffer, which replayed episodes may need.
    stored: ScreenStore,
    index: Index,
    budget: Budget,
    files: BTreeMap<EpisodeFile, StoredFile>,
    screens: HashMap<String, StoredScreen>,
    /// Of all files and screenshots.
    bytes: u64,
}

#[derive(Debug, Default)]
struct StoredFile {
    bytes: u64,
    screens: HashSet<String>,
}

#[derive(Debug)]
struct StoredScreen {
    bytes: u64,
    /// How many files refer to it.
    files: usize,
}

/// A file that is not complete yet. Its screenshots are already stored.
#[derive(Debug)]
pub struct EpisodeDraft {
    file: EpisodeFile,
    lines: Vec<u8>,
    index: Vec<IndexLine>,
    screens: HashSet<String>,
}

impl EpisodeDraft {
    /// A file without episodes.
    pub fn new(file: EpisodeFile) -> Self {
        Self { file, lines: vec![], index: vec![], screens: HashSet::new() }
    }

    /// The name of the file.
    pub fn file(&self) -> EpisodeFile {
        self.file
    }
}

impl EpisodeStore {
    /// Opens the episodes of a run folder, and removes those that `kept` does not want, files that the index does not name,
    /// and screenshots that no file refers to: what a killed run has left.
    pub fn open(run: &Path, budget: Budget, kept: impl Fn(EpisodeFile) -> bool) -> Result<Self, RunError> {
        let folder = run.join("episodes");
        let present: HashSet<EpisodeFile> =
            entries(&folder)?.iter().filter_map(|path| episode_file(path)).collect();
        if !present.is_empty() && !folder.join("index.jsonl").exists() {
            return Err(RunError::file(
                &folder,
                "episodes without index.jsonl, as older versions wrote them: expected none; move them away",
            ));
        }
        let wanted = |file: EpisodeFile| present.contains(&file) && kept(file);
        let (index, named) = Index::repaired(&folder, wanted)?;
        let store = ScreenStore::new(&folder.join("screens"));
        let stored = ScreenStore::new(&run.join("screens"));
        let (files, screens) = (BTreeMap::new(), HashMap::new());
        let mut store = Self { folder, store, stored, index, budget, files, screens, bytes: 0 };
        store.remove_unnamed(&named)?;
        for file in named {
            let bytes = fs::read(store.path(file)).map_err(RunError::io(&store.path(file), "read"))?;
            let tokens = fs::metadata(store.folder.join(file.tokens())).map_or(0, |tokens| tokens.len());
            let screens = digests(&bytes);
            for digest in &screens {
                store.count_screen(digest);
            }
            store.count(file, bytes.len() as u64 + tokens, screens);
        }
        let referred: BTreeSet<String> = store.screens.keys().cloned().collect();
        store.store.evict_except(&referred)?;
        Ok(store)
    }

    /// Removes files of episodes and tokens that the index does not name.
    fn remove_unnamed(&self, named: &[EpisodeFile]) -> Result<(), RunError> {
        for path in entries(&self.folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let file: Option<EpisodeFile> = name.replace(".tokens.jsonl", ".jsonl").parse().ok();
            if file.is_some_and(|file| !named.contains(&file)) {
                fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?;
            }
        }
        Ok(())
    }

    /// Whether a file is stored and named by the index.
    pub fn has(&self, file: EpisodeFile) -> bool {
        self.files.contains_key(&file)
    }

    /// The files that are stored and named by the index.
    pub fn files(&self) -> impl Iterator<Item = EpisodeFile> {
        self.files.keys().copied()
    }

    /// The episodes of a file.
    pub fn trajectories(&self, file: EpisodeFile) -> Result<Vec<Trajectory>, RunError> {
        let path = self.path(file);
        let text = fs::read_to_string(&path).map_err(RunError::io(&path, "read"))?;
        let wrong = |error: serde_json::Error| RunError::file(&path, format!("not an episode: {error}"));
        text.lines().map(|line| serde_json::from_str(line).map_err(wrong)).collect()
    }

    /// When the episodes of a file were handed over, in Unix seconds.
    pub fn times(&self, file: EpisodeFile) -> Result<BTreeMap<EpisodeId, f64>, RunError> {
        Ok(self.index.lines(file)?.into_iter().map(|line| (line.id, line.time)).collect())
    }

    /// Bytes of all files and screenshots.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds episodes to a file; `tick` is called between screenshots, which may take long.
    pub fn add(
        &mut self,
        draft: &mut EpisodeDraft,
        episodes: &[EpisodeRecord],
        tick: &mut dyn FnMut(),
    ) -> Result<(), RunError> {
        for EpisodeRecord { trajectory, screens, about } in episodes {
            let mut complete = true;
            for (step, screen) in trajectory.steps.iter().zip(screens) {
                let digest = &step.observation.screenshot.digest;
                complete &= draft.screens.contains(digest) || self.put_screen(digest, screen.as_ref())?;
                tick();
            }
            // an episode without its screenshots cannot be shown or trained on: it has left the replay buffer meanwhile
            if !complete {
                continue;
            }
            let offset = draft.lines.len();
            serde_json::to_writer(&mut draft.lines, trajectory.as_ref()).map_err(|error| {
                RunError::file(&self.path(draft.file), format!("an episode cannot be written: {error}"))
            })?;
            let length = draft.lines.len() - offset;
            draft.lines.push(b'\n');
            let line = IndexLine::new(trajectory, about, draft.file, offset as u64, length as u64);
            draft.index.push(line);
            draft
                .screens
                .extend(trajectory.steps.iter().map(|step| step.observation.screenshot.digest.clone()));
        }
        Ok(())
    }

    /// Stores a screenshot, unless it is stored already; false if it is nowhere to be found.
    fn put_screen(&mut self, digest: &str, screen: Option<&EpisodeScreen>) -> Result<bool, RunError> {
        if self.screens.contains_key(digest) {
            return Ok(true);
        }
        match screen {
            Some(screen) => self.store.put_encoded(digest, || screen.png())?,
            None if !self.store.copy_from(&self.stored, digest)? => return Ok(false),
            None => {}
        }
        Ok(true)
    }

    /// Completes a file: writes it, then its lines in the index, and removes what the budget has no room for.
    pub fn finish(&mut self, draft: EpisodeDraft) -> Result<(), RunError> {
        let EpisodeDraft { file, lines, index, screens } = draft;
        if self.has(file) {
            return Ok(());
        }
        make_folder(&self.folder)?;
        // before the first file, so that files without an index are known to be an older version's
        self.index.append::<IndexLine>(&[])?;
        write_file(&self.path(file), &lines)?;
        self.index.append(&index)?;
        for digest in &screens {
            self.count_screen(digest);
        }
        self.count(file, lines.len() as u64, screens);
        self.keep_within_budget()
    }

    /// Writes the tokens of a file's episodes beside it; nothing if the file is not there.
    pub fn write_tokens(&mut self, file: EpisodeFile, lines: &[u8]) -> Result<(), RunError> {
        let Some(stored) = self.files.get_mut(&file) else { return Ok(()) };
        write_file(&self.folder.join(file.tokens()), lines)?;
        stored.bytes += lines.len() as u64;
        self.bytes += lines.len() as u64;
        self.keep_within_budget()
    }

    fn keep_within_budget(&mut self) -> Result<(), RunError> {
        while self.bytes > self.budget.bytes {
            let files: Vec<(EpisodeFile, u64)> =
                self.files.iter().map(|(file, stored)| (*file, stored.bytes)).collect();
            let Some(file) = next_to_remove(&files, self.budget.last) else { break };
            self.remove(file)?;
        }
        Ok(())
    }

    /// Removes a file. The index says so first: it goes on naming the episodes that once were there.
    fn remove(&mut self, file: EpisodeFile) -> Result<(), RunError> {
        self.index.append(&[json!({"dropped": file.to_string()})])?;
        self.remove_stored(file)
    }

    /// Removes a file whose episodes are in another one, and its lines in the index before it: each episode is named once.
    pub fn forget(&mut self, file: EpisodeFile) -> Result<(), RunError> {
        let (index, _) = Index::repaired(&self.folder, |named| named != file && self.has(named))?;
        self.index = index;
        self.remove_stored(file)
    }

    /// Removes a file, and the screenshots that no other one refers to.
    fn remove_stored(&mut self, file: EpisodeFile) -> Result<(), RunError> {
        let Some(StoredFile { bytes, screens }) = self.files.remove(&file) else { return Ok(()) };
        self.bytes -= bytes;
        for path in [self.path(file), self.folder.join(file.tokens())] {
            if path.exists() {
                fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?;
            }
        }
        for digest in screens {
            let Some(screen) = self.screens.get_mut(&digest) else { continue };
            screen.files -= 1;
            if screen.files == 0 {
                self.bytes -= screen.bytes;
                self.screens.remove(&digest);
                let path = self.store.path(&digest)?;
                if path.exists() {
                    fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?;
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, file: EpisodeFile, bytes: u64, screens: HashSet<String>) {
        self.bytes += bytes;
        self.files.insert(file, StoredFile { bytes, screens });
    }

    fn count_screen(&mut self, digest: &str) {
        if let Some(screen) = self.screens.get_mut(digest) {
            screen.files += 1;
            return;
        }
        let path = self.store.path(digest).ok();
        let bytes = path.and_then(|path| fs::metadata(path).ok()).map_or(0, |screen| screen.len());
        self.bytes += bytes;
        self.screens.insert(digest.to_owned(), StoredScreen { bytes, files: 1 });
    }

    fn path(&self, file: EpisodeFile) -> PathBuf {
        self.folder.join(file.to_string())
    }
}

/// Where a run resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Iterations done.
    pub iteration: u64,
    /// The episodes of the next one are in its state.
    pub unfinished: bool,
}

impl Resumed {
    /// Iterations whose episodes are collected.
    pub fn collected(self) -> u64 {
        self.iteration + u64::from(self.unfinished)
    }
}

/// What a run keeps of the files that are there. One that was killed before its first checkpoint starts over, and keeps
/// nothing: not even the evaluation before training, which it repeats.
pub fn up_to(resumed: Option<Resumed>) -> impl Fn(EpisodeFile) -> bool {
    move |file| {
        resumed.is_some_and(|resumed| match file.purpose {
            Purpose::Training => file.number <= resumed.collected(),
            Purpose::Evaluation => file.number <= resumed.iteration,
        })
    }
}

/// The file of episodes at a path, if it is one.
pub(super) fn episode_file(path: &Path) -> Option<EpisodeFile> {
    path.file_name()?.to_str()?.parse().ok()
}

/// The digests of the screenshots in a file of trajectories. Within a JSON string the quotes would be escaped.
fn digests(bytes: &[u8]) -> HashSet<String> {
    const KEY: &[u8] = b"\"digest\":\"";
    let mut found = HashSet::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(KEY.len()).position(|part| part == KEY) {
        rest = &rest[at + KEY.len()..];
        let end = rest.iter().position(|&byte| byte == b'"').unwrap_or(rest.len());
        found.insert(String::from_utf8_lossy(&rest[..end]).into_owned());
    }
    found
}
