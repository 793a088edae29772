//! The conversation of the golden models, built from its turns.

use crate::golden::folder;
use arpo_agent::conversation::{Content, ConversationStyle, Message, Turn, conversation};
use arpo_agent::prompt;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::trajectory::ImageRef;
use serde_json::{Value, json};

fn screenshot_ref(number: usize) -> ImageRef {
    ImageRef { digest: format!("screen_{number}.png"), width: 28, height: 28 }
}

/// A message in the golden file's format.
fn as_json(message: &Message) -> Value {
    let content = match &message.content {
        Content::Text(text) => json!({"type": "text", "text": text}),
        Content::Image(_) => json!({"type": "image"}),
    };
    json!({"role": message.role.name(), "content": [content]})
}

#[test]
fn golden_conversation_is_built_from_its_turns() {
    let mut models = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let model = entry.unwrap().path();
        // conversations of Qwen3-VL are of another style
        if !model.file_name().unwrap().to_string_lossy().starts_with("qwen2_5_vl_") {
            continue;
        }
        models += 1;
        let text = std::fs::read_to_string(model.join("conversation.json")).unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        let messages = golden["messages"].as_array().unwrap();
        let texts = |role: &str| -> Vec<String> {
            let by_role = messages.iter().filter(|message| message["role"] == role);
            by_role.filter_map(|message| message["content"][0]["text"].as_str().map(str::to_owned)).collect()
        };
        let turns: Vec<Turn> = (0..)
            .zip(texts("assistant"))
            .map(|(number, response)| Turn { screenshot: screenshot_ref(number), response })
            .collect();
        let style = ConversationStyle {
            system: prompt::SYSTEM_CORRECTED.into(),
            template: "{instruction}".into(),
            restore_box_tokens: false,
            ..ConversationStyle::uitars(ScreenshotWindow::new(turns.len(), 0))
        };
        let built = conversation(&texts("user").concat(), &turns, None, &style);
        assert_eq!(&built.iter().map(as_json).collect::<Vec<_>>(), messages);
        let shown: Vec<&str> = built
            .iter()
            .filter_map(|message| match &message.content {
                Content::Image(image) => Some(image.digest.as_str()),
                Content::Text(_) => None,
            })
            .collect();
        assert_eq!(json!(shown), golden["images"]);
    }
    assert!(models > 0, "no golden model");
}
