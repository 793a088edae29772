//! MLflow's requests, against a server of a few lines. The real one: `tests/trackers/run.sh`.

use crate::{append, new_run};
use arpo_core::config::LoggingConfig;
use arpo_track::{Ending, follow};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Requests: the path and the body.
type Requests = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that answers the first `failures` requests for batches with 503.
fn server(failures: usize) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || {
        let mut failures = failures;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut header = String::new();
                if reader.read_line(&mut header).unwrap() == 0 || header == "\r\n" {
                    break;
                }
                if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let (status, answer) = if path.contains("get-by-name") {
                (404, json!({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}))
            } else if path.contains("log-batch") && failures > 0 {
                failures -= 1;
                (503, json!({"message": "starting"}))
            } else if path.contains("runs/create") {
                (200, json!({"run": {"info": {"run_id": "r1"}}}))
            } else {
                (200, json!({"experiment_id": "5"}))
            };
            if status != 503 {
                seen.lock().unwrap().push((path, body));
            }
            let answer = answer.to_string();
            let length = answer.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
            );
        }
    });
    (address, requests)
}

fn config(server: String) -> LoggingConfig {
    LoggingConfig {
        to: vec!["mlflow".into()],
        mlflow_server: server,
        project: "desk top".into(),
        name: "seven".into(),
        ..LoggingConfig::default()
    }
}

#[test]
fn a_run_is_sent_once_through_a_busy_server() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    new_run(run);
    append(run, 0, 0.25);
    append(run, 1, 0.5);
    let (address, requests) = server(1);
    let notices = follow(run, &config(address.clone())).end(Ending::Finished);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("503: starting") && notices[0].ends_with("it is tried again"), "{notices:?}");
    let seen = std::mem::take(&mut *requests.lock().unwrap());
    let paths: Vec<&str> = seen.iter().map(|(path, _)| path.rsplit("mlflow/").next().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "experiments/get-by-name?experiment_name=desk%20top",
            "experiments/create",
            "runs/create",
            "runs/log-batch",
            "runs/log-batch",
            "runs/log-batch",
            "runs/update"
        ]
    );
    assert_eq!(seen[2].1["run_name"], "seven");
    let parameters = seen[3].1["params"].as_array().unwrap();
    assert!(parameters.contains(&json!({"key": "loss.clip_low", "value": "0.2"})), "{parameters:?}");
    let expected =
        json!({"key": "reward/score", "value": 0.5, "timestamp": 1_700_000_001_500_u64, "step": 1});
    assert_eq!(seen[5].1["metrics"], json!([expected]));
    assert_eq!(seen[6].1["status"], "FINISHED");

    // later only what is new goes to the same run
    append(run, 2, 1.0);
    assert!(follow(run, &config(address)).end(Ending::Failed).is_empty());
    let seen = requests.lock().unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!((&seen[0].1["run_id"], &seen[0].1["metrics"][0]["step"]), (&json!("r1"), &json!(2)));
    assert_eq!(seen[1].1["status"], "FAILED");
}

#[test]
fn a_server_that_refuses_is_one_notice() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    new_run(run);
    append(run, 0, 0.25);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = write!(stream, "HTTP/1.1 401 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let notices = follow(run, &config(address)).end(Ending::Finished);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("status 401"), "{notices:?}");
}
