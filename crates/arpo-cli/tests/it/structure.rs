//! Checks the rules of `docs/design.md`: which crate may use which, the length and name of a file, and its header.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Dependencies that pure crates must not have.
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

fn section<'m>(manifest: &'m toml::Table, sections: &[&str]) -> Vec<&'m str> {
    sections
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|table| table.keys().map(String::as_str))
        .collect()
}

fn dependencies(manifest: &toml::Table) -> Vec<&str> {
    section(manifest, &["dependencies", "dev-dependencies", "build-dependencies"])
}

/// What a crate may use.
struct Allowed {
    always: Vec<String>,
    in_tests: Vec<String>,
}

/// The table of `docs/design.md`: a row for each crate, its last column the crates it may use, those of its tests behind
/// `tests:`.
fn allowed() -> BTreeMap<String, Allowed> {
    let text = fs::read_to_string(root().join("docs/design.md")).unwrap();
    let rows: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let name = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
            (name.starts_with("arpo-") && cells.len() == 3).then(|| (name.to_owned(), cells[2].to_owned()))
        })
        .collect();
    let names: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
    let crates_in = |words: &str| -> Vec<String> {
        if words == "all" {
            return names.clone();
        }
        let words = words.split(|letter: char| !letter.is_ascii_alphanumeric());
        words.map(|word| format!("arpo-{word}")).filter(|name| names.contains(name)).collect()
    };
    let row = |(name, used): &(String, String)| {
        let (always, tests) = used.split_once("tests:").unwrap_or((used, ""));
        (name.clone(), Allowed { always: crates_in(always), in_tests: crates_in(tests) })
    };
    rows.iter().map(row).collect()
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
fn dependencies_are_those_of_the_design() {
    let (manifests, allowed) = (manifests(), allowed());
    assert_eq!(manifests.keys().collect::<Vec<_>>(), allowed.keys().collect::<Vec<_>>());
    for (name, Allowed { always, in_tests }) in &allowed {
        let used = |sections: &[&str]| -> Vec<String> {
            let ours = section(&manifests[name], sections).into_iter();
            ours.filter(|dependency| dependency.starts_with("arpo-")).map(str::to_owned).collect()
        };
        for dependency in used(&["dependencies", "build-dependencies"]) {
            assert!(always.contains(&dependency), "{name} may not use {dependency}");
        }
        for dependency in used(&["dev-dependencies"]) {
            let may = always.contains(&dependency) || in_tests.contains(&dependency);
            assert!(may, "the tests of {name} may not use {dependency}");
        }
        if name != "arpo-cli" {
            let all = used(&["dependencies", "dev-dependencies"]);
            let unused = always.iter().chain(in_tests).find(|dependency| !all.contains(dependency));
            assert_eq!(unused, None, "{name} does not use what docs/design.md says");
        }
    }
}

/// Following the arrows never leads back.
#[test]
fn dependencies_point_one_way() {
    let allowed = allowed();
    let mut left: BTreeMap<&String, &Allowed> = allowed.iter().collect();
    while !left.is_empty() {
        let leaf = left.iter().find(|(name, used)| {
            !used.always.iter().any(|dependency| dependency != **name && left.contains_key(dependency))
        });
        let name = (*leaf.expect("a circle of crates").0).clone();
        left.remove(&name);
    }
}

#[test]
fn pure_crates_need_no_libtorch() {
    let manifests = manifests();
    for name in [
        "arpo-core",
        "arpo-agent",
        "arpo-tokenizer",
        "arpo-image",
        "arpo-env",
        "arpo-chart",
        "arpo-osworld",
        "arpo-suite",
        "arpo-cluster",
        "arpo-lines",
        "arpo-track",
        "arpo-view",
    ] {
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
fn files_are_short_and_have_a_header() {
    for (path, text) in rust_files() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(!FORBIDDEN_FILE_NAMES.contains(&name), "{}: a meaningless name", path.display());
        assert!(text.starts_with("//! "), "{}: no header comment", path.display());
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        assert!(lines <= MAX_LINES_BEFORE_TESTS, "{}: {lines} lines before its tests", path.display());
    }
}
