//! What of an iteration and of an evaluation is handed to the recorder: every fresh episode, lost ones included, and the
//! replayed members of the batch, each with its group, reward and advantage; later the ratios of their tokens.

use super::Trainer;
use super::task_sets::TaskSet;
use crate::batch::{Sample, TrainingBatch};
use crate::collect::Collected;
use crate::episode::{CompletedEpisode, EpisodeScreen};
use crate::run::about::unix_time;
use crate::run::episodes::budget::EpisodeFile;
use crate::run::episodes::index::{EpisodeAbout, EpisodeOrigin};
use crate::run::episodes::store::EpisodeRecord;
use crate::run::episodes::tokens::TokenRecord;
use arpo_core::replay::Origin;
use arpo_core::reward::reward;
use arpo_core::task::TaskId;
use arpo_core::trajectory::Trajectory;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A fresh episode, before its batch is known.
pub(super) struct FreshEpisode {
    group: usize,
    trajectory: Arc<Trajectory>,
    screens: Vec<EpisodeScreen>,
}

/// The episodes that were handed over for an iteration, in the order of its file; `true` for replayed ones.
pub(super) type HandedOver = Vec<(Arc<Trajectory>, bool)>;

impl FreshEpisode {
    /// A member of the group with this number.
    pub(super) fn new(group: usize, trajectory: &Arc<Trajectory>, screens: Vec<EpisodeScreen>) -> Self {
        Self { group, trajectory: Arc::clone(trajectory), screens }
    }

    /// The episodes of a collection that failures ended.
    pub(super) fn lost(collected: &mut Collected) -> Vec<Self> {
        let groups = collected.groups.iter_mut().enumerate();
        let lost = groups.flat_map(|(group, one)| {
            std::mem::take(&mut one.lost).into_iter().map(move |lost| (group, lost))
        });
        lost.map(|(group, lost)| {
            let CompletedEpisode { trajectory, screens, .. } = lost.episode;
            Self { group, trajectory: Arc::new(trajectory), screens }
        })
        .collect()
    }
}

impl Trainer<'_> {
    /// Hands over the episodes of an iteration.
    pub(super) fn hand_over(&mut self, iteration: u64, fresh: Vec<FreshEpisode>, batch: &TrainingBatch) {
        if !self.recorder.keeps_episodes() {
            return;
        }
        let advantages: HashMap<usize, f64> = batch
            .samples
            .iter()
            .filter(|sample| sample.member.origin == (Origin::Fresh {}))
            .map(|sample| (address(&sample.member.trajectory), sample.advantage))
            .collect();
        let time = unix_time();
        let mut records = Vec::with_capacity(fresh.len());
        for FreshEpisode { group, trajectory, screens } in fresh {
            let about = EpisodeAbout {
                reward: trajectory.outcome.is_trainable().then(|| self.reward_of(&trajectory)),
                advantage: advantages.get(&address(&trajectory)).copied(),
                group: Some(group),
                ..self.about(EpisodeOrigin::Fresh, &trajectory.task, time)
            };
            records.push(EpisodeRecord {
                trajectory,
                screens: screens.into_iter().map(Some).collect(),
                about,
            });
        }
        for (sample, &group) in batch.samples.iter().zip(&batch.groups) {
            if sample.member.origin == (Origin::Fresh {}) {
                continue;
            }
            let trajectory = Arc::clone(&sample.member.trajectory);
            let digests = trajectory.steps.iter().map(|step| &step.observation.screenshot.digest);
            let screens = digests.map(|digest| self.screens.in_memory(digest)).collect();
            let about = EpisodeAbout {
                reward: Some(self.reward_of(&trajectory)),
                advantage: Some(sample.advantage),
                group: Some(group),
                ..self.about(EpisodeOrigin::Replayed, &trajectory.task, time)
            };
            records.push(EpisodeRecord { trajectory, screens, about });
        }
        let replayed = |record: &EpisodeRecord| record.about.origin == EpisodeOrigin::Replayed;
        self.handed_over =
            records.iter().map(|record| (Arc::clone(&record.trajectory), replayed(record))).collect();
        let file = EpisodeFile::iteration(iteration);
        self.recorder.episodes(file, records);
        self.recorder.complete(file);
    }

    /// Hands over the tokens of the iteration's episodes, with the ratios of its samples.
    pub(super) fn hand_over_tokens(
        &mut self,
        iteration: u64,
        samples: &[Sample],
        ratios: Vec<Option<Vec<f32>>>,
    ) {
        let handed_over = std::mem::take(&mut self.handed_over);
        if self.recorder.keeps_episodes() {
            let records = token_records(iteration, handed_over, samples, ratios);
            self.recorder.tokens(EpisodeFile::iteration(iteration), records);
        }
    }

    /// Hands over the episodes of a set of tasks that was evaluated.
    pub(super) fn hand_over_evaluated(
        &mut self,
        iteration: u64,
        set: TaskSet,
        episodes: Vec<Vec<CompletedEpisode>>,
    ) {
        if !self.recorder.keeps_episodes() {
            return;
        }
        let time = unix_time();
        let mut records = Vec::new();
        for (group, episodes) in episodes.into_iter().enumerate() {
            for CompletedEpisode { trajectory, screens, .. } in episodes {
                let about = EpisodeAbout {
                    set: Some(set.key()),
                    group: Some(group),
                    ..self.about(EpisodeOrigin::Evaluation, &trajectory.task, time)
                };
                let (trajectory, screens) = (Arc::new(trajectory), screens.into_iter().map(Some).collect());
                records.push(EpisodeRecord { trajectory, screens, about });
            }
        }
        self.recorder.episodes(EpisodeFile::evaluation(iteration), records);
    }

    fn about(&self, origin: EpisodeOrigin, task: &TaskId, time: f64) -> EpisodeAbout {
        let task = self.tasks.find(task);
        EpisodeAbout {
            origin,
            set: None,
            instruction: task.as_ref().map(|task| task.instruction.clone()),
            application: task.map(|task| task.application.clone()).filter(|name| !name.is_empty()),
            group: None,
            reward: None,
            advantage: None,
            time,
        }
    }

    fn reward_of(&self, trajectory: &Trajectory) -> f64 {
        reward(trajectory.score, trajectory.well_formed, &self.config.reward)
    }
}

/// What identifies a trajectory while it is held.
fn address(trajectory: &Arc<Trajectory>) -> usize {
    Arc::as_ptr(trajectory) as usize
}

/// The episodes that were handed over, with the ratios of the samples they are. A resumed iteration knows its samples only.
fn token_records(
    iteration: u64,
    handed_over: HandedOver,
    samples: &[Sample],
    ratios: Vec<Option<Vec<f32>>>,
) -> Vec<TokenRecord> {
    let is_replayed = |sample: &Sample| sample.member.origin != (Origin::Fresh {});
    let handed_over = if handed_over.is_empty() {
        samples.iter().map(|sample| (Arc::clone(&sample.member.trajectory), is_replayed(sample))).collect()
    } else {
        handed_over
    };
    // a stored success may be replayed in several groups of an iteration, each time with ratios of its own
    let mut of_samples: HashMap<(usize, bool), VecDeque<Option<Vec<f32>>>> = HashMap::new();
    for (sample, ratios) in samples.iter().zip(ratios) {
        let key = (address(&sample.member.trajectory), is_replayed(sample));
        of_samples.entry(key).or_default().push_back(ratios);
    }
    let record = |(trajectory, replayed): (Arc<Trajectory>, bool)| {
        let known = of_samples.get_mut(&(address(&trajectory), replayed));
        let ratios = known.and_then(VecDeque::pop_front).flatten();
        TokenRecord { trajectory, ratios, replayed_in: replayed.then_some(iteration) }
    };
    handed_over.into_iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::replay::Member;

    fn trajectory(index: usize) -> Arc<Trajectory> {
        Arc::new(Trajectory::without_turns(0, &TaskId::new("t"), index, 1.0))
    }

    /// A group whose first member was replaced by a stored success, and another group with the same success.
    #[test]
    fn ratios_go_to_the_samples_they_are_of() {
        let (displaced, kept, stored) = (trajectory(0), trajectory(1), trajectory(7));
        let sample = |trajectory: &Arc<Trajectory>, origin| Sample {
            member: Member { trajectory: Arc::clone(trajectory), origin },
            advantage: 1.0,
            step_advantages: vec![],
        };
        let age = Origin::Replayed { age: 3 };
        let samples = [sample(&stored, age), sample(&kept, Origin::Fresh {}), sample(&stored, age)];
        let ratios = vec![Some(vec![0.5]), None, Some(vec![2.0])];
        let handed_over = vec![
            (Arc::clone(&displaced), false),
            (Arc::clone(&kept), false),
            (Arc::clone(&stored), true),
            (Arc::clone(&stored), true),
        ];
        let found = |records: Vec<TokenRecord>| -> Vec<(String, Option<f32>, Option<u64>)> {
            let one = |record: TokenRecord| {
                let first = record.ratios.map(|ratios| ratios[0]);
                (record.trajectory.id.to_string(), first, record.replayed_in)
            };
            records.into_iter().map(one).collect()
        };
        let expected = [
            ("0:t:0".to_owned(), None, None),
            ("0:t:1".to_owned(), None, None),
            ("0:t:7".to_owned(), Some(0.5), Some(9)),
            ("0:t:7".to_owned(), Some(2.0), Some(9)),
        ];
        assert_eq!(found(token_records(9, handed_over, &samples, ratios.clone())), expected);
        let resumed = found(token_records(9, vec![], &samples, ratios));
        assert_eq!(resumed, [expected[2].clone(), expected[1].clone(), expected[3].clone()]);
    }
}
