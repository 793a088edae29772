//! A training step does not depend on how it is split up, and matches autograd.

use crate::golden::{Golden, tensor};
use arpo_core::config::OptimiserConfig;
use arpo_model::Keep;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::model::{Model, ModelInput};
use arpo_model::training::adamw::{AdamW, Update};
use arpo_model::training::plan::Plan;
use arpo_model::training::step::{LossGradient, Updater};
use arpo_model::training::{ImageInput, MicroBatch, PassOptions, SequenceInput, TrainableModel};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tch::{Kind, Tensor, no_grad};

const TEMPERATURE: f64 = 0.8;

/// Rounding of a log-probability: up to 1.5e-5 has been seen in the tied model, where log-probabilities reach -8.
fn rounding(golden: &Golden) -> f32 {
    if golden.checkpoint().config.text.tied_head { 1e-4 } else { 1e-5 }
}

pub(crate) fn trainable_model(
    golden: &Golden,
    activation_bytes: u64,
    trained: impl Fn(&ParameterLayout) -> bool,
) -> TrainableModel {
    with_options(golden, options(activation_bytes), trained)
}

fn options(activation_bytes: u64) -> PassOptions {
    PassOptions {
        temperature: 1.0,
        forbidden: vec![],
        activation_bytes,
        logit_rows: 7,
        pad_to_multiple: 1,
        share_prefixes: false,
    }
}

fn with_options(
    golden: &Golden,
    options: PassOptions,
    trained: impl Fn(&ParameterLayout) -> bool,
) -> TrainableModel {
    let checkpoint = golden.checkpoint();
    TrainableModel::new(Model::new(checkpoint.config, checkpoint.weights.with_gradients(trained)), options)
}

/// Episodes made of the golden conversation: prefixes of it, so that they share its images.
struct Batch {
    images: Vec<ImageInput>,
    tokens: Vec<Vec<u32>>,
    shown: Vec<Vec<usize>>,
    trained: Vec<Vec<bool>>,
}

impl Batch {
    fn new(golden: &Golden) -> Self {
        let (tokens, images) = (golden.tokens(), golden.image_inputs());
        let mask = Vec::<i64>::try_from(golden.expected("action_mask").to_kind(Kind::Int64)).unwrap();
        let image_token = golden.checkpoint().config.image_token;
        // cut after each of the agent's turns
        let ends = (1..tokens.len()).filter(|&token| mask[token - 1] == 1 && mask[token] == 0);
        let mut batch = Self { images, tokens: vec![], shown: vec![], trained: vec![] };
        for end in ends {
            let features = tokens[..end].iter().filter(|&&token| token == image_token).count();
            let mut left = features;
            let shown = (0..batch.images.len()).take_while(|&image| {
                let visible = left > 0;
                left = left.saturating_sub(batch.images[image].grid.features(2));
                visible
            });
            batch.shown.push(shown.collect());
            batch.tokens.push(tokens[..end].to_vec());
            batch.trained.push(mask[..end].iter().map(|&flag| flag == 1).collect());
        }
        assert!(batch.tokens.len() > 1, "several episodes");
        batch
    }

    fn episodes(&self) -> Vec<SequenceInput<'_>> {
        (0..self.tokens.len())
            .map(|i| SequenceInput {
                tokens: &self.tokens[i],
                images: &self.shown[i],
                trained: &self.trained[i],
            })
            .collect()
    }

    /// Some coefficients, different for every token.
    fn coefficients(&self) -> Vec<Vec<f32>> {
        let count = |mask: &Vec<bool>| mask.iter().filter(|&&flag| flag).count();
        let one = |(episode, mask): (usize, &Vec<bool>)| {
            (0..count(mask)).map(|token| ((episode * 31 + token * 7) % 13) as f32 / 13.0 - 0.4).collect()
        };
        self.trained.iter().enumerate().map(one).collect()
    }
}

fn gradients(trainable: &TrainableModel) -> BTreeMap<String, Tensor> {
    trainable
        .model()
        .weights()
        .trained()
        .map(|(layout, _, gradient)| (layout.name.clone(), gradient.copy()))
        .collect()
}

fn assert_equal(one: &BTreeMap<String, Tensor>, other: &BTreeMap<String, Tensor>, tolerance: f64) {
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, gradient) in one {
        let difference = (gradient - &other[name]).norm().double_value(&[]);
        let size = gradient.norm().double_value(&[]);
        assert!(difference <= tolerance * size + 1e-7, "{name}: {difference} of {size}");
    }
}

fn whole(trainable: &TrainableModel, batch: &Batch) -> BTreeMap<String, Tensor> {
    let episodes = batch.episodes();
    let pass = trainable.forward(MicroBatch { sequences: &episodes, images: &batch.images }).unwrap();
    pass.backward(&batch.coefficients()).unwrap();
    gradients(trainable)
}

#[test]
fn padding_changes_nothing() {
    for golden in Golden::all() {
        let batch = Batch::new(&golden);
        let options = |pad_to_multiple: usize| PassOptions {
            temperature: TEMPERATURE,
            forbidden: vec![1],
            activation_bytes: u64::MAX,
            logit_rows: 7,
            pad_to_multiple,
            share_prefixes: false,
        };
        let [plain, padded] = [1, 64].map(|step| with_options(&golden, options(step), |_| true));
        let episodes = batch.episodes();
        let whole_batch = MicroBatch { sequences: &episodes, images: &batch.images };
        let [one, other] = [&plain, &padded].map(|trainable| trainable.scores(&whole_batch).unwrap());
        let rounding = rounding(&golden);
        for (a, b) in one.logp.iter().flatten().zip(other.logp.iter().flatten()) {
            assert!((a - b).abs() < rounding, "{a} and {b}");
        }
        assert_equal(&whole(&plain, &batch), &whole(&padded, &batch), 1e-4);
    }
}

/// Every episode of the batch is a prefix of the next, and one occurs twice.
#[test]
fn shared_prefixes_change_nothing() {
    for golden in Golden::all() {
        let mut batch = Batch::new(&golden);
        let again = (batch.tokens[0].clone(), batch.shown[0].clone(), batch.trained[0].clone());
        batch.tokens.push(again.0);
        batch.shown.push(again.1);
        batch.trained.push(again.2);
        // and one diverges from the others in the middle of a turn
        let mut other = batch.tokens[1].clone();
        let last = other.len() - 2;
        other[last] = u32::from(other[last] == 1) + 1;
        batch.tokens.push(other);
        batch.shown.push(batch.shown[1].clone());
        batch.trained.push(batch.trained[1].clone());
        let options = |share_prefixes: bool| PassOptions {
            temperature: TEMPERATURE,
            forbidden: vec![],
            activation_bytes: u64::MAX,
            logit_rows: 7,
            pad_to_multiple: 1,
            share_prefixes,
        };
        let [plain, shared] = [false, true].map(|shares| with_options(&golden, options(shares), |_| true));
        let episodes = batch.episodes();
        let whole_batch = MicroBatch { sequences: &episodes, images: &batch.images };
        let [one, other] = [&plain, &shared].map(|trainable| trainable.scores(&whole_batch).unwrap());
        let rounding = rounding(&golden);
        for (a, b) in one.logp.iter().flatten().zip(other.logp.iter().flatten()) {
            assert!((a - b).abs() < rounding, "{a} and {b}");
        }
        assert_equal(&whole(&plain, &batch), &whole(&shared, &batch), 1e-4);
    }
}

#[test]
fn packing_matches_single_episodes() {
    for golden in Golden::all() {
        let batch = Batch::new(&golden);
        let together = trainable_model(&golden, u64::MAX, |_| true);
        let episodes = batch.episodes();
        let scores = together.scores(&MicroBatch { sequences: &episodes, images: &batch.images }).unwrap();
        let packed = whole(&together, &batch);

        let apart = trainable_model(&golden, u64::MAX, |_| true);
        let rounding = rounding(&golden);
        for (number, (episode, coefficients)) in episodes.iter().zip(batch.coefficients()).enumerate() {
            let one = std::slice::from_ref(episode);
            let pass = apart.forward(MicroBatch { sequences: one, images: &batch.images }).unwrap();
            for (alone, packed) in pass.scores().logp[0].iter().zip(&scores.logp[number]) {
                assert!((alone - packed).abs() < rounding, "{alone} and {packed}");
            }
            for (alone, packed) in pass.scores().entropy[0].iter().zip(&scores.entropy[number]) {
                assert!((alone - packed).abs() < 1e-4, "{alone} and {packed}");
            }
            pass.backward(&[coefficients]).unwrap();
        }
        assert_equal(&packed, &gradients(&apart), 1e-4);
    }
}

#[test]
fn recomputation_matches_keeping() {
    for golden in Golden::all() {
        // attention with shared prefixes is saved in another way
        for share_prefixes in [false, true] {
            every_kind_of_plan_matches(&golden, share_prefixes);
        }
    }
}

/// A plan of every kind that some budget gives, from recomputing everything to keeping everything.
fn every_kind_of_plan_matches(golden: &Golden, share_prefixes: bool) {
    let batch = Batch::new(golden);
    let with = |activation_bytes: u64| {
        with_options(golden, PassOptions { share_prefixes, ..options(activation_bytes) }, |_| true)
    };
    let everything = with(u64::MAX);
    let kept = whole(&everything, &batch);
    let episodes = batch.episodes();
    let whole_batch = MicroBatch { sequences: &episodes, images: &batch.images };
    let plan = |bytes: u64| everything.plan(&whole_batch, bytes);
    let mut most = 1 << 10;
    while plan(most) != plan(u64::MAX) {
        most *= 2;
    }
    // what becomes of the tower, and of the first block of each part: the first to be kept
    let kind = |plan: &Plan| (plan.keeps_vision(), plan.vision(), plan.text(0));
    let mut kinds = vec![];
    for activation_bytes in (0..=128).map(|step| most / 128 * step) {
        let kind = kind(&plan(activation_bytes));
        if !kinds.contains(&kind) {
            assert_equal(&kept, &whole(&with(activation_bytes), &batch), 1e-4);
            kinds.push(kind);
        }
    }
    assert!(kinds.iter().any(|(keeps_vision, ..)| !keeps_vision), "the tower is encoded again");
    for keep in [Keep::AttentionResult, Keep::Attention, Keep::Everything] {
        assert!(kinds.iter().any(|kind| kind.0 && kind.1 == keep), "tower: {keep:?}");
        assert!(kinds.iter().any(|kind| kind.2 == keep), "language model: {keep:?}");
    }
}

#[test]
fn a_frozen_vision_tower_changes_nothing_else() {
    for golden in Golden::all() {
        let batch = Batch::new(&golden);
        let mut all = whole(&trainable_model(&golden, u64::MAX, |_| true), &batch);
        let frozen = whole(&trainable_model(&golden, u64::MAX, |layout| !layout.is_vision()), &batch);
        all.retain(|name, _| !name.starts_with("vision."));
        assert_equal(&all, &frozen, 1e-5);
    }
}

/// A plain reference: full logits of every position, autograd, textbook AdamW, on copies of the parameters.
struct Reference {
    model: Model,
    moments: Vec<(Tensor, Tensor)>,
    forbidden: Vec<i64>,
}

impl Reference {
    fn new(golden: &Golden, forbidden: &[u32]) -> Self {
        let model = Model::from_checkpoint(golden.checkpoint());
        let moments =
            model.weights().iter().map(|(_, value)| (value.zeros_like(), value.zeros_like())).collect();
        for (_, value) in model.weights().iter() {
            let _ = value.set_requires_grad(true);
        }
        Self { model, moments, forbidden: forbidden.iter().map(|&token| i64::from(token)).collect() }
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let mut loss = Tensor::zeros([1], (Kind::Float, tch::Device::Cpu));
        for (number, coefficients) in batch.coefficients().iter().enumerate() {
            let images: Vec<&ImageInput> =
                batch.shown[number].iter().map(|&image| &batch.images[image]).collect();
            let grids: Vec<_> = images.iter().map(|image| image.grid).collect();
            let pixels =
                Tensor::cat(&images.iter().filter_map(|image| image.pixels()).collect::<Vec<_>>(), 0);
            let input = ModelInput { tokens: &batch.tokens[number], grids: &grids };
            let states = self.model.hidden_states(&input, Some(&pixels)).unwrap();
            let logits = self.model.text().logits(&states[states.len() - 1]) / TEMPERATURE;
            let logits = logits.index_fill(1, &Tensor::from_slice(&self.forbidden), f64::NEG_INFINITY);
            let all = logits.log_softmax(-1, Kind::Float);
            let mut coefficients = coefficients.iter();
            for (position, _) in batch.trained[number].iter().enumerate().filter(|(_, trained)| **trained) {
                let token = i64::from(batch.tokens[number][position]);
                let logp = all.select(0, position as i64 - 1).select(0, token);
                loss += logp * f64::from(*coefficients.next().unwrap());
            }
        }
        loss
    }

    fn update(&mut self, batch: &Batch, config: &OptimiserConfig, step: i32) {
        self.loss(batch).backward();
        no_grad(|| {
            let norm: f64 = self
                .model
                .weights()
                .iter()
                .map(|(_, value)| value.grad().square().sum(Kind::Double).double_value(&[]))
                .sum::<f64>()
                .sqrt();
            let clip = if norm > config.max_grad_norm { config.max_grad_norm / norm } else { 1.0 };
            for ((_, value), (mean, square)) in self.model.weights().iter().zip(&mut self.moments) {
                let gradient = value.grad() * clip;
                *mean = &*mean * config.beta1 + &gradient * (1.0 - config.beta1);
                *square = &*square * config.beta2 + gradient.square() * (1.0 - config.beta2);
                let mean_hat = &*mean / (1.0 - config.beta1.powi(step));
                let square_hat = &*square / (1.0 - config.beta2.powi(step));
                let mut value = value.shallow_clone();
                let _ = value.g_mul_scalar_(1.0 - config.learning_rate * config.weight_decay);
                value -= mean_hat / (square_hat.sqrt() + config.epsilon) * config.learning_rate;
                value.zero_grad();
            }
        });
    }
}

#[test]
fn ten_updates_match_a_plain_reference() {
    for golden in Golden::all() {
        let batch = Batch::new(&golden);
        let forbidden = vec![3, golden.checkpoint().config.image_token];
        let config = OptimiserConfig { learning_rate: 1e-3, ..OptimiserConfig::default() };
        let options = PassOptions {
            temperature: TEMPERATURE,
            forbidden: forbidden.clone(),
            activation_bytes: 1_000_000,
            logit_rows: 5,
            pad_to_multiple: 1,
            share_prefixes: false,
        };
        let trainable = with_options(&golden, options, |_| true);
        let mut optimiser = AdamW::new(trainable.model().weights(), config.clone());
        let mut reference = Reference::new(&golden, &forbidden);
        for step in 1..=10 {
            whole(&trainable, &batch);
            let update = optimiser.update(trainable.model().weights(), config.learning_rate);
            assert!(matches!(update, Update::Applied { .. }), "{update:?}");
            reference.update(&batch, &config, step);
            for ((layout, ours), (_, theirs)) in
                trainable.model().weights().iter().zip(reference.model.weights().iter())
            {
                let moved = no_grad(|| (ours - theirs).abs().max().double_value(&[]));
                // Adam divides by the gradient's magnitude, so rounding of tiny gradients shows as a fraction of a step
                let fraction = if trainable.model().config().text.qk_norm { 0.1 } else { 0.05 };
                assert!(
                    moved <= fraction * f64::from(step) * config.learning_rate,
                    "{} after {step}: {moved}",
                    layout.name
                );
            }
        }
        assert_eq!(optimiser.updates(), 10);
    }
}

#[test]
fn a_non_finite_gradient_changes_nothing() {
    let golden = &Golden::all()[0];
    let batch = Batch::new(golden);
    let trainable = trainable_model(golden, u64::MAX, |_| true);
    let before: Vec<Tensor> = trainable.model().weights().iter().map(|(_, value)| value.copy()).collect();
    let mut optimiser = AdamW::new(trainable.model().weights(), OptimiserConfig::default());
    let episodes = batch.episodes();
    let mut coefficients = batch.coefficients();
    coefficients[0][0] = f32::NAN;
    let pass = trainable.forward(MicroBatch { sequences: &episodes, images: &batch.images }).unwrap();
    pass.backward(&coefficients).unwrap();
    assert!(matches!(optimiser.update(trainable.model().weights(), 1e-3), Update::Skipped { .. }));
    assert_eq!(optimiser.updates(), 0);
    for ((_, value), before) in trainable.model().weights().iter().zip(before) {
        assert!(value.equal(&before));
    }
    assert!(gradients(&trainable).values().all(|gradient| gradient.abs().max().double_value(&[]) == 0.0));
}

/// A non-finite loss or gradient leaves the weights unchanged, is counted, and its batch is recorded.
#[test]
fn skipped_updates_are_counted_and_recorded() {
    let golden = &Golden::all()[0];
    let batch = Batch::new(golden);
    let episodes = batch.episodes();
    let whole = MicroBatch { sequences: &episodes, images: &batch.images };
    let folder = std::env::temp_dir().join(format!("arpo-incidents-{}", std::process::id()));
    let trainable = trainable_model(golden, u64::MAX, |_| true);
    let optimiser = AdamW::new(trainable.model().weights(), OptimiserConfig::default());
    let mut updater = Updater::new(trainable, optimiser, Some(folder.clone()));
    let before: Vec<Tensor> =
        updater.trainable().model().weights().iter().map(|(_, value)| value.copy()).collect();

    let mut update = |loss: f64, offset: f32| {
        let mut coefficients = batch.coefficients();
        coefficients[1][0] += offset;
        let gradient = LossGradient { value: loss, coefficients };
        updater.update(&[whole, whole], 1e-3, |_, _| gradient.clone()).unwrap()
    };
    let no_loss = update(f64::NAN, 0.0);
    let no_gradient = update(1.0, f32::INFINITY);
    assert!(!no_loss.applied && no_loss.gradient_norm.is_none() && no_loss.loss.is_nan());
    assert!(!no_gradient.applied && no_gradient.gradient_norm.is_some_and(|norm| !norm.is_finite()));
    assert_eq!((updater.skipped(), updater.optimiser().updates()), (2, 0));
    let weights = updater.trainable().model().weights();
    assert!(weights.iter().zip(&before).all(|((_, value), before)| value.equal(before)));
    assert!(gradients(updater.trainable()).values().all(|one| one.abs().max().double_value(&[]) == 0.0));

    // a run resumed from between the two reaches the second again, and records it in the same folder
    let mut updater = updater.with_skipped(1);
    let again = updater
        .update(&[whole], 1e-3, |_, _| LossGradient { value: f64::NAN, coefficients: vec![] })
        .unwrap();
    assert_eq!((updater.skipped(), &again.incident), (2, &no_gradient.incident));
    let mut updater = updater.with_skipped(1);
    let no_gradient = {
        let mut coefficients = batch.coefficients();
        coefficients[1][0] = f32::INFINITY;
        let gradient = LossGradient { value: 1.0, coefficients };
        updater.update(&[whole, whole], 1e-3, |_, _| gradient.clone()).unwrap()
    };

    // both stop at their first micro-batch
    for report in [&no_loss, &no_gradient] {
        let incident = report.incident.as_ref().unwrap();
        let summary: Value =
            serde_json::from_slice(&std::fs::read(incident.join("incident.json")).unwrap()).unwrap();
        assert_eq!((&summary["micro_batch"], &summary["losses"][1]), (&json!(1), &Value::Null));
        let bytes = std::fs::read(incident.join("micro-batch.safetensors")).unwrap();
        let tokens = Vec::<i64>::try_from(tensor(&bytes, "episode.1.tokens")).unwrap();
        assert!(tokens.iter().map(|&token| token as u32).eq(batch.tokens[1].iter().copied()));
        assert!(tensor(&bytes, "image.0.pixels").equal(batch.images[0].pixels().unwrap()));
        assert_eq!(
            tensor(&bytes, "episode.1.coefficients").size()[0] as usize,
            batch.coefficients()[1].len()
        );
    }
    assert!(update_is_applied(&mut updater, &[whole], &batch.coefficients()));
    std::fs::remove_dir_all(folder).unwrap();
}

fn update_is_applied(updater: &mut Updater, batches: &[MicroBatch], coefficients: &[Vec<f32>]) -> bool {
    let gradient = LossGradient { value: 0.5, coefficients: coefficients.to_vec() };
    let report = updater.update(batches, 1e-3, |_, _| gradient.clone()).unwrap();
    report.applied && report.incident.is_none() && updater.optimiser().updates() == 1
}

#[test]
fn invalid_batches_are_rejected() {
    let golden = &Golden::all()[0];
    let batch = Batch::new(golden);
    let trainable = trainable_model(golden, u64::MAX, |_| true);
    let rejected = |tokens: &[u32], images: &[usize], trained: &[bool]| {
        let episode = SequenceInput { tokens, images, trained };
        trainable
            .scores(&MicroBatch { sequences: &[episode], images: &batch.images })
            .unwrap_err()
            .to_string()
    };
    let (tokens, shown, trained) = (&batch.tokens[0][..], &batch.shown[0][..], &batch.trained[0][..]);
    let features = tokens.iter().filter(|&&token| token == trainable.model().config().image_token).count();
    assert_eq!(
        rejected(tokens, &[], trained),
        format!("{features} image placeholder tokens for 0 image features")
    );
    assert_eq!(
        rejected(tokens, &[99], trained),
        format!("an episode shows image 99 of {}", batch.images.len())
    );
    assert_eq!(
        rejected(tokens, shown, &trained[1..]),
        format!("a mask of {} for {} tokens", trained.len() - 1, tokens.len())
    );
    assert_eq!(
        rejected(&[1, 2], &[], &[true, true]),
        "the first token of an episode cannot be trained: nothing predicts it"
    );
    assert!(rejected(&[1, 999_999], &[], &[false, true]).starts_with("token 999999 is not in"));

    let episodes = batch.episodes();
    let pass = trainable.forward(MicroBatch { sequences: &episodes, images: &batch.images }).unwrap();
    assert!(
        pass.backward(&[]).unwrap_err().to_string().starts_with("coefficients for [] tokens: expected [")
    );
}
