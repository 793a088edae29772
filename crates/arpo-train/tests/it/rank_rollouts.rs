//! The engines of several ranks, here in threads, sample what one process samples: in collections and in evaluations, before
//! and after updates, and after an interruption.

use crate::ranks::{alone, config, samples, sampling_together, up};
use arpo_core::config::Config;
use arpo_core::task::Task;
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_suite::task_lists;
use arpo_train::TrainError;
use arpo_train::collect::{CollectReport, Collector, GroupPlan, GroupSize, Planner, Worlds};
use arpo_train::episode::CompletedEpisode;
use arpo_train::learner::{Learner, LocalLearner};
use arpo_train::policy::{EnginePolicy, Policy, RolloutPolicy, WeightUpdate};
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer::evaluation::{EvaluationPlan, TaskScores, evaluate};
use arpo_train::trainer::setup::{self, Loaded};
use std::sync::Arc;

/// What the rounding of sums may change in a log-probability.
const TOLERANCE: f32 = 1e-3;

fn collector(config: &Config, stop: &StopSwitch) -> Collector {
    setup::collector(config, None, &Arc::default(), stop).unwrap()
}

/// Four groups of four episodes.
fn groups(config: &Config, max_steps: usize) -> Vec<GroupPlan> {
    let tasks = task_lists::training_tasks(config).unwrap();
    let planner = Planner { seed: 5, step: 1, worlds: Worlds::Shared { of: 3 }, faulty: false };
    let size = GroupSize::new(4, 0, max_steps);
    let group = |(number, task): (usize, &Arc<Task>)| planner.group(task, number as u64, size);
    tasks[..4].iter().enumerate().map(group).collect()
}

/// A collection, and then an evaluation.
pub(crate) struct Sampled {
    pub(crate) collected: Vec<Trajectory>,
    report: CollectReport,
    pub(crate) evaluated: Vec<Trajectory>,
    pub(crate) scores: Vec<TaskScores>,
}

pub(crate) fn sample(config: &Config, policy: &mut dyn RolloutPolicy, version: PolicyVersion) -> Sampled {
    let trajectories = |episodes: Vec<CompletedEpisode>| {
        episodes.into_iter().map(|episode| episode.trajectory).collect::<Vec<_>>()
    };
    let mut collector = collector(config, &StopSwitch::default());
    policy.publish(WeightUpdate::InPlace, version).unwrap();
    policy.set_temperature(config.collect.temperature);
    let done = collector.collect(policy, groups(config, 4), &mut |_| {}).unwrap();
    policy.release_memory().unwrap();
    policy.publish(WeightUpdate::InPlace, version).unwrap();
    policy.set_temperature(0.5);
    let plan =
        EvaluationPlan { seed: 2, number: 0, samples: 2, max_steps: 4, worlds: 2, refills: 0, faulty: false };
    let tasks = task_lists::training_tasks(config).unwrap();
    let found = evaluate(&mut collector, policy, &tasks[..6], &plan, &mut |_| {}).unwrap();
    Sampled {
        collected: done.groups.into_iter().flat_map(|group| trajectories(group.episodes)).collect(),
        report: done.report,
        evaluated: found.episodes.into_iter().flat_map(trajectories).collect(),
        scores: found.tasks,
    }
}

/// The same episodes, tokens, actions and scores; log-probabilities but for rounding.
pub(crate) fn assert_same(found: &[Trajectory], expected: &[Trajectory]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let without_logp = |one: &Trajectory| Trajectory { sampler_logp: vec![], ..one.clone() };
        assert_eq!(without_logp(found), without_logp(expected));
        assert_eq!(found.sampler_logp.len(), expected.sampler_logp.len());
        for (found, expected) in found.sampler_logp.iter().zip(&expected.sampler_logp) {
            assert!((found - expected).abs() < TOLERANCE, "{found} {expected}");
        }
    }
}

/// A policy of one process on a learner's weights.
pub(crate) fn policy_of(config: &Config, learner: &LocalLearner) -> EnginePolicy {
    let Loaded { config: dimensions, agent, .. } = setup::load(config).unwrap();
    let weights = learner.updater().trainable().model().weights();
    setup::policy(config, &dimensions, weights, &agent, PolicyVersion(0))
}

#[test]
fn ranks_sample_what_one_process_samples() {
    let config = config(&[]);
    let (samples, screens) = samples(&config);
    let trained: Vec<&Trajectory> = samples.iter().map(|sample| sample.member.trajectory.as_ref()).collect();
    let mut one = alone(&config, None);
    let mut policy = policy_of(&config, &one);
    let before = sample(&config, &mut policy, PolicyVersion(0));
    assert_eq!((before.collected.len(), before.evaluated.len()), (16, 12));
    one.update(&trained, &screens, 1e-3, &mut up).unwrap();
    let after = sample(&config, &mut policy, PolicyVersion(1));
    let logp =
        |sampled: &Sampled| sampled.collected.iter().flat_map(|one| &one.sampler_logp).copied().sum::<f32>();
    let changed = (logp(&before) - logp(&after)).abs();
    assert!(changed > 20.0 * TOLERANCE, "the update changed the log-probabilities by only {changed}");
    for ranks in [2, 3] {
        sampling_together(&config, ranks, None, &StopSwitch::default(), |learner, policy| {
            for (version, expected) in [(0, &before), (1, &after)] {
                if version == 1 {
                    learner.update(&trained, &screens, 1e-3, &mut up).unwrap();
                }
                let found = sample(&config, policy, PolicyVersion(version));
                assert_same(&found.collected, &expected.collected);
                assert_same(&found.evaluated, &expected.evaluated);
                assert_eq!(found.scores, expected.scores);
                assert_eq!(found.report.tokens, expected.report.tokens);
                assert!(found.collected.iter().all(|one| one.policy_version == PolicyVersion(version)));
                // an episode whose rank changes would find nothing of its prefix
                let (hits, of_one) = (found.report.cache_hits, expected.report.cache_hits);
                assert!(hits * 10 > of_one * 8, "{hits} of {of_one}");
            }
            let shares = policy.responses_by_rank();
            let fair = shares.iter().sum::<u64>() / ranks as u64;
            assert!(shares.iter().all(|&share| share > fair / 2), "{shares:?}");
        });
    }
}

#[test]
fn the_same_number_of_ranks_samples_the_same_bits() {
    // as in `ranks`
    tch::set_num_threads(1);
    let config = config(&[]);
    let found: Vec<Sampled> = (0..2)
        .map(|_| {
            sampling_together(&config, 2, None, &StopSwitch::default(), |_, policy| {
                sample(&config, policy, PolicyVersion(0))
            })
        })
        .collect();
    let (first, second) = (&found[0], &found[1]);
    assert_eq!(first.collected, second.collected);
    assert_eq!(first.evaluated, second.evaluated);
}

#[test]
fn an_interrupted_collection_leaves_all_ranks_ready() {
    let config = config(&[]);
    let mut one = policy_of(&config, &alone(&config, None));
    let expected = sample(&config, &mut one, PolicyVersion(0));
    sampling_together(&config, 2, None, &StopSwitch::default(), |learner, policy| {
        let stop = StopSwitch::default();
        let mut collector = collector(&config, &stop);
        // when the first episode has ended; others go on for longer
        let stopped = collector.collect(policy, groups(&config, 8), &mut |_| stop.request());
        assert!(matches!(stopped, Err(TrainError::Interrupted)), "{:?}", stopped.map(|done| done.report));
        assert_eq!(policy.pending(), 0);
        // the run is saved, and may go on: what is left of the dropped requests is in nobody's way
        let folder = std::env::temp_dir().join(format!("arpo-rank-rollouts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        learner.save(&folder).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let found = sample(&config, policy, PolicyVersion(0));
        assert_same(&found.collected, &expected.collected);
        assert_same(&found.evaluated, &expected.evaluated);
    });
}
