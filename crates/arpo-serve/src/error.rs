//! Errors as OpenAI's clients expect them: a status and `{"error": {"message", "type", "param", "code"}}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A request that is not answered, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// What is wrong, and what was expected.
    pub message: String,
    /// The field that is wrong.
    pub param: Option<String>,
    /// A name for programs.
    pub code: Option<&'static str>,
    /// Seconds after which the request may be repeated.
    pub retry_after: Option<u32>,
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None, retry_after: None }
    }

    /// The request cannot be understood.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field has a wrong value.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::bad(message) }
    }

    /// Prompt and response do not fit.
    pub(crate) fn too_long(message: impl Into<String>) -> Self {
        Self { param: Some("messages".into()), code: Some("context_length_exceeded"), ..Self::bad(message) }
    }

    /// Another model is served.
    pub(crate) fn no_such_model(asked: &str, served: &str) -> Self {
        Self {
            param: Some("model".into()),
            code: Some("model_not_found"),
            ..Self::new(
                StatusCode::NOT_FOUND,
                format!("the model {asked:?} is not served here: expected {served:?}"),
            )
        }
    }

    /// The key is missing or wrong.
    pub(crate) fn unauthorised() -> Self {
        Self {
            code: Some("invalid_api_key"),
            ..Self::new(
                StatusCode::UNAUTHORIZED,
                "a missing or wrong API key: expected the header `Authorization: Bearer KEY`",
            )
        }
    }

    /// As many requests as there may be.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self {
            code: Some("rate_limit_exceeded"),
            retry_after: Some(1),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }

    /// Nothing is answered at the moment.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: Some(5), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// Something here is broken.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Another status.
    pub(crate) fn with_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, message)
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body.
    pub fn json(&self) -> Value {
        json!({"error": {
            "message": self.message, "type": self.kind(), "param": self.param, "code": self.code,
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
