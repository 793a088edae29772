//! An untrained model: its dimensions, a tokenizer trained on the oracle's prompts and responses, and an image processor.

use super::Family;
use crate::TrainError;
use crate::demonstrations::{oracle_episode, response_text};
use arpo_agent::geometry::Size;
use arpo_agent::style::AgentStyle;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::tasks::Suite;
use arpo_model::config::{self, ModelConfig};
use arpo_tokenizer::train;
use serde_json::json;
use std::collections::BTreeMap;

/// Oracle episodes whose text the tokenizer is trained on.
const TOKENIZER_EPISODES: u64 = 3000;

/// The dimensions and side files of a fresh model of a family for a suite.
pub fn model(suite: Suite, family: Family) -> Result<(ModelConfig, BTreeMap<String, Vec<u8>>), TrainError> {
    let config = match (suite, family) {
        (Suite::Pocket, Family::Qwen25Vl) => config::pocket(),
        (Suite::Desktop, Family::Qwen25Vl) => config::desktop(),
        (Suite::Pocket, Family::Qwen3Vl) => config::pocket_qwen3(),
        (Suite::Desktop, Family::Qwen3Vl) => {
            return Err(TrainError::Configuration(
                "there is no small Qwen3-VL for the desktop suite: expected the pocket suite".into(),
            ));
        }
    };
    let side_files = side_files(suite, &config, &family.style())?;
    Ok((config, side_files))
}

fn side_files(
    suite: Suite,
    config: &ModelConfig,
    style: &AgentStyle,
) -> Result<BTreeMap<String, Vec<u8>>, TrainError> {
    let screen = Size { width: suite.screen().width, height: suite.screen().height };
    let mut desktop = EmbeddedDesktop::new(suite.screen())?;
    let mut texts = Vec::new();
    for number in 0..TOKENIZER_EPISODES {
        let episode = oracle_episode(&mut desktop, suite, number)?;
        texts.push(format!("{}\n{}", style.system, episode.instruction));
        texts.extend(
            desktop.widgets().iter().map(|widget| format!("find {}\n{}", widget.label, widget.label)),
        );
        texts.extend(episode.actions.iter().map(|action| response_text(style.format, action, screen)));
    }
    let mut files = train::train(texts.into_iter(), config.text.vocabulary as usize, style.format.grammar)?;
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
