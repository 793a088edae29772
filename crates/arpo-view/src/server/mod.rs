//! The server of the pages: GET only, on the loopback interface unless it is told otherwise, and then with a token.
//!
//! | to change | look in |
//! |---|---|
//! | routes, the token, headers of security | here |
//! | what the pages ask for | [`api`]; episodes: `rows` |
//! | live updates | `live` |
//! | connections and their deadlines | [`listen`] |
//! | the files of the page | `assets`, and the folder `assets/` |

pub mod api;
mod assets;
pub mod listen;
mod live;
mod query;
mod rows;

use crate::ViewError;
use crate::library::Library;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use query::Query;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Nothing but the program's own files: no inline code, no other machine, no frame.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What all requests share.
#[derive(Debug)]
pub struct Viewer {
    pub(crate) library: Library,
    /// The digest of the token that every request must carry.
    token: Option<[u8; 32]>,
    /// Whether requests must name a loopback host: without a token a page of another site must not read this one under a name
    /// that it has pointed here.
    local_only: bool,
}

impl Viewer {
    /// Shows these runs. Without a token, only requests to a loopback name are answered.
    pub fn new(library: Library, token: Option<&str>) -> Arc<Self> {
        Arc::new(Self { library, token: token.map(digest), local_only: token.is_none() })
    }

    fn is_token(&self, given: &str) -> bool {
        // digests, so that the time tells neither the length nor a part of the token
        self.token.is_none_or(|token| {
            digest(given).iter().zip(token).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
        })
    }

    fn is_authorised(&self, headers: &HeaderMap) -> bool {
        if self.token.is_none() {
            return true;
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some(given) = bearer.and_then(|value| value.strip_prefix("Bearer ")) {
            return self.is_token(given.trim());
        }
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let ours = cookies.flat_map(|line| line.split(';')).filter_map(|one| one.trim().split_once('='));
        ours.filter(|(name, _)| *name == COOKIE).any(|(_, value)| self.is_token(value))
    }
}

/// The cookie that holds the token, so that images and events need no header.
const COOKIE: &str = "arpo_view";

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Whether a token can be in a cookie and in an address as it is.
pub fn check_token(token: &str) -> Result<(), ViewError> {
    let plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte));
    if token.len() >= 8 && plain {
        return Ok(());
    }
    Err(ViewError::Request("--token: expected at least 8 letters, digits, or any of - _ . ~".into()))
}

/// Every route.
pub fn router(viewer: Arc<Viewer>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/assets/{name}", get(asset))
        .merge(api::routes())
        .route("/api/events", get(live::events))
        .fallback(async || error(StatusCode::NOT_FOUND, "there is nothing at this address"))
        .layer(middleware::from_fn_with_state(Arc::clone(&viewer), guard))
        .with_state(viewer)
}

/// Checks method, host and token; adds the headers of security to every response.
async fn guard(State(viewer): State<Arc<Viewer>>, request: Request, next: Next) -> Response {
    let mut response = checked(&viewer, request, next).await;
    let headers = response.headers_mut();
    let mut put = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    put(header::CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::REFERRER_POLICY, "no-referrer");
    put(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    put(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    response
}

async fn checked(viewer: &Viewer, request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return error(StatusCode::METHOD_NOT_ALLOWED, "this server only answers GET");
    }
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    if viewer.local_only && !host.is_some_and(is_loopback_name) {
        return error(
            StatusCode::FORBIDDEN,
            "expected localhost or a loopback address in Host, or a --token",
        );
    }
    // the address that is printed carries the token once; from then on the cookie does
    let query = Query::parse(request.uri().query().unwrap_or(""));
    if let (Some(given), "/") = (query.text("token"), request.uri().path()) {
        if !viewer.is_token(given) {
            return unauthorised();
        }
        let cookie = format!("{COOKIE}={given}; Path=/; HttpOnly; SameSite=Strict");
        let Ok(cookie) = HeaderValue::from_str(&cookie) else { return unauthorised() };
        let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]).into_response();
        response.headers_mut().insert(header::SET_COOKIE, cookie);
        return response;
    }
    if !viewer.is_authorised(request.headers()) {
        return unauthorised();
    }
    next.run(request).await
}

fn unauthorised() -> Response {
    error(StatusCode::UNAUTHORIZED, "expected the token: open the address that `arpo view` printed")
}

/// Whether a `Host` header names this machine's loopback interface.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn page() -> Response {
    let media_type = HeaderValue::from_static("text/html; charset=utf-8");
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, no_cache())], assets::PAGE).into_response()
}

async fn asset(Path(name): Path<String>) -> Response {
    let Some(asset) = assets::asset(&name) else {
        return error(StatusCode::NOT_FOUND, "there is no such file");
    };
    let media_type = HeaderValue::from_static(asset.media_type);
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, no_cache())], asset.contents)
        .into_response()
}

/// A newer program serves newer files under the same names.
fn no_cache() -> HeaderValue {
    HeaderValue::from_static("no-cache")
}

fn error(status: StatusCode, problem: &str) -> Response {
    let body = Body::from(json!({"error": problem}).to_string());
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

impl IntoResponse for ViewError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::File { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        };
        error(status, &self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine() {
        for host in ["localhost", "localhost:80", "127.0.0.1:9100", "[::1]:9100", "LocalHost"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "", "[::2]", "0.0.0.0:1", "localhost.evil"] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }

    #[test]
    fn tokens_fit_into_a_cookie() {
        assert!(check_token("abcd-EF_12.~").is_ok());
        for wrong in ["short", "with space!", "semi;colon99", ""] {
            assert!(check_token(wrong).is_err(), "{wrong}");
        }
    }
}
