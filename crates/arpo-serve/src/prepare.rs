//! From a body to a request that is ready to be computed, in two steps: between them the server waits until there is memory
//! for the decoded images.

use crate::answer::Shape;
use crate::chat::{self, ChatRequest, ImageUrl, Output};
use crate::error::ApiError;
use crate::generate::{self, TokenRequest};
use crate::images::{ImageStore, SentImage};
use crate::params::{Params, random_seed};
use crate::prompt::{self, Prompt};
use crate::{Limits, ServedModel};
use arpo_agent::conversation::Message;
use arpo_engine::Screenshot;

/// A request whose images are not decoded yet.
#[derive(Debug)]
pub(crate) struct Parsed {
    images: Vec<SentImage>,
    text: Text,
    params: Params,
    output: Output,
    shape: Shape,
    id: String,
}

/// What the prompt is made of, besides images.
#[derive(Debug)]
enum Text {
    Messages { messages: Vec<Message>, open_turn: bool },
    Tokens(Vec<u32>),
}

/// A request that is ready to be computed.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) prompt: Prompt,
    pub(crate) screenshots: Vec<Screenshot>,
    pub(crate) params: Params,
    pub(crate) output: Output,
    pub(crate) shape: Shape,
    pub(crate) id: String,
}

/// Parses the body of a chat request.
pub(crate) fn parse_chat(
    body: &[u8],
    model: &ServedModel,
    limits: &Limits,
    store: &ImageStore,
) -> Result<Parsed, ApiError> {
    let ChatRequest { messages, images, params, open_turn, output } = chat::parse(body, model, limits)?;
    let images = looked_at(images, limits, store)?;
    let id = format!("chatcmpl-{:016x}", random_seed());
    let text = Text::Messages { messages, open_turn };
    Ok(Parsed { images, text, params, output, shape: Shape::Chat, id })
}

/// Parses the body of a token request.
pub(crate) fn parse_tokens(
    body: &[u8],
    model: &ServedModel,
    limits: &Limits,
    store: &ImageStore,
) -> Result<Parsed, ApiError> {
    let TokenRequest { tokens, images, params, output, request_id, with_text } =
        generate::parse(body, model, limits)?;
    let images = looked_at(images, limits, store)?;
    let id = request_id.unwrap_or_else(|| format!("{:016x}", random_seed()));
    Ok(Parsed { images, text: Text::Tokens(tokens), params, output, shape: Shape::Tokens { with_text }, id })
}

fn looked_at(images: Vec<ImageUrl>, limits: &Limits, store: &ImageStore) -> Result<Vec<SentImage>, ApiError> {
    images.into_iter().map(|image| store.look_at(image, limits.image_pixels)).collect()
}

impl Parsed {
    /// Bytes of its decoded images.
    pub(crate) fn decoded_bytes(&self) -> u64 {
        self.images.iter().map(SentImage::decoded_bytes).sum()
    }

    /// Decodes its images and tokenises it.
    pub(crate) fn prepare(self, model: &ServedModel, store: &ImageStore) -> Result<Prepared, ApiError> {
        let Self { images, text, params, output, shape, id } = self;
        let screenshots =
            images.into_iter().map(|image| store.decode(image)).collect::<Result<Vec<_>, _>>()?;
        let grids = prompt::grids(model, &screenshots)?;
        let prompt = match text {
            Text::Messages { messages, open_turn } => {
                prompt::of_messages(model, &messages, &grids, open_turn)?
            }
            Text::Tokens(tokens) => {
                prompt::of_tokens(model, &tokens, &grids).map_err(|(placeholders, images)| {
                    let message = format!(
                        "token_ids has {placeholders} image placeholders for {images} images: expected one placeholder \
                         for each image, which the server expands"
                    );
                    ApiError::field("token_ids", message)
                })?
            }
        };
        Ok(Prepared { prompt, screenshots, params, output, shape, id })
    }
}
