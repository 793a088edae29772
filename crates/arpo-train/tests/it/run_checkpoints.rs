//! Incomplete and damaged checkpoints: the run resumes from the newest intact one and reports the others.

use crate::run_folder::Temporary;
use arpo_train::run::checkpoints::{Latest, NewCheckpoint, best_step, latest_good};
use arpo_train::run::{RunError, RunFolder, Start};
use image::RgbImage;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn save_with(folder: &RunFolder, step: u64, best: bool, keep: usize, screens: &[&str]) -> PathBuf {
    let screens: BTreeSet<String> = screens.iter().map(|&digest| digest.to_owned()).collect();
    for digest in &screens {
        folder.screens().put(digest, &RgbImage::new(3, 3)).unwrap();
    }
    let new = NewCheckpoint { step, best, screens: &screens, keep };
    folder
        .save_checkpoint(new, |draft| {
            write(&draft.join("model/config.json"), &format!("model {step}"));
            write(&draft.join("state.json"), &format!("state {step}"));
            Ok::<(), RunError>(())
        })
        .unwrap()
}

fn save(folder: &RunFolder, step: u64) -> PathBuf {
    save_with(folder, step, false, 10, &[])
}

/// The names in a folder, hidden ones too.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn step(latest: &Latest) -> Option<u64> {
    latest.checkpoint.as_ref().map(|found| found.step)
}

#[test]
fn the_last_few_checkpoints_and_the_best_model_are_kept() {
    let temporary = Temporary::new("keep");
    let folder = temporary.started();
    for number in 1..=5 {
        let path = save_with(&folder, number, number == 2, 2, &[]);
        assert_eq!(fs::read_to_string(path.join("state.json")).unwrap(), format!("state {number}"));
    }
    assert_eq!(names(&folder.checkpoints()), ["step-000004", "step-000005"]);
    assert_eq!(names(&folder.best()), ["best.json", "model"]);
    assert_eq!(fs::read_to_string(folder.best().join("model/config.json")).unwrap(), "model 2");
    assert_eq!(best_step(&folder.best()), Some(2));
    // a better one replaces it
    save_with(&folder, 6, true, 2, &[]);
    assert_eq!(fs::read_to_string(folder.best().join("model/config.json")).unwrap(), "model 6");
    assert_eq!(step(&folder.resume_point().unwrap()), Some(6));
    assert_eq!(names(folder.path()), [".lock", "best", "checkpoints", "config.toml"]);
}

#[test]
fn a_damaged_checkpoint_is_reported_and_the_previous_one_used() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage, &str); 6] = [
        ("half", |path| fs::remove_file(path.join("manifest.json")).unwrap(), "manifest.json cannot be read"),
        ("gone", |path| fs::remove_file(path.join("state.json")).unwrap(), "state.json cannot be read"),
        ("short", |path| fs::write(path.join("state.json"), "sta").unwrap(), "has 3 bytes instead of 7"),
        (
            "flipped",
            |path| fs::write(path.join("model/config.json"), "nodel 3").unwrap(),
            "model/config.json has other contents than were written",
        ),
        (
            "cut",
            |path| {
                let manifest = fs::read(path.join("manifest.json")).unwrap();
                fs::write(path.join("manifest.json"), &manifest[..manifest.len() / 2]).unwrap();
            },
            "manifest.json is not a manifest",
        ),
        (
            "moved",
            |path| {
                let other = path.with_file_name("step-000002").join("manifest.json");
                fs::copy(other, path.join("manifest.json")).unwrap();
            },
            "manifest.json is of step 2",
        ),
    ];
    for (name, damage, problem) in damages {
        let temporary = Temporary::new(&format!("damage-{name}"));
        let folder = temporary.started();
        (1..=3).for_each(|number| drop(save(&folder, number)));
        let path = folder.checkpoints().join("step-000003");
        damage(&path);
        let seen = latest_good(folder.path()).unwrap();
        assert_eq!(step(&seen), Some(2), "{name}");
        assert_eq!(seen.skipped.len(), 1, "{name}");
        let expected = format!("checkpoint {} is damaged and left out: ", path.display());
        assert!(seen.skipped[0].starts_with(&expected), "{}", seen.skipped[0]);
        assert!(seen.skipped[0].contains(problem), "{name}: {}", seen.skipped[0]);
        assert_eq!(folder.resume_point().unwrap(), seen);
        let kept = ["damaged-step-000003", "step-000001", "step-000002"];
        assert_eq!(names(&folder.checkpoints()), kept, "nothing is destroyed");
        // the run continues and reaches the same step again
        save(&folder, 3);
        assert_eq!(step(&folder.resume_point().unwrap()), Some(3));
    }
}

/// Every single byte of a checkpoint matters.
#[test]
fn any_flipped_byte_is_found() {
    let temporary = Temporary::new("bytes");
    let folder = temporary.started();
    let path = save_with(&folder, 1, false, 1, &["abcdef"]);
    let files =
        [path.join("state.json"), path.join("model/config.json"), folder.screens().path("abcdef").unwrap()];
    for file in files {
        let good = fs::read(&file).unwrap();
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            fs::write(&file, bad).unwrap();
            let seen = latest_good(folder.path()).unwrap();
            assert_eq!((step(&seen), seen.skipped.len()), (None, 1), "byte {index} of {}", file.display());
        }
        fs::write(&file, good).unwrap();
    }
    assert_eq!(step(&latest_good(folder.path()).unwrap()), Some(1));
}

#[test]
fn leftovers_of_a_killed_process_are_cleaned_up() {
    let temporary = Temporary::new("leftovers");
    let folder = temporary.started();
    save_with(&folder, 1, true, 10, &["abcdef"]);
    save(&folder, 2);
    drop(folder);
    let run = temporary.run();
    let checkpoints = run.join("checkpoints");
    // killed while it wrote the next checkpoint, a screenshot, the configuration
    write(&checkpoints.join(".step-000003.writing/model/config.json"), "mod");
    write(&run.join("screens/12/.123456-0.writing"), "half");
    write(&run.join(".config.toml.writing"), "se");
    // killed between moving the old one away and renaming the new one
    fs::rename(run.join("best"), run.join(".best.replaced")).unwrap();
    write(&run.join(".best.writing/model/config.json"), "model 2");
    // killed after the new one was renamed
    write(&checkpoints.join(".step-000002.replaced/state.json"), "old");
    let folder = RunFolder::start(&run, Start::Resume).unwrap();
    assert_eq!(step(&folder.resume_point().unwrap()), Some(2));
    assert_eq!(names(&checkpoints), ["step-000001", "step-000002"]);
    assert_eq!(fs::read_to_string(checkpoints.join("step-000002/state.json")).unwrap(), "state 2");
    assert_eq!(fs::read_to_string(run.join("best/model/config.json")).unwrap(), "model 1");
    assert_eq!(names(&run), [".lock", "best", "checkpoints", "config.toml", "screens"]);
    assert_eq!(names(&run.join("screens/ab")), ["abcdef.png"]);
    assert!(names(&run.join("screens/12")).is_empty());
}

#[test]
fn a_best_model_that_was_not_linked_yet_is_linked_on_resume() {
    let temporary = Temporary::new("best-late");
    let folder = temporary.started();
    save_with(&folder, 1, true, 10, &[]);
    let old = temporary.0.join("old-best");
    fs::rename(folder.best(), &old).unwrap();
    save_with(&folder, 2, true, 10, &[]);
    // as if killed just before
    fs::remove_dir_all(folder.best()).unwrap();
    fs::rename(old, folder.best()).unwrap();
    assert_eq!(best_step(&folder.best()), Some(1));
    folder.resume_point().unwrap();
    assert_eq!(best_step(&folder.best()), Some(2));
}

#[test]
fn a_checkpoint_that_cannot_be_written_destroys_nothing() {
    let temporary = Temporary::new("failing");
    let folder = temporary.started();
    save(&folder, 1);
    let none = BTreeSet::new();
    let new = NewCheckpoint { step: 2, best: true, screens: &none, keep: 1 };
    let full = |path: &Path| RunError::File { path: path.to_path_buf(), problem: "no space".into() };
    let failed = folder.save_checkpoint(new, |draft| {
        write(&draft.join("model/config.json"), "half");
        Err(full(draft))
    });
    assert!(failed.unwrap_err().to_string().ends_with("no space"));
    // nor does one that refers to a missing screenshot
    let missing = BTreeSet::from(["nowhere".to_owned()]);
    let new = NewCheckpoint { screens: &missing, ..new };
    assert!(folder.save_checkpoint(new, |_| Ok::<(), RunError>(())).is_err());
    assert_eq!(names(&folder.checkpoints()), ["step-000001"]);
    assert_eq!(step(&folder.resume_point().unwrap()), Some(1));
    assert!(!folder.best().exists());
}

#[test]
fn screenshots_stay_as_long_as_a_checkpoint_refers_to_them() {
    let temporary = Temporary::new("evicted");
    let folder = temporary.started();
    let stored = |digest: &str| folder.screens().path(digest).unwrap().is_file();
    save_with(&folder, 1, false, 2, &["aaa111", "aaa222"]);
    folder.screens().put("ccc333", &RgbImage::new(2, 2)).unwrap();
    save_with(&folder, 2, false, 2, &["aaa222", "bbb333"]);
    assert!(!stored("ccc333"), "no checkpoint refers to it");
    assert!(stored("aaa111"), "the previous checkpoint refers to it");
    save_with(&folder, 3, false, 2, &["bbb333"]);
    assert!(!stored("aaa111") && stored("aaa222") && stored("bbb333"));
    save_with(&folder, 4, false, 2, &["bbb333"]);
    assert!(!stored("aaa222") && stored("bbb333"));
    assert_eq!(step(&folder.resume_point().unwrap()), Some(4));
}
