//! An episode's history as the messages of a chat request, with screenshots as data URLs.

use super::data_urls::data_url;
use crate::episode::{EpisodeScreen, History};
use arpo_agent::conversation::{Content, Message, conversation};
use arpo_agent::style::AgentStyle;
use serde_json::{Value, json};
use std::collections::HashMap;

/// The messages of a history. Each image carries its digest as `uuid`, which servers that know it cache by; OpenAI's own
/// interface has no such field, so it can be left out.
pub(super) fn messages(history: &History, style: &AgentStyle, with_uuid: bool) -> Result<Value, String> {
    let past = history.turns(history.screens.len());
    let current = history.screens.get(history.responses.len()).map(EpisodeScreen::reference);
    let screens: HashMap<&str, &EpisodeScreen> =
        history.screens.iter().map(|screen| (screen.digest().as_ref(), screen)).collect();
    let messages = conversation(&history.plan.prompt(), &past, current.as_ref(), style);
    let part = |part: &Content| {
        Ok(match part {
            Content::Text(text) => json!({"type": "text", "text": text}),
            Content::Image(image) => {
                let url = data_url(screens[image.digest.as_str()])?;
                let mut part = json!({"type": "image_url", "image_url": {"url": url}});
                if with_uuid {
                    part["uuid"] = json!(image.digest);
                }
                part
            }
        })
    };
    let message = |message: &Message| {
        let content = message.content.iter().map(part).collect::<Result<Vec<Value>, String>>()?;
        Ok(json!({"role": message.role.name(), "content": content}))
    };
    messages.iter().map(message).collect::<Result<Vec<Value>, String>>().map(Value::Array)
}
