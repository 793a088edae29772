//! `arpo eval` on OSWorld's tasks, with a fake guest whose commands print `yes`.

use crate::commands::arpo;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

const SOLVED: &str = "aaaaaaaa-0000-0000-0000-000000000000";
const HOPELESS: &str = "bbbbbbbb-0000-0000-0000-000000000000";

/// A fake guest whose commands print `yes`.
fn guest() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(64, 48, image::Rgb([7, 8, 9]))
        .write_to(&mut png, image::ImageFormat::Png)
        .unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            let path = loop {
                let count = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let head = text.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
                let length =
                    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let whole = text.find("\r\n\r\n").map_or(usize::MAX, |end| end + 4 + length.unwrap_or(0));
                if count == 0 || request.len() >= whole {
                    break text.split(' ').nth(1).unwrap_or_default().to_owned();
                }
            };
            let body: &[u8] = match path.as_str() {
                "/screenshot" => png.get_ref(),
                "/screen_size" => br#"{"width": 64, "height": 48}"#,
                _ => br#"{"status": "success", "output": "yes", "error": "", "returncode": 0}"#,
            };
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    address
}

fn write_tasks(folder: &Path) {
    let evaluators = [
        (
            SOLVED,
            r#"{"func": "exact_match", "result": {"type": "vm_command_line", "command": ["answer"]},
                "expected": {"type": "rule", "rules": {"expected": "yes"}}}"#,
        ),
        (HOPELESS, r#"{"func": "infeasible"}"#),
    ];
    fs::create_dir_all(folder.join("examples/os")).unwrap();
    for (id, evaluator) in evaluators {
        let text =
            format!(r#"{{"id": "{id}", "instruction": "Say yes.", "config": [], "evaluator": {evaluator}}}"#);
        fs::write(folder.join(format!("examples/os/{id}.json")), text).unwrap();
    }
    fs::write(folder.join("list.json"), format!(r#"{{"os": ["{SOLVED}", "{HOPELESS}"]}}"#)).unwrap();
    let script = format!(r#"{{"{SOLVED}": ["click(start_box='(10,20)')"], "{HOPELESS}": []}}"#);
    fs::write(folder.join("script.json"), script).unwrap();
}

#[test]
fn tasks_are_evaluated_saved_resumed_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    write_tasks(folder.path());
    let (address, list, tasks) = (guest(), path("list.json"), path(""));
    let (script, results) = (path("script.json"), path("results"));
    let settings =
        ["osworld.settle_seconds=0", "osworld.pause_seconds=0", "osworld.offline=true"].map(str::to_owned);
    let cache = format!("osworld.cache={}", path("cache"));
    let mut arguments =
        vec!["eval", "--vm", &address, "--script", &script, "--result_dir", &results, "--hard"];
    arguments.extend(["--test_all_meta_path", &list, "--test_config_base_dir", &tasks, "--trial-id", "3"]);
    for setting in settings.iter().chain([&cache]) {
        arguments.extend(["--set", setting]);
    }
    let first = arpo(&arguments);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(first.stdout.contains("os                       2  0.500"), "{}", first.stdout);
    let of = |task: &str| folder.path().join("results/pyautogui/screenshot/script/3/os").join(task);
    assert_eq!(fs::read_to_string(of(SOLVED).join("result.txt")).unwrap(), "1.0\n");
    assert_eq!(fs::read_to_string(of(HOPELESS).join("result.txt")).unwrap(), "0.0\n");
    let lines = fs::read_to_string(of(SOLVED).join("traj.jsonl")).unwrap();
    assert!(lines.lines().next().unwrap().contains("pyautogui.click(10.0, 20.0, button='left')"), "{lines}");
    assert!(lines.lines().nth(1).unwrap().contains("\"DONE\""), "{lines}");

    // only tasks without a result are evaluated again
    fs::remove_file(of(HOPELESS).join("result.txt")).unwrap();
    let again = arpo(&arguments);
    assert!(again.stderr.contains("1 of 2 tasks to evaluate"), "{}", again.stderr);
    let shown = arpo(&["eval", "--show", &results]);
    assert_eq!((shown.code, shown.stdout.lines().count()), (0, 3), "{}", shown.stdout);
}

/// The desktop is judged as it is: a set-up step that would fail is not run.
#[test]
fn a_running_desktop_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    write_tasks(folder.path());
    let (address, cache) = (guest(), format!("osworld.cache={}", folder.path().join("cache").display()));
    let judged = |id: &str, more: &[&str]| {
        let path = folder.path().join(format!("examples/os/{id}.json"));
        let setup = r#""config": [{"type": "download", "parameters":
            {"files": [{"url": "file:///nowhere", "path": "/a"}]}}]"#;
        let text = fs::read_to_string(&path).unwrap().replace(r#""config": []"#, setup);
        fs::write(&path, text).unwrap();
        let mut arguments = vec!["osworld", "judge", path.to_str().unwrap(), "--desktop", &address];
        arguments.extend(["--set", &cache, "--set", "osworld.offline=true"]);
        arguments.extend(more);
        let ran = arpo(&arguments);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    assert_eq!(judged(SOLVED, &[]), "1\n");
    assert_eq!(judged(SOLVED, &["--gave-up"]), "0\n");
    assert_eq!(judged(HOPELESS, &[]), "0\n");
    assert_eq!(judged(HOPELESS, &["--gave-up"]), "1\n");
}

/// The command line of OSWorld's script is accepted; it fails only because no server responds.
#[test]
fn a_command_line_of_osworlds_script_works() {
    let mut arguments = vec!["eval", "--headless", "--observation_type", "screenshot", "--max_steps", "15"];
    arguments.extend(["--max_trajectory_length", "15", "--temperature", "0.6", "--model", "ui-tars"]);
    arguments.extend([
        "--action_space",
        "pyautogui",
        "--num_envs",
        "8",
        "--result_dir",
        "none",
        "--trial-id",
        "0",
    ]);
    arguments.extend([
        "--test_all_meta_path",
        "none.json",
        "--server_ip",
        "http://127.0.0.1",
        "--server_port",
        "1",
    ]);
    let ran = arpo(&arguments);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("error: no chat server responds at http://127.0.0.1:1/v1, "),
        "{}",
        ran.stderr
    );
    let other = arpo(&["eval", "--action_space", "computer_13", "--suite", "osworld"]);
    assert_eq!((other.code, other.stderr.contains("expected pyautogui")), (2, true), "{}", other.stderr);
}

/// They have the bounds of the keys that they set.
#[test]
fn wrong_values_of_osworlds_options_are_errors_of_one_line() {
    for (option, message) in [
        ("--num_envs=0", "--num_envs 0: `collect.desktops` = 0: expected a whole number from 1 to 10000"),
        (
            "--sleep_after_execution=-1",
            "--sleep_after_execution -1.0: `osworld.pause_seconds` = -1.0: expected a number from 0 to 3600",
        ),
        (
            "--sleep_after_execution=inf",
            "--sleep_after_execution inf: `osworld.pause_seconds` = inf: expected a number from 0 to 3600",
        ),
        ("--max_steps=0", "--max_steps 0: `collect.max_steps` = 0: expected a whole number from 1 to 10000"),
        (
            "--max_tokens=0",
            "--max_tokens 0: `agent.max_tokens` = 0: expected a whole number from 1 to 100000",
        ),
        (
            "--max_trajectory_length=10001",
            "--max_trajectory_length 10001: `osworld.give_up_at` = 10001: expected a whole number from 0 to 10000",
        ),
        ("--top_p=0", "--top_p 0.0: `chat.top_p` = 0.0: expected a number from 0.01 to 1"),
        (
            "--temperature=nan",
            "--temperature NaN: `evaluation.temperature` = \"NaN\": expected a number from 0 to 10",
        ),
    ] {
        for suite in ["pocket", "osworld"] {
            // a --set does not win over them
            let ran = arpo(&["eval", "--suite", suite, "--set", "collect.desktops=2", option]);
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{option}: {}", ran.stderr);
            assert_eq!(ran.stderr, format!("error: {message}\n"));
        }
    }
}

#[test]
fn missing_folders_are_named() {
    let nowhere =
        arpo(&["eval", "--suite", "osworld", "--set", "osworld.tasks=/nowhere", "--policy", "chat"]);
    assert_eq!(nowhere.code, 2);
    assert!(nowhere.stderr.contains("`osworld.tasks` = \"/nowhere\": no such folder"), "{}", nowhere.stderr);
    assert_eq!(arpo(&["eval", "--show", "/nowhere"]).code, 1);
}
