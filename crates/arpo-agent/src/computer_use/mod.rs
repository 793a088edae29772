//! The `computer_use` way of acting, of Qwen3-VL's agents: tool calls in JSON, coordinates on a grid.
//!
//! ```text
//! Action: Click the Save button.
//! <tool_call>
//! {"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [412, 77]}}
//! </tool_call>
//! ```
//!
//! | to change | look in |
//! |---|---|
//! | which text is a call, and the line that describes a step | `parse` |
//! | what the arguments of a call mean | `vocabulary` |
//! | how actions are rendered as calls | `render` |
//! | how coordinates are mapped to the screen | [`coordinates`](crate::coordinates) |
//!
//! The rules are those of EvoCUA's agent (meituan/EvoCUA 4a0ad5f), which extends OSWorld's agent for Qwen3-VL; golden cases
//! list where this program differs. The system prompts are quoted from these two (Apache-2.0): models were trained with
//! every letter of them.

mod parse;
mod render;
mod vocabulary;

pub use parse::{parse, step_summary};
pub use render::{calls, described, response};

/// The system prompt of OSWorld's agent for Qwen3-VL: the tool, and the form of a response.
pub const SYSTEM: &str = include_str!("prompt.txt");

/// The system prompt of EvoCUA, which describes more actions.
pub const SYSTEM_EVOCUA: &str = include_str!("prompt_evocua.txt");

/// A system prompt for models that were trained with it alone.
pub const SYSTEM_SHORT: &str = "computer_use";

/// The text beside the first screenshot; a summary of earlier steps follows it.
pub const TEMPLATE: &str = "\nPlease generate the next move according to the UI screenshot, instruction and previous \
                            actions.\n\nInstruction: {instruction}\n\nPrevious actions:\n";

/// The same for [`SYSTEM_SHORT`].
pub const TEMPLATE_SHORT: &str = "{instruction}\n";

/// The name of the tool.
const TOOL: &str = "computer_use";
/// Opens a call.
const OPEN: &str = "<tool_call>";
/// Closes a call.
const CLOSE: &str = "</tool_call>";
/// Opens the line that describes the step.
const ACTION: &str = "Action:";
