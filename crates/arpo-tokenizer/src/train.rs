//! Training a tokenizer on text, for models too small for a published vocabulary: byte-level BPE, or whole words.
//!
//! Digits are separate tokens, so that coordinates are spelled digit by digit; the fixed parts of actions
//! (`click(start_box='(`, or a tool call up to its first value) stay together, so that each can become one token.

use crate::TokenizerError;
use arpo_agent::style::Grammar;
use std::collections::{BTreeMap, BTreeSet};
use tokenizers::models::bpe::{BPE, BpeBuilder, BpeTrainerBuilder, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
    SplitDelimiterBehavior, TokenizerBuilder,
};

/// Special tokens, in the order of their ids.
pub const SPECIAL_TOKENS: [&str; 9] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
];

/// Text pieces that may become one token: the fixed parts of actions, and digits ...
const ACTION_PIECES: &str = r" ?[a-z_]+\((?:[a-z_]+='\(?)?|\)'(?:, [a-z_]+='\(?)?\)?|'\)|\d|";

/// ... and words, after which everything is by itself.
const WORD_PIECES: &str = r"[\p{L}_]+:?|\s|[^\s\p{L}\p{N}]";

/// The same for tool calls; everything else is as above.
const CALL_PIECES: &str = r#"<tool_call>\n\{"name": "computer_use", "arguments": \{"action": "[a-z_]+"(?:, "[a-z]+": (?:\["?|"|(?=[-\d])))?|["\]]*\}\}\n</tool_call>"#;

/// Messages between role tokens, images between vision tokens.
const CHAT_TEMPLATE: &str = "\
{% for message in messages %}<|im_start|>{{ message['role'] }}
{% for part in message['content'] %}{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>\
{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}";

/// Where the space before a word goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spaces {
    /// Into the token of the word: fewer tokens, but a word has others in the middle of a sentence than in quotes.
    Joined,
    /// Into a token of its own: a word has the same tokens wherever it stands.
    Separate,
}

/// What of a word is a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    /// Parts that occur often, however they cut the word.
    Parts,
    /// The whole word if it occurs at least twice, else every byte of it, which is a letter in English.
    Whole {
        /// Words that are always spelled: whoever has to read a name meets the same letters in every name.
        spelled: BTreeSet<String>,
    },
}

/// Trains a vocabulary of at most `size` tokens on texts, and returns the tokenizer's files by name.
pub fn train(
    texts: impl Iterator<Item = String> + Send,
    size: usize,
    grammar: Grammar,
    spaces: Spaces,
    words: &Words,
) -> Result<BTreeMap<String, Vec<u8>>, TokenizerError> {
    let failed = |error: &dyn std::fmt::Display| {
        TokenizerError::Input(format!("the tokenizer cannot be trained: {error}"))
    };
    let special: Vec<AddedToken> =
        SPECIAL_TOKENS.iter().map(|&token| AddedToken::from(token, true)).collect();
    let before_words = match spaces {
        Spaces::Joined => " ?",
        Spaces::Separate => "",
    };
    let pieces = [ACTION_PIECES, before_words, WORD_PIECES].concat();
    let pieces = match grammar {
        Grammar::Uitars => pieces,
        Grammar::ComputerUse => format!("{CALL_PIECES}|{pieces}"),
    };
    let pieces = Split::new(SplitPattern::Regex(pieces), SplitDelimiterBehavior::Isolated, false)
        .map_err(|error| failed(&error))?;
    let bytes = ByteLevel::new(false, false, false);
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(Some(NFC))
        .with_pre_tokenizer(Some(Sequence::new(vec![
            PreTokenizerWrapper::Split(pieces),
            PreTokenizerWrapper::ByteLevel(bytes),
        ])))
        .with_post_processor(Some(bytes))
        .with_decoder(Some(bytes))
        .build()
        .map_err(|error| failed(&error))?;
    match words {
        Words::Parts => {
            let mut trainer = BpeTrainerBuilder::new()
                .vocab_size(size)
                .min_frequency(2)
                .show_progress(false)
                .special_tokens(special)
                .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
                .build();
            tokenizer.train(&mut trainer, texts).map_err(|error| failed(&error))?;
        }
        Words::Whole { spelled } => {
            let pieces = tokenizer.get_pre_tokenizer().expect("it was given one above");
            let vocabulary = whole_words(texts, size, pieces, spelled).map_err(|error| failed(&error))?;
            // a word of the vocabulary is taken whole; nothing else is merged
            let model = BpeBuilder::new().vocab_and_merges(vocabulary, vec![]).ignore_merges(true).build();
            tokenizer.with_model(model.map_err(|error| failed(&error))?);
            tokenizer.add_special_tokens(special).map_err(|error| failed(&error))?;
        }
    }
    let text = tokenizer.to_string(true).map_err(|error| failed(&error))?;
    let config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 32_768,
        "clean_up_tokenization_spaces": false,
    });
    let files = [
        ("tokenizer.json", text),
        ("tokenizer_config.json", format!("{config:#}\n")),
        ("chat_template.jinja", CHAT_TEMPLATE.to_owned()),
    ];
    Ok(files.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect())
}

/// Special tokens, bytes, and the most frequent pieces of texts that are not spelled.
fn whole_words(
    texts: impl Iterator<Item = String>,
    size: usize,
    pieces: &impl PreTokenizer,
    spelled: &BTreeSet<String>,
) -> tokenizers::Result<Vocab> {
    let split = |text: &str| -> tokenizers::Result<Vec<String>> {
        let mut text = PreTokenizedString::from(text);
        pieces.pre_tokenize(&mut text)?;
        let splits = text.get_splits(OffsetReferential::Original, OffsetType::Byte);
        Ok(splits.into_iter().map(|(piece, _, _)| piece.to_owned()).collect())
    };
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for text in texts {
        for piece in split(&text)? {
            *counts.entry(piece).or_default() += 1;
        }
    }
    // as pieces are written, in which every byte is a character and a space is `Ġ`
    let spelled = spelled.iter().map(|word| split(word)).collect::<tokenizers::Result<Vec<_>>>()?.concat();
    let spelled: BTreeSet<String> = spelled.into_iter().collect();
    let is_spelled = |piece: &str| spelled.contains(piece.trim_matches(['\u{120}', ':']));
    let alphabet: BTreeSet<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    let mut whole: Vec<(String, u64)> = counts
        .into_iter()
        .filter(|(piece, count)| *count >= 2 && !alphabet.contains(piece) && !is_spelled(piece))
        .collect();
    whole.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let special = SPECIAL_TOKENS.into_iter().map(str::to_owned);
    let all = special.chain(alphabet).chain(whole.into_iter().map(|(piece, _)| piece));
    Ok(all.take(size).zip(0..).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;
    use std::path::Path;

    #[test]
    fn fixed_parts_are_one_token_and_any_text_round_trips() {
        let text =
            |number: usize| format!("Open Settings\nAction: click(start_box='({number},{})')", number + 7);
        let files = train((0..200).map(text), 400, Grammar::Uitars, Spaces::Joined, &Words::Parts).unwrap();
        let tokenizer = Tokenizer::new(&files, Path::new("made")).unwrap();
        let tokens = tokenizer.encode("Action: click(start_box='(12,34)')<|im_end|>").unwrap();
        // Action: · click(start_box='( · 1 2 , 3 4 · )') · end
        assert_eq!(tokens.len(), 9);
        assert_eq!(tokens[8], 2);
        for (number, token) in SPECIAL_TOKENS.iter().enumerate() {
            assert_eq!(tokenizer.token(token), Some(number as u32));
        }
        for text in ["größe 七 🙂", "type(content='it''s')", "", "\n\n x", "a  b"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap(), false).unwrap(), text);
        }
    }

    #[test]
    fn with_separate_spaces_a_name_is_typed_with_the_tokens_it_is_read_with() {
        let text = |number: usize| format!("rename zuvo to kalin{number}\nAction: type(content='kalin')");
        let files = train((0..50).map(text), 500, Grammar::Uitars, Spaces::Separate, &Words::Parts).unwrap();
        let tokenizer = Tokenizer::new(&files, Path::new("made")).unwrap();
        let name = tokenizer.encode("kalin").unwrap();
        for text in ["rename zuvo to kalin", "Action: type(content='kalin')"] {
            let tokens = tokenizer.encode(text).unwrap();
            assert!(tokens.windows(name.len()).any(|part| part == name), "{text}: {tokens:?}");
            assert_eq!(tokenizer.decode(&tokens, false).unwrap(), text);
        }
        // the fixed part of an action keeps its space: Action: · type(content=' · kalin · ')
        let typed = tokenizer.encode("Action: type(content='kalin')").unwrap();
        assert_eq!(typed.len(), 3 + name.len());
    }

    #[test]
    fn whole_words_are_one_token_and_names_are_spelled() {
        let text = |number: usize| {
            format!("open cat and press Save in Zürich\nAction: click(start_box='({number},7)')")
        };
        let spelled = BTreeSet::from(["cat".to_owned(), "Zürich".to_owned()]);
        let words = Words::Whole { spelled };
        let files = train((0..9).map(text), 500, Grammar::Uitars, Spaces::Separate, &words).unwrap();
        let tokenizer = Tokenizer::new(&files, Path::new("made")).unwrap();
        for (number, token) in SPECIAL_TOKENS.iter().enumerate() {
            assert_eq!(tokenizer.token(token), Some(number as u32));
        }
        let count = |text: &str| tokenizer.encode(text).unwrap().len();
        assert_eq!(
            [count("Save"), count("cat"), count("Sa"), count("zuvo"), count("Action:")],
            [1, 3, 2, 4, 1]
        );
        // one token for each byte
        assert_eq!(count("Zürich"), 7);
        // Action: · click(start_box='( · 8 · , · 7 · )') · end
        assert_eq!(count("Action: click(start_box='(8,7)')<|im_end|>"), 7);
        let letters = tokenizer.encode("cat").unwrap();
        let sentence = tokenizer.encode("open cat").unwrap();
        assert_eq!(sentence[2..], letters);
        for text in ["größe 七 🙂", "type(content='it''s')", "", "\n\n x", "a  b", "Save cat"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap(), false).unwrap(), text);
        }
    }

    #[test]
    fn a_tool_call_is_a_few_tokens() {
        let call = |arguments: &str| {
            format!(
                "<tool_call>\n{{\"name\": \"computer_use\", \"arguments\": {{{arguments}}}}}\n</tool_call>"
            )
        };
        let click = |x: usize| call(&format!(r#""action": "left_click", "coordinate": [{x}, 7]"#));
        let others = [
            call(r#""action": "key", "keys": ["enter"]"#),
            call(r#""action": "type", "text": "a \"word\"""#),
            call(r#""action": "scroll", "pixels": -5"#),
            call(r#""action": "terminate", "status": "success""#),
        ];
        let texts: Vec<String> = (0..200).map(click).chain(others.clone()).chain(others.clone()).collect();
        let files =
            train(texts.into_iter(), 800, Grammar::ComputerUse, Spaces::Joined, &Words::Parts).unwrap();
        let tokenizer = Tokenizer::new(&files, Path::new("made")).unwrap();
        // <tool_call> ... [ · 1 2 3 · , · (space) · 7 · ]}} ... </tool_call>
        assert_eq!(tokenizer.encode(&click(123)).unwrap().len(), 8);
        for text in others.into_iter().chain([click(45)]) {
            let tokens = tokenizer.encode(&text).unwrap();
            assert!(tokens.len() <= 12, "{text}: {} tokens", tokens.len());
            assert_eq!(tokenizer.decode(&tokens, true).unwrap(), text);
        }
    }
}
