//! Commands as a user runs them: their output and exit codes.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn arpo(arguments: &[&str]) -> Ran {
    ran(Command::new(env!("CARGO_BIN_EXE_arpo")).args(arguments))
}

fn ran(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

/// A temporary file.
fn temporary(name: &str, text: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("arpo-{}-{name}", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn dry_run_prints_the_resolved_configuration() {
    let quick = arpo(&["train", "--dry-run", "--preset", "quick"]);
    assert_eq!((quick.code, quick.stderr.as_str()), (0, ""));
    let table: toml::Table = quick.stdout.parse().unwrap();
    assert_eq!(table["optimiser"]["learning_rate"].as_float(), Some(1e-4));
    assert_eq!(table["loss"]["clip_high"].as_float(), Some(0.3), "defaults are there too");
    let default = arpo(&["train", "--dry-run"]).stdout;
    assert_eq!(configuration(&default), configuration(&quick.stdout), "quick is the default");

    let json = arpo(&["train", "--dry-run", "--json", "--preset", "paper", "--set", "replay.enabled=false"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["replay"]["enabled"], false);
    assert_eq!(json["reward"]["format_weight"], 1.0);
}

#[test]
fn the_output_of_dry_run_is_a_valid_configuration() {
    let printed = arpo(&["train", "--dry-run", "--preset", "released", "--set", "seed=7"]).stdout;
    let path = temporary("printed.toml", &printed);
    let again = arpo(&["train", "--dry-run", "--config", path.to_str().unwrap()]);
    fs::remove_file(path).unwrap();
    assert_eq!(configuration(&again.stdout), configuration(&printed));
}

/// The output of `--dry-run` without its comments on memory, which depend on other programs.
fn configuration(printed: &str) -> Vec<&str> {
    printed.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn errors_are_one_line_and_exit_2() {
    let unknown = temporary("unknown.toml", "[loss]\nclip_hihg = 0.3\n");
    let unknown = unknown.to_str().unwrap();
    for (arguments, message) in [
        (["--set", "loss.clip_hihg=0.3"], "error: --set loss.clip_hihg=0.3: `loss.clip_hihg` = 0.3: there is no such key; did you mean `loss.clip_high`?\n".to_owned()),
        (["--set", "loss.clip_high=wide"], "error: --set loss.clip_high=wide: `loss.clip_high` = \"wide\": expected a number from 0 to 100\n".to_owned()),
        (["--set", "collect.group_size=0"], "error: --set collect.group_size=0: `collect.group_size` = 0: expected a whole number from 2 to 10000\n".to_owned()),
        (["--preset", "fast"], "error: --preset: there is no preset \"fast\": expected one of quick, gspo, sapo, paper, released, osworld, osworld-subset32\n".to_owned()),
        (["--config", "nowhere.toml"], "error: --config nowhere.toml: No such file or directory (os error 2)\n".to_owned()),
        (["--config", unknown], format!("error: {unknown}: `loss.clip_hihg` = 0.3: there is no such key; did you mean `loss.clip_high`?\n")),
    ] {
        let ran = arpo(&[&["train", "--dry-run"][..], &arguments[..]].concat());
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (2, "", message));
    }
    fs::remove_file(unknown).unwrap();
    for (arguments, message) in [
        (["--minutes", "inf"], "--minutes inf: expected a number, at least 0, or no --minutes for no limit"),
        (
            ["--minutes", "1e300"],
            "--minutes 1e300: expected a number, at least 0, or no --minutes for no limit",
        ),
        (["--minutes", "nan"], "--minutes NaN: expected a number, at least 0, or no --minutes for no limit"),
        (
            ["--weight", "editor=4000000000"],
            "--weight editor=4000000000: expected a whole number from 0 to 1000",
        ),
    ] {
        let ran = arpo(&[&["sft", "--out", "nowhere"][..], &arguments[..]].concat());
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (2, "", format!("error: {message}\n")));
    }
    for (arguments, message) in [
        (
            &["--model", "none"][..],
            "model \"none\" does not exist: expected \"pocket\" or the folder of a Qwen2.5-VL or Qwen3-VL checkpoint",
        ),
        (
            &["--model", "pocket", "--family", "qwen3-vl"],
            "pocket: `model_type` is \"qwen2_5_vl\": expected \"qwen3_vl\", which --family names",
        ),
        (
            &["--updates", "2800", "--until", "0.4"],
            "--updates 2800: --until needs episodes, which begin after 2800 updates on letters and questions: expected more \
             updates, or fewer --letter-updates or --grounding-updates",
        ),
    ] {
        let ran = arpo(&[&["sft", "--out", "nowhere"][..], arguments].concat());
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (2, "", format!("error: {message}\n")));
    }
    assert!(!PathBuf::from("nowhere").exists(), "checked before a folder is created");
    assert_eq!(arpo(&["train", "--no-such-flag"]).code, 2);
    assert_eq!(arpo(&["no-such-command"]).code, 2);
}

#[test]
fn numbers_out_of_bounds_are_rejected_before_anything_starts() {
    for (arguments, expected) in [
        ("serve --max-queue 1000001", "1000001 is not in 0..=1000000"),
        ("serve --max-queue 18446744073709551615", "for '--max-queue <COUNT>'"),
        ("serve --max-running 0", "0 is not in 1..=10000"),
        ("serve --max-running 18446744073709551615", "for '--max-running <COUNT>'"),
        ("eval --trial-id 4294967295", "4294967295 is not in 0..=1000000"),
        ("eval --samples 0", "0 is not in 1..=10000"),
        ("eval --samples 10001", "10001 is not in 1..=10000"),
        ("eval --samples 18446744073709551615", "for '--samples <N>'"),
        ("rollout --out nowhere --samples 0", "0 is not in 1..=10000"),
    ] {
        let ran = arpo(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments}: {}", ran.stderr);
        let line = ran.stderr.lines().next().unwrap();
        assert!(line.starts_with("error: invalid value ") && line.contains(expected), "{line}");
    }
}

#[test]
fn doctor_finds_the_default_preset_ready() {
    let ran = arpo(&["doctor"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.lines().last().unwrap().starts_with("ready: "));

    let json: serde_json::Value = serde_json::from_str(&arpo(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(json["ready"], true);
    let findings = json["findings"].as_array().unwrap();
    let names: Vec<&str> = findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["libtorch", "processor", "CUDA", "Docker", "Ray", "tesseract"]);
    for finding in findings {
        let there = finding["status"] == "usable";
        assert!(there || !finding["detail"].as_str().unwrap().is_empty(), "{finding}");
        assert!(!there || finding["command"].is_null(), "{finding}");
    }
}

#[test]
fn doctor_names_a_wrong_libtorch() {
    let ran = ran(Command::new(env!("CARGO_BIN_EXE_arpo")).arg("doctor").env("LIBTORCH", "/nowhere"));
    assert_eq!(ran.code, 1);
    let line = ran.stdout.lines().find(|line| line.contains("libtorch")).unwrap();
    assert!(
        line.contains("broken") && line.contains("LIBTORCH=/nowhere has no lib/libtorch_cpu.so"),
        "{line}"
    );
    assert!(ran.stdout.lines().last().unwrap().starts_with("not ready: "));
}

/// `LIBTORCH` at run time wins over the folder of the build: here the same libraries under another name.
#[test]
fn doctor_uses_the_libtorch_of_the_environment_variable() {
    let json = |command: &mut Command| -> serde_json::Value {
        serde_json::from_str(&ran(command.args(["doctor", "--json"])).stdout).unwrap()
    };
    let libtorch_line = |json: &serde_json::Value| json["findings"][0]["detail"].as_str().unwrap().to_owned();
    let built = env::var("LIBTORCH").map(PathBuf::from).expect("cargo's configuration sets it");
    let other = env::temp_dir().join(format!("arpo-libtorch-copy-{}", std::process::id()));
    fs::create_dir_all(other.join("lib")).unwrap();
    for entry in fs::read_dir(built.join("lib")).unwrap() {
        let file = entry.unwrap().path();
        // hard links have a path of their own, as copies would, without their size
        if fs::hard_link(&file, other.join("lib").join(file.file_name().unwrap())).is_err() {
            fs::copy(&file, other.join("lib").join(file.file_name().unwrap())).unwrap();
        }
    }
    fs::copy(built.join("version.py"), other.join("version.py")).unwrap();
    let told = json(Command::new(env!("CARGO_BIN_EXE_arpo")).env("LIBTORCH", &other));
    let detail = libtorch_line(&told);
    let here = other.canonicalize().unwrap().join("lib").display().to_string();
    fs::remove_dir_all(&other).unwrap();
    assert!(detail.contains(&here), "{detail}");
}

/// A program that never returns, and leaves a child behind that keeps the pipe open, is reported as broken in time.
#[test]
fn doctor_has_a_deadline_for_every_check() {
    let folder = env::temp_dir().join(format!("arpo-hanging-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("ray");
    fs::write(&script, "#!/bin/sh\nsleep 60 &\nsleep 60\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), env::var("PATH").unwrap());
    let started = Instant::now();
    let ran = ran(Command::new(env!("CARGO_BIN_EXE_arpo")).args(["doctor", "--json"]).env("PATH", path));
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let ray = json["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "Ray").unwrap();
    assert_eq!(ray["detail"], "no response after 20 s");
    assert!(started.elapsed() < Duration::from_secs(50));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_arpo"))
        .args(["config", "reference"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), String::from_utf8(stderr).unwrap().as_str()), (Some(0), ""));
}

/// `./x help` names every command there is.
#[test]
fn the_entry_script_knows_every_command() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../x");
    let listed = ran(Command::new(script).arg("help")).stdout;
    let help = arpo(&["--help"]).stdout;
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"train"), "{help}");
    for name in names.iter().filter(|name| **name != "help") {
        assert!(
            listed.lines().any(|line| line.split_whitespace().next() == Some(name)),
            "./x help lacks {name}"
        );
    }
}

#[test]
fn osworld_metrics_score_values_and_cases() {
    let file = temporary("a.txt", "same\n");
    let name = file.file_name().unwrap().to_str().unwrap();
    let cases = temporary(
        "cases.json",
        &format!(
            r#"[{{"id": "equal", "func": "exact_match", "result": "x", "expected": {{"expected": "x"}}}},
                {{"id": "files", "func": "compare_text_file", "result": {{"file": "{name}"}},
                  "expected": {{"file": "{name}"}}}},
                {{"id": "unknown", "func": "no_such_metric", "result": 1}}]"#
        ),
    );
    let ran = arpo(&["osworld", "score", "--cases", cases.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let scores: Vec<_> = lines.iter().map(|line| line["score"].to_string()).collect();
    assert_eq!(scores, ["1.0", "1.0", "0.0"], "{}", ran.stdout);
    assert!(lines[2]["error"].as_str().unwrap().contains("no_such_metric"), "{}", lines[2]);
    let path = file.to_str().unwrap();
    let ran =
        arpo(&["osworld", "score", "--func", "compare_text_file", "--result", path, "--expected", "nowhere"]);
    assert_eq!((ran.code, ran.stdout.trim()), (1, ""));
    assert!(ran.stderr.contains("no such file: nowhere"), "{}", ran.stderr);
    let ran =
        arpo(&["osworld", "score", "--func", "compare_text_file", "--result", path, "--expected", path]);
    assert_eq!((ran.code, ran.stdout.trim()), (0, "1"), "{}", ran.stderr);
    let ran = arpo(&["osworld", "coverage", "--tasks", "/no/such/folder"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("/no/such/folder"), "{}", ran.stderr);
}
