//! The section `agent`: prompt, context and responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The agent's prompt, context and responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The prompt template.
    pub prompt: PromptStyle,
    /// The system prompt of the UI-TARS template.
    pub system_prompt: SystemPrompt,
    /// Maximum number of tokens in a response; a longer one is truncated and then parsed.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_tokens: usize,
    /// Maximum number of screenshots in the context. In a longer episode older turns keep their text and lose their
    /// screenshot, and the episode is trained in slices, each in the context it was sampled in.
    #[schemars(range(min = 1, max = 1000))]
    pub max_screenshots: usize,
    /// How many screenshots leave the context at once when there are too many. In between the prefix does not change, so
    /// its KV cache can be reused. 0 for half of `max_screenshots`.
    #[schemars(range(max = 1000))]
    pub window_advance: usize,
    /// Screenshots are upscaled to at least this many pixels.
    #[schemars(range(min = 1))]
    pub min_pixels: u64,
    /// Screenshots are downscaled to at most this many pixels.
    #[schemars(range(min = 784))]
    pub max_pixels: u64,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            prompt: PromptStyle::Uitars,
            system_prompt: SystemPrompt::Original,
            max_tokens: 512,
            max_screenshots: 15,
            window_advance: 0,
            min_pixels: 3136,
            max_pixels: 2_116_800,
        }
    }
}

/// The prompt template around a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptStyle {
    /// The prompt of UI-TARS: it lists the actions and asks for a thought first.
    Uitars,
    /// The instruction alone, for models that were trained with it alone.
    Short,
}

/// The system prompt of the UI-TARS template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemPrompt {
    /// "Your are a helpful assistant.", as in ARPO's training.
    Original,
    /// "You are a helpful assistant."
    Corrected,
}
