//! Training with several ranks as processes, which sample and learn: the same result as one process; a rank that is killed or
//! cut off ends the run, which resumes with another number of ranks.

use crate::eventually;
use crate::training::{metrics, scratch, train};
use crate::wire::Wire;
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Four updates in each of five iterations, at a learning rate at which the last bits of sums do not change what is sampled.
const SETTINGS: [&str; 9] = [
    "iterations=5",
    "optimiser.batch=\"all\"",
    "optimiser.trajectories_per_update=2",
    "optimiser.learning_rate=2e-5",
    "effort.solved_rollouts=0",
    "evaluation.every=0",
    "model.micro_batch_tokens=400",
    "checkpoints.keep=10",
    "learn.start_seconds=120",
];

pub(crate) fn run(folder: &Path, more: &[&str]) -> Command {
    let settings: Vec<&str> = SETTINGS.iter().flat_map(|setting| ["--set", setting]).collect();
    train(folder, &[&settings, more, &["--quiet"]].concat())
}

pub(crate) fn resume(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.args(["train", "--quiet", "--resume", "--out"]).arg(folder).args(more);
    command.env("OMP_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn succeed(mut command: Command) -> Output {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done
}

/// The f32 values of a checkpoint's weights.
pub(crate) fn weights(run: &Path, step: u32) -> Vec<f32> {
    let bytes = fs::read(run.join(format!("checkpoints/step-{step:06}/model/model.safetensors"))).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

pub(crate) fn assert_same_weights(one: &[f32], other: &[f32]) {
    assert_eq!(one.len(), other.len());
    let largest = one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-5, "{largest}");
}

pub(crate) fn number(line: &serde_json::Map<String, Value>, name: &str) -> f64 {
    line.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("{name} in {line:?}"))
}

/// The processes that have joined the run of a process.
pub(crate) fn joined(parent: &Child) -> Vec<u32> {
    let is_child = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // after the name, which may hold anything: state, parent
        let after = status.rsplit_once(") ").map_or("", |(_, after)| after);
        after.split(' ').nth(1) == Some(&parent.id().to_string()) && !after.starts_with('Z')
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    fs::read_dir("/proc").unwrap().flatten().filter_map(number).filter(is_child).collect()
}

/// Names that only an unfinished checkpoint has.
pub(crate) fn leftovers(run: &Path) -> Vec<String> {
    let entries = fs::read_dir(run.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("step-")).collect()
}

#[test]
fn two_processes_train_what_one_trains() {
    let scratch = scratch("ranks");
    let (one, two) = (scratch.join("one"), scratch.join("two"));
    succeed(run(&one, &[]));
    succeed(run(&two, &["--gpus", "2"]));
    let (expected, found) = (metrics(&one), metrics(&two));
    assert_eq!(expected.len(), found.len());
    let mut updates = 0.0;
    for (expected, found) in expected.iter().zip(&found) {
        // sampled by both ranks, and the same
        for name in ["tasks", "reward/score", "episode/turns", "episode/trained_tokens", "collect/episodes"] {
            assert_eq!(expected.get(name), found.get(name), "{name}");
        }
        for name in ["loss/value", "update/gradient_norm", "policy/entropy", "update/count"] {
            let (expected, found) = (number(expected, name), number(found, name));
            assert!((expected - found).abs() < 1e-5 * expected.abs().max(1.0), "{name}: {expected} {found}");
            updates += if name == "update/count" { found } else { 0.0 };
        }
    }
    assert!(updates >= 20.0, "{updates} updates");
    assert_same_weights(&weights(&two, 5), &weights(&one, 5));
    let stored = fs::read_to_string(two.join("config.toml")).unwrap();
    assert!(stored.contains("ranks = 2"), "{stored}");
}

#[test]
fn a_killed_rank_ends_the_run_which_resumes_with_another_number() {
    let scratch = scratch("killed-rank");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let mut child = run(&broken, &["--gpus", "3"]).spawn().unwrap();
    eventually("a checkpoint", || broken.join("checkpoints/step-000002").exists());
    let ranks = joined(&child);
    assert_eq!(ranks.len(), 2, "{ranks:?}");
    let began = Instant::now();
    assert!(Command::new("kill").args(["-9", &ranks[0].to_string()]).status().unwrap().success());
    eventually("the end of the run", || child.try_wait().unwrap().is_some());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success(), "the run was over before the rank was killed: {said}");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("error: rank ")
            && last.ends_with(&format!("process {}) is gone: the connection ended", ranks[0])),
        "{said}"
    );
    assert_eq!(leftovers(&broken), Vec::<String>::new());
    eventually("the other rank's end", || !Path::new(&format!("/proc/{}", ranks[1])).exists());
    // one process goes on, then two
    succeed(resume(&broken, &["--gpus", "1", "--set", "iterations=4"]));
    succeed(resume(&broken, &["--gpus", "2", "--set", "iterations=5"]));
    succeed(run(&whole, &[]));
    assert_eq!(metrics(&broken).len(), metrics(&whole).len());
    assert_same_weights(&weights(&broken, 5), &weights(&whole, 5));
}

/// The last checkpoint of a run.
pub(crate) fn last_step(run: &Path) -> u32 {
    let entries = fs::read_dir(run.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max().unwrap()
}

/// Whether a run said not long ago that it was collecting.
fn is_collecting(run: &Path) -> bool {
    let status = fs::read_to_string(run.join("status.json")).unwrap_or_default();
    serde_json::from_str::<Value>(&status).is_ok_and(|status| status["phase"] == "collect")
}

#[test]
fn a_rank_killed_while_it_samples_ends_the_run_which_resumes() {
    let scratch = scratch("killed-sampler");
    let (whole, broken) = (scratch.join("whole"), scratch.join("broken"));
    let mut child = run(&broken, &["--gpus", "2", "--set", "iterations=200"]).spawn().unwrap();
    eventually("a checkpoint", || broken.join("checkpoints/step-000001").exists());
    eventually("a collection", || is_collecting(&broken));
    let ranks = joined(&child);
    assert_eq!(ranks.len(), 1, "{ranks:?}");
    let began = Instant::now();
    assert!(Command::new("kill").args(["-9", &ranks[0].to_string()]).status().unwrap().success());
    eventually("the end of the run", || child.try_wait().unwrap().is_some());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let said = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
    let last = said.lines().last().unwrap();
    let gone = format!("process {}) is gone: the connection ended", ranks[0]);
    assert!(last.starts_with("error: rank 1 (") && last.ends_with(&gone), "{said}");
    assert_eq!(leftovers(&broken), Vec::<String>::new());
    // to the bit what it would have been
    let next = last_step(&broken) + 1;
    let iterations = format!("iterations={next}");
    succeed(resume(&broken, &["--gpus", "2", "--set", &iterations]));
    succeed(run(&whole, &["--gpus", "2", "--set", &iterations]));
    assert_eq!(metrics(&broken), metrics(&whole));
    assert!(weights(&broken, next) == weights(&whole, next));
}

#[test]
fn ctrl_c_ends_a_run_of_several_ranks_within_seconds() {
    let scratch = scratch("stopped-ranks");
    let folder = scratch.join("run");
    let mut child = run(&folder, &["--gpus", "2", "--set", "iterations=200"]).spawn().unwrap();
    eventually("a checkpoint", || folder.join("checkpoints/step-000001").exists());
    let ranks = joined(&child);
    let began = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    eventually("the end of the run", || child.try_wait().unwrap().is_some());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    eventually("the other rank's end", || !Path::new(&format!("/proc/{}", ranks[0])).exists());
    assert_eq!(leftovers(&folder), Vec::<String>::new());
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_rank_that_joins_by_hand_and_is_cut_off_ends_both() {
    let scratch = scratch("cut-rank");
    let folder = scratch.join("run");
    let zero = format!("127.0.0.1:{}", free_port());
    let listen = format!("learn.listen=\"{zero}\"");
    let mut leader = run(
        &folder,
        &["--ranks", "2", "--set", "learn.local=1", "--set", &listen, "--set", "iterations=100"],
    );
    let mut leader = leader.env("ARPO_CLUSTER_TOKEN", "secret").spawn().unwrap();
    let arpo = |address: &str, token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
        command
            .args(["train", "--join", address])
            .env("ARPO_CLUSTER_TOKEN", token)
            .env("OMP_NUM_THREADS", "1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    // a rank with another token is refused
    let refused = arpo(&zero, "guess").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("another token: expected rank 0's ARPO_CLUSTER_TOKEN in the environment"),
        "{said}"
    );
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let follower = arpo(&proxy.local_addr().unwrap().to_string(), "secret").spawn().unwrap();
    let wire = Wire::through(&proxy, &zero);
    eventually("a checkpoint", || folder.join("checkpoints/step-000002").exists());
    wire.cut();
    eventually("the end of the run", || leader.try_wait().unwrap().is_some());
    let (leader, follower) = (leader.wait_with_output().unwrap(), follower.wait_with_output().unwrap());
    for (ended, name) in [(leader, "rank 1 ("), (follower, "rank 0 (")] {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap();
        assert!(
            last.starts_with(&format!("error: {name}")) && last.contains("the connection ended"),
            "{said}"
        );
    }
    assert_eq!(leftovers(&folder), Vec::<String>::new());
}

#[test]
fn wrong_ranks_are_refused_before_anything_starts() {
    let refused = |arguments: &[&str]| {
        let arpo = Command::new(env!("CARGO_BIN_EXE_arpo")).arg("train").args(arguments).output().unwrap();
        (arpo.status.code(), String::from_utf8_lossy(&arpo.stderr).into_owned())
    };
    let scratch = scratch("wrong-ranks");
    let out = scratch.join("run").display().to_string();
    let set = |setting: &str| refused(&["--out", &out, "--gpus", "2", "--set", setting]);
    let (code, said) = set("learn.local=3");
    assert!(
        code == Some(2) && said.contains("`learn.local` = 3: expected at most `learn.ranks`, which is 2"),
        "{said}"
    );
    let (code, said) = set("learn.listen=\"0.0.0.0:0\"");
    assert!(code == Some(2) && said.contains("expected ARPO_CLUSTER_TOKEN in the environment"), "{said}");
    let (code, said) = set("learn.listen=\"nowhere\"");
    assert!(code == Some(2) && said.contains("expected an address of this machine"), "{said}");
    assert!(!Path::new(&out).exists());
    let (code, said) = refused(&["--join", "nowhere"]);
    assert!(code == Some(1) && said.contains("no rank 0 at nowhere"), "{said}");
}

#[test]
fn the_update_of_several_ranks_is_compared_with_that_of_one() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_arpo"));
    bench.args(["bench", "update", "--gpus", "2", "--screenshots", "1", "--updates", "1", "--json"]);
    let report: Value = serde_json::from_slice(&succeed(bench).stdout).unwrap();
    // what the memory plan leaves on a CPU
    assert_eq!(report["activation_gib"], 2.0);
    let field = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert!((field("ranks") - 2.0).abs() < f64::EPSILON);
    let expected = field("alone_seconds") / field("update_seconds");
    assert!((field("efficiency") - expected).abs() < 1e-9 && expected > 0.0);
    let (wait, backward) = (field("communication_wait_seconds"), field("backward_seconds"));
    assert!((0.0..=backward).contains(&wait), "{report}");
}
