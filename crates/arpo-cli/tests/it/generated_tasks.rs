//! Runs on generated tasks, and the three sets of tasks that agents are evaluated on.

use super::commands::arpo;
use super::env_commands::json;
use super::training::{finished, interrupt_after_the_first, last_weights, metrics, number, scratch, train};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names of the tasks of each iteration.
fn task_names(run: &Path) -> Vec<Vec<String>> {
    let lines = metrics(run).into_iter().filter(|line| line.contains_key("tasks"));
    lines.map(|line| line["tasks"].as_object().unwrap().keys().cloned().collect()).collect()
}

/// Trains once without interruption and once with Ctrl-C after the first iteration: the same tasks, the same weights.
fn trained_with_and_without_interruption(name: &str, settings: &[&str]) -> Vec<Vec<String>> {
    let scratch = scratch(name);
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let run = |folder: &Path, more: &[&str]| {
        let mut command = train(folder, &["--quiet", "--set", "tasks.list=", "--set", "tasks.count=0"]);
        command.args(&settings).args(more);
        command
    };
    finished(&mut run(&whole, &[]));
    interrupt_after_the_first(run(&broken, &[]).spawn().unwrap(), &broken);
    assert!(task_names(&broken).len() < 6, "it ended before it was stopped");
    finished(&mut run(&broken, &["--resume"]));
    assert_eq!(metrics(&broken), metrics(&whole));
    assert!(last_weights(&broken) == last_weights(&whole), "different weights after a resume");
    task_names(&whole)
}

#[test]
fn a_run_on_generated_tasks_resumes_exactly() {
    let tasks = trained_with_and_without_interruption(
        "generated",
        &["tasks.generated=5", "evaluation.every=6", "evaluation.tasks=2"],
    );
    // ten visits are two passes
    let passes: Vec<&String> = tasks.iter().flatten().collect();
    let expected: BTreeSet<String> =
        (0..5).map(|n| arpo_env::tasks::Suite::Pocket.generated_name(n)).collect();
    for pass in passes.chunks_exact(5) {
        assert_eq!(pass.iter().copied().cloned().collect::<BTreeSet<String>>(), expected);
    }
}

#[test]
fn an_endless_run_never_repeats_a_task_and_resumes_exactly() {
    let settings = ["tasks.endless=true", "evaluation.every=0"];
    let tasks = trained_with_and_without_interruption("endless", &settings);
    let visits: Vec<&String> = tasks.iter().flatten().collect();
    assert_eq!((tasks.len(), visits.len()), (6, 12));
    let visited = arpo_core::endless::visited(0, 0..12);
    let expected: BTreeSet<String> =
        visited.into_iter().map(|n| arpo_env::tasks::Suite::Pocket.generated_name(n)).collect();
    assert_eq!(visits.into_iter().cloned().collect::<BTreeSet<String>>(), expected);
    // nothing is stored for tasks that are never repeated
    let run = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endless/whole");
    assert!(metrics(&run).iter().all(|line| number(line, "replay/stored") < 0.5));
    let state = fs::read_to_string(run.join("checkpoints/step-000006/state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["visits"], 12);
    assert!(!state["effort"].to_string().contains("-g0") && !state["sampler"].to_string().contains("-g0"));
}

#[test]
fn a_run_is_evaluated_on_three_sets() {
    let run = scratch("three-sets").join("run");
    let settings = [
        "iterations=2",
        "tasks.list=",
        "tasks.count=0",
        "tasks.generated=34",
        "collect.max_steps=2",
        "evaluation.every=1",
        "evaluation.tasks=7",
        "evaluation.unseen=\"always\"",
        "evaluation.held_out=\"ends\"",
    ];
    let output = finished(train(&run, &["--quiet"]).args(settings.iter().flat_map(|one| ["--set", one])));
    let rows: Vec<&str> =
        output.lines().take(4).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(rows, ["success", "unseen", "training", "held_out"], "{output}");
    let lines = metrics(&run);
    for (line, has_held_out) in lines.iter().zip([true, false, true]) {
        assert!(line.contains_key("evaluation/unseen/low") && line.contains_key("evaluation/training"));
        assert_eq!(line.contains_key("evaluation/held_out"), has_held_out, "{line:?}");
    }
    assert_eq!(lines.len(), 3);
    assert!(run.join("curve.png").exists());
}

#[test]
fn eval_takes_unseen_tasks_of_the_trained_templates() {
    let oracle = ["eval", "--policy", "oracle", "--samples", "1", "--set", "collect.max_steps=30", "--json"];
    let evaluated = |more: &[&str]| json(&[&oracle[..], more].concat());
    let names = |report: &Value| -> Vec<String> {
        let tasks = report["tasks"].as_array().unwrap().iter();
        tasks.map(|task| task["task"].as_str().unwrap().to_owned()).collect()
    };
    let report = evaluated(&["--part", "unseen"]);
    assert_eq!((&report["success"]["mean"], &report["success"]["rollouts"]), (&1.0.into(), &64.into()));
    let unseen = names(&report);
    assert!(unseen.iter().all(|name| name.contains("-u0000")), "{unseen:?}");

    let folder = scratch("eval-unseen");
    let list = folder.join("list.txt");
    fs::write(&list, "pocket-files-rename-0\npocket-files-rename-g000016\n").unwrap();
    let list = format!("tasks.list={}", list.display());
    let of_list = names(&evaluated(&["--set", &list, "--part", "unseen"]));
    assert_eq!(of_list.len(), 64);
    assert!(of_list.iter().all(|name| name.starts_with("pocket-files-rename-u")), "{of_list:?}");

    // the unseen set comes last, so that the seeds of the others do not change
    let all = evaluated(&["--set", &list, "--part", "all"]);
    let of_all = names(&all);
    assert_eq!(of_all[..2], ["pocket-files-rename-0", "pocket-files-rename-g000016"]);
    assert_eq!((of_all.len(), &of_all[66..]), (130, &of_list[..]));
    for (part, rollouts) in [("train", 2), ("held-out", 64), ("unseen", 64)] {
        assert_eq!(all["parts"][part]["rollouts"], rollouts, "{part}");
    }
    let some = evaluated(&["--part", "train", "--set", "evaluation.tasks=10"]);
    assert_eq!(some["success"]["rollouts"], 10);
    let generated = "pocket-files-rename-g000016";
    let both = format!("files/{generated}");
    let named = evaluated(&[
        "--task",
        generated,
        "--task",
        "pocket-files-rename-0",
        "--task",
        generated,
        "--task",
        &both,
    ]);
    assert_eq!(names(&named), ["pocket-files-rename-0", generated]);
}

#[test]
fn tasks_without_templates_have_no_unseen_tasks() {
    let folder = scratch("no-templates");
    let mine = folder.join("mine.json");
    let tasks = arpo_env::tasks::Suite::Pocket.tasks(arpo_env::tasks::Split::Train)[..2].to_vec();
    fs::write(&mine, serde_json::to_string(&tasks).unwrap()).unwrap();
    let files = format!("tasks.files={}", mine.display());
    for (arguments, message) in [
        (&["--set", &files][..], "--part unseen: tasks of `tasks.files` have no known templates"),
        (&["--suite", "osworld"], "--part unseen: OSWorld's tasks have no templates"),
    ] {
        let ran = arpo(&[&["eval", "--policy", "oracle", "--part", "unseen"], arguments].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
        assert!(ran.stderr.starts_with(&format!("error: {message}")), "{}", ran.stderr);
    }
    let list = folder.join("list.txt");
    fs::write(&list, "pocket-files-rename-u000000\n").unwrap();
    let list = format!("tasks.list={}", list.display());
    let ran = arpo(&["eval", "--policy", "oracle", "--set", &list]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("\"pocket-files-rename-u000000\" is not one of the training tasks"),
        "{}",
        ran.stderr
    );
    let endless = ["eval", "--policy", "oracle", "--set", "tasks.endless=true"];
    let ran = arpo(&[&endless[..], &["--set", "evaluation.unseen=\"always\""]].concat());
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("`tasks.endless` = true has no list of tasks"), "{}", ran.stderr);
}
