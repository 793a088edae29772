//! Text as Python and its libraries treat it.

pub mod color;
pub mod pattern;
pub mod python;
pub mod similarity;
pub mod url;
pub mod value_rule;
pub mod yaml;
mod yaml_scalars;
