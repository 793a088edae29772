//! Ranks that only learn and ranks that only sample, here in threads: together they do what one process does; and they do both
//! at once.

use crate::rank_rollouts::{Sampled, assert_same, policy_of, sample};
use crate::ranks::{alone, config, samples, up};
use arpo_core::config::Config;
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_model::training::step::Updater;
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Group, GroupOptions};
use arpo_train::batch::Sample;
use arpo_train::learner::ranks::{RankedLearner, SharedRanks};
use arpo_train::learner::{Learner, LocalLearner};
use arpo_train::policy::{Policy, RankedPolicy, RolloutPolicy, WeightUpdate};
use arpo_train::run::notices::Notices;
use arpo_train::trainer::ranks::{Shared, take_part};
use arpo_train::trainer::setup::{self, Loaded};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A run of so many ranks, of which some learn.
fn split(ranks: usize, learners: usize, more: &[&str]) -> Config {
    let (ranks, learners) = (format!("learn.ranks={ranks}"), format!("learn.gpus={learners}"));
    config(&[&[ranks.as_str(), learners.as_str()][..], more].concat())
}

/// Runs a function with the learner and the policy of such a run; the learner hands out copies of its weights, or not.
fn together<T>(
    config: &Config,
    copying: bool,
    work: impl FnOnce(&mut dyn Learner, &mut RankedPolicy) -> T,
) -> T {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let rendezvous = Rendezvous::listen("test", here, "").unwrap();
    let address = rendezvous.address().to_string();
    let limit = Duration::from_mins(2);
    let (learners, samplers) = (config.learn.learners(), config.learn.samplers());
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..config.learn.ranks)
            .map(|_| scope.spawn(|| take_part(join(&address, "", limit, &mut || Ok(())).unwrap())))
            .collect();
        let groups = rendezvous.gather_groups(
            [learners - 1, samplers],
            GroupOptions::default(),
            limit,
            &mut |_| {},
            &mut || Ok(()),
        );
        let [learning, sampling] = groups.unwrap();
        let whole = alone(config, None);
        let Loaded { config: dimensions, agent, side_files, .. } = setup::load(config).unwrap();
        let trained = whole.updater().trainable().model().weights().share();
        let shared = Shared {
            config,
            dimensions: &dimensions,
            side_files: &side_files,
            weights: whole.updater().trainable().model().weights(),
            restored: None,
            optimiser: config.optimiser.clone(),
            skipped: 0,
            incidents: PathBuf::from("/nowhere/incidents"),
            notices: &Notices::default(),
        };
        let ranks_of = |tensors| SharedRanks::new(tensors, 1 << 20, Box::new(()));
        let that_sample = ranks_of(shared.give_samplers(sampling).unwrap());
        let that_learn = (learners > 1).then(|| shared.give(learning).unwrap());
        let sentinel = Some(that_sample.sentinel());
        let options = setup::response_options(config);
        let version = PolicyVersion(0);
        let (weights, of_policy) = ((trained.share(), version), Arc::clone(&agent));
        let mut policy = RankedPolicy::sampling_elsewhere(weights, of_policy, options, 64, that_sample);
        let mut learner: Box<dyn Learner> = match that_learn {
            None => Box::new(whole.watching_samplers(sentinel).copying_weights(copying)),
            Some((shard, tensors)) => {
                let weights = trained.with_gradients(|layout| setup::gradient_buffer(config, layout));
                let model = setup::trainable_model(config, &dimensions, weights, &agent);
                let updater = Updater::new(model, shard, None);
                let tokens = config.model.micro_batch_tokens;
                let local = LocalLearner::new(updater, agent.processor.clone(), tokens)
                    .watching_samplers(sentinel)
                    .copying_weights(copying);
                Box::new(RankedLearner::new(local, ranks_of(tensors)))
            }
        };
        let result = work(learner.as_mut(), &mut policy);
        drop((learner, policy));
        for other in others {
            other.join().unwrap().unwrap();
        }
        result
    })
}

fn trajectories(samples: &[Sample]) -> Vec<&Trajectory> {
    samples.iter().map(|sample| sample.member.trajectory.as_ref()).collect()
}

fn assert_sampled(found: &Sampled, expected: &Sampled, version: PolicyVersion) {
    assert_same(&found.collected, &expected.collected);
    assert_same(&found.evaluated, &expected.evaluated);
    assert_eq!(found.scores, expected.scores);
    assert!(found.collected.iter().all(|one| one.policy_version == version));
}

#[test]
fn ranks_that_learn_and_ranks_that_sample_do_what_one_process_does() {
    let config = config(&[]);
    let (samples, screens) = samples(&config);
    let trained = trajectories(&samples);
    let mut one = alone(&config, None);
    let mut policy = policy_of(&config, &one);
    let before = sample(&config, &mut policy, PolicyVersion(0));
    let expected = one.update(&trained, &screens, 1e-4, &mut up).unwrap();
    let after = sample(&config, &mut policy, PolicyVersion(1));
    for (learners, samplers) in [(1, 1), (1, 2), (2, 1)] {
        let config = split(learners + samplers, learners, &[]);
        together(&config, false, |learner, policy| {
            assert_sampled(&sample(&config, policy, PolicyVersion(0)), &before, PolicyVersion(0));
            let done = learner.update(&trained, &screens, 1e-4, &mut up).unwrap();
            assert!(done.applied && (done.loss - expected.loss).abs() < 1e-5 * expected.loss.abs().max(1.0));
            // the weights are broadcast with the new version
            assert_sampled(&sample(&config, policy, PolicyVersion(1)), &after, PolicyVersion(1));
            let shares = policy.responses_by_rank();
            assert_eq!((shares.len(), shares[0]), (samplers + 1, 0), "rank 0 only learns");
            assert!(shares[1..].iter().all(|&share| share > 0), "{shares:?}");
            assert_eq!(policy.max_episodes(), Some(64 * samplers));
        });
    }
}

#[test]
fn ranks_sample_while_others_learn_and_get_every_version() {
    let overlapped = ["collect.mode=\"overlapped\"", "loss.old=\"sampler\""];
    let (samples, screens) = samples(&config(&[]));
    let trained = trajectories(&samples);
    for (ranks, learners) in [(2, 1), (3, 2)] {
        let config = split(ranks, learners, &overlapped);
        together(&config, true, |learner, policy| {
            for version in 0..3 {
                let sampled = std::thread::scope(|scope| {
                    let sampling = scope.spawn(|| sample(&config, policy, PolicyVersion(version)));
                    let mut updates = 0;
                    while updates == 0 || !sampling.is_finished() {
                        assert!(learner.update(&trained, &screens, 1e-6, &mut up).unwrap().applied);
                        updates += 1;
                    }
                    sampling.join().unwrap()
                });
                let version = PolicyVersion(version);
                assert!(sampled.collected.iter().all(|one| one.policy_version == version));
                let next = learner.weights();
                assert!(matches!(next, WeightUpdate::Copy(_)));
                policy.publish(next, PolicyVersion(version.0 + 1)).unwrap();
            }
            // what they have now is what the learner has
            let WeightUpdate::Copy(weights) = learner.weights() else { panic!() };
            let Loaded { config: dimensions, agent, .. } = setup::load(&config).unwrap();
            let version = PolicyVersion(3);
            let mut own = setup::policy(&config, &dimensions, &weights, &agent, version);
            let expected = sample(&config, &mut own, version);
            assert_sampled(&sample(&config, policy, version), &expected, version);
        });
    }
}

#[test]
fn a_learner_ends_when_a_rank_that_samples_is_lost() {
    let config = config(&[]);
    let (samples, screens) = samples(&config);
    let group = Group::alone();
    let mut learner = alone(&config, None).watching_samplers(Some(group.sentinel()));
    learner.update(&trajectories(&samples), &screens, 1e-4, &mut up).unwrap();
    let reason = "rank 3 (there, process 17) is gone: the connection ended";
    group.end(reason);
    let lost = learner.update(&trajectories(&samples), &screens, 1e-4, &mut up).unwrap_err();
    assert_eq!(lost.to_string(), reason);
}
