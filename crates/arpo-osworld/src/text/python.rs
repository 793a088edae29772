//! Python's notions of equality, truth, text and lines, over JSON values.
//!
//! The original's metrics compare Python objects: there 1 equals 1.0 and `True`, a string is a container of its
//! parts, and text files lose their carriage returns. Scores depend on it.

use crate::error::MetricError;
use serde_json::Value;

/// Python's `a == b` for what JSON can hold.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Null, Value::Null) => true,
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b).is_eq() || (a - b).abs() <= 0.0,
            _ => false,
        },
    }
}

/// A number, or a truth value as the number it is in Python.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        _ => None,
    }
}

/// Python's `bool(value)`.
pub fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// Python's `item in container`.
pub fn contains(container: &Value, item: &Value) -> Result<bool, MetricError> {
    match (container, item) {
        (Value::String(text), Value::String(part)) => Ok(text.contains(part.as_str())),
        (Value::Array(items), item) => Ok(items.iter().any(|one| equal(one, item))),
        (Value::Object(entries), Value::String(key)) => Ok(entries.contains_key(key)),
        (Value::Object(_), _) => Ok(false),
        _ => Err(MetricError::raises(format!("{item} cannot be looked for in {container}"))),
    }
}

/// Python's `str(value)`.
pub fn to_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => literal(other),
    }
}

/// Python's `repr(value)`.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), _, _) => whole.to_string(),
            (_, Some(whole), _) => whole.to_string(),
            (_, _, float) => float_text(float.unwrap_or(f64::NAN)),
        },
        Value::String(text) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("'{key}': {}", literal(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Python's `str(float)`: always with a point or an exponent, exponents from 1e16 and below 1e-4.
pub fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let text = format!("{number}");
    if text.contains('.') { text } else { format!("{text}.0") }
}

/// What Python takes for white space.
pub fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// Python's `text.strip()`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Python's `text.split()`.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// Runs of white space as one blank, none at the ends: `re.sub(r'\s+', ' ', text).strip()`.
pub fn collapse_space(text: &str) -> String {
    words(text).collect::<Vec<_>>().join(" ")
}

/// Python's `text.splitlines()`.
pub fn split_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let ends = matches!(
            letter,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        );
        if ends {
            lines.push(&text[start..at]);
            if letter == '\r' && letters.peek().is_some_and(|(_, next)| *next == '\n') {
                letters.next();
            }
            start = letters.peek().map_or(text.len(), |(next, _)| *next);
        }
    }
    if start < text.len() {
        lines.push(&text[start..]);
    }
    lines
}

/// The lines of a file with their ends, as iterating over an open file gives them.
pub fn file_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
}

/// A text file's content: UTF-8, all line ends as `\n`.
pub fn decode(bytes: &[u8]) -> Result<String, MetricError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(universal_newlines(text)),
        Err(error) => Err(MetricError::raises(format!("not UTF-8: {error}"))),
    }
}

/// All line ends as `\n`.
pub fn universal_newlines(text: &str) -> String {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.to_owned() }
}

/// Python's `json.loads(text)`: also `NaN` and `Infinity`, which JSON has not. They equal nothing here.
pub fn parse_json(text: &str) -> Result<Value, MetricError> {
    let broken = |error: serde_json::Error| MetricError::raises(format!("not JSON: {error}"));
    match serde_json::from_str(text) {
        Err(_) if text.contains("NaN") || text.contains("Infinity") => {
            serde_json::from_str(&with_texts_for_constants(text)).map_err(broken)
        }
        other => other.map_err(broken),
    }
}

/// The constants outside of texts, each as a text that no file holds.
fn with_texts_for_constants(text: &str) -> String {
    let mut changed = String::with_capacity(text.len());
    let (mut rest, mut is_text) = (text, false);
    while let Some(letter) = rest.chars().next() {
        let constant = ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| rest.starts_with(word));
        if let (false, Some(word)) = (is_text, constant) {
            changed.extend(["\"\\u0000", word, "\""]);
            rest = &rest[word.len()..];
            continue;
        }
        let mut end = letter.len_utf8();
        if is_text && letter == '\\' {
            end += rest[end..].chars().next().map_or(0, char::len_utf8);
        } else if letter == '"' {
            is_text = !is_text;
        }
        changed.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    changed
}

/// Python's `float(text)`: full-width digits and single `_` between digits are fine.
pub fn parse_float(text: &str) -> Option<f64> {
    let plain: String = strip(text).chars().map(half_width).collect();
    let between_digits = |(at, _): (usize, &str)| {
        let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
        is_digit(plain[..at].chars().next_back()) && is_digit(plain[at + 1..].chars().next())
    };
    if !plain.match_indices('_').all(between_digits) {
        return None;
    }
    let text = plain.replace('_', "");
    let bare = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let named = matches!(bare.as_str(), "inf" | "infinity" | "nan");
    if !named && !bare.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return None;
    }
    text.parse().ok()
}

fn half_width(letter: char) -> char {
    match letter {
        '\u{ff10}'..='\u{ff19}' => char::from_digit(letter as u32 - 0xff10, 10).unwrap_or(letter),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_truth_are_one_kind() {
        assert!(equal(&json!(1), &json!(1.0)));
        assert!(equal(&json!([true]), &json!([1])));
        assert!(!equal(&json!("1"), &json!(1)));
        assert!(!equal(&json!(null), &json!(0)));
    }

    #[test]
    fn floats_read_as_python_prints_them() {
        for (number, text) in [
            (5.0, "5.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (-0.0, "-0.0"),
            (123_456_789.25, "123456789.25"),
        ] {
            assert_eq!(float_text(number), text);
        }
    }

    #[test]
    fn json_may_hold_what_python_writes() {
        let value = parse_json(r#"{"a": NaN, "b": [-Infinity, "NaN \" Infinity"]}"#).unwrap();
        assert!(value["a"] != value["b"][0] && value["b"][1] == "NaN \" Infinity");
        assert!(parse_json("{").is_err() && parse_json("Nan").is_err());
    }

    #[test]
    fn text_of_values() {
        assert_eq!(to_text(&json!({"a": [1, "b", null, true]})), "{'a': [1, 'b', None, True]}");
    }

    #[test]
    fn lines_end_where_python_ends_them() {
        assert_eq!(split_lines("a\r\nb\rc\u{2028}d\n"), ["a", "b", "c", "d"]);
        assert_eq!(split_lines("a\n\nb"), ["a", "", "b"]);
        assert!(split_lines("").is_empty());
    }

    #[test]
    fn float_takes_what_python_takes() {
        assert_eq!(parse_float(" 1e3 "), Some(1000.0));
        assert_eq!(parse_float("1_000x"), None);
        assert_eq!((parse_float("1_5"), parse_float("1__5"), parse_float("_1")), (Some(15.0), None, None));
        assert_eq!(parse_float("\u{ff11}.5"), Some(1.5));
        assert_eq!(parse_float(""), None);
    }
}
