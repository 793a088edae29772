//! The workspace is what `docs/design.md` says: which crate may use which, how long a file may be, how it may be
//! called, what it opens with.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Crate by crate, the crates of this workspace that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("arpo-core", &[]),
    ("arpo-agent", &["arpo-core"]),
    ("arpo-tokenizer", &["arpo-agent"]),
    ("arpo-image", &["arpo-agent"]),
    ("arpo-env", &["arpo-core"]),
    ("arpo-chart", &["arpo-env"]),
    ("arpo-osworld", &["arpo-core", "arpo-agent", "arpo-env"]),
    ("arpo-desktop", &["arpo-core", "arpo-agent"]),
    ("arpo-torch", &[]),
    ("arpo-model", &["arpo-core", "arpo-agent", "arpo-tokenizer", "arpo-image", "arpo-torch"]),
    ("arpo-engine", &["arpo-core", "arpo-agent", "arpo-tokenizer", "arpo-image", "arpo-torch", "arpo-model"]),
    (
        "arpo-train",
        &[
            "arpo-core",
            "arpo-agent",
            "arpo-chart",
            "arpo-tokenizer",
            "arpo-image",
            "arpo-torch",
            "arpo-env",
            "arpo-osworld",
            "arpo-model",
            "arpo-engine",
        ],
    ),
    (
        "arpo-cli",
        &[
            "arpo-core",
            "arpo-agent",
            "arpo-chart",
            "arpo-tokenizer",
            "arpo-image",
            "arpo-env",
            "arpo-osworld",
            "arpo-torch",
            "arpo-model",
            "arpo-engine",
            "arpo-train",
        ],
    ),
];

/// Crates that no pure or CPU-only part may bring in.
const NEEDS_LIBTORCH: &[&str] = &["tch", "torch-sys"];

const MAX_LINES_BEFORE_TESTS: usize = 500;

const FORBIDDEN_FILE_NAMES: &[&str] = &["utils", "util", "helpers", "common", "base", "misc"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn manifests() -> BTreeMap<String, toml::Table> {
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        (entry.file_name().into_string().unwrap(), text.parse().unwrap())
    };
    fs::read_dir(root().join("crates")).unwrap().map(|entry| read(entry.unwrap())).collect()
}

fn dependencies(manifest: &toml::Table) -> Vec<&str> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|table| table.keys().map(String::as_str))
        .collect()
}

/// The Rust files of the workspace, with their paths from the root.
fn rust_files() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(root()).unwrap().to_path_buf(), text));
            }
        }
    }
    let mut files = Vec::new();
    walk(&root().join("crates"), &mut files);
    assert!(files.len() > 20);
    files
}

#[test]
fn dependencies_point_one_way() {
    let manifests = manifests();
    let mut known: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(manifests.keys().collect::<Vec<_>>(), known, "a crate without a place in the design");
    for (name, allowed) in ARROWS {
        for dependency in dependencies(&manifests[*name]) {
            let ours = dependency.starts_with("arpo-");
            assert!(!ours || allowed.contains(&dependency), "{name} may not use {dependency}");
        }
    }
}

#[test]
fn pure_crates_need_no_libtorch() {
    let manifests = manifests();
    for name in
        ["arpo-core", "arpo-agent", "arpo-tokenizer", "arpo-image", "arpo-env", "arpo-chart", "arpo-osworld"]
    {
        for dependency in dependencies(&manifests[name]) {
            assert!(!NEEDS_LIBTORCH.contains(&dependency), "{name} uses {dependency}");
        }
    }
}

#[test]
fn crates_share_the_lints_and_only_the_shim_may_be_unsafe() {
    for (name, manifest) in manifests() {
        let shared = manifest["lints"].get("workspace").and_then(toml::Value::as_bool) == Some(true);
        assert_eq!(shared, name != "arpo-torch", "{name}");
    }
}

#[test]
fn files_hold_one_idea_and_say_which() {
    for (path, text) in rust_files() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(!FORBIDDEN_FILE_NAMES.contains(&name), "{}: a name that says nothing", path.display());
        assert!(text.starts_with("//! "), "{}: a file opens with what it is", path.display());
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        assert!(lines <= MAX_LINES_BEFORE_TESTS, "{}: {lines} lines before its tests", path.display());
    }
}
