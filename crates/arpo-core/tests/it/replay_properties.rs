//! Properties of the replay buffer.

use arpo_core::loss::LossConfig;
use arpo_core::random::{Purpose, stream};
use arpo_core::replay::{Member, Origin, ReplayBuffer, ReplayConfig, ReplaySlot};
use arpo_core::reward::RewardConfig;
use arpo_core::task::TaskId;
use arpo_core::trajectory::{
    EpisodeId, ImageRef, Observation, Outcome, PolicyVersion, Slice, Step, TokenId, TokenSpan, Trajectory,
};
use proptest::prelude::*;
use std::sync::Arc;

/// Scores of a group and its task; a score below 0 means an environment error.
type Group = (u8, Vec<f64>);

fn any_groups() -> impl Strategy<Value = Vec<Group>> {
    let score = prop_oneof![4 => Just(0.0), 2 => Just(1.0), 1 => 0.0..1.0, 1 => Just(-1.0)];
    prop::collection::vec((0u8..3, prop::collection::vec(score, 0..9)), 0..30)
}

fn any_config() -> impl Strategy<Value = ReplayConfig> {
    let slot = prop_oneof![Just(ReplaySlot::First), Just(ReplaySlot::Random)];
    (1usize..9, slot, 1usize..5, prop_oneof![Just(0u64), 1u64..10]).prop_map(
        |(capacity, slot, injections, max_age)| ReplayConfig {
            capacity,
            slot,
            injections,
            max_age,
            ..ReplayConfig::default()
        },
    )
}

fn rollouts(task: &TaskId, iteration: u64, scores: &[f64]) -> Vec<Arc<Trajectory>> {
    let one = |(index, &score): (usize, &f64)| {
        let screenshot = ImageRef { digest: format!("{iteration}-{index}"), width: 28, height: 28 };
        let step = Step {
            observation: Observation { screenshot },
            response: "Action: wait()".into(),
            actions: vec![],
            span: TokenSpan { start: 1, end: 3 },
        };
        let failed = score < 0.0;
        Arc::new(Trajectory {
            id: EpisodeId::new(iteration, task, index),
            task: task.clone(),
            policy_version: PolicyVersion(iteration),
            slices: vec![Slice { tokens: [1, 2, 3].map(TokenId).to_vec(), first_live: 0, end: 1 }],
            steps: vec![step],
            sampler_logp: vec![-0.1 / (iteration as f32 + 1.0), -1.0 / (index as f32 + 3.0)],
            score: score.max(0.0),
            well_formed: true,
            outcome: if failed {
                Outcome::EnvironmentError { reason: "x".into() }
            } else {
                Outcome::Finished {}
            },
        })
    };
    scores.iter().enumerate().map(one).collect()
}

/// Runs all groups through a buffer; `look` is called after each.
fn run(
    groups: &[Group],
    config: &ReplayConfig,
    mut look: impl FnMut(&TaskId, &[f64], &[Member], &mut ReplayBuffer),
) -> ReplayBuffer {
    let mut buffer = ReplayBuffer::default();
    for (iteration, (task, scores)) in (0u64..).zip(groups) {
        let task = TaskId::new(format!("task {task}"));
        let mut random = stream(5, Purpose::Replay, iteration, 0);
        let rollouts = rollouts(&task, iteration, scores);
        let (members, _) = buffer.exchange(
            &task,
            rollouts,
            PolicyVersion(iteration),
            config,
            &RewardConfig::default(),
            &mut random,
        );
        look(&task, scores, &members, &mut buffer);
    }
    buffer
}

proptest! {
    #[test]
    fn never_above_capacity_and_oldest_out_first(groups in any_groups(), config in any_config()) {
        let mut expected = std::collections::BTreeMap::<TaskId, Vec<String>>::new();
        let mut iteration = 0;
        run(&groups, &config, |task, scores, _, buffer| {
            let kept = expected.entry(task.clone()).or_default();
            for (index, &score) in scores.iter().enumerate() {
                if RewardConfig::default().is_success(score) {
                    kept.push(EpisodeId::new(iteration, task, index).to_string());
                }
            }
            let surplus = kept.len().saturating_sub(config.capacity);
            kept.drain(..surplus);
            let stored: Vec<String> = buffer.successes(task).map(|stored| stored.id.to_string()).collect();
            assert!(stored.len() <= config.capacity);
            assert_eq!(&stored, kept);
            iteration += 1;
        });
    }

    #[test]
    fn injected_members_are_old_enough_successes_of_the_same_task(groups in any_groups(), config in any_config()) {
        let mut iteration = 0;
        run(&groups, &config, |task, scores, members, _| {
            let trainable = scores.iter().filter(|&&score| score >= 0.0).count();
            assert_eq!(members.len(), trainable, "environment errors leave the group, nothing else does");
            let mut replayed = 0;
            for member in members {
                assert!(member.trajectory.outcome.is_trainable());
                if let Origin::Replayed { age } = member.origin {
                    replayed += 1;
                    assert_eq!(&member.trajectory.task, task);
                    assert!(RewardConfig::default().is_success(member.trajectory.score));
                    assert_eq!(age, iteration - member.trajectory.policy_version.0);
                    assert!(age > 0 && (config.max_age == 0 || age <= config.max_age));
                }
            }
            assert!(replayed <= config.injections && (replayed == 0 || replayed < members.len()));
            iteration += 1;
        });
    }

    #[test]
    fn switched_off_it_does_nothing(groups in any_groups(), config in any_config()) {
        let config = ReplayConfig { enabled: false, ..config };
        let buffer = run(&groups, &config, |_, _, members, _| {
            assert!(members.iter().all(|member| member.origin == Origin::Fresh {}));
        });
        prop_assert!(buffer.is_empty());
    }

    /// Saved and read back after every group, the buffer ends in a bit-identical state.
    #[test]
    fn save_and_load_is_identity(groups in any_groups(), config in any_config()) {
        let straight = run(&groups, &config, |_, _, _, _| ());
        let interrupted = run(&groups, &config, |_, _, _, buffer| {
            let json = serde_json::to_string(buffer).unwrap();
            let restored: ReplayBuffer = serde_json::from_str(&json).unwrap();
            restored.check().unwrap();
            assert_eq!(&restored, buffer);
            *buffer = restored;
        });
        prop_assert_eq!(serde_json::to_string(&straight).unwrap(), serde_json::to_string(&interrupted).unwrap());
    }
}

/// Each of the two options applies to its own kind of tokens.
#[test]
fn importance_weights_are_separate_for_fresh_and_replayed_tokens() {
    let trajectory = rollouts(&TaskId::new("a"), 0, &[1.0]).remove(0);
    let member = |origin| Member { trajectory: Arc::clone(&trajectory), origin };
    for (fresh, replayed) in [(0.0, 0.0), (2.0, 0.0), (0.0, 3.0), (2.0, 3.0)] {
        let loss = LossConfig { importance_truncation: fresh, ..LossConfig::default() };
        let replay = ReplayConfig { importance_truncation: replayed, ..ReplayConfig::default() };
        for (origin, truncation) in [(Origin::Fresh {}, fresh), (Origin::Replayed { age: 1 }, replayed)] {
            let member = member(origin);
            let behaviour = member.behaviour(&loss, &replay);
            assert_eq!(
                behaviour.map(|behaviour| behaviour.truncation),
                (truncation > 0.0).then_some(truncation)
            );
            assert!(behaviour.is_none_or(|behaviour| behaviour.logp == trajectory.sampler_logp));
        }
    }
}

#[test]
fn a_trajectory_of_another_task_is_rejected() {
    let mut buffer = ReplayBuffer::default();
    let mut random = stream(0, Purpose::Replay, 0, 0);
    let foreign = rollouts(&TaskId::new("b"), 0, &[1.0]);
    buffer.exchange(
        &TaskId::new("a"),
        foreign,
        PolicyVersion(0),
        &ReplayConfig::default(),
        &RewardConfig::default(),
        &mut random,
    );
    assert_eq!(
        buffer.check().unwrap_err().to_string(),
        "replay buffer: episode 0:b:0 of task b is stored under task a"
    );
}

#[test]
fn seeds_are_the_latest_successes_of_each_task() {
    let (one, two) = (TaskId::new("one"), TaskId::new("two"));
    let config = ReplayConfig { capacity: 2, max_age: 3, ..ReplayConfig::default() };
    let mut buffer = ReplayBuffer::default();
    // a score below 0 means an environment error
    let episodes = [rollouts(&one, 0, &[1.0, 0.0, 1.0, -1.0, 1.0]), rollouts(&two, 0, &[0.0, 1.0])].concat();
    assert_eq!(buffer.seed(episodes, &config, &RewardConfig::default()), 3);
    let stored: Vec<String> = buffer.successes(&one).map(|stored| stored.id.to_string()).collect();
    assert_eq!(stored, ["0:one:2", "0:one:4"]);
    // they are injected into a failed group, until they are too old
    let injected = |version| {
        let mut random = stream(5, Purpose::Replay, version, 0);
        let (failures, reward) = (rollouts(&two, version, &[0.0, 0.0]), RewardConfig::default());
        buffer
            .clone()
            .exchange(&two, failures, PolicyVersion(version), &config, &reward, &mut random)
            .1
            .injected
            .len()
    };
    assert_eq!((injected(0), injected(3), injected(4)), (1, 1, 0));
}
