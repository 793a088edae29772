//! From a conversation to one token sequence and the spans of the agent's tokens in it.
//!
//! The agent's responses enter the sequence as the tokens that were sampled, not as their text tokenised again: the two
//! can differ, and training must see the sequence that was sampled. So the template is rendered with a mark in place of
//! each response and split at the marks, and the pieces between are tokenised.

use crate::TrainError;
use crate::agent::Agent;
use arpo_agent::conversation::{Message, Role};
use arpo_core::trajectory::TokenSpan;
use arpo_image::Grid;

/// Stands for a response in a rendered conversation; occurs in no real text.
const MARK: &str = "\u{f8ff}response\u{f8ff}";

/// A conversation in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// All tokens, with a placeholder for every feature of every image.
    pub tokens: Vec<u32>,
    /// The spans of the agent's responses, in order.
    pub spans: Vec<TokenSpan>,
}

impl Assembled {
    /// For every token, whether it is the agent's.
    pub fn trained(&self) -> Vec<bool> {
        let mut trained = vec![false; self.tokens.len()];
        for span in &self.spans {
            trained[span.start..span.end].fill(true);
        }
        trained
    }
}

/// Tokenises a conversation. `responses` are the tokens of the agent's messages, in order, each with its end token if
/// it is complete; the text of those messages is not used. `grids` are the sizes of the images. With `open_turn` the
/// agent's next turn is opened.
pub fn assemble(
    agent: &Agent,
    messages: &[Message],
    responses: &[impl AsRef<[u32]>],
    grids: &[Grid],
    open_turn: bool,
) -> Result<Assembled, TrainError> {
    let marked: Vec<Message> = messages
        .iter()
        .map(|message| match message.role {
            Role::Assistant => Message::text(Role::Assistant, MARK),
            _ => message.clone(),
        })
        .collect();
    let rendered = agent.tokenizer.render(&marked, open_turn)?;
    let mut assembled = Assembled { tokens: vec![], spans: vec![] };
    let mut grids = grids.iter();
    let mut responses = responses.iter();
    for (number, piece) in rendered.split(MARK).enumerate() {
        if number > 0 {
            let response =
                responses.next().ok_or_else(|| TrainError::Internal("a message without tokens".into()))?;
            let start = assembled.tokens.len();
            assembled.tokens.extend(response.as_ref());
            assembled.spans.push(TokenSpan { start, end: assembled.tokens.len() });
        }
        let mut tokens = agent.tokenizer.encode(piece)?.into_iter().peekable();
        // a complete response already has its end token
        let ended = assembled.tokens.last() == Some(&agent.end_token);
        if number > 0 && ended && tokens.peek() == Some(&agent.end_token) {
            tokens.next();
        }
        for token in tokens {
            let times = if token == agent.image_token {
                let grid =
                    grids.next().ok_or_else(|| TrainError::Internal("an image without a size".into()))?;
                grid.features(agent.merge)
            } else {
                1
            };
            assembled.tokens.extend(std::iter::repeat_n(token, times));
        }
    }
    Ok(assembled)
}
