//! YAML as `PyYAML` reads it: the scalars of YAML 1.1, where `yes` is true, `010` is 8 and `1:30` is 90.
//!
//! What JSON cannot hold (dates, infinities, keys that are no texts) becomes a text that begins with a zero character:
//! no file holds one, so that it equals nothing.

use super::yaml_scalars::plain;
use crate::error::MetricError;
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// Values inside each other: deeper ones are refused, as Python's stack refuses them later.
const DEPTH_LIMIT: usize = 200;
/// Bytes that all values take, roughly, each alias counted with what it stands for.
const SIZE_LIMIT: usize = 64 << 20;
/// Bytes that a value takes besides its text.
const VALUE_BYTES: usize = 64;
/// The key that takes over the entries of another mapping.
pub(super) const MERGE: &str = "\0<<";
/// An equals sign without quotes, which is only a key.
pub(super) const VALUE: &str = "\0=";
const CORE: &str = "tag:yaml.org,2002:";

/// Reads a file of one document; none is null.
pub fn parse(text: &str) -> Result<Value, MetricError> {
    let mut builder = Builder::default();
    // the parts of the text where a tab is a letter as any other
    let mut quoted = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| MetricError::raises(format!("not YAML: {error}")))?;
        if matches!(&event, Event::Scalar(_, style, ..) if *style != ScalarStyle::Plain) {
            quoted.push(span.start.index()..span.end.index());
        }
        builder.take(event)?;
    }
    if text.contains('\t') && has_loose_tab(text, &quoted) {
        return Err(MetricError::raises("not YAML: a tab between values"));
    }
    Ok(builder.root.unwrap_or_default())
}

/// Whether there is a tab outside of quotes, blocks of text and comments: `PyYAML` takes none there.
fn has_loose_tab(text: &str, quoted: &[Range<usize>]) -> bool {
    let mut quoted = quoted.iter().peekable();
    let (mut before, mut is_comment) = ('\n', false);
    for (at, letter) in text.chars().enumerate() {
        while quoted.next_if(|range| range.end <= at).is_some() {}
        if quoted.peek().is_some_and(|range| range.contains(&at)) || matches!(letter, '\n' | '\r') {
            is_comment = false;
        } else if letter == '#' && matches!(before, ' ' | '\n' | '\r') {
            is_comment = true;
        } else if letter == '\t' && !is_comment {
            return true;
        }
        before = letter;
    }
    false
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
    /// By anchor: the value and its size.
    anchored: BTreeMap<usize, (Value, usize)>,
    /// Of all values so far.
    size: usize,
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
                let Some(&(_, size)) = self.anchored.get(&anchor) else {
                    return Err(MetricError::raises("a YAML value that holds itself"));
                };
                self.grow(size)?;
                let value = self.anchored[&anchor].0.clone();
                self.place(value)
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
        if let Some(tag) = tag.filter(|tag| !is_bare(tag) && core_name(tag) != plain) {
            return Err(MetricError::raises(format!("no YAML value has the tag {tag}")));
        }
        if self.open.len() >= DEPTH_LIMIT {
            return Err(MetricError::raises("YAML nested too deeply"));
        }
        self.open.push(Open { anchor, values: Vec::new(), is_mapping });
        Ok(())
    }

    fn grow(&mut self, size: usize) -> Result<(), MetricError> {
        self.size += size;
        if self.size > SIZE_LIMIT { Err(MetricError::raises("too large for YAML")) } else { Ok(()) }
    }

    fn put(&mut self, value: Value, anchor: usize) -> Result<(), MetricError> {
        self.grow(VALUE_BYTES + value.as_str().map_or(0, str::len))?;
        if anchor > 0 {
            let size = size(&value);
            self.grow(size)?;
            self.anchored.insert(anchor, (value.clone(), size));
        }
        self.place(value)
    }

    fn place(&mut self, value: Value) -> Result<(), MetricError> {
        let is_key =
            self.open.last().is_some_and(|parent| parent.is_mapping && parent.values.len().is_multiple_of(2));
        if let (false, Some(key @ (MERGE | VALUE))) = (is_key, value.as_str()) {
            return Err(MetricError::raises(format!("{} is no YAML value", &key[1..])));
        }
        match self.open.last_mut() {
            Some(parent) => parent.values.push(value),
            None => self.root = Some(value),
        }
        Ok(())
    }
}

/// The bytes that a value takes, roughly, with those inside it.
fn size(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(entries) => {
                entries.iter().map(|(key, value)| VALUE_BYTES + key.len() + size(value)).sum()
            }
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
        } else if key == VALUE {
            own.insert("=".to_owned(), value);
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

/// Whether a tag is a mark of exclamation alone, which says nothing.
fn is_bare(tag: &Tag) -> bool {
    tag.handle.is_empty() && tag.suffix == "!"
}

/// The name of a tag that YAML itself defines, in short (`!!str`) or in full; of any other it is empty.
fn core_name(tag: &Tag) -> &str {
    match tag.handle.as_str() {
        CORE => tag.suffix.as_str(),
        "" => tag.suffix.strip_prefix(CORE).unwrap_or_default(),
        _ => "",
    }
}

fn tagged(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, MetricError> {
    let string = || Value::String(text.to_owned());
    let Some(tag) = tag.filter(|tag| !is_bare(tag)) else {
        return if style == ScalarStyle::Plain { plain(text) } else { Ok(string()) };
    };
    let kind = core_name(tag);
    let value = match kind {
        "str" => return Ok(string()),
        "int" | "float" | "bool" | "null" => plain(text)?,
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
            "a: <<",
            "- <<",
            "a: =",
            "{<<: 5}",
            "a: 2020-13-45",
            &laughs,
            &"[".repeat(500),
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    /// `PyYAML` 6.0.3: `safe_load`.
    #[test]
    fn tags_in_short_in_full_and_without_a_name() {
        for (text, wanted) in [
            ("!!str 5", json!("5")),
            ("!<tag:yaml.org,2002:str> 5", json!("5")),
            ("!<tag:yaml.org,2002:int> '5'", json!(5)),
            ("! 5", json!(5)),
            ("! yes", json!(true)),
            ("! 'a'", json!("a")),
            ("! [1]", json!([1])),
            ("!<tag:yaml.org,2002:seq> [1]", json!([1])),
            ("! {a: 1}", json!({"a": 1})),
            ("=: 1", json!({"=": 1})),
            ("a: '='", json!({"a": "="})),
            ("{'<<': {a: 1}}", json!({"<<": {"a": 1}})),
        ] {
            assert_eq!(parse(text).unwrap(), wanted, "{text}");
        }
        assert!(parse("!<x> 5").is_err() && parse("!!x 5").is_err());
    }

    #[test]
    fn a_tab_is_a_letter_only_in_quotes_blocks_and_comments() {
        for text in [
            "name:\tvalue",
            "name: \tvalue",
            "a: b\tc",
            "{a:\t1}",
            "[a,\tb]",
            "-\tx",
            "a: 1 \t",
            "a:  \t# c\n  b",
            "a: x#y\tz",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(
            parse("a: 'b\tc' # d\te\n#\tf\nb: |\n  x\ty\n").unwrap(),
            json!({"a": "b\tc", "b": "x\ty\n"})
        );
    }

    /// Few values, of many letters each.
    #[test]
    fn aliases_of_a_long_text_count_its_letters() {
        let text = format!("- &a {}\n{}", "x".repeat(1 << 20), "- *a\n".repeat(100));
        assert!(parse(&text).is_err());
        assert!(parse(&text[..text.len() - 5 * 60]).is_ok());
    }
}
