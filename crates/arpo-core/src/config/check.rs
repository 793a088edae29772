//! Checks a layer against the schema of the configuration and describes the first mistake in one line.
//!
//! It supports only what our own schema uses: tables, numbers with bounds, strings (free or from a list), booleans, lists of
//! strings. It is not a general JSON Schema validator.

use super::Config;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::Value as Json;
use toml::{Table, Value};

/// The schema of [`Config`], without references.
pub(super) fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>()
}

/// Makes a list of one of every string that is given for a list, as `--set chat.servers=URL` does.
pub(super) fn wrap_lists(layer: &mut Table) {
    fn wrap(table: &mut Table, schema: &Json) {
        for (key, schema) in properties(schema) {
            match table.get_mut(key) {
                Some(Value::Table(table)) => wrap(table, schema),
                Some(value @ Value::String(_)) if schema["type"] == "array" => {
                    let one = std::mem::replace(value, Value::Boolean(false));
                    *value = Value::Array(vec![one]);
                }
                _ => {}
            }
        }
    }
    wrap(layer, schema().as_value());
}

/// The first mistake in a layer: the key, the value, and what would be right.
pub(super) fn against_schema(layer: &Table) -> Result<(), String> {
    let schema = schema();
    check_table("", layer, schema.as_value(), schema.as_value())
}

fn check_table(prefix: &str, table: &Table, schema: &Json, root: &Json) -> Result<(), String> {
    let known = properties(schema);
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match known.iter().find(|(name, _)| *name == key) {
            Some((_, schema)) => check_value(&path, value, schema, root)?,
            None => return Err(unknown_key(&path, key, value, &known, root)),
        }
    }
    Ok(())
}

fn check_value(path: &str, value: &Value, schema: &Json, root: &Json) -> Result<(), String> {
    if schema.get("properties").is_some() {
        let Value::Table(table) = value else {
            let keys: Vec<&str> = properties(schema).iter().map(|(name, _)| *name).collect();
            return Err(wrong(path, value, &format!("a section with the keys {}", keys.join(", "))));
        };
        return check_table(path, table, schema, root);
    }
    let fits = match value {
        Value::Boolean(_) => schema["type"] == "boolean",
        Value::Integer(number) => is_number(schema) && within(*number as f64, schema),
        Value::Float(number) => schema["type"] == "number" && number.is_finite() && within(*number, schema),
        Value::String(text) => {
            schema["type"] == "string" || choices(schema).iter().any(|(choice, _)| choice == text)
        }
        Value::Array(items) => {
            schema["type"] == "array"
                && items.iter().all(|item| check_value(path, item, &schema["items"], root).is_ok())
        }
        Value::Datetime(_) | Value::Table(_) => false,
    };
    if fits { Ok(()) } else { Err(wrong(path, value, &expected(schema))) }
}

fn is_number(schema: &Json) -> bool {
    schema["type"] == "number" || schema["type"] == "integer"
}

fn within(number: f64, schema: &Json) -> bool {
    let bound = |name: &str, otherwise: f64| schema[name].as_f64().unwrap_or(otherwise);
    (bound("minimum", f64::NEG_INFINITY)..=bound("maximum", f64::INFINITY)).contains(&number)
}

fn wrong(path: &str, value: &Value, expected: &str) -> String {
    format!("{}: expected {expected}", assignment(path, value))
}

/// A key and its value on one line: toml writes tables and long strings over several lines.
fn assignment(path: &str, value: &Value) -> String {
    format!("`{path}` = {value}").replace(char::is_control, " ")
}

/// What a key takes, as text: "a number from 0 to 1", "one of \"grpo\", \"rloo\"".
pub(super) fn expected(schema: &Json) -> String {
    let kind = match schema["type"].as_str() {
        Some("boolean") => return "true or false".into(),
        Some("string") => return "a string".into(),
        Some("array") => return "a list of strings".into(),
        Some("integer") => "a whole number",
        Some("number") => "a number",
        _ => {
            let quoted: Vec<String> =
                choices(schema).iter().map(|(choice, _)| format!("{choice:?}")).collect();
            return format!("one of {}", quoted.join(", "));
        }
    };
    // the bounds of 64-bit integers are not worth printing
    let maximum = schema["maximum"].as_f64().filter(|&maximum| maximum < 1e15);
    match (schema["minimum"].as_f64(), maximum) {
        (Some(minimum), Some(maximum)) => format!("{kind} from {minimum} to {maximum}"),
        (Some(minimum), None) => format!("{kind}, at least {minimum}"),
        (None, Some(maximum)) => format!("{kind}, at most {maximum}"),
        (None, None) => kind.into(),
    }
}

/// The keys of a table, in the order of the struct.
pub(super) fn properties(schema: &Json) -> Vec<(&str, &Json)> {
    schema["properties"].as_object().map_or_else(Vec::new, |properties| {
        properties.iter().map(|(name, schema)| (name.as_str(), schema)).collect()
    })
}

/// The values a key of fixed choices takes, each with its meaning.
pub(super) fn choices(schema: &Json) -> Vec<(&str, &str)> {
    let alternatives = schema["oneOf"].as_array().map_or(&[][..], Vec::as_slice);
    alternatives
        .iter()
        .filter_map(|each| Some((each["const"].as_str()?, each["description"].as_str().unwrap_or(""))))
        .collect()
}

fn unknown_key(path: &str, key: &str, value: &Value, siblings: &[(&str, &Json)], root: &Json) -> String {
    let names: Vec<&str> = siblings.iter().map(|(name, _)| *name).collect();
    let same_name: Vec<String> = leaf_paths("", root)
        .into_iter()
        .filter(|known| known.rsplit('.').next() == Some(key))
        .map(|known| format!("`{known}`"))
        .collect();
    let section = path.strip_suffix(key).unwrap_or("");
    let near = names
        .iter()
        .map(|name| (strsim::jaro_winkler(name, key), format!("{section}{name}")))
        .filter(|(likeness, name)| *likeness > 0.8 || name.ends_with(&format!("_{key}")))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name);
    let hint = match near {
        _ if !same_name.is_empty() => format!("did you mean {}?", same_name.join(" or ")),
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("expected one of {}", names.join(", ")),
    };
    format!("{}: there is no such key; {hint}", assignment(path, value))
}

fn leaf_paths(prefix: &str, schema: &Json) -> Vec<String> {
    properties(schema)
        .into_iter()
        .flat_map(|(name, schema)| {
            let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            if schema.get("properties").is_some() { leaf_paths(&path, schema) } else { vec![path] }
        })
        .collect()
}
