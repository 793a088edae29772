//! Responses in the shapes that OSWorld's clients know: JSON, text, images, files, and the error pages of the web
//! framework that its server is built on.

use crate::x11::XError;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::path::Path;
use tokio_util::io::ReaderStream;

/// A response.
#[derive(Debug)]
pub enum HttpResponse {
    /// JSON with a status.
    Json(StatusCode, Value),
    /// Text with a status.
    Text(StatusCode, String),
    /// An error page of the framework, with its explanation.
    Page(StatusCode, String),
    /// Bytes of a content type.
    Bytes(&'static str, Vec<u8>),
    /// A file, to be streamed.
    File(Box<OpenFile>),
}

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    file: tokio::fs::File,
    bytes: u64,
    name: String,
}

impl OpenFile {
    /// Opens a file; a folder is not one.
    pub async fn open(path: &Path) -> std::io::Result<Box<Self>> {
        let file = tokio::fs::File::open(path).await?;
        let about = file.metadata().await?;
        if about.is_dir() {
            return Err(rustix::io::Errno::ISDIR.into());
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Box::new(Self { file, bytes: about.len(), name: name.unwrap_or_default() }))
    }
}

impl HttpResponse {
    /// JSON, status 200.
    pub fn json(value: Value) -> Self {
        Self::Json(StatusCode::OK, value)
    }

    /// Text, status 200.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(StatusCode::OK, text.into())
    }

    /// `{"error": …}` with a status.
    pub fn error(status: StatusCode, problem: impl Into<String>) -> Self {
        Self::Json(status, json!({"error": problem.into()}))
    }

    /// `{"status": "error", "message": …}` with a status.
    pub fn failure(status: StatusCode, problem: impl Into<String>) -> Self {
        Self::Json(status, json!({"status": "error", "message": problem.into()}))
    }

    /// The framework's page for an uncaught exception. Ours also says what it was.
    pub fn uncaught(problem: impl std::fmt::Display) -> Self {
        Self::Page(StatusCode::INTERNAL_SERVER_ERROR, problem.to_string())
    }
}

/// A display that cannot be opened is not available yet, or no longer.
impl From<XError> for HttpResponse {
    fn from(error: XError) -> Self {
        let status = match error {
            XError::Unopened { .. } => StatusCode::SERVICE_UNAVAILABLE,
            XError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::failure(status, error.to_string())
    }
}

impl IntoResponse for HttpResponse {
    fn into_response(self) -> Response {
        match self {
            Self::Json(status, value) => (status, axum::Json(value)).into_response(),
            Self::Text(status, text) => {
                (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
            }
            Self::Page(status, problem) => {
                let page = page(status, &problem);
                (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
            }
            Self::Bytes(kind, bytes) => ([(header::CONTENT_TYPE, kind)], bytes).into_response(),
            Self::File(open) => {
                let OpenFile { file, bytes, name } = *open;
                let body = Body::from_stream(ReaderStream::with_capacity(file, 1 << 16));
                let mut response = body.into_response();
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_LENGTH, bytes.into());
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
                let disposition = HeaderValue::try_from(disposition(&name));
                headers.extend(disposition.map(|value| (header::CONTENT_DISPOSITION, value)));
                response
            }
        }
    }
}

fn page(status: StatusCode, problem: &str) -> String {
    let reason = status.canonical_reason().unwrap_or_default();
    let problem = problem.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let code = status.as_u16();
    format!(
        "<!doctype html>\n<html lang=en>\n<title>{code} {reason}</title>\n<h1>{reason}</h1>\n<p>{problem}</p>\n"
    )
}

/// The header of a file to save under its name, percent-encoded where needed.
fn disposition(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._- ()+@,".contains(letter);
    if name.chars().all(is_plain) {
        return format!("attachment; filename=\"{name}\"");
    }
    let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    format!("attachment; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_no_markup_of_a_client() {
        let page = page(StatusCode::NOT_FOUND, "<b>&");
        assert!(page.contains("<title>404 Not Found</title>"));
        assert!(page.contains("<p>&lt;b&gt;&amp;</p>"));
    }

    #[test]
    fn names_of_files_fit_a_header() {
        assert_eq!(disposition("a b.txt"), "attachment; filename=\"a b.txt\"");
        assert_eq!(disposition("a\"ü\n"), "attachment; filename*=UTF-8''a%22%C3%BC%0A");
    }
}
