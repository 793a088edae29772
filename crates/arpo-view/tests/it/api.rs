//! What the server answers, and what it refuses.

use crate::fixture::{Served, client, plan};
use arpo_view::testing::{Plan, SyntheticRun};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A request as it is written, and everything that comes back.
fn raw(served: &Served, request: &str) -> String {
    let mut stream = TcpStream::connect(served.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn runs_metrics_and_increments() {
    let served = Served::run();
    let runs = served.json("/api/runs");
    let run = &runs["runs"][0];
    assert_eq!(
        (&run["id"], &run["state"], &run["iterations"]),
        (&json!("run"), &json!("finished"), &json!(12.0))
    );
    let all = served.json("/api/runs/run/metrics");
    assert_eq!((&all["from"], &all["rows"]), (&json!(0), &json!(13)));
    assert_eq!(all["columns"]["iteration"].as_array().unwrap().len(), 13);
    assert_eq!(all["columns"]["evaluation/training"][1], Value::Null, "no evaluation after iteration 1");
    let generation = &all["generation"];
    let some = served.json(&format!("/api/runs/run/metrics?from=10&generation={generation}"));
    assert_eq!(some["columns"]["iteration"], json!([10.0, 11.0, 12.0]));
    // what the page has is of another file: everything again
    let again = served.json("/api/runs/run/metrics?from=10&generation=99");
    assert_eq!(again["from"], json!(0));
}

#[test]
fn episodes_are_filtered_ordered_and_paged() {
    let served = Served::run();
    let page = |query: &str| served.json(&format!("/api/runs/run/episodes?{query}"));
    let all = page("limit=500");
    let rows = all["rows"].as_array().unwrap();
    assert_eq!((all["total"].as_u64(), rows.len()), (Some(144), 144));
    let count = |fits: &dyn Fn(&Value) -> bool| rows.iter().filter(|row| fits(row)).count() as u64;
    for (query, expected) in [
        ("score=solved", count(&|row| row["score"].as_f64() > Some(0.5))),
        ("outcome=step_limit", count(&|row| row["outcome"] == "step_limit")),
        ("origin=replayed", count(&|row| row["origin"] == "replayed")),
        ("from=3&to=4", count(&|row| (3..=4).contains(&row["iteration"].as_u64().unwrap()))),
        ("search=OPEN-2", count(&|row| row["task"].as_str().unwrap().ends_with("open-2"))),
        ("task=pocket-files-open-0", count(&|row| row["task"] == "pocket-files-open-0")),
        ("task=none", 0),
    ] {
        let found = page(&format!("{query}&limit=1"));
        assert_eq!(found["total"].as_u64(), Some(expected), "{query}");
        assert_eq!(found["rows"].as_array().unwrap().len() as u64, expected.min(1), "{query}");
    }
    assert!(count(&|row| row["score"] == json!(1.0)) > 0 && count(&|row| row["outcome"] == "step_limit") > 0);
    let by_turns = page("sort=turns&offset=3&limit=4");
    let turns: Vec<u64> =
        by_turns["rows"].as_array().unwrap().iter().map(|row| row["turns"].as_u64().unwrap()).collect();
    assert!(turns.len() == 4 && turns.is_sorted_by(|a, b| a >= b));
    let (status, body) = served.get("/api/runs/run/episodes?outcome=great");
    assert_eq!(status, 400);
    assert!(body["error"].as_str().unwrap().contains("expected finished, step_limit"), "{body}");
    assert_eq!(served.get("/api/runs/run/episodes?offset=x").0, 400);
}

#[test]
fn an_episode_its_group_and_the_first_divergence() {
    let served = Served::run();
    let rows = served.json("/api/runs/run/episodes?from=12&limit=500");
    let row = &rows["rows"][0];
    let (file, id) = (row["file"].as_str().unwrap(), row["id"].as_str().unwrap());
    let answer = served.json(&format!("/api/runs/run/episode?file={file}&id={id}"));
    assert_eq!(answer["row"], *row);
    let group = answer["group"].as_array().unwrap();
    assert_eq!(group.len(), 4);
    let sum: f64 = group.iter().map(|member| member["advantage"].as_f64().unwrap()).sum();
    assert!(sum.abs() < 1e-9, "a group's advantages sum to 0");
    let other = group.iter().find(|member| member["id"] != *id).unwrap()["id"].as_str().unwrap();
    let divergence = served.json(&format!("/api/runs/run/divergence?file={file}&id={id}&other={other}"));
    assert!(divergence["turn"].as_u64().is_some());
    let same = served.json(&format!("/api/runs/run/divergence?file={file}&id={id}&other={id}"));
    assert_eq!(same["turn"], Value::Null);
    // the screenshot, and a small version of it
    let digest = answer["episode"]["steps"][0]["screen"]["digest"].as_str().unwrap();
    let size = |path: String| {
        let mut response = client().get(served.url(&path)).call().unwrap();
        assert_eq!(response.headers()["content-type"], "image/png");
        let bytes = response.body_mut().read_to_vec().unwrap();
        let image = image::load_from_memory(&bytes).unwrap();
        (image.width(), image.height())
    };
    assert_eq!(size(format!("/screens/run/{digest}.png")), (320, 200));
    assert_eq!(size(format!("/screens/run/{digest}.png?width=64")), (64, 40));
    assert_eq!(size("/live/run/0.png".into()), (320, 200));
    let task = served.json(&format!("/api/runs/run/task?task={}", row["task"].as_str().unwrap()));
    assert!(task["curves"]["training"].as_array().unwrap().len() == 3);
    assert!(task["episodes"]["total"].as_u64() > Some(0));
    assert_eq!(task["replay"], Value::Null, "there is no checkpoint");
    assert_eq!(served.get("/api/runs/run/task?task=none").0, 404);
}

#[test]
fn the_replay_buffer_of_a_task_is_that_of_the_last_checkpoint() {
    let served = Served::run();
    let checkpoint = served.path("run/checkpoints/step-000010");
    fs::create_dir_all(&checkpoint).unwrap();
    let stored = json!({"id": "3:pocket-files-open-0:1", "policy_version": 2, "score": 1.0, "slices": []});
    let state =
        json!({"iteration": 10, "replay": {"successes": {"pocket-files-open-0": [stored]}}, "more": {}});
    fs::write(checkpoint.join("state.json"), state.to_string()).unwrap();
    let task = served.json("/api/runs/run/task?task=pocket-files-open-0");
    assert_eq!(task["replay"]["iteration"], 10);
    assert_eq!(task["replay"]["successes"][0]["policy_version"], 2);
}

#[test]
fn paths_never_leave_the_run() {
    let served = Served::with(None, |root| {
        SyntheticRun::whole(&root.join("run"), plan(), 7).unwrap();
        fs::write(root.join("secret.png"), "secret").unwrap();
        fs::write(root.join("secret.jsonl"), "secret\n").unwrap();
        // an index that somebody has written to lead elsewhere
        let line = json!({"id": "x", "task": "t", "file": "../../secret.jsonl", "offset": 0, "length": 6});
        let index = root.join("run/episodes/index.jsonl");
        let text = fs::read_to_string(&index).unwrap();
        fs::write(index, format!("{text}{line}\n")).unwrap();
    });
    for path in [
        "/screens/run/..%2F..%2Fsecret.png",
        "/screens/run/%2e%2e%2f%2e%2e%2fsecret.png",
        "/screens/run/..",
        "/screens/run/ab.png",
        "/screens/run/a%00bcd.png",
        "/screens/run/%2Fetc%2Fpasswd",
        "/screens/..%2Frun/abcd.png",
        "/live/run/..%2F..%2Fsecret.png",
        "/live/run/-1.png",
        "/api/runs/..%2F/metrics",
        "/api/runs/run/episode?file=..%2F..%2Fsecret.jsonl&id=x",
        "/api/runs/run/episode?file=%2Fetc%2Fpasswd&id=x",
        "/assets/..%2FCargo.toml",
        "/assets/index.html",
    ] {
        let mut response = client().get(served.url(path)).call().unwrap();
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().unwrap_or_default();
        assert!((400..500).contains(&status), "{path}: {status}");
        assert!(!text.contains("secret\n") && text != "secret" && !text.contains("root:"), "{path}: {text}");
    }
    let plain = raw(
        &served,
        "GET /screens/run/../../secret.png HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    assert!(plain.starts_with("HTTP/1.1 404"), "{plain}");
    assert_eq!(
        served.json("/api/runs")["runs"][0]["bad_lines"],
        1,
        "the line that leads elsewhere is a bad one"
    );
}

#[test]
fn only_get_and_only_the_programs_own_code() {
    let served = Served::run();
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"] {
        let text = raw(
            &served,
            &format!(
                "{method} /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            ),
        );
        assert!(text.starts_with("HTTP/1.1 405"), "{method}: {text}");
    }
    for path in ["/", "/assets/main.js", "/api/runs", "/nothing"] {
        let response = client().get(served.url(path)).call().unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header("x-content-type-options"), "nosniff");
    }
    // the page carries no code of its own, and everything it names is there
    let mut page = client().get(served.url("/")).call().unwrap();
    let page = page.body_mut().read_to_string().unwrap();
    assert!(!page.contains("style=") && !page.contains("onclick") && !page.contains("<script>"), "{page}");
    for part in page.split('"').filter(|part| part.starts_with("/assets/")) {
        assert_eq!(client().get(served.url(part)).call().unwrap().status(), 200, "{part}");
    }
}

#[test]
fn a_page_of_another_site_gets_nothing() {
    let served = Served::run();
    let answer = |host: &str| {
        raw(&served, &format!("GET /api/runs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    assert!(answer("127.0.0.1:9100").starts_with("HTTP/1.1 200"));
    assert!(answer("localhost").starts_with("HTTP/1.1 200"));
    let rebound = answer("evil.example");
    assert!(rebound.starts_with("HTTP/1.1 403") && !rebound.contains("finished"), "{rebound}");
}

#[test]
fn with_a_token_nothing_is_shown_without_it() {
    let token = "correct-horse-1";
    let served = Served::with(Some(token), |root| SyntheticRun::whole(&root.join("run"), plan(), 7).unwrap());
    let status = |path: &str, header: Option<(&str, String)>| {
        let mut request = client().get(served.url(path));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        request.call().unwrap().status().as_u16()
    };
    for path in [
        "/",
        "/api/runs",
        "/assets/main.js",
        "/screens/run/abcd.png",
        "/api/events?runs=run",
        "/api/runs?token=correct-horse-1",
    ] {
        assert_eq!(status(path, None), 401, "{path}");
        assert_eq!(status(path, Some(("Authorization", "Bearer correct-horse-2".into()))), 401, "{path}");
        assert_eq!(status(path, Some(("Cookie", "arpo_view=correct-horse".into()))), 401, "{path}");
    }
    assert_eq!(status("/?token=wrong-horse-1", None), 401);
    assert_eq!(status("/api/runs", Some(("Authorization", format!("Bearer {token}")))), 200);
    // the address that is printed gives the cookie, and leads to one without the token
    let response = client().get(served.url(&format!("/?token={token}"))).call().unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["location"]), (303, &"/".parse().unwrap()));
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let pair = cookie.split(';').next().unwrap().to_owned();
    assert_eq!(status("/api/runs", Some(("Cookie", format!("other=1; {pair}")))), 200);
}

#[test]
fn other_addresses_need_a_token() {
    let listen = |host: [u8; 4], token: Option<&str>| {
        arpo_view::Listen { host: host.into(), port: 0, token: token.map(str::to_owned) }.address()
    };
    assert!(listen([127, 0, 0, 1], None).is_ok());
    assert!(listen([0, 0, 0, 0], Some("long-enough")).is_ok());
    let error = listen([0, 0, 0, 0], None).unwrap_err().to_string();
    assert!(error.contains("expected a --token"), "{error}");
    assert!(listen([0, 0, 0, 0], Some("short")).is_err());
}

#[test]
fn model_output_is_json_text() {
    let injected = "</script><script>alert(1)</script>";
    let served = Served::with(None, |root| {
        SyntheticRun::whole(&root.join("run"), Plan { injected, ..plan() }, 7).unwrap();
    });
    let row = &served.json("/api/runs/run/episodes?limit=1")["rows"][0];
    let path = format!(
        "/api/runs/run/episode?file={}&id={}",
        row["file"].as_str().unwrap(),
        row["id"].as_str().unwrap()
    );
    let response = client().get(served.url(&path)).call().unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let answer = served.json(&path);
    assert!(answer["episode"]["steps"][0]["response"].as_str().unwrap().contains(injected));
}

#[test]
fn events_say_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SyntheticRun::start(&folder.path().join("run"), plan(), 3).unwrap();
    writer.iteration(0).unwrap();
    let viewer = arpo_view::viewer(&[folder.path().join("run")], None).unwrap();
    let server = arpo_view::Background::start(viewer, ([127, 0, 0, 1], 0).into()).unwrap();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    stream.write_all(b"GET /api/events?runs=run,none HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = || {
        let deadline = Instant::now() + Duration::from_secs(15);
        loop {
            assert!(Instant::now() < deadline, "no event");
            let line = lines.next().unwrap().unwrap();
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str::<Value>(data).unwrap();
            }
        }
    };
    assert_eq!(next()["run"]["rows"], 1);
    writer.iteration(1).unwrap();
    let news = next();
    assert_eq!((&news["run"]["rows"], &news["run"]["episodes"]), (&json!(2), &json!(12)));
    assert_eq!(news["run"]["state"], "running");
}

/// A tab that was open while the server ended, the run was resumed, and the server started again.
#[test]
fn rows_that_another_process_served_are_not_continued() {
    let served = Served::run();
    let before = served.json("/api/runs/run/metrics");
    let metrics = served.path("run/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let resumed: Vec<String> =
        text.lines().map(|line| line.replace("\"reward/score\":", "\"other\":")).collect();
    fs::write(&metrics, resumed.join("\n") + "\n").unwrap();
    let viewer = arpo_view::viewer(&[served.path("run")], None).unwrap();
    let again = arpo_view::Background::start(viewer, ([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!(
        "http://{}/api/runs/run/metrics?from={}&generation={}",
        again.address, before["rows"], before["generation"]
    );
    let text = client().get(url).call().unwrap().body_mut().read_to_string().unwrap();
    let after: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&after["from"], &after["rows"]), (&json!(0), &before["rows"]));
    assert!(after["generation"].as_u64() > before["generation"].as_u64());
    assert!(after["generation"].as_f64() < Some(9e15), "exact in a browser");
}

#[test]
fn an_episode_is_solved_as_the_run_counts_it() {
    let served = Served::run();
    let index = served.path("run/episodes/index.jsonl");
    let line = json!({"id": "0:half:0", "task": "half", "file": "iteration-000001.jsonl", "score": 0.3});
    fs::write(&index, fs::read_to_string(&index).unwrap() + &format!("{line}\n")).unwrap();
    let solved = |score: &str| served.json(&format!("/api/runs/run/episodes?task=half&score={score}"));
    assert_eq!((&solved("solved")["total"], &solved("failed")["total"]), (&json!(1), &json!(0)));
    assert_eq!(solved("solved")["rows"][0]["solved"], true);
    let config = served.path("run/config.toml");
    fs::write(&config, fs::read_to_string(&config).unwrap() + "\n[reward]\nsuccess_above = 0.5\n").unwrap();
    assert_eq!((&solved("solved")["total"], &solved("failed")["total"]), (&json!(0), &json!(1)));
}

#[test]
fn a_new_run_in_a_folder_of_runs_appears() {
    let served = Served::run();
    assert_eq!(served.json("/api/runs")["grows"], true);
    let alone = arpo_view::library::Library::open(&[served.path("run")]).unwrap();
    assert!(!alone.grows(), "a run is not a folder of runs");
    assert_eq!(served.json("/api/runs")["runs"].as_array().unwrap().len(), 1);
    SyntheticRun::start(&served.path("second one"), plan(), 3).unwrap();
    let runs = served.json("/api/runs");
    assert_eq!(runs["runs"][1]["id"], "second_one");
    assert_eq!(served.json("/api/runs/second_one/metrics")["rows"], 0);
}
