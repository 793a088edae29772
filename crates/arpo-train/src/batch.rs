//! From the groups of an iteration to its training batch: replay, rewards, advantages. No tensors.

use arpo_core::advantage::{AdvantageConfig, group_advantages, has_spread};
use arpo_core::config::{Batch, Config};
use arpo_core::random::{Purpose, stream};
use arpo_core::replay::{Member, ReplayBuffer};
use arpo_core::reward::{format_reward, reward};
use arpo_core::step_advantage::{RolloutSteps, step_advantages};
use arpo_core::task::TaskId;
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The trajectories of one task that were collected in an iteration.
#[derive(Debug, Clone)]
pub struct RolloutGroup {
    /// The task.
    pub task: TaskId,
    /// Those that can be trained on.
    pub trajectories: Vec<Arc<Trajectory>>,
}

/// A trajectory and its advantage within its group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The trajectory, fresh or replayed.
    pub member: Member,
    /// Of every trained token.
    pub advantage: f64,
    /// Added to it for the tokens of each step; empty without `advantage.step_weight`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_advantages: Vec<f64>,
}

impl Sample {
    /// Whether any of its tokens has an advantage.
    pub fn has_advantage(&self) -> bool {
        self.advantage != 0.0 || self.step_advantages.iter().any(|&advantage| advantage != 0.0)
    }
}

/// The training batch of an iteration.
#[derive(Debug, Clone, Default)]
pub struct TrainingBatch {
    /// The members of the groups, in order: of all groups, or of the informative ones, depending on `optimiser.batch`.
    pub samples: Vec<Sample>,
    /// The number of each sample's group among the collected ones.
    pub groups: Vec<usize>,
    /// Statistics of its groups.
    pub report: BatchReport,
}

/// Statistics of the groups of a batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchReport {
    /// Groups that were collected.
    pub groups: usize,
    /// Groups whose rewards differ, before replay.
    pub spread: usize,
    /// Groups with an advantage that is not 0, after replay: their rewards differ, or their steps at equal screens.
    pub informative: usize,
    /// Informative groups that were left out because there were more than `optimiser.first_groups`.
    #[serde(default)]
    pub left_out: usize,
    /// Groups in which every rollout failed.
    pub all_failed: usize,
    /// Groups in which every rollout succeeded.
    pub all_solved: usize,
    /// Ages of the replayed successes, in policy versions.
    pub replay_ages: Vec<u64>,
    /// Mean score of the fresh trajectories.
    pub score: f64,
    /// Their mean reward.
    pub reward: f64,
    /// Mean over groups of the standard deviation of rewards.
    pub reward_std: f64,
    /// Mean format reward: minus the share of trajectories with an unparsable response.
    pub format: f64,
    /// Mean number of turns.
    pub turns: f64,
    /// Mean number of the agent's tokens.
    pub trained_tokens: f64,
    /// Mean number of tokens.
    pub tokens: f64,
}

/// Assembles the batch and stores the successes of the iteration.
pub fn assemble(
    groups: Vec<RolloutGroup>,
    buffer: &mut ReplayBuffer,
    version: PolicyVersion,
    iteration: u64,
    config: &Config,
) -> TrainingBatch {
    let fresh: Vec<Arc<Trajectory>> = groups.iter().flat_map(|group| group.trajectories.clone()).collect();
    let mut batch = TrainingBatch { report: summary(&fresh, config), ..TrainingBatch::default() };
    let report = &mut batch.report;
    let mut deviations = Vec::new();
    for (number, group) in groups.into_iter().enumerate() {
        let before = rewards(group.trajectories.iter().map(Arc::as_ref), config);
        deviations.push(deviation(&before));
        report.groups += 1;
        report.spread += usize::from(has_spread(&before));
        let solved = |trajectory: &Arc<Trajectory>| config.reward.is_success(trajectory.score);
        report.all_solved +=
            usize::from(!group.trajectories.is_empty() && group.trajectories.iter().all(solved));
        report.all_failed +=
            usize::from(!group.trajectories.is_empty() && !group.trajectories.iter().any(solved));
        let mut random = stream(config.seed, Purpose::Replay, iteration, number as u64);
        let (members, replay) = buffer.exchange(
            &group.task,
            group.trajectories,
            version,
            &config.replay,
            &config.reward,
            &mut random,
        );
        report.replay_ages.extend(replay.injected.iter().map(|injection| injection.age));
        let samples = with_advantages(members, config);
        let informative = samples.iter().any(Sample::has_advantage);
        report.informative += usize::from(informative);
        let first = config.optimiser.first_groups;
        let left_out = informative && first > 0 && report.informative > first;
        report.left_out += usize::from(left_out);
        if left_out || (!informative && config.optimiser.batch == Batch::Informative) {
            continue;
        }
        batch.samples.extend(samples);
        batch.groups.resize(batch.samples.len(), number);
    }
    report.reward_std = mean(deviations.iter().copied());
    batch
}

/// The members of a group with their advantages.
fn with_advantages(members: Vec<Member>, config: &Config) -> Vec<Sample> {
    let AdvantageConfig { kind, step_weight, step_discount } = config.advantage;
    let rewards = rewards(members.iter().map(|member| member.trajectory.as_ref()), config);
    let advantages = group_advantages(&rewards, kind);
    let by_step = if step_weight > 0.0 {
        let group: Vec<RolloutSteps> = members
            .iter()
            .zip(&rewards)
            .map(|(member, &reward)| RolloutSteps {
                screens: screens_of(&member.trajectory).collect(),
                reward,
            })
            .collect();
        let mut by_step = step_advantages(&group, kind, step_discount);
        by_step.iter_mut().flatten().for_each(|advantage| *advantage *= step_weight);
        by_step
    } else {
        vec![vec![]; members.len()]
    };
    let sample = |((member, advantage), step_advantages)| Sample { member, advantage, step_advantages };
    members.into_iter().zip(advantages).zip(by_step).map(sample).collect()
}

fn screens_of(trajectory: &Trajectory) -> impl Iterator<Item = &str> {
    trajectory.steps.iter().map(|step| step.observation.screenshot.digest.as_str())
}

/// The samples of each update: all samples, shuffled, in mini-batches of nearly equal size.
pub fn mini_batches(samples: usize, epoch: usize, iteration: u64, config: &Config) -> Vec<Vec<usize>> {
    use rand::seq::SliceRandom;
    if samples == 0 {
        return vec![];
    }
    let mut order: Vec<usize> = (0..samples).collect();
    order.shuffle(&mut stream(config.seed, Purpose::Batches, iteration, epoch as u64));
    let count = samples.div_ceil(config.optimiser.trajectories_per_update);
    (0..count).map(|part| order[part * samples / count..(part + 1) * samples / count].to_vec()).collect()
}

fn rewards<'a>(trajectories: impl Iterator<Item = &'a Trajectory>, config: &Config) -> Vec<f64> {
    trajectories.map(|trajectory| reward(trajectory.score, trajectory.well_formed, &config.reward)).collect()
}

fn summary(fresh: &[Arc<Trajectory>], config: &Config) -> BatchReport {
    let over = |value: &dyn Fn(&Trajectory) -> f64| mean(fresh.iter().map(|one| value(one)));
    BatchReport {
        score: over(&|one| one.score),
        reward: over(&|one| reward(one.score, one.well_formed, &config.reward)),
        format: over(&|one| format_reward(one.well_formed)),
        turns: over(&|one| one.steps.len() as f64),
        trained_tokens: over(&|one| one.trained_tokens() as f64),
        tokens: over(&|one| one.tokens() as f64),
        ..BatchReport::default()
    }
}

/// Arithmetic mean; 0 without values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    if count == 0.0 { 0.0 } else { sum / count }
}

/// Unbiased standard deviation, as advantages use it; 0 for fewer than two values.
fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let centre = mean(values.iter().copied());
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::replay::Origin;
    use arpo_core::trajectory::{ImageRef, Observation, Step, TokenSpan};

    fn rollouts(task: &str, scores: &[f64]) -> RolloutGroup {
        let task = TaskId::new(task);
        let trajectory =
            |(index, &score): (usize, &f64)| Arc::new(Trajectory::without_turns(0, &task, index, score));
        RolloutGroup { trajectories: scores.iter().enumerate().map(trajectory).collect(), task: task.clone() }
    }

    #[test]
    fn only_groups_with_spread_are_informative() {
        let groups = || {
            vec![
                rollouts("a", &[1.0, 0.0]),
                rollouts("b", &[1.0, 1.0]),
                rollouts("c", &[0.0, 0.0]),
                // all its desktops failed: counted neither as solved nor as failed
                rollouts("d", &[]),
            ]
        };
        let mut config = Config::default();
        let all = assemble(groups(), &mut ReplayBuffer::default(), PolicyVersion(0), 0, &config);
        assert_eq!(all.groups, [0, 0, 1, 1, 2, 2]);
        let advantages: Vec<i8> = all.samples.iter().map(|one| one.advantage.signum() as i8).collect();
        let zeros = all.samples[2..].iter().all(|one| one.advantage == 0.0);
        assert!(advantages[..2] == [1, -1] && advantages.len() == 6 && zeros, "{advantages:?}");
        config.optimiser.batch = Batch::Informative;
        let mut buffer = ReplayBuffer::default();
        let first = assemble(groups(), &mut buffer, PolicyVersion(0), 0, &config);
        assert_eq!(first.samples.len(), 2);
        let counts = |report: &BatchReport| {
            (report.groups, report.spread, report.informative, report.all_failed, report.all_solved)
        };
        assert_eq!(counts(&first.report), (4, 1, 1, 1, 1));
        assert!((first.report.score - 0.5).abs() < 1e-12);
        // the success stored for task a is replayed now that all its rollouts fail
        let failed = vec![rollouts("a", &[0.0, 0.0]), rollouts("c", &[0.0, 0.0])];
        let second = assemble(failed, &mut buffer, PolicyVersion(3), 1, &config);
        assert_eq!(counts(&second.report), (2, 0, 1, 2, 0));
        assert_eq!(second.report.replay_ages, [3]);
        assert_eq!((first.groups, second.groups), (vec![0, 0], vec![0, 0]));
        assert_eq!(second.samples[0].member.origin, Origin::Replayed { age: 3 });
        assert!(second.samples[0].advantage > 0.0 && second.samples[1].advantage < 0.0);
    }

    /// The same rollouts, which pass these screens.
    fn passing(task: &str, rollouts_of: &[(f64, &[&str])]) -> RolloutGroup {
        let scores: Vec<f64> = rollouts_of.iter().map(|(score, _)| *score).collect();
        let mut group = rollouts(task, &scores);
        for (trajectory, (_, screens)) in group.trajectories.iter_mut().zip(rollouts_of) {
            let step = |digest: &&str| Step {
                observation: Observation {
                    screenshot: ImageRef { digest: (*digest).to_owned(), width: 1, height: 1 },
                },
                response: String::new(),
                actions: vec![],
                span: TokenSpan { start: 0, end: 0 },
            };
            Arc::make_mut(trajectory).steps = screens.iter().map(step).collect();
        }
        group
    }

    /// Two successes, one of them by a detour: equal rewards, but the steps at the first screen differ.
    #[test]
    fn steps_at_equal_screens_can_teach_where_rewards_do_not() {
        let groups = || {
            let direct: (f64, &[&str]) = (1.0, &["a", "b"]);
            vec![passing("t", &[direct, (1.0, &["a", "a", "b"][..])]), passing("u", &[direct, direct])]
        };
        let mut config = Config::default();
        config.optimiser.batch = Batch::Informative;
        config.advantage.step_discount = 0.5;
        let mut assembled = |weight| {
            config.advantage.step_weight = weight;
            assemble(groups(), &mut ReplayBuffer::default(), PolicyVersion(0), 0, &config)
        };
        let plain = assembled(0.0);
        assert!(plain.samples.is_empty() && plain.report.informative == 0);
        let (one, two) = (assembled(1.0), assembled(2.0));
        assert_eq!((one.report.informative, one.report.spread, one.groups.as_slice()), (1, 0, &[0, 0][..]));
        assert!(one.samples.iter().all(|sample| sample.advantage == 0.0 && sample.has_advantage()));
        // returns at a: 1/2, 1/4, 1/2: the step that led nowhere is the worst
        let steps = |batch: &TrainingBatch| batch.samples[1].step_advantages.clone();
        let [back, on, end] = steps(&one)[..] else { panic!("three steps") };
        assert!(back < 0.0 && on > 0.0 && end == 0.0, "{back}, {on}, {end}");
        assert!(steps(&one).iter().zip(steps(&two)).all(|(one, two)| (2.0 * one - two).abs() < 1e-12));
    }

    #[test]
    fn the_first_informative_groups_make_the_batch() {
        let groups = ["a", "b", "c", "d"]
            .map(|task| rollouts(task, if task == "b" { &[1.0, 1.0] } else { &[1.0, 0.0] }));
        let mut config = Config::default();
        config.optimiser.first_groups = 2;
        let mut buffer = ReplayBuffer::default();
        let batch = assemble(groups.to_vec(), &mut buffer, PolicyVersion(0), 0, &config);
        // b counts in a batch of all groups; d is informative, but the third to be so
        assert_eq!(batch.groups, [0, 0, 1, 1, 2, 2]);
        assert_eq!((batch.report.informative, batch.report.left_out), (3, 1));
        // what is left out of the batch is still stored
        assert_eq!(buffer.successes(&TaskId::new("d")).len(), 1);
    }

    #[test]
    fn mini_batches_are_of_nearly_equal_size() {
        let config = Config::default(); // 64 trajectories per update
        assert!(mini_batches(0, 0, 0, &config).is_empty());
        let parts = mini_batches(130, 0, 7, &config);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [43, 43, 44]);
        let mut all = parts.concat();
        assert_ne!(all, (0..130).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..130).collect::<Vec<_>>());
        assert_ne!(mini_batches(130, 1, 7, &config), parts);
    }
}
