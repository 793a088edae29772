//! An untrained model: its dimensions, a tokenizer trained on the oracle's prompts and responses, and an image processor.

use crate::TrainError;
use crate::agent::pocket_style;
use crate::demonstrations::{oracle_episode, response_text};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::tasks::Suite;
use arpo_model::config::{self, ModelConfig};
use arpo_tokenizer::train;
use serde_json::json;
use std::collections::BTreeMap;

/// Oracle episodes whose text the tokenizer is trained on.
const TOKENIZER_EPISODES: u64 = 3000;

/// The dimensions and side files of a fresh model for a suite.
pub fn model(suite: Suite) -> Result<(ModelConfig, BTreeMap<String, Vec<u8>>), TrainError> {
    let config = match suite {
        Suite::Pocket => config::pocket(),
        Suite::Desktop => config::desktop(),
    };
    let side_files = side_files(suite, &config)?;
    Ok((config, side_files))
}

fn side_files(suite: Suite, config: &ModelConfig) -> Result<BTreeMap<String, Vec<u8>>, TrainError> {
    let mut desktop = EmbeddedDesktop::new(suite.screen())?;
    let mut texts = Vec::new();
    for number in 0..TOKENIZER_EPISODES {
        let episode = oracle_episode(&mut desktop, suite, number)?;
        texts.push(format!("{}\n{}", pocket_style().system, episode.instruction));
        texts.extend(
            desktop.widgets().iter().map(|widget| format!("find {}\n{}", widget.label, widget.label)),
        );
        texts.extend(episode.actions.iter().map(response_text));
    }
    let mut files = train::train(texts.into_iter(), config.text.vocabulary as usize)?;
    let processor = json!({
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
        "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
        "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 1280,
        "do_resize": true, "do_rescale": true, "do_normalize": true, "do_convert_rgb": true, "resample": 3,
        "rescale_factor": 1.0 / 255.0,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.27, 0.27, 0.27],
    });
    files.insert("preprocessor_config.json".into(), format!("{processor:#}\n").into_bytes());
    Ok(files)
}
