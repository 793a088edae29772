//! A checkpoint of a training run, read back: model, optimiser and the trainer's own state.

use crate::run_folder::Temporary;
use arpo_core::config::OptimiserConfig;
use arpo_core::sampler::TaskSampler;
use arpo_core::task::TaskId;
use arpo_model::checkpoint::Weights;
use arpo_model::config;
use arpo_model::learner::adamw::AdamW;
use arpo_train::run::checkpoints::NewCheckpoint;
use arpo_train::run::training_state::{Learnt, load_training};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tch::{Device, Kind, Tensor, no_grad};

/// As a trainer may have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    iteration: u64,
    sampler: TaskSampler,
    metrics_position: u64,
    best: Option<(u64, f64)>,
}

fn update(optimiser: &mut AdamW, weights: &Weights) {
    for (_, _, gradient) in weights.trained() {
        let numbers = Tensor::arange(gradient.numel() as i64, (Kind::Float, Device::Cpu)).sin() * 0.01;
        no_grad(|| gradient.shallow_clone().copy_(&numbers.view_as(gradient)));
    }
    optimiser.update(weights, 1e-3);
}

#[test]
fn everything_comes_back() {
    let temporary = Temporary::new("training");
    let folder = temporary.started();
    let model = config::pocket();
    let (kind, everything) = (Kind::Float, |_: &_| true);
    let weights = Weights::random(&model, kind, Device::Cpu).with_gradients(everything);
    let mut optimiser = AdamW::new(&weights, OptimiserConfig::default());
    update(&mut optimiser, &weights);
    let side_files = BTreeMap::from([("tokenizer.json".to_owned(), b"{}".to_vec())]);
    let state = State {
        iteration: 12,
        sampler: TaskSampler::new((0..5).map(|number| TaskId::new(format!("t{number}"))), 3),
        metrics_position: 0,
        best: Some((10, 0.1 + 0.2)),
    };
    let none = BTreeSet::new();
    let new = NewCheckpoint { step: 12, best: true, screens: &none, keep: 2 };
    let learnt = Learnt { config: &model, weights: &weights, side_files: &side_files, optimiser: &optimiser };
    folder.save_training(new, learnt, &state).unwrap();

    let found = folder.resume_point().unwrap().checkpoint.unwrap();
    let mut restored =
        load_training::<State>(&found.path, (kind, Device::Cpu), everything, OptimiserConfig::default())
            .unwrap();
    assert_eq!((restored.state.clone(), &restored.side_files), (state, &side_files));
    update(&mut optimiser, &weights);
    update(&mut restored.optimiser, &restored.weights);
    assert_eq!(restored.optimiser.updates(), 2);
    for ((layout, one), (_, other)) in weights.iter().zip(restored.weights.iter()) {
        assert!(one.equal(other), "{}", layout.name);
    }
    // the best one's model loads by itself
    arpo_model::checkpoint::load(&folder.best().join("model"), kind, Device::Cpu).unwrap();

    let wrong =
        load_training::<u64>(&found.path, (kind, Device::Cpu), everything, OptimiserConfig::default());
    assert!(wrong.unwrap_err().to_string().contains("state.json: not the state of a training run"));
}
