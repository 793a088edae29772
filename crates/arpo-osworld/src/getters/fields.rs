//! The parameters of a getter, read by name; errors name the getter.

use crate::error::GetterError;
use serde_json::{Map, Value};

/// The parameters of a getter.
pub(super) struct Fields<'a> {
    /// The getter's name.
    pub(super) getter: &'a str,
    /// What the task file says.
    pub(super) fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// An error about them.
    pub(super) fn wrong(&self, problem: impl Into<String>) -> GetterError {
        GetterError::Config { getter: self.getter.to_owned(), problem: problem.into() }
    }

    /// A parameter.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name)
    }

    /// A parameter that must be there.
    pub(super) fn value(&self, name: &str) -> Result<&'a Value, GetterError> {
        self.get(name).ok_or_else(|| self.wrong(format!("{name} is missing")))
    }

    /// A text that must be there.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, GetterError> {
        let value = self.value(name)?;
        value.as_str().ok_or_else(|| self.wrong(format!("{name} is {value}, not text")))
    }

    /// Whether a parameter is there and true.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(crate::text::python::truthy)
    }

    /// An integer, as such or as a text.
    pub(super) fn whole(&self, name: &str) -> Result<i64, GetterError> {
        let value = self.value(name)?;
        let number = value.as_i64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
        number.ok_or_else(|| self.wrong(format!("{name} is {value}, not an integer")))
    }

    /// A parameter that is one text, or, with `multi`, a list of them.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<&'a str>, GetterError> {
        if !self.flag("multi") {
            return Ok(vec![self.text(name)?]);
        }
        let value = self.value(name)?;
        let items = value.as_array().ok_or_else(|| self.wrong(format!("{name} is {value}, not a list")))?;
        items
            .iter()
            .map(|item| item.as_str().ok_or_else(|| self.wrong(format!("{name} holds {item}"))))
            .collect()
    }

    /// The entries of an object, none if it is not there.
    pub(super) fn entries(&self, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.get(name).and_then(Value::as_object).into_iter().flatten()
    }
}
