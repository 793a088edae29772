//! An episode as the player shows it: screenshots, what the agent wrote, what it did, its tokens.
//!
//! | to change | look in |
//! |---|---|
//! | how stored episodes are read | [`stored`] |
//! | what is drawn for an action | [`marks`] |
//! | per-token log-probabilities and ratios | [`tokens`] |

pub mod marks;
pub mod stored;
pub mod tokens;

use arpo_agent::geometry::Size;
use marks::{ActionSpace, ShownAction};
use serde::Serialize;
use stored::StoredEpisode;
use tokens::StepTokens;

/// The turns of an episode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Episode {
    /// In order.
    pub steps: Vec<ShownStep>,
    /// A last screen without a response, or none.
    pub last_screen: Option<ShownScreen>,
}

/// A turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownStep {
    /// What the agent saw.
    pub screen: Option<ShownScreen>,
    /// Its thought, if it wrote one.
    pub thought: Option<String>,
    /// Everything that it wrote.
    pub response: String,
    /// What that meant.
    pub actions: Vec<ShownAction>,
    /// Its tokens, if they are known.
    pub tokens: Option<StepTokens>,
}

/// A screenshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownScreen {
    /// Its name.
    pub digest: String,
    /// In pixels; 0 if it is not known before the image is there.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

impl Episode {
    /// A stored episode, with the pieces of its tokens where they are known.
    pub fn of(stored: &StoredEpisode, space: &ActionSpace, mut tokens: Vec<StepTokens>) -> Self {
        let mut logp = stored.sampler_logp.as_slice();
        let mut steps = Vec::with_capacity(stored.steps.len());
        tokens.reverse();
        for step in &stored.steps {
            let screen = &step.observation.screenshot;
            let size = Size { width: screen.width, height: screen.height };
            let (own, rest) = logp.split_at(step.span.len().min(logp.len()));
            logp = rest;
            let without_pieces = || (!own.is_empty()).then(|| StepTokens::without_pieces(own));
            steps.push(ShownStep {
                screen: Some(ShownScreen {
                    digest: screen.digest.clone(),
                    width: screen.width,
                    height: screen.height,
                }),
                thought: thought(&step.response).map(str::to_owned),
                response: step.response.clone(),
                actions: step.actions.iter().map(|action| space.shown(action, size)).collect(),
                tokens: tokens.pop().or_else(without_pieces),
            });
        }
        Self { steps, last_screen: None }
    }

    /// The first turn, from 0, in which two episodes do different things; `None` if one is the beginning of the other and both
    /// have the same number of turns.
    pub fn divergence(&self, other: &Self) -> Option<usize> {
        let same =
            |(one, two): &(&ShownStep, &ShownStep)| match (one.actions.is_empty(), two.actions.is_empty()) {
                (false, false) => one.actions == two.actions,
                (true, true) => one.response == two.response,
                _ => false,
            };
        let shared = self.steps.iter().zip(&other.steps).take_while(same).count();
        (shared < self.steps.len().max(other.steps.len())).then_some(shared)
    }
}

/// The thought of a response: what stands before its action.
pub(crate) fn thought(response: &str) -> Option<&str> {
    let end = ["Action:", "<tool_call>"].iter().filter_map(|marker| response.find(marker)).min()?;
    let before = response[..end].trim();
    let thought = before.strip_prefix("Thought:").unwrap_or(before).trim();
    (!thought.is_empty()).then_some(thought)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(action: &str) -> ShownStep {
        let actions = vec![ShownAction { text: action.into(), marks: vec![] }];
        let actions = if action.is_empty() { vec![] } else { actions };
        ShownStep { screen: None, thought: None, response: String::new(), actions, tokens: None }
    }

    #[test]
    fn episodes_diverge_where_they_do_something_else() {
        let of = |actions: &[&str]| Episode {
            steps: actions.iter().map(|action| step(action)).collect(),
            last_screen: None,
        };
        assert_eq!(of(&["a", "b", "c"]).divergence(&of(&["a", "x", "c"])), Some(1));
        assert_eq!(of(&["a", "b"]).divergence(&of(&["a", "b"])), None);
        assert_eq!(of(&["a", "b"]).divergence(&of(&["a"])), Some(1), "one goes on");
        assert_eq!(of(&["a"]).divergence(&of(&[""])), Some(0));
    }

    #[test]
    fn thoughts_of_both_styles() {
        assert_eq!(thought("Thought: press it\nAction: click(start_box='(1,2)')"), Some("press it"));
        assert_eq!(thought("Action: wait()"), None);
        assert_eq!(thought("I see a <b>menu</b>.\n<tool_call>\n{}"), Some("I see a <b>menu</b>."));
        assert_eq!(thought("just words"), None);
    }
}
