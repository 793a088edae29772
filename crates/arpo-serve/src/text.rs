//! From tokens to text, one by one. Text is given out as soon as it is certain: a character may need several tokens, and
//! the end of a text may be the beginning of a stop string.

use arpo_tokenizer::{Tokenizer, TokenizerError};
use std::sync::Arc;

/// The text of a choice so far.
#[derive(Debug)]
pub(crate) struct TextBuilder {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    stop: Vec<String>,
    tokens: Vec<u32>,
    /// Tokens from here on are decoded again with every new one: how a token reads may depend on the one before it.
    window: usize,
    /// Tokens before this are in `text`.
    decoded: usize,
    text: String,
    given_out: usize,
    stopped_by: Option<String>,
}

impl TextBuilder {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, skip_special: bool, stop: Vec<String>) -> Self {
        Self {
            tokenizer,
            skip_special,
            stop,
            tokens: vec![],
            window: 0,
            decoded: 0,
            text: String::new(),
            given_out: 0,
            stopped_by: None,
        }
    }

    /// All tokens, also those behind a stop string.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The text so far.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The stop string that ended it.
    pub(crate) fn stopped_by(&self) -> Option<&str> {
        self.stopped_by.as_deref()
    }

    /// Appends a token; returns whether a stop string is complete.
    pub(crate) fn push(&mut self, token: u32) -> Result<bool, TokenizerError> {
        self.tokens.push(token);
        let before = self.decode(self.window..self.decoded)?;
        let now = self.decode(self.window..self.tokens.len())?;
        match now.strip_prefix(&before) {
            Some(new) if !new.is_empty() && !new.ends_with(char::REPLACEMENT_CHARACTER) => {
                let from = self.text.len();
                self.text.push_str(new);
                (self.window, self.decoded) = (self.decoded, self.tokens.len());
                Ok(self.cut_at_stop(from))
            }
            _ => Ok(false),
        }
    }

    /// There are no further tokens: what was uncertain is certain now.
    pub(crate) fn finish(&mut self) -> Result<(), TokenizerError> {
        if self.stopped_by.is_some() {
            return Ok(());
        }
        let whole = self.decode(0..self.tokens.len())?;
        if let Some(rest) = whole.strip_prefix(self.text.as_str()).filter(|rest| !rest.is_empty()) {
            let from = self.text.len();
            self.text.push_str(rest);
            self.cut_at_stop(from);
        }
        Ok(())
    }

    /// Text that was not given out yet and is certain; with `all` also the end of it.
    pub(crate) fn give_out(&mut self, all: bool) -> String {
        let end = if all { self.text.len() } else { self.text.len() - self.uncertain() };
        let end = end.max(self.given_out);
        let new = self.text[self.given_out..end].to_owned();
        self.given_out = end;
        new
    }

    fn decode(&self, range: std::ops::Range<usize>) -> Result<String, TokenizerError> {
        if range.is_empty() {
            return Ok(String::new());
        }
        self.tokenizer.decode(&self.tokens[range], self.skip_special)
    }

    /// Cuts the text before the first stop string that ends behind `from`.
    fn cut_at_stop(&mut self, from: usize) -> bool {
        let first = self.stop.iter().filter_map(|stop| {
            let mut start = from.saturating_sub(stop.len());
            while !self.text.is_char_boundary(start) {
                start -= 1;
            }
            self.text[start..].find(stop.as_str()).map(|at| (start + at, stop))
        });
        let Some((at, stop)) = first.min_by_key(|(at, _)| *at) else { return false };
        self.stopped_by = Some(stop.clone());
        self.text.truncate(at);
        true
    }

    /// Bytes at the end of the text that may be the beginning of a stop string.
    fn uncertain(&self) -> usize {
        let bytes = self.text.as_bytes();
        let beginning = |stop: &String| {
            let longest = (stop.len() - 1).min(bytes.len());
            (1..=longest)
                .rev()
                .find(|&length| stop.is_char_boundary(length) && bytes.ends_with(&stop.as_bytes()[..length]))
        };
        self.stop.iter().filter_map(beginning).max().unwrap_or(0)
    }
}
