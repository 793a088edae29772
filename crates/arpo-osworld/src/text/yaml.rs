//! YAML as `PyYAML` reads it: the scalars of YAML 1.1, where `yes` is true, `010` is 8 and `1:30` is 90.
//!
//! What JSON cannot hold (dates, infinities, keys that are no texts) becomes a text that begins with a zero character:
//! no file holds one, so that it equals nothing.

use crate::error::MetricError;
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Values inside each other: deeper ones are refused, as Python's stack refuses them later.
const DEPTH_LIMIT: usize = 200;
/// Values in all, each alias counted with what it stands for.
const VALUES_LIMIT: usize = 1_000_000;
/// The key that takes over the entries of another mapping.
const MERGE: &str = "\0<<";

/// Reads a file of one document; none is null.
pub fn parse(text: &str) -> Result<Value, MetricError> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| MetricError::raises(format!("not YAML: {error}")))?;
        builder.take(event)?;
    }
    Ok(builder.root.unwrap_or_default())
}

/// A sequence or mapping that has begun.
struct Open {
    anchor: usize,
    values: Vec<Value>,
    is_mapping: bool,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Value>,
    /// By anchor: the value and how many there are in it.
    anchored: BTreeMap<usize, (Value, usize)>,
    values: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), MetricError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = tagged(&text, style, tag.as_deref())?;
                self.put(value, anchor)
            }
            Event::SequenceStart(anchor, tag) => self.begin(anchor, tag, "seq", false),
            Event::MappingStart(anchor, tag) => self.begin(anchor, tag, "map", true),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(done) = self.open.pop() else { return Ok(()) };
                let value = if done.is_mapping { mapping(done.values)? } else { Value::Array(done.values) };
                self.put(value, done.anchor)
            }
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchored.get(&anchor) else {
                    return Err(MetricError::raises("a YAML value that holds itself"));
                };
                self.values += size;
                if self.values > VALUES_LIMIT {
                    return Err(MetricError::raises("YAML of too many values"));
                }
                let value = value.clone();
                self.put(value, 0)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(MetricError::raises("more than one YAML document"))
            }
            _ => Ok(()),
        }
    }

    fn begin(
        &mut self,
        anchor: usize,
        tag: Option<Cow<'_, Tag>>,
        plain: &str,
        is_mapping: bool,
    ) -> Result<(), MetricError> {
        if let Some(tag) = tag.filter(|tag| !(tag.is_yaml_core_schema() && tag.suffix == plain)) {
            return Err(MetricError::raises(format!("no YAML value has the tag {tag}")));
        }
        if self.open.len() >= DEPTH_LIMIT {
            return Err(MetricError::raises("YAML nested too deeply"));
        }
        self.open.push(Open { anchor, values: Vec::new(), is_mapping });
        Ok(())
    }

    fn put(&mut self, value: Value, anchor: usize) -> Result<(), MetricError> {
        self.values += 1;
        if self.values > VALUES_LIMIT {
            return Err(MetricError::raises("YAML of too many values"));
        }
        if anchor > 0 {
            self.anchored.insert(anchor, (value.clone(), size(&value)));
        }
        match self.open.last_mut() {
            Some(parent) => parent.values.push(value),
            None => self.root = Some(value),
        }
        Ok(())
    }
}

/// How many values there are in one, itself among them.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(entries) => entries.values().map(size).sum(),
        _ => 0_usize,
    }
}

/// A mapping of keys and values in turn. Its own entries win over those it takes over.
fn mapping(values: Vec<Value>) -> Result<Value, MetricError> {
    let (mut own, mut taken) = (Map::new(), Map::new());
    let mut values = values.into_iter();
    while let (Some(key), Some(value)) = (values.next(), values.next()) {
        let key = match key {
            Value::String(key) => key,
            Value::Array(_) | Value::Object(_) => {
                return Err(MetricError::raises("a YAML key that is a list or a mapping"));
            }
            other => format!("\0{other}"),
        };
        if key == MERGE {
            take_over(&mut taken, value)?;
        } else {
            own.insert(key, value);
        }
    }
    taken.extend(own);
    Ok(Value::Object(taken))
}

/// The entries of a mapping, or of a list of them: there the first wins.
fn take_over(taken: &mut Map<String, Value>, value: Value) -> Result<(), MetricError> {
    match value {
        Value::Object(entries) => taken.extend(entries),
        Value::Array(items) if items.iter().all(Value::is_object) => {
            for item in items.into_iter().rev() {
                take_over(taken, item)?;
            }
        }
        _ => return Err(MetricError::raises("only YAML mappings can be merged")),
    }
    Ok(())
}

fn tagged(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, MetricError> {
    let string = || Value::String(text.to_owned());
    let Some(tag) = tag else {
        return Ok(if style == ScalarStyle::Plain { plain(text) } else { string() });
    };
    let kind = if tag.is_yaml_core_schema() { tag.suffix.as_str() } else { "" };
    let value = match kind {
        "str" => return Ok(string()),
        "int" | "float" | "bool" | "null" => plain(text),
        _ if tag.handle.is_empty() && tag.suffix == "!" => return Ok(string()),
        _ => return Err(MetricError::raises(format!("no YAML value has the tag {tag}"))),
    };
    match (kind, &value) {
        ("float", Value::Number(number)) => {
            Ok(number.as_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number))
        }
        ("int", Value::Number(number)) if number.is_f64() => {
            Err(MetricError::raises(format!("{text} is not an integer")))
        }
        ("int", Value::Number(_)) | ("bool", Value::Bool(_)) | ("null", _) => Ok(value),
        _ => Err(MetricError::raises(format!("{text:?} is not of the YAML tag {tag}"))),
    }
}

/// A scalar without quotes.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        "<<" => return MERGE.into(),
        _ => {}
    }
    let (sign, bare) = match text.as_bytes()[0] {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if matches!(bare, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") || is_time(text) {
        return Value::String(format!("\0{text}"));
    }
    if let Some(whole) = whole(bare) {
        let signed = whole.checked_mul(sign).filter(|number| i64::try_from(*number).is_ok());
        return signed
            .map_or_else(|| Value::from(whole as f64 * sign as f64), |number| Value::from(number as i64));
    }
    match float(text, bare) {
        Some(number) => Value::from(number),
        None => text.into(),
    }
}

fn whole(bare: &str) -> Option<i128> {
    let digits = |text: &str, radix: u32| {
        let is_number =
            !text.is_empty() && text.chars().all(|letter| letter == '_' || letter.is_digit(radix));
        is_number.then(|| i128::from_str_radix(&text.replace('_', ""), radix).ok()).flatten()
    };
    let (first, rest) = bare.split_at_checked(1)?;
    match (first, rest.as_bytes().first()) {
        ("0", None) => Some(0),
        ("0", Some(b'b')) => digits(&rest[1..], 2),
        ("0", Some(b'x')) => digits(&rest[1..], 16),
        ("0", Some(_)) => digits(rest, 8),
        _ if !first.starts_with(|letter: char| letter.is_ascii_digit()) => None,
        _ => {
            let mut parts = bare.split(':');
            let hours = digits(parts.next()?, 10)?;
            parts.try_fold(hours, |sum, part| {
                let is_sixtieth =
                    (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
                let part: i128 = part.parse().ok().filter(|part| is_sixtieth && *part < 60)?;
                sum.checked_mul(60)?.checked_add(part)
            })
        }
    }
}

/// A number with a point; its exponent needs a sign, and one that begins with the point has none.
fn float(text: &str, bare: &str) -> Option<f64> {
    let (number, exponent) = bare.split_once(['e', 'E']).map_or((bare, None), |(a, b)| (a, Some(b)));
    let is_exponent = |exponent: &str| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (before, after) = number.split_once('.')?;
    let is_number = |part: &str| part.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit());
    let starts = |part: &str| part.starts_with(|letter: char| letter.is_ascii_digit());
    let is_whole = is_number(before) && is_number(after) && exponent.is_none_or(is_exponent);
    let is_float = is_whole && (starts(before) || (before.is_empty() && starts(after) && text == bare));
    is_float.then(|| text.replace('_', "").parse().ok()).flatten()
}

/// A date, alone or with the time of day.
fn is_time(text: &str) -> bool {
    let numbers = |text: &str, separator: char, lengths: &[std::ops::RangeInclusive<usize>]| {
        let parts: Vec<&str> = text.split(separator).collect();
        parts.len() == lengths.len()
            && parts.iter().zip(lengths).all(|(part, length)| {
                length.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
            })
    };
    if numbers(text, '-', &[4..=4, 2..=2, 2..=2]) {
        return true;
    }
    let Some((date, time)) = text.split_once(['T', 't', ' ', '\t']) else { return false };
    let time = time.trim_start();
    let end = time.find(|letter: char| !letter.is_ascii_digit() && letter != ':').unwrap_or(time.len());
    numbers(date, '-', &[4..=4, 1..=2, 1..=2]) && numbers(&time[..end], ':', &[1..=2, 2..=2, 2..=2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        let text =
            "[yes, off, ~, 010, 0x1F, 0b11, 1_000, 1:30, -12, 08, 1e5, 1.5, .5, 1.0e+3, -.5, '1', a b, 0o7]";
        let wanted = json!([
            true, false, null, 8, 31, 3, 1000, 90, -12, "08", "1e5", 1.5, 0.5, 1000.0, "-.5", "1", "a b",
            "0o7"
        ]);
        assert_eq!(parse(text).unwrap(), wanted);
        let odd = parse("[2020-01-02, 2001-12-14t21:59:43.10-05:00, .inf, 2020-1-2]").unwrap();
        assert!(odd[0].as_str().unwrap().starts_with('\0') && odd[1].as_str().unwrap().starts_with('\0'));
        assert!(odd[2].as_str().unwrap().starts_with('\0') && odd[3] == "2020-1-2");
    }

    #[test]
    fn mappings_anchors_and_merges() {
        let text = "base: &b {a: 1, c: 2}\nmore:\n  <<: *b\n  c: 3\nlist:\n- *b\n- |\n  two\n  lines\n1: x\n";
        let value = parse(text).unwrap();
        assert_eq!(value["more"], json!({"a": 1, "c": 3}));
        assert_eq!(value["list"], json!([{"a": 1, "c": 2}, "two\nlines\n"]));
        assert!(value.get("1").is_none() && value["\u{0}1"] == "x");
        assert_eq!(parse("").unwrap(), Value::Null);
    }

    #[test]
    fn what_is_not_one_document_of_plain_values_is_an_error() {
        let laughs = (0..9).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
            let parts = vec![format!("*a{level}"); 9].join(", ");
            format!("{text}a{next}: &a{next} [{parts}]\n", next = level + 1)
        });
        for text in [
            "a: [",
            "a: b: c",
            "--- 1\n--- 2\n",
            "!!python/object:os.x 1",
            "!x {}",
            "? [a]\n: b",
            "a: *b",
            &laughs,
            &"[".repeat(500),
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("!!str 5").unwrap(), "5");
    }
}
