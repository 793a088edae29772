//! A saved and loaded optimiser continues unchanged.

use crate::golden::Golden;
use arpo_core::config::OptimiserConfig;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::checkpoint::{self, Weights};
use arpo_model::config::ModelConfig;
use arpo_model::training::adamw::{AdamW, Update};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor, no_grad};

const LEARNING_RATE: f64 = 1e-3;

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("arpo-optimiser-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Small, so that the test is quick.
fn small_model() -> ModelConfig {
    Golden::all()[0].checkpoint().config
}

fn trained(model: &ModelConfig, kind: Kind) -> Weights {
    Weights::random(model, kind, Device::Cpu).with_gradients(|_| true)
}

/// Gradients that depend on the update's number only.
fn set_gradients(weights: &Weights, update: u64) {
    no_grad(|| {
        for (index, (_, _, gradient)) in weights.trained().enumerate() {
            let indices = Tensor::arange(gradient.numel() as i64, (Kind::Float, Device::Cpu));
            let wave = (indices * 0.37 + (index as f64 + 11.0 * update as f64)).sin() * 0.01;
            gradient.shallow_clone().copy_(&wave.view_as(gradient));
        }
    });
}

fn update(optimiser: &mut AdamW, weights: &Weights) {
    set_gradients(weights, optimiser.updates());
    let update = optimiser.update(weights, LEARNING_RATE);
    assert!(matches!(update, Update::Applied { .. }), "{update:?}");
}

fn assert_same(one: &Weights, other: &Weights) {
    for ((layout, tensor), (_, other)) in one.iter().zip(other.iter()) {
        assert!(tensor.equal(other), "{}", layout.name);
    }
}

fn saved(model: &ModelConfig, kind: Kind, folder: &Path) -> (Weights, AdamW) {
    let weights = trained(model, kind);
    let mut optimiser = AdamW::new(&weights, OptimiserConfig::default());
    for _ in 0..3 {
        update(&mut optimiser, &weights);
    }
    checkpoint::save(&folder.join("model"), model, &weights, &BTreeMap::new()).unwrap();
    optimiser.save(&weights, &folder.join("optimiser.safetensors")).unwrap();
    (weights, optimiser)
}

#[test]
fn the_next_updates_are_the_same_to_the_bit() {
    for kind in [Kind::Float, Kind::BFloat16] {
        let folder = Folder::new(&format!("same-{kind:?}"));
        let model = small_model();
        let (weights, mut optimiser) = saved(&model, kind, &folder.0);
        let read = checkpoint::load(&folder.0.join("model"), kind, Device::Cpu).unwrap();
        let read = read.weights.with_gradients(|_| true);
        assert_same(&read, &weights);
        let path = folder.0.join("optimiser.safetensors");
        let mut again = AdamW::load(&path, &read, OptimiserConfig::default()).unwrap();
        assert_eq!(again.updates(), 3);
        // unaffected by other random numbers
        let _ = Tensor::randn([7], (Kind::Float, Device::Cpu));
        for _ in 0..2 {
            update(&mut optimiser, &weights);
            update(&mut again, &read);
            assert_same(&read, &weights);
        }
        // and the state matters: a new optimiser gives other weights
        let other = checkpoint::load(&folder.0.join("model"), kind, Device::Cpu).unwrap();
        let other = other.weights.with_gradients(|_| true);
        let mut fresh = AdamW::new(&other, OptimiserConfig::default());
        update(&mut fresh, &other);
        update(&mut fresh, &other);
        assert!(other.iter().zip(weights.iter()).any(|((_, one), (_, two))| !one.equal(two)));
    }
}

#[test]
fn the_state_of_other_weights_is_rejected() {
    let folder = Folder::new("refused");
    let model = small_model();
    let (weights, _) = saved(&model, Kind::Float, &folder.0);
    let path = folder.0.join("optimiser.safetensors");
    let error = |weights: &Weights, path: &Path| {
        AdamW::load(path, weights, OptimiserConfig::default()).unwrap_err().to_string()
    };
    let bf16 = trained(&model, Kind::BFloat16);
    assert!(error(&bf16, &path).ends_with("is F32: expected the parameter's type, BFloat16"));
    let vision_only =
        Weights::random(&model, Kind::Float, Device::Cpu).with_gradients(ParameterLayout::is_vision);
    assert!(error(&vision_only, &path).contains("two for each trained parameter"));
    assert!(error(&weights, &folder.0.join("model/model.safetensors")).contains("not an optimiser state"));
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(error(&weights, &path).contains("not a whole safetensors file"));
    assert!(error(&weights, &folder.0.join("nothing")).contains("nothing: "));
}
