//! The conversation of the golden models, built from its turns.

use crate::golden::folder;
use arpo_agent::conversation::{Content, Message, Turn, conversation};
use arpo_agent::prompt;
use arpo_agent::style::{AgentStyle, PastTurns};
use arpo_agent::window::ScreenshotWindow;
use arpo_core::trajectory::ImageRef;
use serde_json::{Value, json};

fn screenshot_ref(number: usize) -> ImageRef {
    ImageRef { digest: format!("screen_{number}.png"), width: 28, height: 28 }
}

/// A message in the golden file's format.
fn as_json(message: &Message) -> Value {
    let part = |part: &Content| match part {
        Content::Text(text) => json!({"type": "text", "text": text}),
        Content::Image(_) => json!({"type": "image"}),
    };
    let content: Vec<Value> = message.content.iter().map(part).collect();
    json!({"role": message.role.name(), "content": content})
}

/// The style of a golden conversation, and its instruction.
fn style_of(model: &str, messages: &[Value], turns: usize) -> (AgentStyle, String) {
    let window = ScreenshotWindow::new(turns, 0);
    let users = || messages.iter().filter(|message| message["role"] == "user");
    if model.starts_with("qwen3_vl_") {
        let text = users().find_map(|message| message["content"][1]["text"].as_str()).unwrap();
        let (before, rest) = text.split_once("Instruction: ").unwrap();
        let (instruction, after) = rest.split_once("\n\n").unwrap();
        let template =
            format!("{before}Instruction: {{instruction}}\n\n{}", after.strip_suffix("None").unwrap());
        let style = AgentStyle { template, ..AgentStyle::computer_use(window, 999) };
        return (AgentStyle { system: prompt::SYSTEM_CORRECTED.into(), ..style }, instruction.to_owned());
    }
    let style = AgentStyle {
        system: prompt::SYSTEM_CORRECTED.into(),
        template: "{instruction}".into(),
        past: PastTurns::Responses { restore_box_tokens: false },
        ..AgentStyle::uitars(window)
    };
    let instruction: Vec<&str> =
        users().filter_map(|message| message["content"][0]["text"].as_str()).collect();
    (style, instruction.concat())
}

#[test]
fn golden_conversation_is_built_from_its_turns() {
    let mut models = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let model = path.file_name().unwrap().to_string_lossy().into_owned();
        if !model.starts_with("qwen2_5_vl_") && !model.starts_with("qwen3_vl_") {
            continue;
        }
        models += 1;
        let text = std::fs::read_to_string(path.join("conversation.json")).unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        let messages = golden["messages"].as_array().unwrap();
        let responses = messages.iter().filter(|message| message["role"] == "assistant");
        let turns: Vec<Turn> = (0..)
            .zip(responses.filter_map(|message| message["content"][0]["text"].as_str()))
            .map(|(number, response)| Turn { screenshot: screenshot_ref(number), response: response.into() })
            .collect();
        let (style, instruction) = style_of(&model, messages, turns.len());
        let built = conversation(&instruction, &turns, None, &style);
        assert_eq!(&built.iter().map(as_json).collect::<Vec<_>>(), messages, "{model}");
        let shown: Vec<&str> = built
            .iter()
            .flat_map(|message| &message.content)
            .filter_map(|part| match part {
                Content::Image(image) => Some(image.digest.as_str()),
                Content::Text(_) => None,
            })
            .collect();
        assert_eq!(json!(shown), golden["images"]);
    }
    assert!(models > 0, "no golden model");
}
