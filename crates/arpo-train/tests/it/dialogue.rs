//! Against the golden conversation.

use arpo_agent::conversation::{Content, ConversationStyle, Message, Role};
use arpo_agent::window::ScreenshotWindow;
use arpo_core::trajectory::ImageRef;
use arpo_model::checkpoint;
use arpo_model::positions::Grid;
use arpo_train::agent::Agent;
use arpo_train::dialogue::assemble;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use tch::{Device, Kind};

fn folder() -> PathBuf {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join(std::env::var_os("ARPO_GOLDEN_DIR").unwrap_or_else(|| "tests/golden".into()))
        .join("qwen2_5_vl_tiny")
}

fn values(bytes: &[u8], name: &str) -> Vec<i64> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let view = file.tensor(name).unwrap();
    view.data().chunks_exact(8).map(|value| i64::from_le_bytes(value.try_into().unwrap())).collect()
}

#[test]
fn the_golden_conversation_becomes_its_tokens_and_its_mask() {
    let folder = folder();
    let checkpoint = checkpoint::load(&folder, Kind::Float, Device::Cpu).unwrap();
    let agent = Agent::new(
        &checkpoint.config,
        &checkpoint.side_files,
        &folder,
        ConversationStyle::uitars(ScreenshotWindow::new(15, 0)),
    )
    .unwrap();
    let conversation: Value =
        serde_json::from_slice(&fs::read(folder.join("conversation.json")).unwrap()).unwrap();
    let message = |message: &Value| {
        let role = match message["role"].as_str().unwrap() {
            "system" => Role::System,
            "user" => Role::User,
            _ => Role::Assistant,
        };
        let content = match message["content"][0]["text"].as_str() {
            Some(text) => Content::Text(text.to_owned()),
            None => Content::Image(ImageRef { digest: String::new(), width: 1, height: 1 }),
        };
        Message { role, content }
    };
    let messages: Vec<Message> = conversation["messages"].as_array().unwrap().iter().map(message).collect();
    let responses: Vec<Vec<u32>> = messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .map(|message| match &message.content {
            Content::Text(text) => agent.tokenizer.encode(&format!("{text}<|im_end|>")).unwrap(),
            Content::Image(_) => unreachable!(),
        })
        .collect();
    let expected = fs::read(folder.join("expected.safetensors")).unwrap();
    let grids: Vec<Grid> = values(&expected, "image_grid_thw")
        .chunks(3)
        .map(|thw| Grid { height: thw[1] as usize, width: thw[2] as usize })
        .collect();
    let assembled = assemble(&agent, &messages, &responses, &grids, false).unwrap();
    let tokens: Vec<i64> = assembled.tokens.iter().map(|&token| i64::from(token)).collect();
    assert_eq!(tokens, values(&expected, "input_ids"));
    assert_eq!(assembled.spans.len(), responses.len());
    for (span, response) in assembled.spans.iter().zip(&responses) {
        assert_eq!(&assembled.tokens[span.start..span.end], response);
    }

    // a response that was cut off still gets its message closed, by a token that is not the agent's
    let mut cut = responses.clone();
    cut[0].pop();
    let closed = assemble(&agent, &messages, &cut, &grids, false).unwrap();
    assert_eq!(closed.tokens, assembled.tokens);
    assert_eq!(closed.spans[0].end + 1, assembled.spans[0].end);
    assert!(assemble(&agent, &messages, &responses[1..], &grids, false).is_err());
    assert!(assemble(&agent, &messages, &responses, &grids[1..], false).is_err());
}
