//! Batches: trajectories with advantage 0 count in the number of updates and in the loss normaliser, and contribute
//! nothing to the gradient.

use arpo_core::config::{Config, Layer, Schedule, resolve};
use arpo_core::loss::{PolicySample, RatioLevel, policy_loss};
use arpo_core::replay::{Member, Origin};
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_suite::task_lists;
use arpo_train::batch::{Sample, mini_batches};
use arpo_train::learner::{Learner, LocalLearner, Scorer, SpanLoss, TrainedSpan};
use arpo_train::run::stop::StopSwitch;
use arpo_train::screens::Screens;
use arpo_train::trainer::evaluation::{EvaluationPlan, evaluate};
use arpo_train::trainer::setup::{self, Loaded};
use arpo_train::updates::{LearnReport, RunPosition, Updates, learn};
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

/// Twelve episodes of three tasks, sampled from the base model.
fn collected(config: &Config) -> (Vec<Arc<Trajectory>>, Screens) {
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(config).unwrap();
    let mut policy = setup::policy(config, &dimensions, &weights, &agent, PolicyVersion(0));
    let mut collector = setup::collector(config, None, &Arc::default(), &StopSwitch::default()).unwrap();
    let tasks = &task_lists::training_tasks(config).unwrap()[..3];
    let plan =
        EvaluationPlan { seed: 0, number: 0, samples: 4, max_steps: 3, worlds: 1, refills: 0, faulty: false };
    let result = evaluate(&mut collector, &mut policy, tasks, &plan, &mut |_| {}).unwrap();
    let mut screens = Screens::default();
    let episodes = result.episodes.into_iter().flatten().map(|episode| {
        screens.add(&episode.trajectory, &episode.screens);
        Arc::new(episode.trajectory)
    });
    (episodes.collect(), screens)
}

fn learner(config: &Config, micro_batch_tokens: usize) -> LocalLearner {
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(config).unwrap();
    let weights = weights.with_gradients(|layout| !layout.is_vision());
    let optimiser = AdamW::new(&weights, config.optimiser.clone());
    let model = setup::trainable_model(config, &dimensions, weights, &agent);
    LocalLearner::new(Updater::new(model, optimiser, None), agent.processor.clone(), micro_batch_tokens)
}

fn weights(learner: &LocalLearner) -> Vec<Tensor> {
    learner.updater().trainable().model().weights().iter().map(|(_, value)| value.copy()).collect()
}

/// The report of `learn` on samples with these advantages, and the weights after it.
fn learnt(config: &Config, advantages: &[f64]) -> (LearnReport, Vec<Tensor>) {
    learnt_at(config, advantages, RunPosition { iteration: 0, updates_before: 0 })
}

fn learnt_at(config: &Config, advantages: &[f64], position: RunPosition) -> (LearnReport, Vec<Tensor>) {
    let (trajectories, screens) = collected(config);
    let samples: Vec<Sample> = trajectories
        .into_iter()
        .zip(advantages)
        .map(|(trajectory, &advantage)| Sample {
            member: Member { trajectory, origin: Origin::Fresh {} },
            advantage,
            step_advantages: vec![],
        })
        .collect();
    let mut learner = learner(config, config.model.micro_batch_tokens);
    let report = learn(&mut learner, &samples, &mut Updates::default(), &screens, position, config).unwrap();
    (report, weights(&learner))
}

/// The expected losses, gradient norms and weights: every trajectory computed, the loss of the whole batch at once.
fn expected(config: &Config, advantages: &[f64]) -> (Vec<(f64, f64)>, Vec<Tensor>) {
    let (trajectories, screens) = collected(config);
    let mut learner = learner(config, 1 << 14);
    let all: Vec<&Trajectory> = trajectories.iter().map(Arc::as_ref).collect();
    let old = learner.log_probs(Scorer::Policy, &all, &screens).unwrap();
    let mut losses = vec![];
    for batch in mini_batches(all.len(), 0, 0, config) {
        let together: Vec<&Trajectory> = batch.iter().map(|&at| all[at]).collect();
        let new = learner.log_probs(Scorer::Policy, &together, &screens).unwrap();
        let samples: Vec<PolicySample> = batch
            .iter()
            .zip(&new)
            .map(|(&at, new_logp)| PolicySample {
                advantage: advantages[at],
                new_logp,
                old_logp: &old[at],
                ..PolicySample::default()
            })
            .collect();
        let loss = policy_loss(&samples, &config.loss);
        let rate = config.optimiser.learning_rate;
        let mut gradient = |span: &TrainedSpan, _: &[f32]| {
            let coefficients = loss.gradient[span.trajectory][span.trained.clone()].to_vec();
            SpanLoss { value: 0.0, coefficients }
        };
        let report = learner.update(&together, &screens, rate, &mut gradient).unwrap();
        losses.push((loss.value, report.gradient_norm.unwrap()));
    }
    (losses, weights(&learner))
}

fn largest_difference(one: &[Tensor], other: &[Tensor]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b).abs().max().double_value(&[])).fold(0.0, f64::max)
}

#[test]
fn trajectories_without_advantage_count_and_are_not_computed() {
    let config = config();
    let mut advantages = [0.0; 12];
    (advantages[4], advantages[5], advantages[6], advantages[7]) = (1.5, -0.5, -0.5, -0.5);
    let (report, updated) = learnt(&config, &advantages);
    let (losses, expected) = expected(&config, &advantages);
    assert_eq!((report.updates, losses.len()), (2, 2), "twelve trajectories, six per update");
    let [loss, norm] = [|one: &(f64, f64)| one.0, |one: &(f64, f64)| one.1]
        .map(|of| losses.iter().map(of).sum::<f64>() / 2.0);
    assert!((report.loss - loss).abs() < 1e-6 * loss.abs(), "{} instead of {loss}", report.loss);
    assert!((report.gradient_norm - norm).abs() < 1e-4 * norm, "{} instead of {norm}", report.gradient_norm);
    let difference = largest_difference(&updated, &expected);
    let change = largest_difference(&updated, &weights(&learner(&config, 1)));
    assert!(difference < 0.05 * change, "difference {difference}, change {change}");
    // only four were computed
    let (trajectories, _) = collected(&config);
    let computed: usize = trajectories[4..8].iter().map(|one| one.tokens()).sum();
    assert!(report.tokens <= computed, "{} tokens of {computed}", report.tokens);
    assert_eq!(
        report.statistics.tokens,
        trajectories[4..8].iter().map(|one| one.trained_tokens()).sum::<usize>()
    );
}

/// GSPO: every episode is three slices, each in a micro-batch of its own, and yet it has one ratio.
#[test]
fn a_trajectory_has_one_ratio_over_all_its_slices() {
    let mut config = config();
    (config.agent.max_screenshots, config.model.micro_batch_tokens) = (1, 1);
    (config.loss.ratio, config.loss.clip_low, config.loss.clip_high) = (RatioLevel::Trajectory, 1e-3, 1e-3);
    let advantages: Vec<f64> = (0..12).map(|at| if at % 2 == 0 { 1.0 } else { -0.5 }).collect();
    assert!(collected(&config).0.iter().any(|trajectory| trajectory.slices.len() > 1));
    let (report, updated) = learnt(&config, &advantages);
    let (losses, expected) = expected(&config, &advantages);
    let loss = losses.iter().map(|(loss, _)| loss).sum::<f64>() / 2.0;
    assert!((report.loss - loss).abs() < 1e-5 * loss.abs(), "{} instead of {loss}", report.loss);
    let difference = largest_difference(&updated, &expected);
    let change = largest_difference(&updated, &weights(&learner(&config, 1)));
    assert!(difference < 0.05 * change, "difference {difference}, change {change}");
    assert!(report.statistics.clipped > 0, "the first update has moved some ratios beyond the clip");
}

/// A batch without any advantage is still an update: the moments decay and still change the weights.
#[test]
fn the_number_of_updates_does_not_depend_on_advantages() {
    let config = config();
    for advantages in [[0.0; 12], [1.0; 12]] {
        assert_eq!(learnt(&config, &advantages).0.updates, 2);
    }
}

/// The schedule covers the run: the second of two updates in the second of four iterations is at three eighths.
#[test]
fn the_learning_rate_follows_the_progress_of_the_run() {
    let mut config = config();
    (config.iterations, config.optimiser.schedule) = (4, Schedule::Linear);
    let position = RunPosition { iteration: 1, updates_before: 7 };
    let (report, _) = learnt_at(&config, &[1.0; 12], position);
    let expected = config.optimiser.learning_rate * (1.0 - 3.0 / 8.0);
    assert!((report.learning_rate - expected).abs() < 1e-12, "{}", report.learning_rate);
}

/// A trajectory with a NaN loss spoils only its own updates: the other updates of both epochs are made.
#[test]
fn a_skipped_update_does_not_affect_the_others() {
    let mut config = config();
    (config.optimiser.epochs, config.model.micro_batch_tokens) = (2, 1);
    let first = mini_batches(12, 0, 0, &config).remove(0);
    let (trajectories, _) = collected(&config);
    // it is computed first, so that the others in the first update have no old log-probabilities yet
    let broken = first.into_iter().min_by_key(|&at| trajectories[at].tokens()).unwrap();
    let mut advantages = [1.0; 12];
    advantages[broken] = f64::NAN;
    let (report, _) = learnt(&config, &advantages);
    assert_eq!((report.updates, report.skipped), (2, 2));
}
