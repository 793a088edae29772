//! The fields of a JSON object, taken one by one: an error names the field and what was expected, and whatever nobody took
//! is an error too, unless it is known to change nothing.

use crate::ApiError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Longest excerpt of a wrong value in a message.
const EXCERPT_CHARACTERS: usize = 60;

/// Fields that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Where the object is, as `messages[2].`; empty for the body.
    path: String,
    map: Map<String, Value>,
}

/// A field that is accepted only with values that change nothing.
pub(crate) struct Neutral {
    pub(crate) name: &'static str,
    pub(crate) accepts: fn(&Value) -> bool,
    pub(crate) expected: &'static str,
}

impl Fields {
    /// Of the body.
    pub(crate) fn of_body(bytes: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::bad(format!("the body is not JSON: {error}")))?;
        Self::new(value, "")
    }

    /// Of an object at a path.
    pub(crate) fn new(value: Value, path: &str) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => {
                let path = if path.is_empty() { String::new() } else { format!("{path}.") };
                Ok(Self { path, map })
            }
            other => {
                let name = if path.is_empty() { "the body" } else { path };
                Err(ApiError::field(path, format!("{name} is {}: expected an object", excerpt(&other))))
            }
        }
    }

    /// The whole name of a field.
    pub(crate) fn name(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// A field; `null` counts as missing.
    pub(crate) fn take<T: DeserializeOwned>(
        &mut self,
        field: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        match self.map.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match T::deserialize(&value) {
                Ok(taken) => Ok(Some(taken)),
                Err(_) => Err(self.wrong(field, &value, expected)),
            },
        }
    }

    /// A field that must be there.
    pub(crate) fn required<T: DeserializeOwned>(
        &mut self,
        field: &str,
        expected: &str,
    ) -> Result<T, ApiError> {
        let name = self.name(field);
        self.take(field, expected)?
            .ok_or_else(|| ApiError::field(&name, format!("{name} is missing: expected {expected}")))
    }

    /// A field as it is, without copying it.
    pub(crate) fn take_value(&mut self, field: &str) -> Option<Value> {
        self.map.remove(field).filter(|value| !value.is_null())
    }

    /// The error for a value.
    pub(crate) fn wrong(&self, field: &str, value: &Value, expected: &str) -> ApiError {
        let name = self.name(field);
        ApiError::field(&name, format!("{name} is {}: expected {expected}", excerpt(value)))
    }

    /// Whatever is left must be known to change nothing.
    pub(crate) fn finish(self, harmless: &[&str], neutral: &[Neutral]) -> Result<(), ApiError> {
        for (field, value) in &self.map {
            if value.is_null() || harmless.contains(&field.as_str()) {
                continue;
            }
            let name = self.name(field);
            match neutral.iter().find(|one| one.name == field) {
                Some(one) if (one.accepts)(value) => {}
                Some(one) => {
                    let message = format!(
                        "{name} is {}, which is not supported: expected {}",
                        excerpt(value),
                        one.expected
                    );
                    return Err(ApiError::field(name, message));
                }
                None => {
                    let message = format!("{name} is not a field of this server: leave it out");
                    return Err(ApiError::field(name, message));
                }
            }
        }
        Ok(())
    }
}

/// A value for a message, cut off where it is long.
pub(crate) fn excerpt(value: &Value) -> String {
    let short = |text: &str| match text.char_indices().nth(EXCERPT_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    match value {
        Value::String(text) => format!("{:?}", short(text)),
        Value::Array(values) => format!("an array of {}", values.len()),
        Value::Object(_) => "an object".into(),
        other => short(&other.to_string()),
    }
}
