//! The built-in engine behind an OpenAI-compatible HTTP interface.
//!
//! A request becomes tokens and images on threads of the runtime; one thread owns the engine and computes all requests
//! together, one token for each in every pass. Tokens go back through a channel for each choice, and a client that goes
//! away drops its end of it: that is how the engine learns that a request is no longer wanted.
//!
//! | to change | look in |
//! |---|---|
//! | routes, authorisation, how bodies are read | [`http`] |
//! | connections and their deadlines | [`listen`] |
//! | the fields of a chat request | `chat` |
//! | the fields of a token request (`/inference/v1/generate`) | `generate` |
//! | sampling parameters of both, unsupported fields | `params`, `fields` |
//! | from a body to a request for the engine; from messages to tokens | `prepare`; [`prompt`] |
//! | data URLs to pixels | `images` |
//! | the thread of the engine | `worker` |
//! | from tokens to text, stop strings | `text` |
//! | the shapes of responses | `choice`, `answer` |
//! | metrics | `metrics` |

mod answer;
mod chat;
mod choice;
mod error;
mod fields;
#[cfg(test)]
mod fuzz;
mod generate;
pub mod http;
mod images;
pub mod listen;
mod metrics;
mod params;
mod prepare;
pub mod prompt;
mod text;
mod worker;

pub use error::ApiError;
pub use http::Server;
pub use listen::serve;

use arpo_image::ImageProcessor;
use arpo_tokenizer::Tokenizer;
use std::sync::Arc;
use std::time::Duration;

/// The model that is served, without its weights.
#[derive(Debug, Clone)]
pub struct ServedModel {
    /// Its name in requests.
    pub name: String,
    /// Tokenizer and chat template.
    pub tokenizer: Arc<Tokenizer>,
    /// How images become patches, and at which sizes.
    pub processor: ImageProcessor,
    /// Ends a response.
    pub end_token: u32,
    /// Placeholder for one image feature.
    pub image_token: u32,
    /// Patches along each side of a feature.
    pub merge: usize,
    /// Tokens that are never sampled.
    pub forbidden: Vec<u32>,
}

/// What a request may ask for, and how many there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Images of a request.
    pub images: usize,
    /// Pixels of an image, as it is sent.
    pub image_pixels: u64,
    /// Tokens of a prompt and its response together.
    pub context_tokens: usize,
    /// Tokens of a response if the request does not say.
    pub response_tokens: usize,
    /// Bytes of the decoded images of all requests that run or wait, but at least those of the largest request.
    pub decoded_bytes: usize,
    /// How long a request waits for its share of them; then it is refused.
    pub image_wait: Duration,
    /// Choices that run or wait; a request that would exceed it is refused.
    pub choices: usize,
    /// Connections; further ones wait to be accepted.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            images: 64,
            image_pixels: 3840 * 2160,
            context_tokens: 32_768,
            response_tokens: 4096,
            decoded_bytes: 4 << 30,
            image_wait: Duration::from_secs(30),
            choices: 256,
            connections: 1024,
        }
    }
}
