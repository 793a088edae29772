//! The replay rule and the contents of the buffer against the released code (`replay.json`).

use crate::golden::read;
use arpo_core::random::{Purpose, stream};
use arpo_core::replay::{Origin, ReplayBuffer, ReplayConfig, all_failed};
use arpo_core::reward::RewardConfig;
use arpo_core::task::TaskId;
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
struct Case {
    capacity: usize,
    stream: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    iteration: u64,
    task: String,
    ids: Vec<String>,
    rewards: Vec<f64>,
    all_failed: bool,
    replay_candidates: Vec<String>,
    buffer_after: Vec<String>,
}

fn rollout(iteration: u64, task: &TaskId, index: usize, score: f64) -> Arc<Trajectory> {
    Arc::new(Trajectory::without_turns(iteration, task, index, score))
}

#[test]
fn golden_replay_streams() {
    let cases: Vec<Case> = read("replay.json");
    assert!(!cases.is_empty());
    for case in cases {
        let config = ReplayConfig { capacity: case.capacity, ..ReplayConfig::default() };
        let mut buffer = ReplayBuffer::default();
        for (number, group) in case.stream.into_iter().enumerate() {
            let task = TaskId::new(group.task);
            let now = PolicyVersion(group.iteration);
            assert_eq!(all_failed(&group.rewards, &config), group.all_failed, "{task} at {now:?}");
            let candidates: Vec<String> =
                buffer.candidates(&task, now, &config).iter().map(|stored| stored.id.to_string()).collect();
            if group.all_failed {
                assert_eq!(candidates, group.replay_candidates);
            }
            let rollouts: Vec<_> = group
                .rewards
                .iter()
                .enumerate()
                .map(|(index, &score)| rollout(group.iteration, &task, index, score))
                .collect();
            let ids: Vec<String> = rollouts.iter().map(|rollout| rollout.id.to_string()).collect();
            assert_eq!(ids, group.ids);

            let mut random = stream(0, Purpose::Replay, group.iteration, number as u64);
            let (members, report) =
                buffer.exchange(&task, rollouts, now, &config, &RewardConfig::default(), &mut random);

            assert_eq!(report.all_failed, group.all_failed);
            let injected = group.all_failed && !group.replay_candidates.is_empty();
            assert_eq!(report.injected.len(), usize::from(injected));
            for (slot, (member, id)) in members.iter().zip(&ids).enumerate() {
                let (stored, replayed) =
                    (member.trajectory.id.to_string(), member.origin != Origin::Fresh {});
                assert_eq!(replayed, injected && slot == 0);
                assert!(if replayed { group.replay_candidates.contains(&stored) } else { stored == *id });
            }
            let after: Vec<String> = buffer.successes(&task).map(|stored| stored.id.to_string()).collect();
            assert_eq!(after, group.buffer_after);
        }
    }
}
