//! What a batch is: trajectories without advantage count, in the number of updates and in what the loss is divided by, and
//! add nothing to the gradient.

use arpo_core::config::{Config, Layer, Schedule, resolve};
use arpo_core::loss::{PolicySample, policy_loss};
use arpo_core::replay::{Member, Origin};
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::step::Updater;
use arpo_train::layout::Layout;
use arpo_train::learn::{LearnReport, Place, Updates, learn};
use arpo_train::lesson::{Sample, updates};
use arpo_train::run::stop::StopSwitch;
use arpo_train::screens::Screens;
use arpo_train::trainer::evaluation::{Examination, examine};
use arpo_train::trainer::setup::{self, Loaded};
use std::sync::Arc;
use tch::Tensor;

fn config() -> Config {
    let layers = [
        Layer::preset("quick").unwrap(),
        Layer::set("optimiser.batch=\"all\"").unwrap(),
        Layer::set("optimiser.trajectories_per_update=6").unwrap(),
        Layer::set("optimiser.learning_rate=0.001").unwrap(),
        Layer::set("loss.normaliser=\"trajectory\"").unwrap(),
        Layer::set("loss.old=\"learner\"").unwrap(),
        Layer::set("collect.max_steps=3").unwrap(),
    ];
    resolve(&layers).unwrap()
}

/// Twelve episodes of three tasks, the base's own.
fn played(config: &Config) -> (Vec<Arc<Trajectory>>, Screens) {
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(config).unwrap();
    let mut policy = setup::policy(config, &dimensions, &weights, &agent, PolicyVersion(0));
    let mut collector = setup::collector(config, &Arc::default()).unwrap();
    let tasks = &setup::training_tasks(config).unwrap()[..3];
    let examination =
        Examination { seed: 0, number: 0, samples: 4, max_steps: 3, worlds: 1, refills: 0, faulty: false };
    let played = examine(&mut collector, &mut policy, tasks, &examination, &mut |_| {}).unwrap();
    let mut screens = Screens::default();
    let episodes = played.episodes.into_iter().flatten().map(|episode| {
        screens.add(&episode.trajectory, &episode.screens);
        Arc::new(episode.trajectory)
    });
    (episodes.collect(), screens)
}

fn updater(config: &Config) -> (Updater, arpo_image::ImageProcessor) {
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(config).unwrap();
    let weights = weights.with_gradients(|layout| !layout.is_vision());
    let optimiser = AdamW::new(&weights, config.optimiser.clone());
    let learner = setup::learner(config, &dimensions, weights, &agent);
    (Updater::new(learner, optimiser, None), agent.processor.clone())
}

fn weights(updater: &Updater) -> Vec<Tensor> {
    updater.learner().model().weights().iter().map(|(_, value)| value.copy()).collect()
}

/// What `learn` makes of samples with these advantages, and the weights after it.
fn learnt(config: &Config, advantages: &[f64]) -> (LearnReport, Vec<Tensor>) {
    learnt_at(config, advantages, Place { iteration: 0, updates_before: 0 })
}

fn learnt_at(config: &Config, advantages: &[f64], place: Place) -> (LearnReport, Vec<Tensor>) {
    let (trajectories, screens) = played(config);
    let samples: Vec<Sample> = trajectories
        .into_iter()
        .zip(advantages)
        .map(|(trajectory, &advantage)| Sample {
            member: Member { trajectory, origin: Origin::Fresh {} },
            advantage,
        })
        .collect();
    let (mut updater, processor) = updater(config);
    let micro_batch_tokens = config.model.micro_batch_tokens;
    let stop = &StopSwitch::default();
    let layout =
        Layout { screens: &screens, processor: &processor, features: None, micro_batch_tokens, stop };
    let report =
        learn(&mut updater, None, &samples, &mut Updates::default(), &layout, place, config).unwrap();
    (report, weights(&updater))
}

/// The same, every trajectory gone through and the loss taken from the whole batch at once.
fn worked_out(config: &Config, advantages: &[f64]) -> (Vec<(f64, f64)>, Vec<Tensor>) {
    let (trajectories, screens) = played(config);
    let (mut updater, processor) = updater(config);
    let stop = &StopSwitch::default();
    let layout = Layout {
        screens: &screens,
        processor: &processor,
        features: None,
        micro_batch_tokens: 1 << 14,
        stop,
    };
    let all: Vec<&Trajectory> = trajectories.iter().map(Arc::as_ref).collect();
    let old = layout.scores(updater.learner(), &all).unwrap();
    let mut losses = vec![];
    for batch in updates(all.len(), 0, 0, config) {
        let together: Vec<&Trajectory> = batch.iter().map(|&at| all[at]).collect();
        let new = layout.scores(updater.learner(), &together).unwrap();
        let samples: Vec<PolicySample> = batch
            .iter()
            .zip(&new)
            .map(|(&at, new_logp)| PolicySample {
                advantage: advantages[at],
                new_logp,
                old_logp: &old[at],
                reference_logp: None,
                behaviour: None,
            })
            .collect();
        let loss = policy_loss(&samples, &config.loss);
        let rate = config.optimiser.learning_rate;
        let gradient = |part: &arpo_train::layout::Part, _: &[f32]| {
            (0.0, loss.gradient[part.trajectory][part.trained.clone()].to_vec())
        };
        let report = layout.update(&mut updater, &together, rate, gradient).unwrap();
        losses.push((loss.value, report.gradient_norm.unwrap()));
    }
    (losses, weights(&updater))
}

fn furthest(one: &[Tensor], other: &[Tensor]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b).abs().max().double_value(&[])).fold(0.0, f64::max)
}

#[test]
fn silent_trajectories_count_and_cost_nothing() {
    let config = config();
    let mut advantages = [0.0; 12];
    (advantages[4], advantages[5], advantages[6], advantages[7]) = (1.5, -0.5, -0.5, -0.5);
    let (report, moved) = learnt(&config, &advantages);
    let (losses, expected) = worked_out(&config, &advantages);
    assert_eq!((report.updates, losses.len()), (2, 2), "twelve trajectories, six to an update");
    let [loss, norm] = [|one: &(f64, f64)| one.0, |one: &(f64, f64)| one.1]
        .map(|of| losses.iter().map(of).sum::<f64>() / 2.0);
    assert!((report.loss - loss).abs() < 1e-6 * loss.abs(), "{} instead of {loss}", report.loss);
    assert!((report.gradient_norm - norm).abs() < 1e-4 * norm, "{} instead of {norm}", report.gradient_norm);
    let apart = furthest(&moved, &expected);
    let far = furthest(&moved, &weights(&updater(&config).0));
    assert!(apart < 0.05 * far, "{apart} apart, moved by {far}");
    // only four were gone through
    let (trajectories, _) = played(&config);
    let loud: usize = trajectories[4..8].iter().map(|one| one.tokens()).sum();
    assert!(report.tokens <= loud, "{} tokens of {loud}", report.tokens);
    assert_eq!(
        report.statistics.tokens,
        trajectories[4..8].iter().map(|one| one.trained_tokens()).sum::<usize>()
    );
}

/// A batch in which nothing has an advantage is still an update: moments decay and go on moving the weights.
#[test]
fn the_number_of_updates_does_not_depend_on_who_is_silent() {
    let config = config();
    for advantages in [[0.0; 12], [1.0; 12]] {
        assert_eq!(learnt(&config, &advantages).0.updates, 2);
    }
}

/// The schedule follows the run: the second of two updates in the second of four iterations comes at three eighths.
#[test]
fn an_update_knows_how_much_of_the_run_is_done() {
    let mut config = config();
    (config.iterations, config.optimiser.schedule) = (4, Schedule::Linear);
    let place = Place { iteration: 1, updates_before: 7 };
    let (report, _) = learnt_at(&config, &[1.0; 12], place);
    let expected = config.optimiser.learning_rate * (1.0 - 3.0 / 8.0);
    assert!((report.learning_rate - expected).abs() < 1e-12, "{}", report.learning_rate);
}

/// One trajectory that breaks its updates takes no other with it: in the second epoch the rest is learnt from.
#[test]
fn an_update_that_is_skipped_leaves_the_others_whole() {
    let mut config = config();
    (config.optimiser.epochs, config.model.micro_batch_tokens) = (2, 1);
    let first = updates(12, 0, 0, &config).remove(0);
    let (trajectories, _) = played(&config);
    // it is gone through first, so that of the others in the first update nothing is known
    let broken = first.into_iter().min_by_key(|&at| trajectories[at].tokens()).unwrap();
    let mut advantages = [1.0; 12];
    advantages[broken] = f64::NAN;
    let (report, _) = learnt(&config, &advantages);
    assert_eq!((report.updates, report.skipped), (2, 2));
}
