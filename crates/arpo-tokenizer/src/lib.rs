//! The tokenizer of a checkpoint (`tokenizer.json`), and its chat template, which renders a conversation as the text
//! the model was trained on.
//!
//! A crate of its own because the tokenizer's generic code takes minutes to compile and needs no tensors.

pub mod fill;
pub mod train;

use arpo_agent::conversation::{Content, Message};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Value as TemplateValue, context};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer as HuggingFaceTokenizer;

/// Errors of tokenizer files and inputs.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file is missing or invalid.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Text, tokens or messages that cannot be used.
    #[error("{0}")]
    Input(String),
}

impl TokenizerError {
    fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.into() }
    }
}

/// A checkpoint's tokenizer.
#[derive(Debug)]
pub struct Tokenizer {
    inner: HuggingFaceTokenizer,
    template: String,
}

impl Tokenizer {
    /// From a checkpoint's side files.
    pub fn new(side_files: &BTreeMap<String, Vec<u8>>, folder: &Path) -> Result<Self, TokenizerError> {
        let path = folder.join("tokenizer.json");
        let bytes =
            side_files.get("tokenizer.json").ok_or_else(|| TokenizerError::file(&path, "is missing"))?;
        let inner = HuggingFaceTokenizer::from_bytes(bytes)
            .map_err(|error| TokenizerError::file(&path, format!("not a tokenizer: {error}")))?;
        Ok(Self { inner, template: chat_template(side_files, folder)? })
    }

    /// The tokens of a text. Special tokens in the text are recognised; none are added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoded = self.inner.encode_fast(text, false);
        let encoded = encoded
            .map_err(|error| TokenizerError::Input(format!("text that cannot be tokenised: {error}")))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// The text of tokens, optionally without special tokens.
    pub fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let decoded = self.inner.decode(tokens, skip_special);
        decoded.map_err(|error| TokenizerError::Input(format!("tokens that cannot be decoded: {error}")))
    }

    /// The id of a token, by its text.
    pub fn token(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }

    /// The size of the vocabulary: ids from here on have no text.
    pub fn size(&self) -> u32 {
        self.inner.get_vocab_size(true) as u32
    }

    /// Renders a conversation with the chat template. `add_generation_prompt` opens the agent's next turn.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TokenizerError> {
        let messages: Vec<TemplateValue> = messages.iter().map(template_message).collect();
        let mut environment = Environment::new();
        // as transformers configures Jinja
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        syntax
            .map(|syntax| environment.set_syntax(syntax))
            .and_then(|()| {
                environment.render_str(&self.template, context! { messages, add_generation_prompt })
            })
            .map_err(|error| TokenizerError::Input(format!("the chat template fails: {error}")))
    }
}

/// `chat_template.jinja`, or the field of that name in a JSON file.
fn chat_template(side_files: &BTreeMap<String, Vec<u8>>, folder: &Path) -> Result<String, TokenizerError> {
    if let Some(bytes) = side_files.get("chat_template.jinja") {
        return Ok(String::from_utf8_lossy(bytes).into_owned());
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        let Some(bytes) = side_files.get(name) else { continue };
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| TokenizerError::file(&folder.join(name), format!("not JSON: {error}")))?;
        if let Some(template) = value["chat_template"].as_str() {
            return Ok(template.to_owned());
        }
    }
    let path = folder.join("chat_template.jinja");
    Err(TokenizerError::file(
        &path,
        "is missing, and neither chat_template.json nor tokenizer_config.json has it",
    ))
}

/// A message as chat templates expect it.
fn template_message(message: &Message) -> TemplateValue {
    let part = |part: &Content| match part {
        Content::Text(text) => context! { type => "text", text => text.as_str() },
        Content::Image(_) => context! { type => "image" },
    };
    let content: Vec<TemplateValue> = message.content.iter().map(part).collect();
    context! { role => message.role.name(), content => content }
}
