//! A text for every id of a model whose vocabulary is larger than its tokenizer's: a server streams whatever a model with
//! random weights samples, and can be timed.

use crate::TokenizerError;
use serde_json::Value;
use std::collections::HashSet;

/// Letters of a word: enough for as many words as there are ids.
const LETTERS: u32 = 7;

/// A `tokenizer.json` of byte-level BPE, with a word for each id below `vocabulary` that has no token.
///
/// The words are in the model's vocabulary, which is read faster than added tokens, and no merge leads to them: a piece of
/// text that is a token has to be taken as it is for a word to be read as one token again.
pub fn fill(tokenizer: &[u8], vocabulary: u32) -> Result<Vec<u8>, TokenizerError> {
    let wrong = |problem: &dyn std::fmt::Display| TokenizerError::Input(format!("tokenizer.json: {problem}"));
    let mut file: Value =
        serde_json::from_slice(tokenizer).map_err(|error| wrong(&format!("not JSON: {error}")))?;
    let is_known = file["model"]["type"] == "BPE" && file["decoder"]["type"] == "ByteLevel";
    let (mut texts, mut ids) = (HashSet::new(), HashSet::new());
    for token in file["added_tokens"].as_array().into_iter().flatten() {
        texts.extend(token["content"].as_str().map(str::to_owned));
        ids.extend(token["id"].as_u64());
    }
    let tokens = file.pointer_mut("/model/vocab").and_then(Value::as_object_mut);
    let Some(tokens) = tokens.filter(|_| is_known) else {
        return Err(wrong(&"expected byte-level BPE with a vocabulary"));
    };
    texts.extend(tokens.keys().cloned());
    ids.extend(tokens.values().filter_map(Value::as_u64));
    let free = (0..vocabulary).filter(|id| !ids.contains(&u64::from(*id)));
    let words = (0..).map(word).filter(|word| !texts.contains(word));
    tokens.extend(free.zip(words).map(|(id, word)| (word, Value::from(id))));
    file["model"]["ignore_merges"] = Value::from(true);
    serde_json::to_vec(&file).map_err(|error| wrong(&error))
}

/// A word behind a space, in the letters that byte-level BPE has for bytes. In a vocabulary of any real size all begin with
/// `aa`, so that no word of a prompt is among them.
fn word(number: u64) -> String {
    let letter = |place| char::from(b'a' + (number / 26_u64.pow(place) % 26) as u8);
    std::iter::once('Ġ').chain((0..LETTERS).rev().map(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;
    use crate::train::{Spaces, Words, train};
    use arpo_agent::style::Grammar;
    use std::collections::BTreeMap;
    use std::path::Path;

    /// As many ids as Qwen2.5-VL-7B has.
    const VOCABULARY: u32 = 152_064;

    fn trained() -> BTreeMap<String, Vec<u8>> {
        let text = |number: usize| format!("Open Settings\nAction: click(start_box='({number},7)')");
        train((0..200).map(text), 400, Grammar::Uitars, Spaces::Joined, &Words::Parts).unwrap()
    }

    #[test]
    fn every_new_id_is_a_word_that_is_read_as_that_id() {
        let mut files = trained();
        let before = Tokenizer::new(&files, Path::new("made")).unwrap();
        let file = fill(&files["tokenizer.json"], VOCABULARY).unwrap();
        files.insert("tokenizer.json".into(), file);
        let filled = Tokenizer::new(&files, Path::new("made")).unwrap();
        assert_eq!(filled.size(), VOCABULARY);
        let new: Vec<u32> = (before.size()..VOCABULARY).collect();
        // each shows by itself, also where special tokens are left out
        for &id in &new {
            let text = filled.decode(&[id], true).unwrap();
            let letters = text.strip_prefix(' ').unwrap_or_default();
            assert!(letters.len() == 7 && letters.bytes().all(|byte| byte.is_ascii_lowercase()), "{text:?}");
        }
        for some in new.chunks(100) {
            assert_eq!(filled.encode(&filled.decode(some, true).unwrap()).unwrap(), some);
        }
    }

    #[test]
    fn old_ids_and_texts_stay_as_they_are() {
        let mut files = trained();
        let before = Tokenizer::new(&files, Path::new("made")).unwrap();
        let file = fill(&files["tokenizer.json"], VOCABULARY).unwrap();
        assert_eq!(fill(&file, VOCABULARY).unwrap(), file, "nothing is left to fill");
        files.insert("tokenizer.json".into(), file);
        let after = Tokenizer::new(&files, Path::new("made")).unwrap();
        for id in 0..before.size() {
            assert_eq!(after.decode(&[id], false).unwrap(), before.decode(&[id], false).unwrap());
        }
        assert_eq!(after.token("<|im_end|>"), Some(2));
        for text in ["<|im_start|>user\nOpen about after Settings<|im_end|>", "click(start_box='(12,7)')"] {
            assert_eq!(after.encode(text).unwrap(), before.encode(text).unwrap());
        }
    }

    #[test]
    fn words_in_use_are_left_out() {
        let file = br#"{"added_tokens": [{"id": 1, "content": "<end>"}], "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"\u0120aaaaaaa": 3, "x": 0}, "merges": []}}"#;
        let filled: Value = serde_json::from_slice(&fill(file, 5).unwrap()).unwrap();
        let expected =
            serde_json::json!({"\u{120}aaaaaaa": 3, "x": 0, "\u{120}aaaaaab": 2, "\u{120}aaaaaac": 4});
        assert_eq!(filled["model"]["vocab"], expected);
    }

    #[test]
    fn other_files_are_refused() {
        for (file, expected) in [
            ("{", "tokenizer.json: not JSON"),
            ("[]", "expected byte-level BPE with a vocabulary"),
            (r#"{"model": {"type": "Unigram", "vocab": {}}}"#, "expected byte-level BPE with a vocabulary"),
        ] {
            let problem = fill(file.as_bytes(), 10).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
