//! The event file, read back record by record.

use crate::{append, new_run};
use arpo_core::config::LoggingConfig;
use arpo_track::{Ending, follow};
use std::fs;
use std::path::Path;

/// The records of the only event file of a run.
fn records(run: &Path) -> Vec<Vec<u8>> {
    let files: Vec<_> =
        fs::read_dir(run.join("tensorboard")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents."));
    let bytes = fs::read(&files[0]).unwrap();
    let (mut records, mut rest) = (vec![], bytes.as_slice());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        records.push(rest[12..12 + length].to_vec());
        rest = &rest[12 + length + 4..];
    }
    records
}

fn contains(record: &[u8], text: &str) -> bool {
    record.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_run_is_logged_while_it_goes_on_and_again_without_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    new_run(run);
    append(run, 0, 0.25);
    let config = LoggingConfig { to: vec!["tensorboard".into()], ..LoggingConfig::default() };
    let following = follow(run, &config);
    append(run, 1, 0.5);
    assert!(following.end(Ending::Finished).is_empty());
    let first = records(run);
    assert_eq!(first.len(), 4, "version, configuration, two lines");
    assert!(contains(&first[0], "brain.Event:2") && contains(&first[1], "clip_low"));
    assert!(contains(&first[2], "reward/score") && !contains(&first[2], "tasks"));
    // the second line: step 1, 0.5 as a 32-bit number
    assert!(first[3][9..].starts_with(&[0x10, 1]) && first[3].ends_with(&[0x15, 0, 0, 0, 0x3f]));

    append(run, 2, 1.0);
    assert!(follow(run, &config).end(Ending::Stopped).is_empty());
    let second = records(run);
    assert_eq!(second.len(), 5);
    assert_eq!(second[2..4], first[2..]);
}

#[test]
fn a_folder_that_cannot_be_written_is_one_notice() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    new_run(run);
    fs::write(run.join("tensorboard"), "in the way").unwrap();
    let config = LoggingConfig { to: vec!["tensorboard".into()], ..LoggingConfig::default() };
    let notices = follow(run, &config).end(Ending::Finished);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].starts_with("tensorboard: ") && notices[0].contains("nothing more is logged there"));
}
