//! OSWorld: its task files, the client of its guests, set-up steps, getters and metrics, natively.
//!
//! Every metric is a pure function from states to a score; all input and output goes through the given
//! [`guest::Guest`] and [`download::Cache`]. Scores are those of OSWorld's own evaluators, oddities
//! included, in the generation the task file was written for.

pub mod archive;
pub mod check;
pub mod coverage;
pub mod database;
pub mod deck;
pub mod download;
pub mod environment;
pub mod error;
pub mod evaluate;
pub mod fetch;
pub mod getters;
pub mod google;
pub mod guest;
pub mod host;
pub mod html;
pub mod id3;
pub mod metrics;
pub mod needs;
pub mod ocr;
pub mod package;
pub mod pdf;
pub mod pillow;
pub mod provider;
pub mod results;
pub mod sandbox;
pub mod score;
pub mod selector;
pub mod setup;
pub mod sheet;
pub mod sound;
pub mod state;
pub mod task;
pub mod text;
pub mod video;
pub mod word;
pub mod xml;
