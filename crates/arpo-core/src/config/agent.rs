//! The section `agent`: style, prompt, context and responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The agent's style, prompt, context and responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// How the agent is prompted and how it writes actions. It must be the one that the model was trained with.
    pub style: StyleChoice,
    /// How much the prompt says.
    pub prompt: PromptLength,
    /// The last step of the grid of coordinates in the `computer_use` style, at the right and lower edge of the screen: 999 as in
    /// OSWorld's and EvoCUA's agents, or 1000 as in Qwen3-VL's cookbook. They differ by at most two pixels.
    #[schemars(range(min = 999, max = 1000))]
    pub grid: u32,
    /// The system prompt of the full prompt of UI-TARS.
    pub system_prompt: SystemPrompt,
    /// Maximum number of tokens in a response; a longer one is truncated and then parsed.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_tokens: usize,
    /// Maximum number of screenshots in the context. In a longer episode older turns lose their screenshot, and the episode is
    /// trained in slices, each in the context it was sampled in. In the style of UI-TARS older turns keep their text; in
    /// `computer_use` they become a line each. Agents of Qwen3-VL were trained with 5 screenshots and `window_advance` = 1.
    #[schemars(range(min = 1, max = 1000))]
    pub max_screenshots: usize,
    /// How many screenshots leave the context at once when there are too many. In between the prefix does not change, so
    /// its KV cache can be reused. 0 for half of `max_screenshots`.
    #[schemars(range(max = 1000))]
    pub window_advance: usize,
    /// Screenshots are upscaled to at least this many pixels. 0 for the limit in the model's `preprocessor_config.json`.
    pub min_pixels: u64,
    /// Screenshots are downscaled to at most this many pixels. 0 for the limit in the model's `preprocessor_config.json`.
    pub max_pixels: u64,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            style: StyleChoice::Auto,
            prompt: PromptLength::Full,
            grid: 999,
            system_prompt: SystemPrompt::Original,
            max_tokens: 512,
            max_screenshots: 15,
            window_advance: 0,
            min_pixels: 3136,
            max_pixels: 2_116_800,
        }
    }
}

/// How an agent is prompted and how it writes actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StyleChoice {
    /// By the model's name and architecture: `evocua` and `uitars` if the name says so, else `computer_use` for Qwen3-VL and
    /// `uitars` for Qwen2.5-VL. The command says which one it took.
    Auto,
    /// As UI-TARS: `Action: click(start_box='(10,20)')`, in pixels of the image it sees.
    Uitars,
    /// As Qwen3-VL's agents: tool calls of `computer_use` in JSON, coordinates on a grid, earlier steps as a summary.
    ComputerUse,
    /// The same, with the description of the tool that EvoCUA was trained with.
    Evocua,
}

/// How much the prompt says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptLength {
    /// The prompt that agents of the style were trained with: it lists the actions.
    Full,
    /// The instruction alone, for models that were trained with it alone.
    Short,
}

/// The system prompt of the full prompt of UI-TARS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemPrompt {
    /// "Your are a helpful assistant.", as in ARPO's training.
    Original,
    /// "You are a helpful assistant."
    Corrected,
}
