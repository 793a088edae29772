//! The arguments of a metric, and accessors for them.

use crate::error::MetricError;
use crate::sandbox::Sandbox;
use crate::state::State;
use arpo_core::generation::Generation;
use serde_json::{Map, Value};

/// A score in [0, 1], or why there is none.
pub type Score = Result<f64, MetricError>;

/// Settings of all metrics of a run.
#[derive(Clone, Copy, Default)]
pub struct Settings<'a> {
    /// Which generation of functions to use.
    pub generation: Generation,
    /// Where tests in Python run and videos are decoded. Without one, such a test is an error, and this host decodes videos.
    pub sandbox: Option<&'a dyn Sandbox>,
}

/// The arguments of a metric.
pub struct Call<'a> {
    /// The result to score.
    pub result: &'a State,
    /// What it should be.
    pub expected: Option<&'a State>,
    /// Further arguments by name.
    pub options: &'a Map<String, Value>,
    /// Settings of all metrics.
    pub settings: &'a Settings<'a>,
}

impl<'a> Call<'a> {
    /// Whether functions of the ARPO era are wanted.
    pub fn is_arpo_era(&self) -> bool {
        self.settings.generation == Generation::ArpoEra
    }

    /// What is expected, where it must be given.
    pub fn expected(&self) -> Result<&'a State, MetricError> {
        self.expected.ok_or_else(|| MetricError::raises("nothing is given to compare with"))
    }

    /// The rule that is expected.
    pub fn rule(&self) -> Result<&'a Value, MetricError> {
        self.expected()?.json()
    }

    /// A field of the rule, where it must be there.
    pub fn rule_field(&self, name: &str) -> Result<&'a Value, MetricError> {
        self.rule()?.get(name).ok_or_else(|| MetricError::raises(format!("the rule has no {name}")))
    }

    /// A text of the rule.
    pub fn rule_text(&self, name: &str) -> Result<&'a str, MetricError> {
        let field = self.rule_field(name)?;
        field.as_str().ok_or_else(|| MetricError::raises(format!("the rule's {name} is {field}, not text")))
    }

    /// A list of the rule, empty if it is not there.
    pub fn rule_list(&self, name: &str) -> Result<&'a [Value], MetricError> {
        match self.rule()?.get(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(MetricError::raises(format!("the rule's {name} is {other}, not a list"))),
        }
    }

    /// An option that is true or false.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.options.get(name).map_or(default, crate::text::python::truthy)
    }

    /// An option that is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.options.get(name).and_then(Value::as_f64)
    }

    /// Whether either of the two files is missing, which many metrics score 0.
    pub fn lacks_a_file(&self) -> Result<bool, MetricError> {
        Ok(self.result.is_falsy() || self.expected()?.is_falsy())
    }
}

/// 1 for yes, 0 for no.
pub(super) fn yes(truth: bool) -> f64 {
    if truth { 1.0 } else { 0.0 }
}

/// A value that must be text.
pub(super) fn text(value: &Value) -> Result<&str, MetricError> {
    value.as_str().ok_or_else(|| MetricError::raises(format!("{value} is not text")))
}
