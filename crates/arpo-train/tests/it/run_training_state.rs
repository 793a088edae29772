//! A checkpoint of a training run, read back: model, optimiser and the trainer's own state.

use crate::run_folder::Temporary;
use arpo_core::config::OptimiserConfig;
use arpo_core::task::TaskId;
use arpo_core::task_sampler::TaskSampler;
use arpo_model::checkpoint::Weights;
use arpo_model::config;
use arpo_model::training::adamw::AdamW;
use arpo_train::run::checkpoints::NewCheckpoint;
use arpo_train::run::training_state::{TrainedModel, load_model, load_state};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tch::{Device, Kind, Tensor, no_grad};

/// The state of a trainer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    iteration: u64,
    sampler: TaskSampler,
    metrics_position: u64,
    best: Option<(u64, f64)>,
}

fn update(optimiser: &mut AdamW, weights: &Weights) {
    for (_, _, gradient) in weights.trained() {
        let values = Tensor::arange(gradient.numel() as i64, (Kind::Float, Device::Cpu)).sin() * 0.01;
        no_grad(|| gradient.shallow_clone().copy_(&values.view_as(gradient)));
    }
    optimiser.update(weights, 1e-3);
}

#[test]
fn a_training_checkpoint_is_restored() {
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
    let trained =
        TrainedModel { config: &model, weights: &weights, side_files: &side_files, optimiser: &optimiser };
    folder.save_training(new, |folder| trained.save(folder), &state).unwrap();

    let found = folder.resume_point().unwrap().checkpoint.unwrap();
    let mut restored =
        load_model(&found.path, (kind, Device::Cpu), everything, OptimiserConfig::default()).unwrap();
    assert_eq!((load_state::<State>(&found.path).unwrap(), &restored.side_files), (state, &side_files));
    update(&mut optimiser, &weights);
    update(&mut restored.optimiser, &restored.weights);
    assert_eq!(restored.optimiser.updates(), 2);
    for ((layout, one), (_, other)) in weights.iter().zip(restored.weights.iter()) {
        assert!(one.equal(other), "{}", layout.name);
    }
    // the model in `best` can be loaded on its own
    arpo_model::checkpoint::load(&folder.best().join("model"), kind, Device::Cpu).unwrap();

    let wrong = load_state::<u64>(&found.path);
    assert!(wrong.unwrap_err().to_string().contains("state.json: not the state of a training run"));
}
