//! The golden files of the reference: in `$ARPO_GOLDEN_DIR`, or the project's own set.

use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// Reads one golden file.
pub(crate) fn read<T: DeserializeOwned>(name: &str) -> T {
    // a relative path is relative to the project's root
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path =
        root.join(std::env::var_os("ARPO_GOLDEN_DIR").unwrap_or_else(|| "tests/golden".into())).join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Agreement to 1e-5 of the expected value. The reference computed in f32, so a difference of larger values is only as
/// exact as those: `scale` is their magnitude.
pub(crate) fn assert_close(actual: f64, expected: f64, scale: f64, what: &str) {
    let tolerance = 1e-5 * expected.abs().max(scale);
    assert!((actual - expected).abs() <= tolerance, "{what}: {actual}, the reference has {expected}");
}
