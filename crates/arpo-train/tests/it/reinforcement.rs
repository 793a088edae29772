//! The pocket model learns from its own episodes; with the sign of its advantages flipped it gets worse.

use arpo_core::config::{Config, Layer, resolve};
use arpo_core::replay::ReplayBuffer;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_suite::task_lists;
use arpo_train::batch::{RolloutGroup, assemble};
use arpo_train::learner::LocalLearner;
use arpo_train::policy::{RolloutPolicy, WeightUpdate};
use arpo_train::run::stop::StopSwitch;
use arpo_train::screens::Screens;
use arpo_train::trainer::evaluation::{EvaluationPlan, evaluate};
use arpo_train::trainer::setup::{self, Loaded};
use arpo_train::updates::{RunPosition, Updates, learn};
use std::sync::Arc;

const ITERATIONS: u64 = 12;

fn config() -> Config {
    let layers = [
        Layer::preset("quick").unwrap(),
        Layer::set("tasks.list=quick").unwrap(),
        Layer::set("optimiser.learning_rate=0.0002").unwrap(),
        Layer::set("collect.desktops=32").unwrap(),
        Layer::set("collect.max_steps=6").unwrap(),
    ];
    resolve(&layers).unwrap()
}

/// Mean score of every iteration.
fn train(config: &Config, tasks: &[Arc<Task>], sign: f64) -> Vec<f64> {
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(config).unwrap();
    let weights = weights.with_gradients(|layout| !layout.is_vision());
    let mut policy = setup::policy(config, &dimensions, &weights, &agent, PolicyVersion(0));
    let optimiser = AdamW::new(&weights, config.optimiser.clone());
    let updater = Updater::new(setup::trainable_model(config, &dimensions, weights, &agent), optimiser, None);
    let mut learner = LocalLearner::new(updater, agent.processor.clone(), 1 << 14);
    let mut collector = setup::collector(config, None, &Arc::default(), &StopSwitch::default()).unwrap();
    let (mut buffer, mut screens) = (ReplayBuffer::default(), Screens::default());
    let mut scores = vec![];
    for iteration in 0..ITERATIONS {
        policy.publish(WeightUpdate::InPlace, PolicyVersion(iteration)).unwrap();
        let plan = EvaluationPlan {
            seed: 1,
            number: iteration,
            samples: 8,
            max_steps: 6,
            worlds: 1,
            refills: 0,
            faulty: false,
        };
        let result = evaluate(&mut collector, &mut policy, tasks, &plan, &mut |_| {}).unwrap();
        let groups = result.tasks.iter().zip(result.episodes).map(|(scores, episodes)| {
            let trajectories = episodes
                .into_iter()
                .map(|episode| {
                    screens.add(&episode.trajectory, &episode.screens);
                    Arc::new(episode.trajectory)
                })
                .collect();
            RolloutGroup { task: scores.task.clone(), trajectories }
        });
        let groups = groups.collect();
        let mut batch = assemble(groups, &mut buffer, PolicyVersion(iteration), iteration, config);
        batch.samples.iter_mut().for_each(|sample| sample.advantage *= sign);
        let position = RunPosition { iteration, updates_before: iteration };
        let report =
            learn(&mut learner, &batch.samples, &mut Updates::default(), &screens, position, config).unwrap();
        assert!(report.mismatch.mean() < 1e-3, "sampler and learner differ by {}", report.mismatch.mean());
        scores.push(batch.report.score);
    }
    scores
}

#[test]
fn success_rises_unless_advantages_are_flipped() {
    let config = config();
    // tasks that the base model solves sometimes
    let all = task_lists::training_tasks(&config).unwrap();
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(&config).unwrap();
    let mut policy = setup::policy(&config, &dimensions, &weights, &agent, PolicyVersion(0));
    let mut collector = setup::collector(&config, None, &Arc::default(), &StopSwitch::default()).unwrap();
    let plan =
        EvaluationPlan { seed: 0, number: 0, samples: 4, max_steps: 6, worlds: 1, refills: 0, faulty: false };
    let result = evaluate(&mut collector, &mut policy, &all[..16], &plan, &mut |_| {}).unwrap();
    let mixed = |at: &usize| {
        let solved: f64 = result.tasks[*at].scores.iter().sum();
        (1.0..4.0).contains(&solved)
    };
    let chosen: Vec<usize> = (0..16).filter(mixed).take(3).collect();
    let tasks: Vec<Arc<Task>> = chosen.iter().map(|&at| Arc::clone(&all[at])).collect();
    assert!(tasks.len() >= 2, "the base model solves too few tasks sometimes but not always");
    let mean = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len() as f64;
    let rises = train(&config, &tasks, 1.0);
    assert!(mean(&rises[8..]) > mean(&rises[..3]) + 0.1, "{rises:?}");
    let falls = train(&config, &tasks, -1.0);
    let base: Vec<f64> = chosen.iter().flat_map(|&at| result.tasks[at].scores.clone()).collect();
    assert!(mean(&falls[8..]) < mean(&base) - 0.1, "{falls:?}, the base model {base:?}");
}
