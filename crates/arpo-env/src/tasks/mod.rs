//! Tasks: templates with seeds, the listed suites, and the worlds they play in.

pub(crate) mod words;
pub(crate) mod worlds;
