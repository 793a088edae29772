//! From messages and images to the tokens that the engine reads: the checkpoint's chat template, its tokenizer, and one
//! placeholder for every feature of every image, as in training.

use crate::{ApiError, ServedModel};
use arpo_agent::conversation::Message;
use arpo_engine::Screenshot;
use arpo_image::Grid;

/// Where the placeholders of an image are in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placeholders {
    /// The first.
    pub offset: usize,
    /// How many.
    pub length: usize,
}

/// A prompt with a placeholder for every feature of every image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// The placeholders of each image.
    pub images: Vec<Placeholders>,
}

/// The sizes of images in patches.
pub(crate) fn grids(model: &ServedModel, screenshots: &[Screenshot]) -> Result<Vec<Grid>, ApiError> {
    let grid = |one: &Screenshot| {
        let (width, height) = one.size();
        model.processor.grid(width, height)
    };
    screenshots.iter().map(grid).collect::<Result<_, _>>().map_err(|error| ApiError::bad(error.to_string()))
}

/// The prompt of a conversation.
pub fn of_messages(
    model: &ServedModel,
    messages: &[Message],
    grids: &[Grid],
    open_turn: bool,
) -> Result<Prompt, ApiError> {
    let bad = |error: arpo_tokenizer::TokenizerError| ApiError::field("messages", error.to_string());
    let text = model.tokenizer.render(messages, open_turn).map_err(bad)?;
    let tokens = model.tokenizer.encode(&text).map_err(bad)?;
    of_tokens(model, &tokens, grids).map_err(|(placeholders, images)| {
        let message = format!(
            "the conversation has {placeholders} image placeholders for {images} images: expected images only as parts of \
             messages, and no placeholder in a text"
        );
        ApiError::field("messages", message)
    })
}

/// The prompt of tokens with one placeholder for each image; if there is another number of them, both numbers.
pub fn of_tokens(model: &ServedModel, tokens: &[u32], grids: &[Grid]) -> Result<Prompt, (usize, usize)> {
    let placeholders = tokens.iter().filter(|&&token| token == model.image_token).count();
    if placeholders != grids.len() {
        return Err((placeholders, grids.len()));
    }
    let mut sizes = grids.iter();
    let mut prompt = Prompt { tokens: Vec::with_capacity(tokens.len()), images: vec![] };
    for &token in tokens {
        let grid = if token == model.image_token { sizes.next() } else { None };
        let length = grid.map_or(1, |grid| grid.features(model.merge));
        if grid.is_some() {
            prompt.images.push(Placeholders { offset: prompt.tokens.len(), length });
        }
        prompt.tokens.extend(std::iter::repeat_n(token, length));
    }
    Ok(prompt)
}
