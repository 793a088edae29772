//! Training with processes that only learn and processes that only sample: the same result as one process, and learning beside
//! sampling; a process that samples is killed, and the run resumes.

use crate::eventually;
use crate::ranks::{
    assert_same_weights, joined, last_step, leftovers, number, resume, run, succeed, weights,
};
use crate::training::{metrics, scratch};
use std::process::Command;
use std::time::{Duration, Instant};

const OVERLAPPED: [&str; 2] = ["--set", "collect.mode=\"overlapped\""];

#[test]
fn a_process_that_samples_beside_one_that_learns_trains_what_one_trains() {
    let scratch = scratch("split-ranks");
    let (one, split) = (scratch.join("one"), scratch.join("split"));
    succeed(run(&one, &[]));
    let done = succeed(run(&split, &["--gpus", "2", "--set", "learn.gpus=1"]));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("ranks that learn: 1; ranks that only sample: 1"), "{said}");
    let (expected, found) = (metrics(&one), metrics(&split));
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(&found) {
        for name in ["tasks", "reward/score", "episode/turns", "episode/trained_tokens", "collect/episodes"] {
            assert_eq!(expected.get(name), found.get(name), "{name}");
        }
        for name in ["loss/value", "update/gradient_norm", "policy/entropy", "update/count"] {
            let (expected, found) = (number(expected, name), number(found, name));
            assert!((expected - found).abs() < 1e-5 * expected.abs().max(1.0), "{name}: {expected} {found}");
        }
    }
    assert_same_weights(&weights(&split, 5), &weights(&one, 5));
}

#[test]
fn processes_sample_while_others_learn() {
    let scratch = scratch("overlapped-split");
    let folder = scratch.join("run");
    let arguments = [&["--gpus", "3", "--set", "learn.gpus=2"][..], &OVERLAPPED].concat();
    succeed(run(&folder, &arguments));
    let lines = metrics(&folder);
    let staleness: Vec<f64> = lines.iter().map(|line| number(line, "policy/staleness")).collect();
    // the first iteration has nothing to learn from before it
    assert_eq!(staleness.len(), 5);
    assert!(staleness.iter().all(|versions| *versions <= 1.0), "{staleness:?}");
    assert!(staleness[1..].iter().any(|versions| *versions > 0.5), "{staleness:?}");
    assert!(lines.iter().map(|line| number(line, "update/count")).sum::<f64>() > 0.0);
    // all of them on one machine and in one role again
    succeed(resume(&folder, &["--gpus", "1", "--set", "learn.gpus=0", "--set", "iterations=6"]));
    assert_eq!(metrics(&folder).len(), 6);
}

#[test]
fn a_killed_process_that_samples_is_named_and_the_run_resumes() {
    let scratch = scratch("killed-sampling-rank");
    let folder = scratch.join("run");
    let arguments =
        [&["--gpus", "2", "--set", "learn.gpus=1", "--set", "iterations=200"][..], &OVERLAPPED].concat();
    let mut child = run(&folder, &arguments).spawn().unwrap();
    eventually("a checkpoint", || folder.join("checkpoints/step-000002").exists());
    let ranks = joined(&child);
    assert_eq!(ranks.len(), 1, "{ranks:?}");
    let began = Instant::now();
    assert!(Command::new("kill").args(["-9", &ranks[0].to_string()]).status().unwrap().success());
    eventually("the end of the run", || child.try_wait().unwrap().is_some());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    let gone = format!("process {}) is gone: the connection ended", ranks[0]);
    assert!(last.starts_with("error: rank 1 (") && last.ends_with(&gone), "{said}");
    assert_eq!(leftovers(&folder), Vec::<String>::new());
    let next = last_step(&folder) + 2;
    succeed(resume(&folder, &["--set", &format!("iterations={next}")]));
    assert_eq!(last_step(&folder), next);
}

#[test]
fn wrong_roles_are_refused_and_gpus_of_servers_are_without_effect() {
    let scratch = scratch("wrong-roles");
    let refused = run(&scratch.join("refused"), &["--gpus", "2", "--set", "learn.gpus=3"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("`learn.gpus` = 3: expected at most `learn.ranks`, which is 2"), "{said}");
    assert!(!scratch.join("refused").exists());
    // as runs were stored before
    let folder = scratch.join("stored");
    succeed(run(&folder, &["--set", "rollout.gpus=[\"1\"]", "--set", "iterations=1"]));
    let resumed = succeed(resume(&folder, &["--set", "iterations=2"]));
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(said.contains("`rollout.gpus` is without effect"), "{said}");
    assert_eq!(metrics(&folder).len(), 2);
}
