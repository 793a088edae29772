//! The lock of a run folder, what the folder must hold, and metrics that are truncated on resume.

use arpo_core::trajectory::ImageRef;
use arpo_train::run::folder::{config_changes, is_in_use};
use arpo_train::run::metrics::{MetricsLog, read};
use arpo_train::run::{RunError, RunFolder, Start};
use image::{Rgb, RgbImage};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A temporary folder of a test, removed at its end.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Temporary {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("arpo-run-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// A new run with a configuration.
    pub(crate) fn started(&self) -> RunFolder {
        let folder = RunFolder::start(&self.run(), Start::New).unwrap();
        folder.write_config("seed = 7\n").unwrap();
        folder
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn error(path: &Path, start: Start) -> String {
    RunFolder::start(path, start).unwrap_err().to_string()
}

#[test]
fn a_folder_is_locked_by_one_process() {
    let temporary = Temporary::new("lock");
    let run = temporary.run();
    let folder = temporary.started();
    let in_use = format!(
        "{}: in use by process {}: wait until it ends, or choose another folder",
        run.display(),
        std::process::id()
    );
    assert_eq!(error(&run, Start::New), in_use);
    assert_eq!(error(&run, Start::Resume), in_use);
    assert!(is_in_use(&run));
    drop(folder);
    assert!(!is_in_use(&run) && !is_in_use(Path::new("/no/such/run")));
    let folder = RunFolder::start(&run, Start::Resume).unwrap();
    assert_eq!(folder.config().unwrap().as_deref(), Some("seed = 7\n"));
}

#[test]
fn a_folder_that_is_not_a_run_stays_unchanged() {
    let temporary = Temporary::new("other");
    let file = temporary.0.join("letter.txt");
    fs::write(&file, "dear").unwrap();
    let name = temporary.0.display();
    assert_eq!(
        error(&temporary.0, Start::New),
        format!("{name}: not empty: expected a new or empty folder, or --resume to continue the run in it")
    );
    assert_eq!(
        error(&temporary.0, Start::Resume),
        format!("{name}: holds no run: expected a folder with the config.toml of one")
    );
    assert_eq!(fs::read_dir(&temporary.0).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), "dear");
    // a folder cannot be created below a file
    let below = file.join("run");
    let message = error(&below, Start::New);
    assert!(message.starts_with(&format!("{}: cannot be created: ", below.display())), "{message}");
}

#[test]
fn a_run_killed_before_its_first_file_does_not_block_a_new_one() {
    let temporary = Temporary::new("before");
    let (run, name) = (temporary.run(), temporary.run().display().to_string());
    let no_run = format!("{name}: holds no run: expected a folder with the config.toml of one");
    assert_eq!(error(&run, Start::Resume), no_run);
    assert!(!run.exists());
    drop(RunFolder::start(&run, Start::New).unwrap());
    assert_eq!(error(&run, Start::Resume), no_run);
    // killed while its first file was written
    fs::write(run.join(".config.toml.writing"), "see").unwrap();
    assert_eq!(error(&run, Start::Resume), no_run);
    let folder = RunFolder::start(&run, Start::New).unwrap();
    assert_eq!(folder.config().unwrap(), None);
    assert!(folder.resume_point().unwrap().checkpoint.is_none());
    assert!(!run.join(".config.toml.writing").exists());
}

#[test]
fn changes_of_the_configuration_are_named() {
    let was = "seed = 7\n[loss]\nclip = 0.2\nkl = \"k3\"\n";
    let changes = config_changes(was, "seed = 8\n[loss]\nclip = 0.2\n[new]\nkey = true\n");
    let described: Vec<String> = changes
        .iter()
        .map(|change| format!("{} {:?} {:?}", change.key, change.was.as_deref(), change.is.as_deref()))
        .collect();
    assert_eq!(
        described,
        [r#"loss.kl Some("\"k3\"") None"#, r#"new.key None Some("true")"#, r#"seed Some("7") Some("8")"#]
    );
    assert!(config_changes(was, was).is_empty());
}

fn append(log: &mut MetricsLog, iteration: u64) {
    log.append(&json!({"iteration": iteration, "success": 1.0 / iteration as f64})).unwrap();
}

#[test]
fn metrics_of_a_resumed_run_are_those_of_an_uninterrupted_one() {
    let temporary = Temporary::new("metrics");
    let folder = temporary.started();
    let mut log = folder.metrics_at(0).unwrap();
    (1..=6).for_each(|iteration| append(&mut log, iteration));
    let uninterrupted = fs::read(folder.metrics_file()).unwrap();

    let mut log = folder.metrics_at(0).unwrap();
    (1..=3).for_each(|iteration| append(&mut log, iteration));
    let position = log.position();
    // two more after the checkpoint, and half of one when the process was killed
    (4..=5).for_each(|iteration| append(&mut log, iteration));
    drop(log);
    let mut bytes = fs::read(folder.metrics_file()).unwrap();
    bytes.extend(b"{\"iteration\": 6, \"succ");
    fs::write(folder.metrics_file(), &bytes).unwrap();
    assert_eq!(read(&folder.metrics_file()).unwrap().len(), 5, "half a line is left out");

    let mut log = folder.metrics_at(position).unwrap();
    assert_eq!(log.position(), position);
    (4..=6).for_each(|iteration| append(&mut log, iteration));
    assert_eq!(fs::read(folder.metrics_file()).unwrap(), uninterrupted);
    let iterations: Vec<Value> =
        read(&folder.metrics_file()).unwrap().iter().map(|line| line["iteration"].clone()).collect();
    assert_eq!(iterations, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn metrics_that_do_not_fit_their_checkpoint_are_refused_and_kept() {
    let temporary = Temporary::new("metrics-short");
    let folder = temporary.started();
    let mut log = folder.metrics_at(0).unwrap();
    append(&mut log, 1);
    let bytes = fs::read(folder.metrics_file()).unwrap();
    let length = bytes.len() as u64;
    let message = |position: u64| folder.metrics_at(position).unwrap_err().to_string();
    let long = message(length + 5);
    assert!(long.ends_with(&format!("expected at least the {} of the checkpoint", length + 5)), "{long}");
    assert!(message(length - 3).contains("expected a line to end"));
    assert_eq!(fs::read(folder.metrics_file()).unwrap(), bytes);
}

/// The system's file that is always full.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_with_the_file() {
    let temporary = Temporary::new("full");
    let folder = temporary.started();
    std::os::unix::fs::symlink("/dev/full", folder.metrics_file()).unwrap();
    let mut log = folder.metrics_at(0).unwrap();
    let error = log.append(&json!({"iteration": 1})).unwrap_err();
    assert!(matches!(error, RunError::Io { .. }));
    let message = error.to_string();
    assert!(message.starts_with(&format!("{}: cannot be written: ", folder.metrics_file().display())));
    assert!(message.contains("No space left"), "{message}");
    assert_eq!(log.position(), 0);
}

#[test]
fn screenshots_come_back_as_they_were() {
    let temporary = Temporary::new("screens");
    let folder = temporary.started();
    let screen = RgbImage::from_fn(31, 17, |x, y| Rgb([x as u8 * 8, y as u8 * 15, (x * y) as u8]));
    let named = |width| ImageRef { digest: "abc123".into(), width, height: 17 };
    folder.screens().put("abc123", &screen).unwrap();
    // the digest identifies the content: a second time nothing is written
    folder.screens().put("abc123", &RgbImage::new(1, 1)).unwrap();
    assert_eq!(folder.screens().get(&named(31)).unwrap(), screen);
    assert!(folder.path().join("screens/ab/abc123.png").is_file());
    assert!(folder.screens().get(&named(32)).unwrap_err().to_string().ends_with("expected 32 x 17"));
    for digest in ["", "ab", "../../x", "a/b/c"] {
        assert!(folder.screens().put(digest, &screen).is_err(), "{digest}");
    }
}
