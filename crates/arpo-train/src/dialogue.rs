//! From a conversation to one token sequence with the agent's tokens marked.
//!
//! What the agent said stands in the sequence as the tokens it drew, not as its text tokenised again: the two can
//! differ, and the sequence must be what was sampled from. So the template is rendered with a mark in place of each
//! response, cut at the marks, and the pieces between are tokenised.

use crate::TrainError;
use crate::agent::Agent;
use arpo_agent::conversation::{Content, Message, Role};
use arpo_core::trajectory::TokenSpan;
use arpo_image::Grid;

/// Stands for a response in a rendered conversation; no text has it.
const MARK: &str = "\u{f8ff}response\u{f8ff}";

/// A conversation in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// All tokens, a placeholder for every feature of every picture.
    pub tokens: Vec<u32>,
    /// The agent's responses in them, in order.
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

/// Puts a conversation together. `responses` are the tokens of the agent's messages, in order, each with its end token
/// if it came to its end; the words of those messages are not looked at. `grids` are the pictures' sizes. With
/// `open_turn` the agent's next turn is opened.
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
            Role::Assistant => Message { role: Role::Assistant, content: Content::Text(MARK.into()) },
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
                responses.next().ok_or_else(|| TrainError::Options("a message without tokens".into()))?;
            let start = assembled.tokens.len();
            assembled.tokens.extend(response.as_ref());
            assembled.spans.push(TokenSpan { start, end: assembled.tokens.len() });
        }
        let mut tokens = agent.tokenizer.encode(piece)?.into_iter().peekable();
        // a response that came to its end has its end token already
        let ended = assembled.tokens.last() == Some(&agent.end_token);
        if number > 0 && ended && tokens.peek() == Some(&agent.end_token) {
            tokens.next();
        }
        for token in tokens {
            let times = if token == agent.image_token {
                let grid =
                    grids.next().ok_or_else(|| TrainError::Options("a picture without a size".into()))?;
                grid.features(agent.merge)
            } else {
                1
            };
            assembled.tokens.extend(std::iter::repeat_n(token, times));
        }
    }
    Ok(assembled)
}
