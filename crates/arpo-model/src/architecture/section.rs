//! Reading `config.json`, with errors that name the key.

use serde_json::{Map, Value};

/// Large enough for every real model, small enough that the product of two does not overflow.
const LARGEST_DIMENSION: u64 = 1 << 24;

/// A part of the file, with its name for error messages.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a> {
    pub(super) name: &'static str,
    pub(super) map: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn root(map: &'a Map<String, Value>) -> Self {
        Self { name: "", map }
    }

    /// A part of this part.
    pub(crate) fn section(&self, name: &'static str) -> Option<Section<'a>> {
        self.map.get(name)?.as_object().map(|map| Section { name, map })
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.map.get(name)?.as_bool()
    }

    pub(super) fn path(&self, name: &str) -> String {
        if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) }
    }

    /// A whole number from 1 on.
    pub(super) fn dimension(&self, name: &str, default: Option<i64>) -> Result<i64, String> {
        let path = self.path(name);
        match (self.map.get(name), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("`{path}` is missing")),
            (Some(value), _) => match value.as_u64() {
                Some(number @ 1..=LARGEST_DIMENSION) => Ok(number as i64),
                _ => {
                    Err(format!("`{path}` is {value}: expected a whole number from 1 to {LARGEST_DIMENSION}"))
                }
            },
        }
    }

    /// A token id.
    pub(crate) fn token(&self, name: &str, default: u32) -> Result<u32, String> {
        match self.map.get(name) {
            None => Ok(default),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|_| format!("`{name}` is {value}: expected a token id")),
        }
    }

    /// A list of whole numbers.
    pub(super) fn indices(&self, name: &str, default: &[usize]) -> Result<Vec<usize>, String> {
        match self.map.get(name) {
            None => Ok(default.to_vec()),
            Some(list) => serde_json::from_value(list.clone())
                .map_err(|_| format!("`{}` is {list}: expected whole numbers", self.path(name))),
        }
    }
}
