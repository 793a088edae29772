//! Request bodies, read as the framework of OSWorld's server reads them: JSON only with its content type, forms in
//! either of their two encodings.

use super::response::HttpResponse;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{StatusCode, header};
use percent_encoding::percent_decode;
use serde_json::Value;

/// The longest body that is held in memory; a file is not.
const LONGEST_BYTES: usize = 256 << 20;

/// A body of JSON.
pub struct JsonBody(pub Value);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = HttpResponse;

    async fn from_request(request: Request, _: &S) -> Result<Self, HttpResponse> {
        let kind = kind(&request);
        let is_json =
            kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
        if !is_json {
            let message = "Did not attempt to load JSON data because the request Content-Type was not 'application/json'.";
            return Err(HttpResponse::Page(StatusCode::UNSUPPORTED_MEDIA_TYPE, message.into()));
        }
        let bytes = axum::body::to_bytes(request.into_body(), LONGEST_BYTES).await;
        let value = bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        value.map(Self).ok_or_else(|| bad_request("Failed to decode JSON object"))
    }
}

/// The fields of a form that are not files.
pub struct FormBody(Vec<(String, String)>);

impl FormBody {
    /// A field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequest<S> for FormBody {
    type Rejection = HttpResponse;

    async fn from_request(request: Request, state: &S) -> Result<Self, HttpResponse> {
        let unread =
            || bad_request("The browser (or proxy) sent a request that this server could not understand.");
        match kind(&request).as_str() {
            "application/x-www-form-urlencoded" => {
                let bytes = axum::body::to_bytes(request.into_body(), LONGEST_BYTES).await;
                Ok(Self(fields(&bytes.map_err(|_| unread())?)))
            }
            "multipart/form-data" => {
                let mut parts = Multipart::from_request(request, state).await.map_err(|_| unread())?;
                let mut fields = Vec::new();
                while let Some(part) = parts.next_field().await.map_err(|_| unread())? {
                    if let Some(name) = part.name().filter(|_| part.file_name().is_none()) {
                        let name = name.to_owned();
                        fields.push((name, part.text().await.map_err(|_| unread())?));
                    }
                }
                Ok(Self(fields))
            }
            _ => Ok(Self(vec![])),
        }
    }
}

/// The kind of a body, without its parameters.
fn kind(request: &Request) -> String {
    let header = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    header.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The framework's page for a request that it cannot read.
pub fn bad_request(message: &str) -> HttpResponse {
    HttpResponse::Page(StatusCode::BAD_REQUEST, message.into())
}

fn fields(body: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| {
        let spaced: Vec<u8> = bytes.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        percent_decode(&spaced).decode_utf8_lossy().into_owned()
    };
    let field = |pair: &[u8]| {
        let at = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        (text(&pair[..at]), text(pair.get(at + 1..).unwrap_or_default()))
    };
    body.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_form() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            fields(b"file_path=%2Fa+b%2B%C3%BC&x&y=1=2&"),
            [pair("file_path", "/a b+ü"), pair("x", ""), pair("y", "1=2")]
        );
        assert_eq!(fields(b""), []);
    }
}
