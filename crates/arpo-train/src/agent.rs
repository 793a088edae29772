//! What an agent is besides its weights: how it reads, how it is spoken to, how it answers.

use crate::TrainError;
use arpo_agent::conversation::ConversationStyle;
use arpo_agent::window::ScreenshotWindow;
use arpo_image::ImageProcessor;
use arpo_model::config::ModelConfig;
use arpo_tokenizer::Tokenizer;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// An agent without weights.
#[derive(Debug)]
pub struct Agent {
    /// Its words.
    pub tokenizer: Arc<Tokenizer>,
    /// Its eyes.
    pub processor: ImageProcessor,
    /// How it is spoken to.
    pub style: ConversationStyle,
    /// Ends its responses.
    pub end_token: u32,
    /// Stands for a feature of a picture.
    pub image_token: u32,
    /// Patches along a side of a feature.
    pub merge: usize,
    /// Tokens it may not say: pictures', roles', and those without a text.
    pub forbidden: Vec<u32>,
}

/// Tokens that open and close messages and pictures; of these only the end of a message may be said.
const STRUCTURE: [&str; 6] =
    ["<|endoftext|>", "<|im_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"];

impl Agent {
    /// From a checkpoint's configuration and side files.
    pub fn new(
        config: &ModelConfig,
        side_files: &BTreeMap<String, Vec<u8>>,
        folder: &Path,
        style: ConversationStyle,
    ) -> Result<Self, TrainError> {
        let tokenizer = Arc::new(Tokenizer::new(side_files, folder)?);
        let processor = side_files.get("preprocessor_config.json").ok_or_else(|| {
            TrainError::Options(format!("{}: preprocessor_config.json is missing", folder.display()))
        })?;
        let processor = ImageProcessor::parse(processor)
            .map_err(|problem| TrainError::Options(format!("preprocessor_config.json: {problem}")))?;
        let end_token = tokenizer
            .token("<|im_end|>")
            .ok_or_else(|| TrainError::Options("the tokenizer has no <|im_end|>".into()))?;
        // models are often wider than their vocabulary
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

/// How the pocket agent is spoken to: in few words.
pub fn pocket_style() -> ConversationStyle {
    ConversationStyle {
        system: "GUI agent".into(),
        template: "{instruction}".into(),
        window: ScreenshotWindow::new(32, 0),
        restore_box_tokens: false,
    }
}
