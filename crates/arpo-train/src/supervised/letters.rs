//! Lessons for the vision tower alone: to say of every image token which text it shows, letter by letter, and where it lies.
//!
//! A feature should be the sum of the codes of what is true of its token. The code of a letter is the embedding of its token in
//! the language model, shifted circularly by its position in the text, with random signs: one linear map for each position leads
//! from a feature to the embedding, and so to what a language model with a tied head says, whichever letter it is. Without this
//! phase letters are learnt only through answers to questions, where a letter has no gradient until its place is found.

use crate::TrainError;
use crate::agent::Agent;
use arpo_core::random::{Purpose, stream};
use arpo_env::letters::{HALVES, Written};
use arpo_env::tasks::Suite;
use arpo_image::Patches;
use arpo_model::model::Model;
use arpo_model::training::ImageInput;
use arpo_model::vision::pixels;
use image::RgbImage;
use rand::RngExt;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// Letters that have a code: printable ASCII. Class 0 is no letter.
const FIRST: u32 = 0x20;
const LETTERS: usize = 95;
const CLASSES: usize = LETTERS + 1;

/// Letters of a text that its tokens say: most names have no more. What comes after them, such as the name of a file after that of
/// its folder, is not taught in this phase.
fn places(suite: Suite) -> usize {
    match suite {
        Suite::Pocket => 6,
        Suite::Desktop => 16,
    }
}

/// What a token says: the first letters of the texts in its halves, its column and its row. All have as many classes.
fn properties(places: usize) -> usize {
    HALVES * places + 2
}

/// How far an embedding is shifted from one position to the next: in a width that it divides, or a small one, positions may share
/// a shift, and only their random signs differ.
const SHIFT: i64 = 23;

/// The length of a code: its product with itself, 9, makes its class e^9 times as likely as others.
const CODE_LENGTH: f64 = 3.0;

/// The class of what the loss leaves out.
const IGNORED: i64 = -1;

/// Screens with what their tokens show.
#[derive(Debug)]
pub struct LetterBatch {
    patches: Vec<Patches>,
    /// Class by screen, token and property.
    classes: Vec<i64>,
    /// The token of every letter.
    letters: Vec<i64>,
    /// Letters of a text that its tokens say.
    places: usize,
}

impl LetterBatch {
    /// From screens of a suite with what is written in their squares.
    pub(super) fn new(
        agent: &Agent,
        screens: &[(Arc<RgbImage>, Vec<[Written; HALVES]>)],
        suite: Suite,
    ) -> Result<Self, TrainError> {
        let (letters, places) = (tokens_of(agent)?, places(suite));
        let is_tinted = suite.screen().tint;
        let mut classes = Vec::new();
        for (image, squares) in screens {
            let [columns, _] = token_grid(agent, image.width(), image.height())?;
            for (at, square) in squares.iter().enumerate() {
                // the colours tell a token where it lies
                let place = is_tinted.then_some((at % columns, at / columns));
                classes.extend(classes_of(square, places, place, &letters));
            }
        }
        let images: Vec<&RgbImage> = screens.iter().map(|(image, _)| image.as_ref()).collect();
        Ok(Self { patches: agent.processor.process_all(&images)?, classes, letters, places })
    }

    /// Its screens on a device.
    pub(super) fn on(&self, device: Device) -> Vec<ImageInput> {
        let pixels = pixels(&self.patches, device).into_iter();
        pixels.zip(&self.patches).map(|(pixels, one)| ImageInput::of_pixels(pixels, one.grid)).collect()
    }

    /// The codes of all classes of all properties in the terms of a model, `[properties * classes, width]`. They do not change in
    /// this phase, in which embeddings decay at most, because all are made equally long.
    pub(super) fn codes(&self, model: &Model) -> Tensor {
        let device = model.device();
        let letters: Vec<i64> = self.letters.iter().map(|&token| token.max(0)).collect();
        let embedded =
            model.text().embed(&Tensor::from_slice(&letters).to_device(device)).to_kind(Kind::Float);
        let lengths = embedded.norm_scalaropt_dim(2, [-1], true);
        let embedded = embedded / lengths * CODE_LENGTH;
        let width = embedded.size()[1];
        let mut rng = stream(0, Purpose::Codes, 0, 0);
        // signs instead of normal numbers: all codes are equally long
        let mut signs = |count: usize| {
            let signs: Vec<f32> =
                (0..count as i64 * width).map(|_| if rng.random_bool(0.5) { 1.0 } else { -1.0 }).collect();
            Tensor::from_slice(&signs).view([-1, width]).to_device(device)
        };
        let unit = CODE_LENGTH / (width as f64).sqrt();
        let of_property = |property: usize| {
            if property >= HALVES * self.places {
                return signs(CLASSES) * unit;
            }
            let shifted = embedded.roll([SHIFT * property as i64], [1]) * signs(1);
            Tensor::cat(&[signs(1) * unit, shifted], 0)
        };
        Tensor::cat(&(0..properties(self.places)).map(of_property).collect::<Vec<_>>(), 0)
    }

    /// The mean cross-entropy of the right classes, and its gradient with respect to the features. Features of several levels
    /// say it in each.
    pub(super) fn loss(&self, features: &Tensor, codes: &Tensor) -> (f64, Tensor) {
        let width = codes.size()[1];
        let levels = features.size()[1] / width;
        let properties = properties(self.places) as i64;
        let classes = Tensor::from_slice(&self.classes).view([-1, properties]);
        let classes =
            classes.repeat_interleave_self_int(levels, 0, None).view(-1).to_device(features.device());
        let known = classes.ge(0).to_kind(Kind::Float);
        let count = known.sum(Kind::Float).clamp_min(1.0);
        let by_level = features.to_kind(Kind::Float).view([-1, width]);
        let logp = by_level.matmul(&codes.tr()).view([-1, CLASSES as i64]).log_softmax(-1, Kind::Float);
        let right = classes.clamp_min(0).unsqueeze(1);
        let loss = -(logp.gather(1, &right, false).squeeze_dim(1) * &known).sum(Kind::Float) / &count;
        let one_hot = logp.zeros_like().scatter_value(1, &right, 1.0);
        let gradient = (logp.exp() - one_hot) * (known / count).unsqueeze(1);
        let gradient = gradient.view([-1, properties * CLASSES as i64]).matmul(codes).view_as(features);
        (loss.double_value(&[]), gradient.to_kind(features.kind()))
    }
}

/// Columns and rows of the image tokens of a screen.
pub(super) fn token_grid(agent: &Agent, width: u32, height: u32) -> Result<[usize; 2], TrainError> {
    let grid = agent.processor.grid(width, height)?;
    Ok([grid.width / agent.merge, grid.height / agent.merge])
}

/// The token of every letter; [`IGNORED`] where it has none of its own.
fn tokens_of(agent: &Agent) -> Result<Vec<i64>, TrainError> {
    let token_of = |letter: u32| {
        let letter = char::from_u32(letter).expect("printable ASCII");
        let tokens = agent.tokenizer.encode(&letter.to_string())?;
        Ok(if let [token] = tokens[..] { i64::from(token) } else { IGNORED })
    };
    (FIRST..).take(LETTERS).map(token_of).collect()
}

/// What a token says with these texts in its halves, in this column and row if it can know them.
fn classes_of(
    square: &[Written; HALVES],
    places: usize,
    place: Option<(usize, usize)>,
    letters: &[i64],
) -> Vec<i64> {
    let class_of = |letter: Option<char>| match letter {
        None => 0,
        Some(letter) => match (letter as u32).checked_sub(FIRST).map(|number| number as usize) {
            Some(number) if letters.get(number).is_some_and(|&token| token != IGNORED) => number as i64 + 1,
            _ => IGNORED,
        },
    };
    let mut classes = vec![IGNORED; properties(places)];
    for (half, written) in square.iter().enumerate() {
        if let Written::Text(text) = written {
            let mut text = text.chars();
            classes[half * places..][..places].fill_with(|| class_of(text.next()));
        }
    }
    if let Some((column, row)) = place {
        classes[HALVES * places..].copy_from_slice(&[column, row].map(|at| at.min(LETTERS) as i64));
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;
    use crate::supervised::batches::{UpdateBatch, batches};
    use crate::supervised::{
        Family, Precision, Reading, SupervisedOptions, fresh, test_options, test_pass_options, update,
    };
    use arpo_core::config::OptimiserConfig;
    use arpo_model::checkpoint::Weights;
    use arpo_model::checkpoint::layout::ParameterLayout;
    use arpo_model::config::ModelConfig;
    use arpo_model::training::adamw::AdamW;
    use arpo_model::training::step::Updater;
    use std::path::Path;

    fn options() -> SupervisedOptions {
        SupervisedOptions {
            letter_updates: 24,
            updates: 24,
            screens: 16,
            warm_up: 4,
            learning_rate: 2e-3,
            ..test_options(Reading::default())
        }
    }

    fn agent_of(options: &SupervisedOptions) -> (ModelConfig, Arc<Agent>) {
        let (config, side_files) = fresh::untrained(options).unwrap();
        let agent = Agent::new(&config, &side_files, Path::new("made"), options.family.style()).unwrap();
        (config, Arc::new(agent))
    }

    #[test]
    fn classes_are_the_letters_of_two_texts_and_where_a_token_lies() {
        let mut letters = vec![7; LETTERS];
        letters[1] = IGNORED;
        let written = |text: &str| Written::Text(text.into());
        let square = [written("a !é"), written("")];
        let text = [66, 1, IGNORED, IGNORED, 0, 0];
        assert_eq!(classes_of(&square, 6, Some((2, 9)), &letters), [&text[..], &[0; 6], &[2, 9]].concat());
        let long = [Written::Unknown, written("bcdefgh")];
        let text = [67, 68, 69, 70, 71, 72];
        assert_eq!(classes_of(&long, 6, None, &letters), [&[IGNORED; 6], &text[..], &[IGNORED; 2]].concat());
    }

    /// The code of the letter at a position, shifted back, is its embedding, but for signs that are common to all letters there.
    #[test]
    fn codes_are_shifted_embeddings_and_the_gradient_is_that_of_the_loss() {
        let (config, agent) = agent_of(&options());
        tch::manual_seed(3);
        let model = Model::new(config.clone(), Weights::from_scratch(&config, Kind::Float, Device::Cpu));
        let letters = tokens_of(&agent).unwrap();
        assert!(letters.iter().all(|&token| token >= 0), "every letter is a token: {letters:?}");
        let square = ["Wifi", "on"].map(|text| Written::Text(text.into()));
        let classes = [Some((1, 0)), Some((2, 3)), None].map(|place| classes_of(&square, 6, place, &letters));
        let batch = LetterBatch { patches: vec![], classes: classes.concat(), letters, places: 6 };
        let codes = batch.codes(&model);
        assert!(codes.equal(&batch.codes(&model)), "they are the same every time");

        let by_property = codes.view([properties(6) as i64, CLASSES as i64, -1]);
        let of = |place: i64, letter: char| {
            by_property.get(place).get(i64::from(letter as u32 - FIRST) + 1).roll([-SHIFT * place], [0])
        };
        let alike = |one: Tensor, other: Tensor| (one * other).sum(Kind::Double).double_value(&[]) / 9.0;
        let [first, third] = [0, 2].map(|place| alike(of(place, 'a'), of(place, 'b')));
        assert!((first - third).abs() < 1e-5 && first.abs() < 0.5, "{first} {third}");
        assert!((alike(of(2, 'a'), of(2, 'a')) - 1.0).abs() < 1e-5);
        assert!(alike(of(2, 'a'), of(3, 'a')).abs() < 0.5);

        // features of two levels
        let random = || Tensor::randn([3, 2 * codes.size()[1]], (Kind::Float, Device::Cpu));
        let (features, direction) = (random(), random());
        let at = |step: f64| batch.loss(&(&features + &direction * step), &codes).0;
        let (_, gradient) = batch.loss(&features, &codes);
        let along = (gradient * &direction).sum(Kind::Double).double_value(&[]);
        let difference = (at(1e-2) - at(-1e-2)) / 2e-2;
        assert!(along.abs() > 0.1 && (along - difference).abs() < 1e-2 * along.abs(), "{along} {difference}");
    }

    /// First the vision tower alone learns, all of it; then the language model alone. What does not learn does not change by a bit.
    #[test]
    fn the_tower_learns_what_tokens_show_and_keeps_it() {
        let untrained = |family, letter_updates| SupervisedOptions { family, letter_updates, ..options() };
        let given =
            SupervisedOptions { model: Some("pocket".into()), letter_updates: 0, screens: 4, ..options() };
        for (options, precision) in [
            (untrained(Family::Qwen25Vl, 24), Precision::F32),
            (untrained(Family::Qwen3Vl, 2), Precision::Bf16),
            (given, Precision::F32),
        ] {
            let letter_updates = options.letter_updates;
            let options = SupervisedOptions { updates: letter_updates + 2, precision, ..options };
            let (config, side_files, weights) = fresh::starting_model(&options, Device::Cpu).unwrap();
            let agent = Agent::new(&config, &side_files, Path::new("made"), options.family.style()).unwrap();
            let agent = Arc::new(agent);
            let weights = weights.with_gradients(|_| true);
            let optimiser = AdamW::new(&weights, OptimiserConfig { weight_decay: 0.0, ..Default::default() });
            let mut updater =
                options.precision.updater(&config, weights, optimiser, test_pass_options(&agent), None);
            let masters = |updater: &Updater| -> Vec<(String, bool, Tensor)> {
                let of = |(layout, value): (&ParameterLayout, &Tensor)| {
                    (layout.name.clone(), layout.is_vision(), value.copy())
                };
                updater.masters().iter().map(of).collect()
            };
            let (mut before, mut losses) = (masters(&updater), vec![]);
            for (number, batch) in (0..).zip(batches(&agent, &options, 0, 1)) {
                let batch = batch.unwrap();
                let is_on_letters = matches!(batch, UpdateBatch::Letters(_));
                assert_eq!(is_on_letters, number < letter_updates);
                let loss = update(&mut updater, &options, number, &batch).unwrap();
                if is_on_letters {
                    losses.push(loss);
                }
                let after = masters(&updater);
                for ((name, is_vision, old), (_, _, new)) in before.iter().zip(&after) {
                    assert_eq!(old.equal(new), *is_vision != is_on_letters, "{number} {name}");
                }
                before = after;
            }
            assert!(letter_updates < 9 || losses[23] < losses[0] / 2.0, "{losses:?}");
        }
    }
}
