//! The episodes of a chunk that was stopped. They are in a file with a number beyond those of all chunks, until the chunk has
//! been collected to its end: then they are in its own file, where they would be if it had not been stopped.

use arpo_core::task::Task;
use arpo_core::trajectory::{EpisodeId, Trajectory};
use arpo_train::collect::GroupPlan;
use arpo_train::episode::{CompletedEpisode, EpisodePlan, EpisodeScreen};
use arpo_train::run::RunError;
use arpo_train::run::about::unix_time;
use arpo_train::run::episodes::budget::EpisodeFile;
use arpo_train::run::episodes::index::{EpisodeAbout, EpisodeOrigin};
use arpo_train::run::episodes::store::{EpisodeRecord, EpisodeStore};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The order of a chunk's episodes in its file: by group, then as they were planned.
pub(super) struct FileOrder(BTreeMap<EpisodeId, (usize, usize)>);

impl FileOrder {
    pub(super) fn of(plans: &[GroupPlan]) -> Self {
        let mut order = BTreeMap::new();
        for (group, plan) in plans.iter().enumerate() {
            for (member, episode) in plan.episodes.iter().chain(&plan.refills).enumerate() {
                order.insert(episode.id.clone(), (group, member));
            }
        }
        Self(order)
    }

    /// Group and member; none for an episode of another chunk.
    pub(super) fn position(&self, id: &EpisodeId) -> Option<(usize, usize)> {
        self.0.get(id).copied()
    }

    /// An episode of the chunk, as it is stored.
    pub(super) fn record(&self, chunk: &[Arc<Task>], episode: CompletedEpisode) -> Option<EpisodeRecord> {
        let screens = episode.screens.into_iter().map(Some).collect();
        self.record_of(chunk, Arc::new(episode.trajectory), screens, unix_time())
    }

    fn record_of(
        &self,
        chunk: &[Arc<Task>],
        trajectory: Arc<Trajectory>,
        screens: Vec<Option<EpisodeScreen>>,
        time: f64,
    ) -> Option<EpisodeRecord> {
        let (group, _) = self.position(&trajectory.id)?;
        let task = chunk.get(group)?;
        let about = EpisodeAbout {
            origin: EpisodeOrigin::Fresh,
            set: None,
            instruction: Some(task.instruction.clone()),
            application: Some(task.application.clone()).filter(|name| !name.is_empty()),
            group: Some(group),
            reward: None,
            advantage: None,
            time,
        };
        Some(EpisodeRecord { trajectory, screens, about })
    }
}

/// The episodes of a chunk that was stopped, if one was.
pub(super) struct Unfinished {
    /// The first number that its files may have.
    first: u64,
    files: Vec<EpisodeFile>,
    trajectories: Vec<Arc<Trajectory>>,
    /// When they were stored first, in Unix seconds.
    times: BTreeMap<EpisodeId, f64>,
}

impl Unfinished {
    /// Reads what an earlier process left; there are so many chunks.
    pub(super) fn read(store: &EpisodeStore, chunks: u64) -> Result<Self, RunError> {
        let files: Vec<EpisodeFile> = store.files().filter(|file| file.number >= chunks).collect();
        let (mut trajectories, mut times) = (vec![], BTreeMap::new());
        for file in &files {
            trajectories.extend(store.trajectories(*file)?.into_iter().map(Arc::new));
            times.extend(store.times(*file)?);
        }
        Ok(Self { first: chunks, files, trajectories, times })
    }

    /// Leaves the episodes that have ended out of the plans of their chunk.
    pub(super) fn leave_out_of(&self, plans: &mut [GroupPlan]) {
        let ended: BTreeSet<&EpisodeId> = self.trajectories.iter().map(|one| &one.id).collect();
        for group in plans {
            let planned = group.episodes.len();
            let is_open = |plan: &EpisodePlan| !ended.contains(&plan.id);
            let all = group.episodes.len() + group.refills.len();
            group.episodes.retain(is_open);
            group.refills.retain(is_open);
            // a refill may have ended in the place of an episode that was lost
            let ended_here = all - group.episodes.len() - group.refills.len();
            group.episodes.truncate(planned.saturating_sub(ended_here));
        }
    }

    /// The episodes of a chunk, to be stored again; their screenshots are stored already.
    pub(super) fn records(&self, chunk: &[Arc<Task>], order: &FileOrder) -> Vec<EpisodeRecord> {
        let record = |one: &Arc<Trajectory>| {
            let time = self.times.get(&one.id).copied().unwrap_or_else(unix_time);
            order.record_of(chunk, Arc::clone(one), vec![None; one.steps.len()], time)
        };
        self.trajectories.iter().filter_map(record).collect()
    }

    /// A file for a chunk that is stopped.
    pub(super) fn next_file(&self) -> EpisodeFile {
        let next = self.files.iter().map(|file| file.number + 1).max();
        EpisodeFile::iteration(next.unwrap_or(self.first))
    }

    /// Removes the files: another one has their episodes. Their numbers are not used again: a viewer may know them.
    pub(super) fn remove_from(&mut self, store: &mut EpisodeStore) -> Result<(), RunError> {
        self.first = self.next_file().number;
        self.trajectories.clear();
        self.files.drain(..).try_for_each(|file| store.forget(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::task::TaskId;
    use arpo_train::run::episodes::index::IndexLine;
    use arpo_train::run::episodes::store::{Budget, EpisodeDraft};
    use std::fs;
    use std::path::Path;

    fn task() -> Arc<Task> {
        Arc::new(Task {
            id: TaskId::new("t"),
            instruction: String::new(),
            application: String::new(),
            setup: serde_json::Value::Null,
            evaluator: serde_json::Value::Null,
        })
    }

    fn plan(task: &Arc<Task>, chunk: u64, index: usize) -> EpisodePlan {
        EpisodePlan {
            id: EpisodeId::new(chunk, &task.id, index),
            task: Arc::clone(task),
            world_seed: 0,
            sampling_seed: 0,
            max_steps: 1,
            hint: None,
        }
    }

    fn trajectory(task: &Task, chunk: u64, index: usize) -> Arc<Trajectory> {
        Arc::new(Trajectory::without_turns(chunk, &task.id, index, 1.0))
    }

    /// Which episodes are left of three with two refills, after these have ended.
    fn left_after(indices: &[usize]) -> (Vec<String>, Vec<String>) {
        let task = task();
        let members = |range: std::ops::Range<usize>| range.map(|index| plan(&task, 0, index)).collect();
        let mut plans =
            [GroupPlan { task: Arc::clone(&task), episodes: members(0..3), refills: members(3..5) }];
        let trajectories = indices.iter().map(|&index| trajectory(&task, 0, index)).collect();
        Unfinished { first: 1, files: vec![], trajectories, times: BTreeMap::new() }.leave_out_of(&mut plans);
        let [group] = plans;
        let names = |plans: Vec<EpisodePlan>| plans.into_iter().map(|plan| plan.id.to_string()).collect();
        (names(group.episodes), names(group.refills))
    }

    #[test]
    fn only_episodes_that_have_not_ended_are_left() {
        let names =
            |indices: &[usize]| indices.iter().map(|index| format!("0:t:{index}")).collect::<Vec<_>>();
        assert_eq!(left_after(&[]), (names(&[0, 1, 2]), names(&[3, 4])));
        assert_eq!(left_after(&[1]), (names(&[0, 2]), names(&[3, 4])));
        assert_eq!(left_after(&[0, 2, 3]), (names(&[]), names(&[4])), "a refill counts as one of the three");
    }

    /// Stores, in the next file for a chunk that is stopped or in the chunk's own, the episode of this index with those that had
    /// ended before.
    fn store(run: &Path, chunk: u64, index: usize, stopped: bool) -> Unfinished {
        let mut store = open(run);
        let mut unfinished = Unfinished::read(&store, 2).unwrap();
        add(&mut store, &mut unfinished, chunk, index, stopped);
        unfinished
    }

    fn open(run: &Path) -> EpisodeStore {
        EpisodeStore::open(run, Budget::UNLIMITED, |_| true).unwrap()
    }

    fn add(store: &mut EpisodeStore, unfinished: &mut Unfinished, chunk: u64, index: usize, stopped: bool) {
        let task = task();
        let episodes = (0..3).map(|index| plan(&task, chunk, index)).collect();
        let order = FileOrder::of(&[GroupPlan { task: Arc::clone(&task), episodes, refills: vec![] }]);
        let tasks = [Arc::clone(&task)];
        let new = order.record_of(&tasks, trajectory(&task, chunk, index), vec![], index as f64);
        let mut records = vec![new.unwrap()];
        records.extend(unfinished.records(&tasks, &order));
        let file = if stopped { unfinished.next_file() } else { EpisodeFile::iteration(chunk) };
        let mut draft = EpisodeDraft::new(file);
        store.add(&mut draft, &records, &mut || {}).unwrap();
        store.finish(draft).unwrap();
        unfinished.remove_from(store).unwrap();
    }

    /// Episodes that the index names with their files and times, each found where its line says.
    fn indexed(run: &Path) -> Vec<(String, String, String)> {
        let folder = run.join("episodes");
        let found = |line: &str| {
            let line: IndexLine = serde_json::from_str(line).unwrap();
            let bytes = fs::read(folder.join(&line.file)).unwrap();
            let from = line.offset as usize;
            let stored: Trajectory =
                serde_json::from_slice(&bytes[from..from + line.length as usize]).unwrap();
            assert_eq!(stored.id, line.id);
            (line.id.to_string(), line.file, line.time.to_string())
        };
        fs::read_to_string(folder.join("index.jsonl")).unwrap().lines().map(found).collect()
    }

    #[test]
    fn after_stops_in_different_chunks_the_index_names_every_episode_once() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        let line = |id: &str, file: u64, time: &str| {
            (id.to_owned(), EpisodeFile::iteration(file).to_string(), time.to_owned())
        };
        store(run, 0, 1, true);
        assert_eq!(indexed(run), [line("0:t:1", 2, "1")]);
        // the next process completes the first of two chunks, and is stopped in the second
        let mut episodes = open(run);
        let mut unfinished = Unfinished::read(&episodes, 2).unwrap();
        add(&mut episodes, &mut unfinished, 0, 0, false);
        add(&mut episodes, &mut unfinished, 1, 2, true);
        let first = [line("0:t:0", 0, "0"), line("0:t:1", 0, "1")];
        assert_eq!(indexed(run), [&first[..], &[line("1:t:2", 3, "2")]].concat());
        drop(episodes);
        // the last one completes that, too
        let left = store(run, 1, 0, false);
        assert!(left.files.is_empty() && left.trajectories.is_empty());
        assert_eq!(indexed(run), [&first[..], &[line("1:t:0", 1, "0"), line("1:t:2", 1, "2")]].concat());
    }
}
