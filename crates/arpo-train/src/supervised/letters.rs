//! Lessons for the vision tower alone: to say of every image token which letters it shows, and where it lies.
//!
//! A feature should be the sum of the codes of what is true of its token; codes are fixed random vectors, so that there is
//! no head to train or to save, and the language model finds in a feature what it needs by a product. Without this phase
//! letters are learnt only through answers to questions, where a letter has no gradient until its place is found.

use crate::TrainError;
use arpo_core::random::{Purpose, stream};
use arpo_env::layout::Widget;
use arpo_env::letters::{PLACES, SQUARE, Square, squares};
use arpo_image::{ImageProcessor, Patches};
use arpo_model::training::ImageInput;
use arpo_model::vision::pixels;
use image::RgbImage;
use rand::RngExt;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// Letters that have a code: printable ASCII. Class 0 is no letter.
const FIRST: u32 = 0x21;
const LETTERS: usize = 94;

/// Columns or rows that have a code.
const SIDE: usize = 8;

/// What a token says: the letter at each place, its column and its row. All have as many classes.
const PROPERTIES: usize = PLACES + 2;
const CLASSES: usize = LETTERS + 1;

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
}

impl LetterBatch {
    /// From screens with their widgets.
    pub(super) fn new(
        processor: &ImageProcessor,
        screens: &[(Arc<RgbImage>, Vec<Widget>)],
    ) -> Result<Self, TrainError> {
        let images: Vec<&RgbImage> = screens.iter().map(|(image, _)| image.as_ref()).collect();
        let classes = screens.iter().flat_map(|(image, widgets)| {
            let columns = (image.width() / SQUARE) as usize;
            let squares = squares(widgets, image.width(), image.height());
            squares
                .into_iter()
                .enumerate()
                .flat_map(move |(at, square)| classes(square, at % columns, at / columns))
        });
        Ok(Self { patches: processor.process_all(&images)?, classes: classes.collect() })
    }

    /// Its screens on a device.
    pub(super) fn on(&self, device: Device) -> Vec<ImageInput> {
        let pixels = pixels(&self.patches, device).into_iter();
        pixels.zip(&self.patches).map(|(pixels, one)| ImageInput::of_pixels(pixels, one.grid)).collect()
    }

    /// The mean cross-entropy of the right classes, and its gradient with respect to the features.
    pub(super) fn loss(&self, features: &Tensor) -> (f64, Tensor) {
        let codes = codes(features.size()[1], features.device());
        let classes = Tensor::from_slice(&self.classes).to_device(features.device());
        let known = classes.ge(0).to_kind(Kind::Float);
        let count = known.sum(Kind::Float).clamp_min(1.0);
        let products = features.to_kind(Kind::Float).matmul(&codes.tr());
        let logp = products.view([-1, CLASSES as i64]).log_softmax(-1, Kind::Float);
        let right = classes.clamp_min(0).unsqueeze(1);
        let loss = -(logp.gather(1, &right, false).squeeze_dim(1) * &known).sum(Kind::Float) / &count;
        let one_hot = logp.zeros_like().scatter_value(1, &right, 1.0);
        let gradient = (logp.exp() - one_hot) * (known / count).unsqueeze(1);
        let gradient = gradient.view([-1, (PROPERTIES * CLASSES) as i64]).matmul(&codes);
        (loss.double_value(&[]), gradient.to_kind(features.kind()))
    }
}

fn classes(square: Square, column: usize, row: usize) -> [i64; PROPERTIES] {
    let class_of = |letter: Option<char>| match letter {
        None => 0,
        Some(letter) => match (letter as u32).checked_sub(FIRST) {
            Some(number) if (number as usize) < LETTERS => i64::from(number) + 1,
            _ => IGNORED,
        },
    };
    std::array::from_fn(|property| match (square, property) {
        (_, PLACES) => column.min(SIDE - 1) as i64,
        (_, property) if property > PLACES => row.min(SIDE - 1) as i64,
        (Square::Unknown, _) => IGNORED,
        (Square::Letters(letters), place) => class_of(letters[place]),
    })
}

/// The codes of all classes of all properties, `[properties * classes, width]`: the same for every run of a model with features
/// of this width.
fn codes(width: i64, device: Device) -> Tensor {
    let mut rng = stream(0, Purpose::Codes, 0, 0);
    let count = (PROPERTIES * CLASSES) as i64 * width;
    // signs instead of normal numbers: all codes are equally long
    let signs: Vec<f32> = (0..count).map(|_| if rng.random_bool(0.5) { 1.0 } else { -1.0 }).collect();
    (Tensor::from_slice(&signs).view([-1, width]) * (CODE_LENGTH / (width as f64).sqrt())).to_device(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;
    use crate::supervised::batches::{UpdateBatch, batches};
    use crate::supervised::{
        Family, Reading, SupervisedOptions, fresh, test_options, test_pass_options, update,
    };
    use arpo_core::config::OptimiserConfig;
    use arpo_model::checkpoint::Weights;
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
        let (config, side_files) = fresh::model(options).unwrap();
        let agent = Agent::new(&config, &side_files, Path::new("made"), Family::Qwen25Vl.style()).unwrap();
        (config, Arc::new(agent))
    }

    #[test]
    fn classes_are_letters_and_where_a_token_lies() {
        let letters = Square::Letters([Some('!'), None, Some('~'), Some('é'), None]);
        assert_eq!(classes(letters, 2, 9), [1, 0, 94, IGNORED, 0, 2, 7]);
        assert_eq!(classes(Square::Unknown, 0, 1)[..], [[IGNORED; PLACES].as_slice(), &[0, 1]].concat());
    }

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let tokens = 3;
        let classes: Vec<i64> =
            vec![1, 2, 0, 4, 0, 2, 1, IGNORED, IGNORED, 0, 7, 0, 1, 1, 0, 0, 94, 9, 0, 5, 3];
        let batch = LetterBatch { patches: vec![], classes };
        tch::manual_seed(3);
        let features = Tensor::randn([tokens, 48], (Kind::Float, Device::Cpu));
        let direction = Tensor::randn([tokens, 48], (Kind::Float, Device::Cpu));
        let at = |step: f64| batch.loss(&(&features + &direction * step)).0;
        let (_, gradient) = batch.loss(&features);
        let along = (gradient * &direction).sum(Kind::Double).double_value(&[]);
        let difference = (at(1e-2) - at(-1e-2)) / 2e-2;
        assert!(along.abs() > 0.1 && (along - difference).abs() < 1e-2 * along.abs(), "{along} {difference}");
    }

    /// Without weight decay, the language model does not change meanwhile.
    #[test]
    fn the_tower_learns_what_tokens_show() {
        let options = options();
        let (config, agent) = agent_of(&options);
        tch::manual_seed(1);
        let weights = Weights::from_scratch(&config, Kind::Float, Device::Cpu).with_gradients(|_| true);
        let optimiser =
            AdamW::new(&weights, OptimiserConfig { weight_decay: 0.0, ..OptimiserConfig::default() });
        let mut updater =
            options.precision.updater(&config, weights, optimiser, test_pass_options(&agent), None);
        // of the vision tower, and of the language model
        let sums = |updater: &Updater| {
            let mut sums = [0.0; 2];
            for (layout, value, _) in updater.masters().trained() {
                sums[usize::from(!layout.is_vision())] += value.abs().sum(Kind::Double).double_value(&[]);
            }
            sums
        };
        let [vision, text] = sums(&updater);
        let losses: Vec<f64> = (0..)
            .zip(batches(&agent, &options, 0, 1))
            .map(|(number, batch)| {
                let batch = batch.unwrap();
                assert!(matches!(batch, UpdateBatch::Letters(_)));
                update(&mut updater, &options, number, &batch).unwrap()
            })
            .collect();
        assert_eq!(losses.len(), 24);
        assert!(losses[23] < losses[0] / 2.0, "{losses:?}");
        let [vision_after, text_after] = sums(&updater);
        assert!(
            (text_after - text).abs() < 1e-9 && (vision_after - vision).abs() > 1.0,
            "{vision} {vision_after} {text} {text_after}"
        );
    }
}
