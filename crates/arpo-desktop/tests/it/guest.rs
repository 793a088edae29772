//! The whole server over HTTP, as clients use it.

use crate::display::{Display, HEIGHT, WIDTH};
use arpo_core::generation::Generation;
use arpo_desktop::server::{Guest, router};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server on a free port, for as long as the test's process lives.
fn serve(generation: Generation, display: &str, token: Option<&str>, ready: bool) -> Client {
    let guest = Arc::new(Guest::new(generation, display, token.map(str::to_owned)));
    if ready {
        guest.set_ready();
    }
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            axum::serve(listener, router(guest)).await.unwrap();
        });
    });
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
    Client { agent, address: receive.recv().unwrap() }
}

struct Client {
    agent: ureq::Agent,
    address: SocketAddr,
}

impl Client {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let mut response = self.agent.get(self.url(path)).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_vec().unwrap())
    }

    fn send(&self, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut response = self.agent.post(self.url(path)).header("Content-Type", kind).send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_vec().unwrap())
    }

    fn json(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, answer) = self.send(path, "application/json", body.to_string().as_bytes());
        let words = || Value::String(String::from_utf8_lossy(&answer).into_owned());
        (status, serde_json::from_slice(&answer).unwrap_or_else(|_| words()))
    }

    fn form(&self, path: &str, body: &str) -> (u16, Vec<u8>) {
        self.send(path, "application/x-www-form-urlencoded", body.as_bytes())
    }

    fn upload(&self, path: &str, data: &[u8]) -> (u16, String) {
        let head = format!(
            "--edge\r\nContent-Disposition: form-data; name=\"file_path\"\r\n\r\n{path}\r\n--edge\r\n\
             Content-Disposition: form-data; name=\"file_data\"; filename=\"x\"\r\n\r\n"
        );
        let body = [head.as_bytes(), data, b"\r\n--edge--\r\n"].concat();
        let (status, answer) = self.send("/setup/upload", "multipart/form-data; boundary=edge", &body);
        (status, String::from_utf8(answer).unwrap())
    }
}

/// A server whose display is never asked for.
fn without_display(generation: Generation) -> Client {
    serve(generation, ":9999", None, true)
}

#[test]
fn a_guest_shows_its_screen_and_is_worked_on() {
    let Some(display) = Display::start() else { return };
    let client = serve(Generation::ArpoEra, &display.name, None, true);
    let (status, png) = client.get("/screenshot");
    assert_eq!((status, &png[..8]), (200, &b"\x89PNG\r\n\x1a\n"[..]));
    assert_eq!(
        client.form("/screen_size", "").1,
        json!({"width": WIDTH, "height": HEIGHT}).to_string().as_bytes()
    );
    let code = "import pyautogui; import time; pyautogui.FAILSAFE = False; pyautogui.moveTo(123, 45)";
    let (status, answer) =
        client.json("/execute", &json!({"command": ["python", "-c", code], "shell": false}));
    assert_eq!(
        (status, answer),
        (200, json!({"status": "success", "output": "", "error": "", "returncode": 0}))
    );
    assert_eq!(client.get("/cursor_position"), (200, b"[123,45]".to_vec()));
    let done = client.json("/setup/activate_window", &json!({"window_name": "nothing"}));
    assert_eq!(done, (200, json!("Window activated successfully")));
    assert_eq!(client.form("/window_size", "app_class_name=x").0, 500);
    assert_eq!(client.form("/window_size", "").0, 400);
    let echoed = client.json("/execute", &json!({"command": "echo $DISPLAY", "shell": true}));
    assert_eq!(echoed.1["output"], format!("{}\n", display.name));
}

#[test]
fn commands_are_answered_in_osworlds_shapes() {
    let client = without_display(Generation::ArpoEra);
    let run = |body: Value| client.json("/execute", &body);
    assert_eq!(
        run(json!({"command": "sh -c 'echo a; echo b >&2; exit 4'"})),
        (200, json!({"status": "success", "output": "a\n", "error": "b\n", "returncode": 4}))
    );
    let missing = "[Errno 2] No such file or directory: 'no-such-program'";
    assert_eq!(
        run(json!({"command": ["no-such-program"]})),
        (500, json!({"status": "error", "message": missing}))
    );
    assert_eq!(run(json!({"command": "a 'b"})).0, 500);
    let failing = run(json!({"command": ["python3", "-c", "import sys  # pyautogui\nsys.exit(3)"]})).1;
    assert_eq!(
        (&failing["status"], &failing["returncode"]),
        (&json!("error"), &json!(3)),
        "an action that failed"
    );
    for arguments in ["'ok.png'", "nan, 1"] {
        let code = format!("import pyautogui; pyautogui.click({arguments})");
        let request = json!({"command": ["python", "-c", code], "shell": false, "without_python": true});
        let (status, answer) = run(request);
        assert_eq!((status, &answer["status"], &answer["returncode"]), (200, &json!("error"), &json!(1)));
        assert!(answer["error"].as_str().unwrap().contains("does not support"), "{answer}");
    }
    let prints = "import pyautogui; import time; pyautogui.FAILSAFE = False; import platform; print(platform.system())";
    assert_eq!(run(json!({"command": ["python", "-c", prints]})).1["output"], "Linux\n");
    assert_eq!(
        client.json("/setup/launch", &json!({"command": "true x"})),
        (200, json!("true x launched successfully"))
    );
    assert_eq!(client.json("/setup/launch", &json!({"command": ["no-such-program"]})).0, 500);
    assert_eq!(client.send("/execute", "text/plain", b"{}").0, 415);
    assert_eq!(client.send("/execute", "application/json", b"{").0, 400);
    assert_eq!((client.get("/execute").0, client.get("/nowhere").0), (405, 404));
    assert_eq!(client.get("/platform"), (200, b"Linux".to_vec()));
}

#[test]
fn a_launched_command_is_not_waited_for() {
    let client = without_display(Generation::ArpoEra);
    let start = Instant::now();
    assert_eq!(
        client.json("/setup/launch", &json!({"command": "sleep 3 >/dev/null 2>&1", "shell": true})).0,
        200
    );
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[test]
fn files_go_in_and_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.bin");
    let text = path.to_str().unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let client = without_display(Generation::ArpoEra);
    assert_eq!(client.upload(text, &data), (200, "File Uploaded".into()));
    assert!(fs::read(&path).unwrap() == data);
    let (status, answer) = client.form("/file", &format!("file_path={}", text.replace(' ', "+")));
    assert!(status == 200 && answer == data);
    let (status, answer) = client.form("/file", "file_path=/no/such/file");
    assert_eq!((status, answer), (404, json!({"error": "File not found"}).to_string().into_bytes()));
    assert_eq!(client.form("/file", "").0, 400);
    assert_eq!(client.send("/setup/upload", "multipart/form-data; boundary=edge", b"--edge--\r\n").0, 400);

    let (status, tree) = client.json("/list_directory", &json!({"path": folder.path()}));
    assert_eq!((status, &tree["directory_tree"]["children"][0]["name"]), (200, &json!("a b.bin")));
    assert_eq!(client.json("/list_directory", &json!({"path": text})).0, 400);
}

#[test]
fn generations_differ() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/file");
    let text = path.to_str().unwrap();
    let old = without_display(Generation::ArpoEra);
    let new = without_display(Generation::Verified);
    assert_eq!(old.upload(text, b"abc").0, 500);
    assert!(!path.exists());
    assert_eq!(new.upload(text, b"abc"), (200, "File Uploaded: 3 bytes".into()));
    assert_eq!(new.upload(folder.path().to_str().unwrap(), b"abc").0, 500);
    let folder_as_file = format!("file_path={}", folder.path().display());
    assert!(old.form("/file", &folder_as_file).1.starts_with(b"<!doctype html>"));
    assert!(new.form("/file", &folder_as_file).1.starts_with(b"{\"error\":\"Failed to serve file"));

    let script = json!({"script": "echo out; echo err >&2; exit 3", "timeout": 10});
    assert_eq!(old.json("/run_bash_script", &script).0, 404);
    assert_eq!(
        new.json("/run_bash_script", &script),
        (200, json!({"status": "error", "output": "out\nerr\n", "error": "", "returncode": 3}))
    );
    assert_eq!(new.json("/run_bash_script", &json!({"script": "sleep 9", "timeout": 1})).0, 500);
    assert_eq!(new.json("/run_bash_script", &json!({})).0, 400);
    assert_eq!(new.json("/run_python", &json!({})).0, 400);

    let verified = json!({"command": ["true"], "verification": {"command_success": "true"}});
    let (status, answer) = new.json("/execute_with_verification", &verified);
    assert_eq!((status, &answer["verification"]), (200, &json!("passed")));
    let never = json!({"command": ["true"], "verification": {"command_success": "false"}, "max_wait_time": 0.2, "check_interval": 0.1});
    let (status, answer) = new.json("/setup/execute_with_verification", &never);
    assert_eq!((status, &answer["status"]), (500, &json!("verification_failed")));
    assert_eq!(old.json("/execute_with_verification", &verified).0, 404);
}

#[test]
fn nobody_is_let_in_without_the_token() {
    let client = serve(Generation::ArpoEra, ":9999", Some("secret"), true);
    assert_eq!(client.get("/platform").0, 401);
    let ask = |header: &str| {
        let request = client.agent.get(client.url("/platform")).header("Authorization", header);
        request.call().unwrap().status().as_u16()
    };
    assert_eq!((ask("Bearer secret"), ask("Bearer secre"), ask("secret")), (200, 401, 401));
}

#[test]
fn nothing_is_answered_before_there_is_a_display() {
    let client = serve(Generation::ArpoEra, ":9999", None, false);
    let (status, body) = client.get("/platform");
    assert_eq!(status, 503);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["status"], "error");
    // and one that is lost later is not there either
    assert_eq!(without_display(Generation::ArpoEra).get("/screenshot").0, 503);
}

#[test]
fn what_is_missing_is_said() {
    let client = without_display(Generation::ArpoEra);
    for (path, status) in [
        ("/setup/open_file", 400),
        ("/setup/activate_window", 400),
        ("/setup/close_window", 400),
        ("/setup/change_wallpaper", 400),
        ("/setup/download_file", 400),
        ("/list_directory", 400),
    ] {
        assert_eq!(client.json(path, &json!({})).0, status, "{path}");
    }
    assert_eq!(client.json("/setup/open_file", &json!({"path": "/no/such/file"})).0, 404);
    assert_eq!(client.json("/setup/change_wallpaper", &json!({"path": "/no/such/file"})).0, 404);
    assert_eq!(client.form("/end_recording", "").0, 400);
}
