//! The fields of a chat request. Pure: images stay data URLs here.

use crate::fields::{Fields, excerpt};
use crate::params::{HARMLESS, Params, UNSUPPORTED};
use crate::{ApiError, Limits, ServedModel};
use arpo_agent::conversation::{Content, Message, Role};
use arpo_core::trajectory::ImageRef;
use serde_json::Value;

/// A chat request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChatRequest {
    pub(crate) messages: Vec<Message>,
    /// The images, in order, as data URLs.
    pub(crate) images: Vec<ImageUrl>,
    pub(crate) params: Params,
    /// Opens the assistant's turn.
    pub(crate) open_turn: bool,
    pub(crate) output: Output,
}

/// An image that is not decoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageUrl {
    /// Where it is in the body.
    pub(crate) name: String,
    pub(crate) url: String,
}

/// What the response contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Output {
    /// As server-sent events; `None` for one body.
    pub(crate) stream: Option<StreamOutput>,
    /// The ids of prompt and response.
    pub(crate) token_ids: bool,
    /// Tokens of log-probabilities as `token_id:7`.
    pub(crate) tokens_as_ids: bool,
}

/// What a stream contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamOutput {
    /// At its end the numbers of tokens.
    pub(crate) include_usage: bool,
}

impl Output {
    /// Takes the fields of streaming.
    pub(crate) fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let flag = "true or false";
        let streams = fields.take("stream", flag)?.unwrap_or(false);
        let include_usage = match fields.take_value("stream_options") {
            None => false,
            Some(value) => {
                let mut options = Fields::new(value, &fields.name("stream_options"))?;
                let include = options.take("include_usage", flag)?.unwrap_or(false);
                // obfuscation pads chunks against observers of their sizes; here it would only be noise
                options.finish(
                    &["include_obfuscation"],
                    &[crate::fields::Neutral {
                        name: "continuous_usage_stats",
                        accepts: |value| value == &Value::Bool(false),
                        expected: "false",
                    }],
                )?;
                include
            }
        };
        let token_ids = fields.take("return_token_ids", flag)?.unwrap_or(false);
        let stream = streams.then_some(StreamOutput { include_usage });
        Ok(Self { stream, token_ids, tokens_as_ids: false })
    }
}

/// Parses a body.
pub(crate) fn parse(body: &[u8], model: &ServedModel, limits: &Limits) -> Result<ChatRequest, ApiError> {
    let mut fields = Fields::of_body(body)?;
    check_model(&mut fields, model)?;
    let (messages, images) = messages(&mut fields, limits)?;
    let flag = "true or false";
    let output = Output {
        tokens_as_ids: fields.take("return_tokens_as_token_ids", flag)?.unwrap_or(false),
        ..Output::take(&mut fields)?
    };
    let count = "a whole number";
    let older = fields.take("max_tokens", count)?;
    let max_tokens = fields.take("max_completion_tokens", count)?.or(older);
    let logprobs = match (fields.take("logprobs", flag)?, fields.take("top_logprobs", count)?) {
        (Some(true), alternatives) => Some(alternatives.unwrap_or(0)),
        (_, None | Some(0)) => None,
        (_, Some(alternatives)) => {
            return Err(fields.wrong(
                "top_logprobs",
                &Value::from(alternatives),
                "\"logprobs\": true beside it",
            ));
        }
    };
    let params = Params::take(&mut fields, max_tokens, logprobs, limits, model)?;
    let open_turn = fields.take("add_generation_prompt", flag)?.unwrap_or(true);
    check_image_sizes(&mut fields, model)?;
    fields.finish(HARMLESS, UNSUPPORTED)?;
    Ok(ChatRequest { messages, images, params, open_turn, output })
}

/// The model must be the one that is served; without a name it is.
pub(crate) fn check_model(fields: &mut Fields, model: &ServedModel) -> Result<(), ApiError> {
    match fields.take::<String>("model", "the name of a model")? {
        Some(asked) if asked != model.name => Err(ApiError::no_such_model(&asked, &model.name)),
        _ => Ok(()),
    }
}

/// vLLM's way to ask for other image sizes: accepted if they are those of the server.
pub(crate) fn check_image_sizes(fields: &mut Fields, model: &ServedModel) -> Result<(), ApiError> {
    let Some(value) = fields.take_value("mm_processor_kwargs") else { return Ok(()) };
    let mut sizes = Fields::new(value, "mm_processor_kwargs")?;
    let limits = model.processor.limits;
    for (name, served) in [("min_pixels", limits.min), ("max_pixels", limits.max)] {
        match sizes.take::<u64>(name, "a whole number")? {
            Some(asked) if asked != served => {
                let expected = format!("{served}, as this server was started");
                return Err(sizes.wrong(name, &Value::from(asked), &expected));
            }
            _ => {}
        }
    }
    sizes.finish(&[], &[])
}

fn messages(fields: &mut Fields, limits: &Limits) -> Result<(Vec<Message>, Vec<ImageUrl>), ApiError> {
    let expected = "an array of messages";
    let values = match fields.take_value("messages") {
        Some(Value::Array(values)) if !values.is_empty() => values,
        Some(other) => return Err(fields.wrong("messages", &other, expected)),
        None => return Err(ApiError::field("messages", format!("messages is missing: expected {expected}"))),
    };
    let mut images = Vec::new();
    let message = |(number, value)| message(Fields::new(value, &format!("messages[{number}]"))?, &mut images);
    let messages = values.into_iter().enumerate().map(message).collect::<Result<Vec<_>, _>>()?;
    if images.len() > limits.images {
        let message = format!("{} images: expected at most {}", images.len(), limits.images);
        return Err(ApiError::field("messages", message));
    }
    Ok((messages, images))
}

fn message(mut fields: Fields, images: &mut Vec<ImageUrl>) -> Result<Message, ApiError> {
    let expected = "\"system\", \"user\" or \"assistant\"";
    let role: String = fields.required("role", expected)?;
    let role = match role.as_str() {
        // OpenAI's newer name for it
        "developer" | "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => return Err(fields.wrong("role", &Value::String(role), expected)),
    };
    let expected = "a text or an array of parts";
    let content = match fields.take_value("content") {
        Some(Value::String(text)) => vec![Content::Text(text)],
        Some(Value::Array(parts)) => {
            let name = fields.name("content");
            let part = |(number, value)| part(value, &format!("{name}[{number}]"), images);
            parts.into_iter().enumerate().map(part).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(fields.wrong("content", &other, expected)),
        None => {
            let name = fields.name("content");
            return Err(ApiError::field(&name, format!("{name} is missing: expected {expected}")));
        }
    };
    let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    let unsupported = ["tool_calls", "annotations"].map(|name| crate::fields::Neutral {
        name,
        accepts: empty,
        expected: "none",
    });
    // no chat template of these models shows a name
    fields.finish(&["name"], &unsupported)?;
    Ok(Message { role, content })
}

fn part(value: Value, name: &str, images: &mut Vec<ImageUrl>) -> Result<Content, ApiError> {
    if let Value::String(text) = value {
        return Ok(Content::Text(text));
    }
    let mut fields = Fields::new(value, name)?;
    let expected = "\"text\" or \"image_url\"";
    let kind: String = fields.required("type", expected)?;
    match kind.as_str() {
        "text" => {
            let text = match fields.take_value("text") {
                Some(Value::String(text)) => text,
                other => return Err(fields.wrong("text", &other.unwrap_or(Value::Null), "a text")),
            };
            fields.finish(&[], &[])?;
            Ok(Content::Text(text))
        }
        "image_url" => {
            // its number stands for it until it is decoded
            let image = ImageRef { digest: images.len().to_string(), width: 0, height: 0 };
            images.push(image_url(&mut fields)?);
            // an image is known by what it shows, not by a name that another client may use too
            fields.finish(&["uuid"], &[])?;
            Ok(Content::Image(image))
        }
        _ => Err(fields.wrong("type", &Value::String(kind), expected)),
    }
}

fn image_url(fields: &mut Fields) -> Result<ImageUrl, ApiError> {
    let name = fields.name("image_url");
    match fields.take_value("image_url") {
        Some(Value::String(url)) => Ok(ImageUrl { name, url }),
        Some(value @ Value::Object(_)) => {
            let mut inner = Fields::new(value, &name)?;
            let url = match inner.take_value("url") {
                Some(Value::String(url)) => url,
                other => return Err(inner.wrong("url", &other.unwrap_or(Value::Null), "a data URL")),
            };
            // the model decides the size
            inner.finish(&["detail"], &[])?;
            Ok(ImageUrl { name: format!("{name}.url"), url })
        }
        other => {
            let found = other.as_ref().map_or_else(|| "missing".to_owned(), excerpt);
            Err(ApiError::field(&name, format!("{name} is {found}: expected {{\"url\": \"data:...\"}}")))
        }
    }
}

/// The images of a token request: parts as in a chat.
pub(crate) fn content_parts(fields: &mut Fields, limits: &Limits) -> Result<Vec<ImageUrl>, ApiError> {
    let parts = match fields.take_value("content_parts") {
        None => return Ok(vec![]),
        Some(Value::Array(parts)) => parts,
        Some(other) => return Err(fields.wrong("content_parts", &other, "an array of image parts")),
    };
    if parts.len() > limits.images {
        let message = format!("{} images: expected at most {}", parts.len(), limits.images);
        return Err(ApiError::field("content_parts", message));
    }
    let mut images = Vec::new();
    for (number, value) in parts.into_iter().enumerate() {
        let name = format!("content_parts[{number}]");
        if matches!(part(value, &name, &mut images)?, Content::Text(_)) {
            return Err(ApiError::field(
                &name,
                format!("{name} is a text: expected an image, texts are tokens here"),
            ));
        }
    }
    Ok(images)
}
