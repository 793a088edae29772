//! The evaluator of a task file: one check or several, how they combine, and the steps before them.

use super::{Step, steps};
use serde_json::{Map, Value};

/// The largest file that a task may ask for.
const MOST_FILE_MIB: u64 = 4096;

/// How several checks make one score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conjunction {
    /// All: a 0 ends it, else the mean.
    #[default]
    And,
    /// Any: a 1 ends it, else the largest.
    Or,
}

/// What fetches a state: its type and what it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Getter {
    /// Its type.
    pub kind: String,
    /// The other fields.
    pub fields: Map<String, Value>,
}

/// One metric with what it compares.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The metric.
    pub func: String,
    /// The result to score.
    pub result: Option<Getter>,
    /// What it should be; absent, the metric is called without.
    pub expected: Option<Getter>,
    /// Further arguments of the metric.
    pub options: Map<String, Value>,
}

/// How the final state of a task is scored.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluator {
    /// Steps before the evaluation.
    pub postconfig: Vec<Step>,
    /// At least one.
    pub checks: Vec<Check>,
    /// Whether the file gave a list: a list of one is still combined.
    pub several: bool,
    /// How they combine.
    pub conjunction: Conjunction,
    /// Limit of a file of the guest, in MiB, where the usual one is too low; a field of ours.
    pub max_file_mib: Option<u64>,
}

impl Evaluator {
    /// Reads an evaluator.
    pub fn parse(value: Value) -> Result<Self, String> {
        let Value::Object(mut fields) = value else { return Err("evaluator: not an object".into()) };
        let postconfig = steps(fields.remove("postconfig"), "evaluator.postconfig")?;
        let conjunction = match fields.remove("conj") {
            None => Conjunction::And,
            Some(Value::String(word)) if word == "and" => Conjunction::And,
            Some(Value::String(word)) if word == "or" => Conjunction::Or,
            Some(other) => return Err(format!("evaluator.conj is {other}, \"and\" or \"or\" is wanted")),
        };
        let max_file_mib = match fields.remove("max_file_mib") {
            None => None,
            Some(value) => {
                Some(value.as_u64().filter(|mib| (1..=MOST_FILE_MIB).contains(mib)).ok_or_else(|| {
                    format!("evaluator.max_file_mib is {value}, 1 to {MOST_FILE_MIB} is wanted")
                })?)
            }
        };
        let func = fields.remove("func").ok_or("evaluator.func is missing")?;
        let (several, functions) = match func {
            Value::String(name) => (false, vec![name]),
            Value::Array(items) => {
                let names = items.iter().map(|item| item.as_str().map(str::to_owned));
                (true, names.collect::<Option<_>>().ok_or("evaluator.func holds something that is not text")?)
            }
            other => return Err(format!("evaluator.func is {other}, a name or a list of names is wanted")),
        };
        if functions.is_empty() {
            return Err("evaluator.func is an empty list".into());
        }
        let count = functions.len();
        let mut take = |name: &str| spread(fields.remove(name), several.then_some(count), name);
        let (results, expected, options) = (take("result")?, take("expected")?, take("options")?);
        let mut checks = Vec::with_capacity(count);
        for (((func, result), expected), options) in
            functions.into_iter().zip(results).zip(expected).zip(options)
        {
            let result = getter(result, "result")?;
            if result.is_none() && func != "infeasible" {
                return Err(format!("evaluator.result is missing for {func}"));
            }
            let options = options.unwrap_or_default();
            checks.push(Check { func, result, expected: getter(expected, "expected")?, options });
        }
        fields.retain(|name, _| !name.starts_with('_'));
        match fields.keys().next() {
            Some(unknown) => Err(format!("evaluator: unknown field {unknown}")),
            None => Ok(Self { postconfig, checks, several, conjunction, max_file_mib }),
        }
    }

    /// Whether the task is infeasible, so that giving up is right.
    pub fn is_infeasible(&self) -> bool {
        !self.several && self.checks[0].func == "infeasible"
    }
}

/// One entry per function: a list of that length, or one object for one function; empty and null are none.
fn spread(
    value: Option<Value>,
    count: Option<usize>,
    name: &str,
) -> Result<Vec<Option<Map<String, Value>>>, String> {
    let entry = |value: Value| match value {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok((!fields.is_empty()).then_some(fields)),
        other => Err(format!("evaluator.{name} holds {other}, an object is wanted")),
    };
    match (value, count) {
        (None | Some(Value::Null), _) => Ok(vec![None; count.unwrap_or(1)]),
        (Some(Value::Array(items)), Some(count)) if items.len() == count => {
            items.into_iter().map(entry).collect()
        }
        (Some(Value::Array(items)), Some(count)) => {
            Err(format!("evaluator.{name} has {} entries for {count} functions", items.len()))
        }
        (Some(Value::Array(items)), None) if items.is_empty() => Ok(vec![None]),
        (Some(value @ Value::Object(_)), None) => Ok(vec![entry(value)?]),
        (Some(Value::Object(fields)), Some(count)) if fields.is_empty() => Ok(vec![None; count]),
        (Some(other), _) => Err(format!("evaluator.{name} is {other}, which does not match evaluator.func")),
    }
}

fn getter(fields: Option<Map<String, Value>>, name: &str) -> Result<Option<Getter>, String> {
    let Some(mut fields) = fields else { return Ok(None) };
    match fields.remove("type") {
        Some(Value::String(kind)) => Ok(Some(Getter { kind, fields })),
        Some(other) => Err(format!("evaluator.{name}: type is {other}, text is wanted")),
        None => Err(format!("evaluator.{name}: type is missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_pair_up() {
        let evaluator = Evaluator::parse(json!({
            "func": ["exact_match", "check_list"], "conj": "or",
            "result": [{"type": "vm_file", "path": "a"}, {"type": "rule"}],
            "expected": [null, {"type": "rule", "rules": {}}],
            "options": [{}, {"a": 1}]
        }))
        .unwrap();
        assert!(evaluator.several && evaluator.conjunction == Conjunction::Or);
        assert!(evaluator.checks[0].expected.is_none());
        assert_eq!(evaluator.checks[1].options["a"], json!(1));
        assert_eq!(evaluator.checks[0].result.as_ref().unwrap().kind, "vm_file");
    }

    #[test]
    fn uneven_lists_are_errors() {
        let error = Evaluator::parse(json!({"func": ["a", "b"], "result": [{"type": "rule"}]})).unwrap_err();
        assert_eq!(error, "evaluator.result has 1 entries for 2 functions");
        assert!(Evaluator::parse(json!({"func": "a"})).unwrap_err().contains("result is missing"));
        assert!(Evaluator::parse(json!({"func": []})).is_err());
        assert!(Evaluator::parse(json!({"func": "a", "conj": "xor", "result": {"type": "rule"}})).is_err());
        assert!(Evaluator::parse(json!({"func": "infeasible"})).unwrap().is_infeasible());
    }

    #[test]
    fn a_task_may_allow_larger_files() {
        let with = |mib: Value| Evaluator::parse(json!({"func": "infeasible", "max_file_mib": mib}));
        assert_eq!(with(json!(200)).unwrap().max_file_mib, Some(200));
        assert_eq!(with(json!(0)).unwrap_err(), "evaluator.max_file_mib is 0, 1 to 4096 is wanted");
    }
}
