//! An untrained model: its dimensions, a tokenizer trained on the oracle's prompts and responses, and an image processor.

use super::reading::{Lesson, lesson};
use super::{Family, SupervisedOptions};
use crate::TrainError;
use crate::demonstrations::{MAX_QUESTIONS, oracle_episode_of, response_text};
use arpo_agent::geometry::Size;
use arpo_core::random::{Purpose, stream};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::grounding::questions;
use arpo_env::tasks::Suite;
use arpo_model::config::{self, ModelConfig};
use arpo_tokenizer::train::{self, Spaces};
use serde_json::json;
use std::collections::BTreeMap;

/// Oracle episodes whose text the tokenizer is trained on.
const TOKENIZER_EPISODES: u64 = 3000;

/// The dimensions and side files of a fresh model.
pub fn model(options: &SupervisedOptions) -> Result<(ModelConfig, BTreeMap<String, Vec<u8>>), TrainError> {
    let config = match (options.suite, options.family) {
        (Suite::Pocket, Family::Qwen25Vl) => config::pocket(),
        (Suite::Desktop, Family::Qwen25Vl) => config::desktop(),
        (Suite::Pocket, Family::Qwen3Vl) => config::pocket_qwen3(),
        (Suite::Desktop, Family::Qwen3Vl) => {
            return Err(TrainError::Configuration(
                "there is no small Qwen3-VL for the desktop suite: expected the pocket suite".into(),
            ));
        }
    };
    let side_files = side_files(options, &config)?;
    Ok((config, side_files))
}

fn side_files(
    options: &SupervisedOptions,
    config: &ModelConfig,
) -> Result<BTreeMap<String, Vec<u8>>, TrainError> {
    // all applications: a vocabulary that lacks one could not be taught it later
    let options = SupervisedOptions { weights: BTreeMap::new(), ..options.clone() };
    let style = options.family.style();
    let look = options.suite.screen();
    let screen = Size { width: look.width, height: look.height };
    let mut desktop = EmbeddedDesktop::new(look)?;
    let mut texts = Vec::new();
    for number in 0..TOKENIZER_EPISODES {
        let Lesson { task, reworded } = lesson(&options, number)?;
        let episode = oracle_episode_of(&mut desktop, &task, number)?;
        texts.push(format!("{}\n{}", style.system, episode.instruction));
        if reworded {
            let mut rng = stream(number, Purpose::Environment, 4, 0);
            let asked = questions(&desktop.widgets(), MAX_QUESTIONS, reworded, &mut rng);
            texts.extend(asked.into_iter().map(|question| question.text));
        }
        texts.extend(
            desktop.widgets().iter().map(|widget| format!("find {}\n{}", widget.label, widget.label)),
        );
        texts.extend(episode.actions.iter().map(|action| response_text(style.format, action, screen)));
    }
    let spaces = if options.reading.separate_spaces { Spaces::Separate } else { Spaces::Joined };
    let size = config.text.vocabulary as usize;
    let mut files = train::train(texts.into_iter(), size, style.format.grammar, spaces)?;
    let processor_class = match config.architecture.model_type() {
        "qwen3_vl" => "Qwen3VLProcessor",
        _ => "Qwen2_5_VLProcessor",
    };
    let processor = json!({
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": processor_class,
        "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
        "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 1280,
        "do_resize": true, "do_rescale": true, "do_normalize": true, "do_convert_rgb": true, "resample": 3,
        "rescale_factor": 1.0 / 255.0,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.27, 0.27, 0.27],
    });
    files.insert("preprocessor_config.json".into(), format!("{processor:#}\n").into_bytes());
    Ok(files)
}
