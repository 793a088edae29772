//! A learner of several ranks, here in threads, learns what one process learns: with unequal and empty shares, clipping,
//! replay, skipped and interrupted updates, and after a checkpoint with another number of ranks.

use arpo_core::config::{Config, Layer, resolve};
use arpo_core::replay::{Member, Origin};
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_ranks::GroupOptions;
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_suite::task_lists;
use arpo_train::TrainError;
use arpo_train::batch::Sample;
use arpo_train::learner::ranks::{RankedLearner, SharedRanks};
use arpo_train::learner::{Learner, LocalLearner, Scorer, SpanLoss, TrainedSpan};
use arpo_train::policy::RankedPolicy;
use arpo_train::run::notices::Notices;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::training_state::{RestoredModel, load_model};
use arpo_train::screens::Screens;
use arpo_train::trainer::evaluation::{EvaluationPlan, evaluate};
use arpo_train::trainer::ranks::{self, Shared, give_reference, take_part};
use arpo_train::trainer::setup::{self, Loaded};
use arpo_train::updates::{LearnReport, RunPosition, Updates, learn};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tch::{Device, Kind, Tensor};

/// What ranks and one process may differ by, because of the order of sums.
const TOLERANCE: f64 = 1e-5;

pub(crate) fn config(more: &[&str]) -> Config {
    let settings = ["collect.desktops=16", "collect.max_steps=4", "optimiser.learning_rate=2e-5"];
    let settings = settings.iter().chain(more).map(|text| Layer::set(text).unwrap());
    resolve(&[Layer::preset("quick").unwrap()].into_iter().chain(settings).collect::<Vec<_>>()).unwrap()
}

/// Episodes of different lengths with their screenshots, fresh and replayed ones, with advantages of both signs.
pub(crate) fn samples(config: &Config) -> (Vec<Sample>, Screens) {
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(config).unwrap();
    let mut policy = setup::policy(config, &dimensions, &weights, &agent, PolicyVersion(0));
    let mut collector = setup::collector(config, None, &Arc::default(), &StopSwitch::default()).unwrap();
    let tasks = task_lists::training_tasks(config).unwrap();
    let plan =
        EvaluationPlan { seed: 3, number: 0, samples: 3, max_steps: 4, worlds: 1, refills: 0, faulty: false };
    let found = evaluate(&mut collector, &mut policy, &tasks[..4], &plan, &mut |_| {}).unwrap();
    let mut screens = Screens::default();
    let mut samples = vec![];
    for (number, episode) in found.episodes.into_iter().flatten().enumerate() {
        screens.add(&episode.trajectory, &episode.screens);
        let origin = if number % 5 == 4 { Origin::Replayed { age: 1 } } else { Origin::Fresh {} };
        let member = Member { trajectory: Arc::new(episode.trajectory), origin };
        let advantage = if number % 3 == 0 { -0.7 } else { 0.4 };
        samples.push(Sample { member, advantage, step_advantages: vec![] });
    }
    (samples, screens)
}

/// The learner of one process, from the base model or from a checkpoint.
pub(crate) fn alone(config: &Config, checkpoint: Option<&Path>) -> LocalLearner {
    let trained = |layout: &arpo_model::checkpoint::layout::ParameterLayout| !layout.is_vision();
    let Loaded { config: dimensions, weights, agent, side_files } = setup::load(config).unwrap();
    let (weights, optimiser) = match checkpoint {
        None => {
            let weights = weights.with_gradients(trained);
            let optimiser = AdamW::new(&weights, config.optimiser.clone());
            (weights, optimiser)
        }
        Some(folder) => {
            let here = (Kind::Float, Device::Cpu);
            let RestoredModel { weights, optimiser, .. } =
                load_model(folder, here, trained, config.optimiser.clone()).unwrap();
            (weights, optimiser)
        }
    };
    let model = setup::trainable_model(config, &dimensions, weights, &agent);
    LocalLearner::new(
        Updater::new(model, optimiser, None),
        agent.processor.clone(),
        config.model.micro_batch_tokens,
    )
    .with_reference(setup::reference(config, &agent).unwrap())
    .with_side_files(side_files)
}

/// Runs a function with a learner of several ranks.
fn together<T>(
    config: &Config,
    ranks: usize,
    checkpoint: Option<&Path>,
    stop: &StopSwitch,
    work: impl FnOnce(&mut RankedLearner) -> T,
) -> T {
    sampling_together(config, ranks, checkpoint, stop, |learner, _| work(learner))
}

/// The same with the policy of all ranks, which samples with the learner's weights.
pub(crate) fn sampling_together<T>(
    config: &Config,
    ranks: usize,
    checkpoint: Option<&Path>,
    stop: &StopSwitch,
    work: impl FnOnce(&mut RankedLearner, &mut RankedPolicy) -> T,
) -> T {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let rendezvous = Rendezvous::listen("test", here, "").unwrap();
    let address = rendezvous.address().to_string();
    let limit = Duration::from_mins(2);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..ranks)
            .map(|_| {
                scope.spawn(|| {
                    let group = join(&address, "", limit, &mut || Ok(())).unwrap();
                    take_part(group)
                })
            })
            .collect();
        let group =
            rendezvous.gather(ranks, GroupOptions::default(), limit, &mut |_| {}, &mut || Ok(())).unwrap();
        let whole = alone(config, checkpoint);
        let Loaded { config: dimensions, agent, side_files, .. } = setup::load(config).unwrap();
        let (shard, tensors) = Shared {
            config,
            dimensions: &dimensions,
            side_files: &side_files,
            weights: whole.updater().trainable().model().weights(),
            restored: checkpoint.map(|_| whole.updater().optimiser()),
            optimiser: config.optimiser.clone(),
            skipped: 0,
            incidents: PathBuf::from("/nowhere/incidents"),
            notices: &Notices::default(),
        }
        .give(group)
        .unwrap();
        let reference = setup::reference(config, &agent).unwrap();
        let shared = SharedRanks::new(tensors, 1 << 20, Box::new(()));
        give_reference(reference.as_ref(), &shared).unwrap();
        let weights = whole.updater().trainable().model().weights().share();
        let weights = weights.with_gradients(|layout| setup::gradient_buffer(config, layout));
        let own = setup::policy(config, &dimensions, &weights, &agent, PolicyVersion(0));
        let mut policy = RankedPolicy::new(own, shared.clone());
        let model = setup::trainable_model(config, &dimensions, weights, &agent);
        let updater = Updater::new(model, shard, None);
        let local = LocalLearner::new(updater, agent.processor.clone(), config.model.micro_batch_tokens)
            .with_reference(reference)
            .with_side_files(side_files)
            .stopped_by(stop.clone());
        let mut learner = RankedLearner::new(local, shared);
        let result = work(&mut learner, &mut policy);
        drop((learner, policy));
        for other in others {
            other.join().unwrap().unwrap();
        }
        result
    })
}

/// The weights, whoever has them.
fn weights(learner: &LocalLearner) -> Vec<Tensor> {
    let weights = learner.updater().trainable().model().weights();
    weights.iter().map(|(_, tensor)| tensor.copy()).collect()
}

fn largest_difference(one: &[Tensor], other: &[Tensor]) -> f64 {
    let difference = |(one, other): (&Tensor, &Tensor)| (one - other).abs().max().double_value(&[]);
    one.iter().zip(other).map(difference).fold(0.0, f64::max)
}

/// Several iterations on the same samples; four updates each.
fn iterate(
    learner: &mut dyn Learner,
    (samples, screens): &(Vec<Sample>, Screens),
    config: &Config,
    iterations: std::ops::Range<u64>,
) -> Vec<LearnReport> {
    let iteration = |iteration: u64| {
        let position = RunPosition { iteration, updates_before: 4 * iteration };
        learn(learner, samples, &mut Updates::default(), screens, position, config).unwrap()
    };
    iterations.map(iteration).collect()
}

fn assert_same(one: &[LearnReport], other: &[LearnReport]) {
    for (one, other) in one.iter().zip(other) {
        assert_eq!((one.updates, one.skipped, one.tokens), (other.updates, other.skipped, other.tokens));
        for (one, other) in [
            (one.loss, other.loss),
            (one.gradient_norm, other.gradient_norm),
            (one.entropy, other.entropy),
            (one.mismatch.mean(), other.mismatch.mean()),
        ] {
            assert!((one - other).abs() < TOLERANCE * other.abs().max(1.0), "{one} {other}");
        }
    }
}

#[test]
fn ranks_learn_what_one_process_learns() {
    // an update has shares of different lengths; its gradient is clipped; old log-probabilities are computed by the ranks, too
    let config = config(&[
        "optimiser.trajectories_per_update=3",
        "optimiser.max_grad_norm=0.0005",
        "optimiser.batch=\"all\"",
        "loss.old=\"learner\"",
        "loss.kl_coefficient=0.01",
        "model.micro_batch_tokens=100",
    ]);
    let data = samples(&config);
    let mut one = alone(&config, None);
    let before = weights(&one);
    let expected = iterate(&mut one, &data, &config, 0..5);
    assert_eq!(expected.iter().map(|report| report.updates).sum::<usize>(), 20);
    assert!(expected.iter().all(|report| report.gradient_norm > 0.0005), "not clipped: {expected:?}");
    let after = weights(&one);
    let moved = largest_difference(&before, &after);
    assert!(moved > 5.0 * TOLERANCE, "the weights hardly moved: {moved}");
    for (ranks, zero_stage) in [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2)] {
        let iterations = if ranks == 2 { 5 } else { 2 };
        let mut divided = config.clone();
        (divided.learn.ranks, divided.learn.zero_stage) = (ranks, zero_stage);
        let (found, saved) = together(&divided, ranks, None, &StopSwitch::default(), |learner| {
            let found = iterate(learner, &data, &divided, 0..iterations);
            (found, saved(learner, &format!("same-{ranks}-{zero_stage}")))
        });
        assert_same(&found, &expected);
        if ranks == 2 {
            let difference = largest_difference(&weights(&alone(&config, Some(&saved))), &after);
            println!("2 ranks, ZeRO-{zero_stage}: the weights differ by {difference:e} after 20 updates");
            assert!(difference < TOLERANCE, "{difference}");
        }
        std::fs::remove_dir_all(saved).unwrap();
    }
}

/// A checkpoint of a learner.
fn saved(learner: &dyn Learner, name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("arpo-ranks-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    learner.save(&folder).unwrap();
    folder
}

#[test]
fn a_run_continues_with_another_number_of_ranks() {
    let config = config(&["optimiser.trajectories_per_update=3", "optimiser.batch=\"all\""]);
    let data = samples(&config);
    let stop = StopSwitch::default();
    let mut one = alone(&config, None);
    iterate(&mut one, &data, &config, 0..3);
    let expected = weights(&one);
    // one, three, two ranks, an iteration each
    let mut first = alone(&config, None);
    iterate(&mut first, &data, &config, 0..1);
    let after_one = saved(&first, "one");
    let after_two = together(&config, 3, Some(&after_one), &stop, |learner| {
        iterate(learner, &data, &config, 1..2);
        saved(learner, "two")
    });
    let after_three = together(&config, 2, Some(&after_two), &stop, |learner| {
        iterate(learner, &data, &config, 2..3);
        saved(learner, "three")
    });
    let last = alone(&config, Some(&after_three));
    assert_eq!(last.updater().optimiser().updates(), one.updater().optimiser().updates());
    let difference = largest_difference(&weights(&last), &expected);
    assert!(difference < TOLERANCE, "{difference}");
    for folder in [after_one, after_two, after_three] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A loss that pushes every token up.
pub(crate) fn up(_: &TrainedSpan, logp: &[f32]) -> SpanLoss {
    let value = -logp.iter().map(|&logp| f64::from(logp)).sum::<f64>() / 100.0;
    SpanLoss { value, coefficients: vec![-0.01; logp.len()] }
}

#[test]
fn empty_shares_skipped_and_interrupted_updates() {
    for zero_stage in ["learn.zero_stage=1", "learn.zero_stage=2"] {
        empty_skipped_and_interrupted(&config(&[
            "model.micro_batch_tokens=100",
            "learn.ranks=3",
            zero_stage,
        ]));
    }
}

fn empty_skipped_and_interrupted(config: &Config) {
    let (samples, screens) = samples(config);
    let all: Vec<&Trajectory> = samples.iter().map(|sample| sample.member.trajectory.as_ref()).collect();
    let mut one = alone(config, None);
    let expected: Vec<_> = [&all[..1], &all[..0], &all[..7]]
        .into_iter()
        .map(|share| one.update(share, &screens, 1e-4, &mut up).unwrap())
        .collect();
    let scores = one.log_probs(Scorer::Policy, &all, &screens).unwrap();
    let expected_weights = weights(&one);
    let stop = StopSwitch::default();
    let folder = together(config, 3, None, &stop, |learner| {
        for (share, expected) in [&all[..1], &all[..0], &all[..7]].into_iter().zip(&expected) {
            let done = learner.update(share, &screens, 1e-4, &mut up).unwrap();
            assert!(done.applied && done.entropy.len() == expected.entropy.len());
            assert!((done.loss - expected.loss).abs() < TOLERANCE * expected.loss.abs().max(1.0));
            let (norm, expected) = (done.gradient_norm.unwrap(), expected.gradient_norm.unwrap());
            assert!((norm - expected).abs() < TOLERANCE * expected.max(1.0), "{norm} {expected}");
        }
        // a loss, and then a gradient, that is not finite, on each of the ranks in turn: all skip
        for odd in 0..all.len().min(6) {
            let mut loss = |span: &TrainedSpan, logp: &[f32]| {
                let mut share = up(span, logp);
                match (span.trajectory == odd, odd % 2) {
                    (false, _) => {}
                    (true, 0) => share.value = f64::NAN,
                    (true, _) => share.coefficients.fill(f32::INFINITY),
                }
                share
            };
            let done = learner.update(&all, &screens, 1e-4, &mut loss).unwrap();
            assert!(!done.applied);
            assert_eq!(learner.skipped(), odd as u64 + 1);
        }
        let found = learner.log_probs(Scorer::Policy, &all, &screens).unwrap();
        for (found, expected) in found.iter().flatten().zip(scores.iter().flatten()) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        // stopped between two micro-batches: nothing has changed, and the run can be saved
        let stopped = learner.update(&all, &screens, 1e-4, &mut |span, logp| {
            stop.request();
            up(span, logp)
        });
        assert!(matches!(stopped, Err(TrainError::Interrupted)), "{stopped:?}");
        let stopped = learner.log_probs(Scorer::Policy, &all, &screens);
        assert!(matches!(stopped, Err(TrainError::Interrupted)), "{stopped:?}");
        saved(learner, "interrupted")
    });
    let last = alone(config, Some(&folder));
    assert_eq!(last.updater().optimiser().updates(), 3);
    let difference = largest_difference(&weights(&last), &expected_weights);
    assert!(difference < TOLERANCE, "{difference}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_same_number_of_ranks_gives_the_same_bits() {
    let config = config(&["optimiser.trajectories_per_update=4", "optimiser.batch=\"all\""]);
    let data = samples(&config);
    let bytes = |name: &str| {
        let folder = together(&config, 2, None, &StopSwitch::default(), |learner| {
            iterate(learner, &data, &config, 0..2);
            saved(learner, name)
        });
        let files = ["model/model.safetensors", "optimiser.safetensors"];
        // behind the header, whose fields have no fixed order
        let values = |file: Vec<u8>| {
            let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            file[8 + header..].to_vec()
        };
        let bytes = files.map(|file| values(std::fs::read(folder.join(file)).unwrap()));
        std::fs::remove_dir_all(folder).unwrap();
        bytes
    };
    assert!(bytes("first") == bytes("second"));
}

#[test]
fn a_rank_that_is_asked_to_stop_ends_the_run() {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let rendezvous = Rendezvous::listen("test", here, "").unwrap();
    let (address, limit) = (rendezvous.address().to_string(), Duration::from_mins(2));
    let stop = StopSwitch::default();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| ranks::join(&address, 1, limit, &stop));
        let group =
            rendezvous.gather(2, GroupOptions::default(), limit, &mut |_| {}, &mut || Ok(())).unwrap();
        let began = Instant::now();
        stop.request();
        let problem = group.receive(1, Some(limit)).unwrap_err().to_string();
        assert!(problem.starts_with("rank 1 (") && problem.ends_with("): asked to stop"), "{problem}");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        drop(group);
        assert_eq!(other.join().unwrap().unwrap_err().to_string(), "asked to stop");
    });
}
