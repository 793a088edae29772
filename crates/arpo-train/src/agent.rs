//! An agent without its weights: tokenizer, image processor, conversation style and special tokens.

use crate::TrainError;
use arpo_agent::style::AgentStyle;
use arpo_image::ImageProcessor;
use arpo_model::config::ModelConfig;
use arpo_tokenizer::Tokenizer;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// An agent without weights.
#[derive(Debug)]
pub struct Agent {
    /// Tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Image processor.
    pub processor: ImageProcessor,
    /// How it is prompted and understood.
    pub style: AgentStyle,
    /// Ends a response.
    pub end_token: u32,
    /// Placeholder for one image feature.
    pub image_token: u32,
    /// Patches along each side of a feature (the spatial merge size).
    pub merge: usize,
    /// Tokens it may not generate: image and role tokens, and ids without text.
    pub forbidden: Vec<u32>,
}

/// Tokens that structure messages and images. `<|im_end|>` is not among them: the agent may generate it.
const STRUCTURE: [&str; 6] =
    ["<|endoftext|>", "<|im_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"];

impl Agent {
    /// From a checkpoint's configuration and side files.
    pub fn new(
        config: &ModelConfig,
        side_files: &BTreeMap<String, Vec<u8>>,
        folder: &Path,
        style: AgentStyle,
    ) -> Result<Self, TrainError> {
        let tokenizer = Arc::new(Tokenizer::new(side_files, folder)?);
        let processor = side_files.get("preprocessor_config.json").ok_or_else(|| {
            TrainError::Configuration(format!("{}: preprocessor_config.json is missing", folder.display()))
        })?;
        let processor = ImageProcessor::parse(processor)
            .map_err(|problem| TrainError::Configuration(format!("preprocessor_config.json: {problem}")))?;
        let (size, vision) = (processor.patch_size(), &config.vision);
        if (size.patch as i64, size.merge as i64) != (vision.patch, vision.merge) {
            return Err(TrainError::Configuration(format!(
                "preprocessor_config.json: patches of {} pixels merged by {}: expected {} and {}, as config.json has them",
                size.patch, size.merge, vision.patch, vision.merge
            )));
        }
        let end_token = tokenizer
            .token("<|im_end|>")
            .ok_or_else(|| TrainError::Configuration("the tokenizer has no <|im_end|>".into()))?;
        // embedding tables are often larger than the tokenizer's vocabulary
        let without_text = tokenizer.size()..config.text.vocabulary as u32;
        let forbidden =
            STRUCTURE.iter().filter_map(|text| tokenizer.token(text)).chain(without_text).collect();
        Ok(Self {
            tokenizer,
            processor,
            style,
            end_token,
            image_token: config.image_token,
            merge: config.vision.merge as usize,
            forbidden,
        })
    }
}
