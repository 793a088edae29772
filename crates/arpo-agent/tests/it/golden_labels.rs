//! Which tokens are trained, against the action masks of the golden models' conversations.

use crate::golden::folder;
use arpo_agent::labels::{TurnMarks, trained_spans};
use arpo_core::trajectory::TokenId;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// One tensor of a safetensors file: a length, a JSON header, then the data.
fn tensor(path: &Path, name: &str) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&rest[..length]).unwrap();
    let entry = &header[name];
    let offset = |end: usize| length + entry["data_offsets"][end].as_u64().unwrap() as usize;
    let width = match entry["dtype"].as_str().unwrap() {
        "I64" => 8,
        "I32" => 4,
        other => panic!("{name} is {other}, expected whole numbers"),
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| (number << 8) | u64::from(byte));
    rest[offset(0)..offset(1)].chunks_exact(width).map(number).collect()
}

/// The tokenizer's vocabulary: text by token id, special tokens included.
fn vocabulary(path: &Path) -> BTreeMap<u32, String> {
    let tokenizer: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut vocabulary_text = BTreeMap::new();
    for (word, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
        vocabulary_text.insert(id.as_u64().unwrap() as u32, word.clone());
    }
    for added in tokenizer["added_tokens"].as_array().unwrap() {
        vocabulary_text
            .insert(added["id"].as_u64().unwrap() as u32, added["content"].as_str().unwrap().to_owned());
    }
    vocabulary_text
}

/// The marks of an agent's turn, found in the conversation itself: from `<|im_start|>` to the line break (which byte-level
/// tokenizers write as Ċ), with "assistant" in between.
fn marks(tokens: &[TokenId], vocabulary_text: &BTreeMap<u32, String>) -> TurnMarks {
    let id = |text: &str| TokenId(*vocabulary_text.iter().find(|(_, word)| *word == text).unwrap().0);
    let (start, end, line_break) = (id("<|im_start|>"), id("<|im_end|>"), id("Ċ"));
    let header = (0..tokens.len())
        .filter(|&at| tokens[at] == start)
        .find_map(|at| {
            let length = tokens[at..].iter().position(|&token| token == line_break)?;
            let header = &tokens[at..=at + length];
            let role: String =
                header[1..length].iter().map(|token| vocabulary_text[&token.0].as_str()).collect();
            (role == "assistant").then(|| header.to_vec())
        })
        .expect("a turn of the agent");
    TurnMarks { header, end }
}

#[test]
fn golden_action_masks() {
    let mut models = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let model = entry.unwrap().path();
        let name = model.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("qwen2_5_vl_") && !name.starts_with("qwen3_vl_") {
            continue;
        }
        models += 1;
        let expected = model.join("expected.safetensors");
        let tokens: Vec<TokenId> =
            tensor(&expected, "input_ids").into_iter().map(|id| TokenId(id as u32)).collect();
        let marks = marks(&tokens, &vocabulary(&model.join("tokenizer.json")));
        let mut mask = vec![0; tokens.len()];
        for span in trained_spans(&tokens, &marks) {
            mask[span.start..span.end].fill(1);
        }
        assert_eq!(mask, tensor(&expected, "action_mask"), "{}", model.display());
    }
    assert!(models > 0, "no golden model");
}
