//! The fields of a token request, vLLM's `/inference/v1/generate`: token ids with one placeholder an image, images as
//! parts, `sampling_params`. Pure: images stay data URLs here.

use crate::chat::{ImageUrl, Output, check_image_sizes, check_model, content_parts};
use crate::fields::Fields;
use crate::params::{HARMLESS, Params, UNSUPPORTED};
use crate::{ApiError, Limits, ServedModel};
use serde_json::Value;

/// A token request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TokenRequest {
    /// The prompt with one placeholder for each image.
    pub(crate) tokens: Vec<u32>,
    pub(crate) images: Vec<ImageUrl>,
    pub(crate) params: Params,
    pub(crate) output: Output,
    /// Comes back with the response.
    pub(crate) request_id: Option<String>,
    /// The text, and log-probabilities by text, too.
    pub(crate) with_text: bool,
}

/// Parses a body.
pub(crate) fn parse(body: &[u8], model: &ServedModel, limits: &Limits) -> Result<TokenRequest, ApiError> {
    let mut fields = Fields::of_body(body)?;
    check_model(&mut fields, model)?;
    let tokens: Vec<u32> = fields.required("token_ids", "an array of token ids")?;
    if tokens.is_empty() {
        return Err(ApiError::field("token_ids", "token_ids is empty: expected a prompt"));
    }
    let images = content_parts(&mut fields, limits)?;
    let output = Output::take(&mut fields)?;
    let mode: Option<String> = fields.take("output_mode", "\"tokens\" or \"text\"")?;
    let with_text = match mode.as_deref() {
        None | Some("tokens") => false,
        Some("text") => true,
        Some(other) => {
            return Err(fields.wrong("output_mode", &Value::from(other), "\"tokens\" or \"text\""));
        }
    };
    let request_id = fields.take("request_id", "a text")?;
    let value = fields.take_value("sampling_params").unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let mut sampling = Fields::new(value, "sampling_params")?;
    let max_tokens = sampling.take("max_tokens", "a whole number")?;
    let logprobs = sampling.take("logprobs", "how many alternatives: a whole number")?;
    let params = Params::take(&mut sampling, max_tokens, logprobs, limits, model)?;
    // how vLLM returns outputs inside itself
    sampling.finish(&["output_kind"], UNSUPPORTED)?;
    check_image_sizes(&mut fields, model)?;
    fields.finish(HARMLESS, UNSUPPORTED)?;
    Ok(TokenRequest { tokens, images, params, output, request_id, with_text })
}
