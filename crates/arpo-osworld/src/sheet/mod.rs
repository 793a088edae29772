//! Spreadsheets (xlsx) as the original's libraries read them: openpyxl for structure, pandas for data.

pub mod book;
pub mod cell;
pub mod chart;
pub mod condition;
pub mod dates;
pub mod filter;
pub mod formula;
pub mod frame;
pub mod numeric;
pub mod pivot;
pub mod range;
pub mod sparkline;
pub mod styles;

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Parts of a sheet by what they show, each with the properties asked for.
pub type Described = BTreeMap<String, Map<String, Value>>;
