//! `arpo serve` as a user runs it, `arpo eval` against it, and `arpo bench serve`.

use crate::commands::arpo;
use crate::stopping::{ended, interrupt};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server with the pocket model, and its address.
fn start(options: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_arpo"))
        .args(["serve", "--port", "0"])
        .args(options)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
    (child, url.unwrap_or_else(|| panic!("no address in {line:?}")))
}

/// The status and the response.
fn ask(url: &str, key: &str, body: &Value) -> (u16, Value) {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_mins(1)))
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .new_agent();
    let request = agent.post(format!("{url}/chat/completions")).header("Content-Type", "application/json");
    let request = request.header("Authorization", format!("Bearer {key}"));
    let mut response = request.send(body.to_string()).unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap())
}

#[test]
fn a_server_answers_until_it_is_stopped() {
    let (child, url) = start(&["--name", "mine", "--api-key", "secret"]);
    let body = json!({"model": "mine", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3});
    let (status, response) = ask(&url, "secret", &body);
    assert_eq!((status, &response["object"]), (200, &json!("chat.completion")), "{response}");
    assert_eq!(ask(&url, "other", &body).0, 401);
    interrupt(&child);
    assert_eq!(ended(child).code(), Some(130));
}

/// Greedy responses over HTTP are those of the built-in engine, so tasks are solved or not as with it.
#[test]
fn an_evaluation_over_chat_gives_the_same_scores() {
    let (child, url) = start(&[]);
    let scores = |more: &[&str]| {
        let common = [
            "eval",
            "--greedy",
            "--samples",
            "1",
            "--json",
            "--quiet",
            "--set",
            "tasks.list=quick",
            "--set",
            "tasks.count=12",
        ];
        let ran = arpo(&[&common, more].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["tasks"].clone()
    };
    let servers = format!("chat.servers={url}");
    let served = scores(&["--policy", "chat", "--model", "pocket", "--set", &servers]);
    let own = scores(&[]);
    interrupt(&child);
    assert_eq!(ended(child).code(), Some(130));
    assert_eq!(served.as_array().unwrap().len(), 12);
    assert_eq!(served, own);
}

#[test]
fn other_machines_need_a_key() {
    let ran = arpo(&["serve", "--host", "0.0.0.0", "--port", "0"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("expected a key in the variable ARPO_API_KEY"), "{}", ran.stderr);
    let ran = arpo(&["serve", "--model", "/nowhere", "--port", "0"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("does not exist"), "{}", ran.stderr);
}

#[test]
fn a_benchmark_reports_every_number_of_clients() {
    let ran = arpo(&[
        "bench",
        "serve",
        "--clients",
        "1,3",
        "--episodes",
        "1",
        "--turns",
        "2",
        "--tokens",
        "4",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let reports: Value = serde_json::from_str(&ran.stdout).unwrap();
    for (report, clients) in reports.as_array().unwrap().iter().zip([1, 3]) {
        assert_eq!((&report["clients"], &report["requests"]), (&json!(clients), &json!(2 * clients)));
        assert!(report["cached"].as_f64().unwrap() > 0.2, "the second turn finds the first: {report}");
        let first = report["first_token_median"].as_f64().unwrap();
        assert!(first <= report["response_median"].as_f64().unwrap(), "{report}");
    }
}

/// Random weights sample any id of the model.
#[test]
fn a_saved_model_can_be_served() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("model");
    let folder = folder.to_str().unwrap();
    let saved = arpo(&["bench", "serve", "--save", folder]);
    assert_eq!(saved.code, 0, "{}", saved.stderr);
    let (child, url) = start(&["--model", folder, "--device", "cpu"]);
    let body = json!({
        "model": folder, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, "seed": 1,
        "temperature": 1.0, "ignore_eos": true,
    });
    let (status, response) = ask(&url, "", &body);
    interrupt(&child);
    assert_eq!(ended(child).code(), Some(130));
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["usage"]["completion_tokens"], 64);
    let text = response["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty());
}
