//! What is on the screen in words: the tree of accessible things, and the text of the terminal that has the keyboard.

use super::answer::Answer;
use super::{Answered, Shared};
use axum::extract::State;
use axum::http::StatusCode;

/// `/accessibility`.
pub async fn accessibility(State(_guest): Shared) -> Answered {
    Err(Answer::failure(StatusCode::INTERNAL_SERVER_ERROR, "no accessibility bus"))
}

/// `/terminal`.
pub async fn terminal(State(_guest): Shared) -> Answered {
    Ok(Answer::json(serde_json::json!({"output": null, "status": "success"})))
}
