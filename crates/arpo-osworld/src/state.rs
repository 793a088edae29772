//! What a getter passes to a metric: nothing, JSON, or a file with its name, its bytes and the files beside it.
//!
//! OSWorld passes paths. Here a file is a value, so that every metric is a pure function; the name stays,
//! because some metrics look at its ending, and so do the neighbours, because one looks for `<book>-<sheet>.csv`.

use crate::error::MetricError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file's content, shared.
pub type Bytes = Arc<[u8]>;

/// A file as a metric sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// Its name, without folders.
    pub name: String,
    /// Its content.
    pub bytes: Bytes,
    /// Files that came with it, by name.
    pub siblings: Arc<BTreeMap<String, Bytes>>,
}

impl FileState {
    /// A file alone.
    pub fn new(name: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self { name: name.into(), bytes: bytes.into(), siblings: Arc::default() }
    }

    /// Whether its name has this extension, case-sensitive, as Python's `endswith`.
    pub fn has_ending(&self, ending: &str) -> bool {
        self.name.rsplit_once('.').is_some_and(|(_, last)| last == ending)
    }

    /// The name without its last ending, as `os.path.splitext` cuts it.
    pub fn stem(&self) -> &str {
        match self.name.rfind('.') {
            Some(at) if self.name[..at].chars().any(|letter| letter != '.') => &self.name[..at],
            _ => &self.name,
        }
    }
}

/// The state of something in the guest, or the expected state.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Python's `None`: the getter found nothing.
    Null,
    /// A value.
    Json(Value),
    /// A file.
    File(FileState),
    /// A path at which there is no file: opening it raises, unlike `None`, which most metrics check first.
    Absent(String),
    /// Several, in order.
    Many(Vec<State>),
}

impl From<Value> for State {
    fn from(value: Value) -> Self {
        if value.is_null() { Self::Null } else { Self::Json(value) }
    }
}

impl From<Option<Value>> for State {
    fn from(value: Option<Value>) -> Self {
        value.map_or(Self::Null, Self::from)
    }
}

impl State {
    /// Python's `not state`.
    pub fn is_falsy(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Json(value) => !crate::text::python::truthy(value),
            Self::File(_) | Self::Absent(_) => false,
            Self::Many(states) => states.is_empty(),
        }
    }

    /// Python's `state is None`.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The file, where there must be one.
    pub fn file(&self) -> Result<&FileState, MetricError> {
        match self {
            Self::File(file) => Ok(file),
            Self::Absent(name) => Err(MetricError::raises(format!("no such file: {name}"))),
            Self::Null => Err(MetricError::raises("a file is needed and there is none")),
            Self::Json(_) | Self::Many(_) => {
                Err(MetricError::raises("a file is needed and there is a value"))
            }
        }
    }

    /// The file's content as text, as Python's `open(path).read()` gives it.
    pub fn text(&self) -> Result<String, MetricError> {
        crate::text::python::decode(&self.file()?.bytes)
    }

    /// The value, where there must be one.
    pub fn json(&self) -> Result<&Value, MetricError> {
        match self {
            Self::Json(value) => Ok(value),
            Self::Null => Ok(&Value::Null),
            Self::File(file) => {
                Err(MetricError::raises(format!("a value is needed and there is {}", file.name)))
            }
            Self::Absent(name) => Err(MetricError::raises(format!("a value is needed and there is {name}"))),
            Self::Many(_) => Err(MetricError::raises("one value is needed and there are several")),
        }
    }

    /// The states of a list, or the one there is.
    pub fn each(&self) -> &[State] {
        match self {
            Self::Many(states) => states,
            one => std::slice::from_ref(one),
        }
    }
}
