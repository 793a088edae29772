//! An agent's style: how it is prompted, what it sees of the past, how it writes actions and what its coordinates count.
//!
//! A style is data. Two families ship: UI-TARS, and `computer_use` of Qwen3-VL's agents.

use crate::coordinates::Coordinates;
use crate::parse::{ParseError, Response};
use crate::window::ScreenshotWindow;
use crate::{computer_use, parse, prompt, render};
use arpo_core::action::Action;

/// How an agent is prompted and understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentStyle {
    /// The system prompt.
    pub system: String,
    /// The user prompt; the instruction goes to `{instruction}`.
    pub template: String,
    /// Which screenshots are shown.
    pub window: ScreenshotWindow,
    /// What is left of a turn whose screenshot is no longer shown.
    pub past: PastTurns,
    /// How it writes actions.
    pub format: ActionFormat,
}

/// What is left of a turn whose screenshot is no longer shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PastTurns {
    /// Its response, after a short text in place of the screenshot.
    Responses {
        /// Restore UI-TARS's box tokens, which decoding drops, in all past responses.
        restore_box_tokens: bool,
    },
    /// One line of the first message, which describes the step.
    Summary,
}

/// How actions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionFormat {
    /// The grammar of responses.
    pub grammar: Grammar,
    /// What coordinates count.
    pub coordinates: Coordinates,
}

/// A grammar of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grammar {
    /// `Thought: ... Action: click(start_box='(10,20)')`.
    Uitars,
    /// Tool calls of `computer_use` in JSON.
    ComputerUse,
}

impl Grammar {
    /// Parses a response.
    pub fn parse(self, response: &str) -> Result<Response, ParseError> {
        match self {
            Self::Uitars => parse::parse(response),
            Self::ComputerUse => computer_use::parse(response),
        }
    }

    /// A response with these actions.
    pub fn render(self, thought: Option<&str>, actions: &[Action]) -> String {
        match self {
            Self::Uitars => render::response(thought, actions),
            Self::ComputerUse => computer_use::response(thought, actions),
        }
    }

    /// A response that cannot be parsed, kept on record in one that ends the episode.
    pub fn given_up(self, response: &str) -> String {
        let end = self.render(None, &[Action::Finished { content: Some(String::new()) }]);
        match self {
            Self::Uitars => format!("{response}\n{end}"),
            Self::ComputerUse => computer_use::described(response) + &end,
        }
    }

    /// As messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uitars => "uitars",
            Self::ComputerUse => "computer_use",
        }
    }
}

impl ActionFormat {
    /// UI-TARS's.
    pub const UITARS: Self = Self { grammar: Grammar::Uitars, coordinates: Coordinates::Pixels };

    /// Tool calls, with coordinates on a grid whose last step is `divisor`.
    pub fn computer_use(divisor: u32) -> Self {
        Self { grammar: Grammar::ComputerUse, coordinates: Coordinates::Grid { divisor } }
    }
}

impl AgentStyle {
    /// As UI-TARS was trained, with the system prompt of ARPO.
    pub fn uitars(window: ScreenshotWindow) -> Self {
        Self {
            system: prompt::SYSTEM.to_owned(),
            template: prompt::UITARS.to_owned(),
            window,
            past: PastTurns::Responses { restore_box_tokens: true },
            format: ActionFormat::UITARS,
        }
    }

    /// As OSWorld's agent prompts Qwen3-VL.
    pub fn computer_use(window: ScreenshotWindow, divisor: u32) -> Self {
        Self {
            system: computer_use::SYSTEM.to_owned(),
            template: computer_use::TEMPLATE.to_owned(),
            window,
            past: PastTurns::Summary,
            format: ActionFormat::computer_use(divisor),
        }
    }

    /// The first turn whose response is in a conversation in which the screenshots from `first_live` on are shown.
    pub fn first_response(&self, first_live: usize) -> usize {
        match self.past {
            PastTurns::Responses { .. } => 0,
            PastTurns::Summary => first_live,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_is_given_up_ends_the_episode_and_stays_on_record() {
        for (grammar, response) in [
            (Grammar::Uitars, "click here"),
            (Grammar::ComputerUse, "Action: x\n<tool_call>{\"name\": \"computer_use\", \"arguments\": 5}\n{"),
            (Grammar::ComputerUse, "{\"name\": \"computer_use\", \"arguments\": null}"),
        ] {
            assert!(grammar.parse(response).is_err());
            let ended = grammar.given_up(response);
            let finished = Action::Finished { content: Some(String::new()) };
            assert_eq!(grammar.parse(&ended).unwrap().actions, [finished], "{ended}");
            assert!(ended.contains(response.split('\n').next_back().unwrap()));
        }
    }
}
