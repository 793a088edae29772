//! Presentations (pptx) as python-pptx shows them.

pub mod pptx;
pub mod shape;
