//! Where the reference's answers lie: `$ARPO_GOLDEN_DIR`, or the project's own set.

use std::path::PathBuf;

/// The folder.
pub(crate) fn folder() -> PathBuf {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
    std::env::var_os("ARPO_GOLDEN_DIR").map_or_else(|| PathBuf::from(own), PathBuf::from)
}

/// One file, as text.
pub(crate) fn text(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
