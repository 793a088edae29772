//! The accessibility tree, and the text of the focused terminal.

use super::HandlerResult;
use super::response::HttpResponse;
use crate::session;
use crate::tree::bus::Bus;
use crate::tree::walk;
use axum::http::StatusCode;
use serde_json::json;

/// `/accessibility`: the whole desktop. Without a bus OSWorld's server fails in its framework.
pub async fn accessibility() -> HandlerResult {
    let bus = Bus::open(session::bus_address()).await.map_err(HttpResponse::uncaught)?;
    let root = walk::desktop(&bus).await.map_err(HttpResponse::uncaught)?;
    Ok(HttpResponse::json(json!({"AT": root.document()})))
}

/// `/terminal`: no terminal is a success too.
pub async fn terminal() -> HandlerResult {
    let text = async { walk::terminal(&Bus::open(session::bus_address()).await?).await };
    match text.await {
        Ok(text) => Ok(HttpResponse::json(json!({"output": text, "status": "success"}))),
        Err(error) => Ok(HttpResponse::failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}
