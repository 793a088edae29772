//! Against the golden conversations.

use arpo_agent::conversation::{Content, Message, Role};
use arpo_agent::style::AgentStyle;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::trajectory::ImageRef;
use arpo_model::checkpoint;
use arpo_model::positions::Grid;
use arpo_train::agent::Agent;
use arpo_train::dialogue::assemble;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tch::{Device, Kind};

/// The folders of the golden models.
fn folders() -> Vec<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let golden = root.join(std::env::var_os("ARPO_GOLDEN_DIR").unwrap_or_else(|| "tests/golden".into()));
    let all = fs::read_dir(golden).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = all.filter(|path| path.join("conversation.json").exists()).collect();
    assert!(!folders.is_empty(), "no golden model");
    folders
}

fn values(bytes: &[u8], name: &str) -> Vec<i64> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let view = file.tensor(name).unwrap();
    view.data().chunks_exact(8).map(|value| i64::from_le_bytes(value.try_into().unwrap())).collect()
}

#[test]
fn golden_conversations_become_their_tokens_and_masks() {
    for folder in folders() {
        becomes_its_tokens_and_its_mask(&folder);
    }
}

fn becomes_its_tokens_and_its_mask(folder: &Path) {
    let checkpoint = checkpoint::load(folder, Kind::Float, Device::Cpu).unwrap();
    let agent = Agent::new(
        &checkpoint.config,
        &checkpoint.side_files,
        folder,
        AgentStyle::uitars(ScreenshotWindow::new(15, 0)),
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
        let part = |part: &Value| match part["text"].as_str() {
            Some(text) => Content::Text(text.to_owned()),
            None => Content::Image(ImageRef { digest: String::new(), width: 1, height: 1 }),
        };
        Message { role, content: message["content"].as_array().unwrap().iter().map(part).collect() }
    };
    let messages: Vec<Message> = conversation["messages"].as_array().unwrap().iter().map(message).collect();
    let responses: Vec<Vec<u32>> = messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .map(|message| match message.content.as_slice() {
            [Content::Text(text)] => agent.tokenizer.encode(&format!("{text}<|im_end|>")).unwrap(),
            _ => unreachable!(),
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
