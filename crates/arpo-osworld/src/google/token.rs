//! Access tokens for Google Drive, from the tokens that `PyDrive` has stored.

use super::GoogleError;
use super::client::{Client, Payload, Request, TEXT_LIMIT_BYTES};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Instant;

/// What `PyDrive` has stored of an account that somebody logged in to.
pub struct Tokens {
    /// The file that they are in.
    pub path: PathBuf,
    /// The program that the account was opened for, and its secret.
    pub client_id: String,
    pub(super) client_secret: String,
    /// Exchanged for access tokens.
    pub(super) refresh_token: String,
    /// Where it is exchanged.
    pub token_uri: String,
}

impl Tokens {
    /// A token for the next hour. The one that is stored is not used: it is older, as a rule, than that.
    pub(super) fn access_token(&self, client: &Client, deadline: Instant) -> Result<String, GoogleError> {
        const CALL: &str = "a new access token";
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", self.client_id.as_str()),
            ("client_secret", self.client_secret.as_str()),
            ("refresh_token", self.refresh_token.as_str()),
        ];
        let request = Request {
            call: CALL,
            url: &self.token_uri,
            token: None,
            payload: Payload::PostForm(&form),
            limit_bytes: TEXT_LIMIT_BYTES,
        };
        let response = client.send(&request, deadline)?;
        // expired, revoked, or of a program that is no longer registered
        if matches!(response.status, 400 | 401) {
            return Err(GoogleError::Rejected { path: self.path.clone(), problem: response.problem() });
        }
        let body = response.accepted(CALL)?;
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        value["access_token"].as_str().map(str::to_owned).ok_or_else(|| GoogleError::Unreachable {
            call: CALL.into(),
            problem: "the response has no access_token".into(),
        })
    }
}
