//! The pocket model learns from its own episodes; with the sign of its advantages flipped it does not.

use arpo_core::config::{Config, Layer, resolve};
use arpo_core::replay::ReplayBuffer;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::step::Updater;
use arpo_train::layout::Layout;
use arpo_train::learn::{Place, Updates, learn};
use arpo_train::lesson::{Rollouts, lesson};
use arpo_train::run::stop::StopSwitch;
use arpo_train::screens::Screens;
use arpo_train::trainer::evaluation::{Examination, examine};
use arpo_train::trainer::setup::{self, Loaded};
use std::sync::Arc;

const ITERATIONS: u64 = 9;

fn config() -> Config {
    let layers = [
        Layer::preset("quick").unwrap(),
        Layer::set("optimiser.learning_rate=0.0005").unwrap(),
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
    let mut updater = Updater::new(setup::learner(config, &dimensions, weights, &agent), optimiser, None);
    let mut collector = setup::collector(config, &Arc::default()).unwrap();
    let (mut buffer, mut screens) = (ReplayBuffer::default(), Screens::default());
    let mut scores = vec![];
    for iteration in 0..ITERATIONS {
        policy.refresh(PolicyVersion(iteration)).unwrap();
        let examination = Examination {
            seed: 1,
            number: iteration,
            samples: 8,
            max_steps: 6,
            worlds: 1,
            refills: 0,
            faulty: false,
        };
        let played = examine(&mut collector, &mut policy, tasks, &examination, &mut |_| {}).unwrap();
        let groups = played.tasks.iter().zip(played.episodes).map(|(scores, episodes)| {
            let trajectories = episodes
                .into_iter()
                .map(|episode| {
                    screens.add(&episode.trajectory, &episode.screens);
                    Arc::new(episode.trajectory)
                })
                .collect();
            Rollouts { task: scores.task.clone(), trajectories }
        });
        let groups = groups.collect();
        let mut lesson = lesson(groups, &mut buffer, PolicyVersion(iteration), iteration, config);
        lesson.samples.iter_mut().for_each(|sample| sample.advantage *= sign);
        let layout = Layout {
            screens: &screens,
            processor: &agent.processor,
            features: None,
            micro_batch_tokens: 1 << 14,
            stop: &StopSwitch::default(),
        };
        let place = Place { iteration, updates_before: iteration };
        let report =
            learn(&mut updater, None, &lesson.samples, &mut Updates::default(), &layout, place, config)
                .unwrap();
        assert!(report.mismatch.mean() < 1e-3, "sampler and learner differ by {}", report.mismatch.mean());
        scores.push(lesson.report.score);
    }
    scores
}

#[test]
fn success_rises_unless_advantages_are_flipped() {
    let config = config();
    // tasks the base solves now and then
    let all = setup::training_tasks(&config).unwrap();
    let Loaded { config: dimensions, weights, agent, .. } = setup::load(&config).unwrap();
    let mut policy = setup::policy(&config, &dimensions, &weights, &agent, PolicyVersion(0));
    let mut collector = setup::collector(&config, &Arc::default()).unwrap();
    let examination =
        Examination { seed: 0, number: 0, samples: 4, max_steps: 6, worlds: 1, refills: 0, faulty: false };
    let played = examine(&mut collector, &mut policy, &all[..16], &examination, &mut |_| {}).unwrap();
    let mixed = |at: &usize| {
        let solved: f64 = played.tasks[*at].scores.iter().sum();
        (1.0..4.0).contains(&solved)
    };
    let tasks: Vec<Arc<Task>> = (0..16).filter(mixed).map(|at| Arc::clone(&all[at])).take(3).collect();
    assert!(tasks.len() >= 2, "the base has no tasks it solves now and then");
    let mean = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len() as f64;
    let rises = train(&config, &tasks, 1.0);
    assert!(mean(&rises[6..]) > mean(&rises[..3]) + 0.1, "{rises:?}");
    let falls = train(&config, &tasks, -1.0);
    assert!(mean(&falls[6..]) < mean(&falls[..3]) + 0.05, "{falls:?}");
}
