//! What is on the screen in words: the tree of accessible things, and the text of the terminal that has the keyboard.

use super::Answered;
use super::answer::Answer;
use crate::session;
use crate::tree::bus::Bus;
use crate::tree::walk;
use axum::http::StatusCode;
use serde_json::json;

/// `/accessibility`: the whole desktop. Without a bus OSWorld's server fails in its framework.
pub async fn accessibility() -> Answered {
    let bus = Bus::open(session::bus_address()).await.map_err(Answer::uncaught)?;
    let root = walk::desktop(&bus).await.map_err(Answer::uncaught)?;
    Ok(Answer::json(json!({"AT": root.document()})))
}

/// `/terminal`: nothing is a success too.
pub async fn terminal() -> Answered {
    let text = async { walk::terminal(&Bus::open(session::bus_address()).await?).await };
    match text.await {
        Ok(text) => Ok(Answer::json(json!({"output": text, "status": "success"}))),
        Err(error) => Ok(Answer::failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}
