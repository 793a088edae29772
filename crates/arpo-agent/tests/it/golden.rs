//! The golden files of the reference: in `$ARPO_GOLDEN_DIR`, or the project's own set.

use std::path::PathBuf;

/// The folder.
pub(crate) fn folder() -> PathBuf {
    // a relative path is relative to the project's root
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join(std::env::var_os("ARPO_GOLDEN_DIR").unwrap_or_else(|| "tests/golden".into()))
}

/// One file, as text.
pub(crate) fn text(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
