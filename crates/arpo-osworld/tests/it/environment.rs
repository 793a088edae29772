//! A task on a guest with fixed responses.

use crate::fake_google::{FakeGoogle, GOOD, PASSING, file};
use crate::server::serve;
use arpo_agent::style::Grammar;
use arpo_core::action::{Action, ModelBox};
use arpo_core::task::{Task, TaskId};
use arpo_env::environment::{Environment, EnvironmentError};
use arpo_osworld::download::{Cache, Sources};
use arpo_osworld::environment::{EpisodeOptions, OsworldDesktop, Shared};
use arpo_osworld::google::Accounts;
use arpo_osworld::host::TESSERACT;
use arpo_osworld::provider::{Addresses, Machine, Options, Provider, Spares};
use arpo_osworld::results::record::Trial;
use arpo_osworld::results::recorder::RecordedDesktop;
use arpo_osworld::task::suite::SuiteTask;
use image::{ImageFormat, RgbImage};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ID: &str = "bb5e4c0d";

struct Fixture {
    desktop: RecordedDesktop<OsworldDesktop>,
    requests: Arc<Mutex<Vec<String>>>,
    results: TempDir,
    _cache: TempDir,
}

fn png() -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    RgbImage::from_pixel(64, 48, image::Rgb([7, 8, 9])).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// A desktop whose commands print `yes`, and a task that wants it.
fn new_fixture(evaluator: &str, options: EpisodeOptions) -> Fixture {
    fixture_whose_commands_end_with(0, evaluator, options)
}

fn fixture_whose_commands_end_with(code: u8, evaluator: &str, options: EpisodeOptions) -> Fixture {
    let output = format!(r#"{{"status": "success", "output": "yes", "error": "", "returncode": {code}}}"#);
    let (port, requests) = serve(vec![
        ("/screenshot", 200, png()),
        ("/screen_size", 200, br#"{"width": 64, "height": 48}"#.to_vec()),
        ("/execute", 200, output.into_bytes()),
        ("/file", 200, b"def test():\n    return True\n".to_vec()),
        ("/setup/launch", 200, b"launched".to_vec()),
    ]);
    let text = format!(
        r#"{{"id": "{ID}", "instruction": "Say yes.", "evaluator": {evaluator},
             "config": [{{"type": "launch", "parameters": {{"command": ["xterm"]}}}}]}}"#
    );
    let task = SuiteTask::parse("os", text).unwrap();
    let hopeless =
        format!(r#"{{"id": "{ID}", "instruction": "No.", "evaluator": {{"func": "infeasible"}}}}"#);
    let other = SuiteTask::parse("vlc", hopeless).unwrap();
    let address = Addresses::parse(&format!("http://127.0.0.1:{port}")).unwrap();
    let machine = Machine::Fixed(vec![address]);
    let provider = Provider::new(Options { run: "test".into(), machine }).unwrap();
    let (cache, results) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shared = Shared {
        tasks: BTreeMap::from([(task.name(), task), (other.name(), other)]),
        desktops: Spares::new(provider, 0),
        cache: Cache::new(cache.path(), Sources { offline: true, ..Sources::default() }).unwrap(),
        options: EpisodeOptions { pause: Duration::ZERO, freeze: false, ..options },
    };
    let trial = Trial::new(results.path(), "screenshot", "test", "0");
    let desktop = RecordedDesktop::new(OsworldDesktop::new(Arc::new(shared)), trial);
    Fixture { desktop, requests, results, _cache: cache }
}

impl Fixture {
    fn reset(&mut self) {
        let screen = self.desktop.reset(&task("os", ID), 0, soon()).unwrap();
        assert_eq!(screen.size(), (64, 48));
    }

    fn act(&mut self, action: &Action) -> bool {
        self.desktop.record_response("Action: as the test says");
        self.desktop.step(action, soon()).unwrap().terminated
    }

    fn result(&self, name: &str) -> String {
        let folder = self.results.path().join("pyautogui/screenshot/test/0/os").join(ID);
        std::fs::read_to_string(folder.join(name)).unwrap()
    }
}

fn task(domain: &str, id: &str) -> Task {
    Task {
        id: TaskId::new(format!("{domain}/{id}")),
        instruction: String::new(),
        application: domain.into(),
        setup: serde_json::Value::Null,
        evaluator: serde_json::Value::Null,
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

const WANTS_YES: &str = r#"{"func": "exact_match",
    "result": {"type": "vm_command_line", "command": ["answer"]},
    "expected": {"type": "rule", "rules": {"expected": "yes"}}}"#;

fn finished() -> Action {
    Action::Finished { content: None }
}

#[test]
fn a_task_is_set_up_acted_on_evaluated_and_recorded() {
    let mut fixture = new_fixture(WANTS_YES, EpisodeOptions::default());
    fixture.reset();
    let point = ModelBox { x1: 10.0, y1: 20.0, x2: 10.0, y2: 20.0 };
    assert!(!fixture.act(&Action::Click { start_box: point }));
    assert!(fixture.act(&finished()));
    assert_eq!(fixture.desktop.step(&Action::Wait {}, soon()).unwrap_err(), EnvironmentError::NoEpisode);
    assert!((fixture.desktop.evaluate(soon()).unwrap() - 1.0).abs() < 1e-12);
    let requests = fixture.requests.lock().unwrap().join("\n");
    assert!(requests.contains("/setup/launch"), "the set-up ran");
    assert!(requests.contains("pyautogui.FAILSAFE = False"), "the action has OSWorld's beginning");
    assert!(requests.contains("pyautogui.click(10.0, 20.0, button='left')"), "{requests}");
    drop(requests);
    assert_eq!(fixture.result("result.txt"), "1.0\n");
    let lines = fixture.result("traj.jsonl");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["step_num"], &lines[1]["step_num"]), (&1.into(), &2.into()));
    assert_eq!(lines[1]["action"], "DONE");
    let screenshot = lines[0]["screenshot_file"].as_str().unwrap();
    assert!(Path::new(screenshot).extension().is_some_and(|end| end == "png"));
}

/// The ids are equal, the domains are not.
#[test]
fn a_task_is_judged_by_the_evaluator_of_its_own_domain() {
    let mut fixture = new_fixture(WANTS_YES, EpisodeOptions::default());
    for (domain, wanted) in [("os", 1.0), ("vlc", 0.0)] {
        fixture.desktop.reset(&task(domain, ID), 0, soon()).unwrap();
        fixture.act(&finished());
        assert!((fixture.desktop.evaluate(soon()).unwrap() - wanted).abs() < 1e-12, "{domain}");
        let path = format!("pyautogui/screenshot/test/0/{domain}/{ID}/result.txt");
        assert!(fixture.results.path().join(path).is_file());
    }
}

#[test]
fn an_episode_whose_gold_is_missing_is_not_played() {
    let evaluator = r#"{"func": "compare_text_file", "result": {"type": "vm_file", "path": "a", "dest": "a"},
        "expected": {"type": "cloud_file", "path": "https://example.org/gold.txt", "dest": "gold.txt"}}"#;
    let mut fixture = new_fixture(evaluator, EpisodeOptions::default());
    let error = fixture.desktop.reset(&task("os", ID), 0, soon()).unwrap_err().to_string();
    assert!(error.contains("https://example.org/gold.txt is not in the cache"), "{error}");
    assert!(fixture.requests.lock().unwrap().is_empty(), "the desktop was not touched");
}

/// Where it is judged, which need not be where the tasks were loaded.
#[test]
fn an_episode_is_not_played_on_a_host_without_the_program_that_judges_it() {
    let evaluator = r#"{"func": "compare_image_text", "result": {"type": "vm_file", "path": "/a.png", "dest": "a.png"},
        "expected": {"type": "rule", "rules": {"type": "text", "text": "a"}}}"#;
    let mut fixture = new_fixture(evaluator, EpisodeOptions::default());
    match fixture.desktop.reset(&task("os", ID), 0, soon()) {
        Ok(_) => assert!(TESSERACT.is_installed()),
        Err(error) => {
            assert!(!TESSERACT.is_installed() && error.to_string().contains("tesseract is not"), "{error}");
            assert!(fixture.requests.lock().unwrap().is_empty(), "the desktop was not touched");
        }
    }
}

#[test]
fn a_task_of_videos_is_not_played_on_a_desktop_that_cannot_decode_them() {
    let evaluator = r#"{"func": "compare_videos", "result": {"type": "vm_file", "path": "/a.mp4", "dest": "a.mp4"},
        "expected": {"type": "vm_file", "path": "/b.mp4", "dest": "b.mp4"}}"#;
    new_fixture(evaluator, EpisodeOptions::default()).reset();
    let mut fixture = fixture_whose_commands_end_with(1, evaluator, EpisodeOptions::default());
    let error = fixture.desktop.reset(&task("os", ID), 0, soon()).unwrap_err();
    assert!(matches!(error, EnvironmentError::BadTask { .. }), "{error}");
    assert!(error.to_string().contains("/usr/bin/ffmpeg"), "{error}");
    let requests = fixture.requests.lock().unwrap().join("\n");
    assert!(!requests.contains("/setup/launch"), "the set-up ran: {requests}");
}

const WANTS_A_FILE_OF_DRIVE: &str = r#"{"func": "file_contains",
    "result": {"type": "googledrive_file", "path": ["notes.txt"], "dest": "notes.txt"},
    "expected": {"type": "rule", "rules": {"expected": ["content"]}}}"#;

#[test]
fn a_task_of_google_drive_is_not_played_without_credentials() {
    let options = EpisodeOptions { accounts: Accounts::new("/nowhere"), ..EpisodeOptions::default() };
    let mut fixture = new_fixture(WANTS_A_FILE_OF_DRIVE, options);
    let error = fixture.desktop.reset(&task("os", ID), 0, soon()).unwrap_err();
    assert!(matches!(error, EnvironmentError::BadTask { .. }), "{error}");
    let reason = "it needs Google credentials: /nowhere/googledrive/settings.yml: no such file";
    assert!(error.to_string().contains(reason), "{error}");
    assert!(fixture.requests.lock().unwrap().is_empty(), "the desktop was not touched");
}

#[test]
fn a_task_of_google_drive_is_judged_by_what_is_there() {
    let query = "( title = 'notes.txt' and trashed = false ) and 'root' in parents";
    for (files, wanted, note) in
        [(vec![file("f", None)], 1.0, None), (vec![], 0.0, Some("Google Drive has no file notes.txt"))]
    {
        let google = FakeGoogle::new(GOOD, &[(query, files)]);
        let options = EpisodeOptions { accounts: google.accounts().clone(), ..EpisodeOptions::default() };
        let mut fixture = new_fixture(WANTS_A_FILE_OF_DRIVE, options);
        fixture.reset();
        fixture.act(&finished());
        assert!((fixture.desktop.evaluate(soon()).unwrap() - wanted).abs() < 1e-12);
        if let Some(note) = note {
            let log = fixture.result("runtime.log");
            assert!(log.contains(note), "{log}");
        }
    }
}

/// Neither is a score; only the first would be the same on another desktop.
#[test]
fn expired_credentials_make_a_bad_task_and_a_busy_google_a_lost_episode() {
    let error = |google: &FakeGoogle| {
        let options = EpisodeOptions { accounts: google.accounts().clone(), ..EpisodeOptions::default() };
        let mut fixture = new_fixture(WANTS_A_FILE_OF_DRIVE, options);
        fixture.reset();
        fixture.act(&finished());
        fixture.desktop.evaluate(soon()).unwrap_err()
    };
    let expired = error(&FakeGoogle::new("expired", &[]));
    assert!(matches!(expired, EnvironmentError::BadTask { .. }), "{expired}");
    assert!(expired.to_string().contains("Token has been expired or revoked"), "{expired}");
    for fault in PASSING {
        let busy = error(&FakeGoogle::failing(&[], "GET /drive", fault, usize::MAX));
        assert!(matches!(busy, EnvironmentError::Broken { .. }), "{fault:?}: {busy}");
    }
}

#[test]
fn an_evaluator_that_raises_leaves_a_note_beside_its_0() {
    let evaluator = r#"{"func": "check_font_size", "result": {"type": "vm_command_line", "command": ["answer"]},
        "expected": {"type": "rule", "rules": {"type": "value", "value": 5}}}"#;
    let mut fixture = new_fixture(evaluator, EpisodeOptions::default());
    fixture.reset();
    fixture.act(&finished());
    assert!(fixture.desktop.evaluate(soon()).unwrap().abs() < 1e-12);
    assert_eq!(fixture.result("result.txt"), "0.0\n");
    let log = fixture.result("runtime.log");
    assert!(log.contains("the evaluator scores 0: check_font_size: raises: no default_font_size"), "{log}");
}

/// The guest refuses the test's files, as one with a full disk does.
#[test]
fn a_test_that_cannot_run_on_a_desktop_that_answers_scores_0() {
    let evaluator = r#"{"func": "check_python_file_by_test_suite",
        "result": {"type": "vm_file", "path": "/home/user/a.py", "dest": "a.py"},
        "expected": {"type": "vm_file", "path": "/home/user/test.py", "dest": "test.py"}}"#;
    let mut fixture = new_fixture(evaluator, EpisodeOptions::default());
    fixture.reset();
    fixture.act(&finished());
    assert!(fixture.desktop.evaluate(soon()).unwrap().abs() < 1e-12);
    let log = fixture.result("runtime.log");
    assert!(log.contains("the evaluator scores 0") && log.contains("/setup/upload"), "{log}");
}

#[test]
fn giving_up_is_worth_something_only_where_nothing_can_be_done() {
    let infeasible = r#"{"func": "infeasible"}"#;
    let score = |evaluator, actions: &[Action], options| {
        let mut fixture = new_fixture(evaluator, options);
        fixture.reset();
        let mut over = false;
        for action in actions {
            over = fixture.act(action);
        }
        (over, fixture.desktop.evaluate(soon()).unwrap())
    };
    let fail = [Action::ErrorEnv {}];
    let scores = |evaluator, actions: &[Action], options: &EpisodeOptions, wanted: (bool, f64)| {
        let (over, found) = score(evaluator, actions, options.clone());
        assert!(
            over == wanted.0 && (found - wanted.1).abs() < 1e-12,
            "{evaluator} {actions:?}: {over} {found}"
        );
    };
    let plain = EpisodeOptions::default();
    scores(infeasible, &fail, &plain, (true, 1.0));
    scores(infeasible, &[finished()], &plain, (true, 0.0));
    scores(WANTS_YES, &fail, &plain, (true, 0.0));
    // `call_user()` counts as giving up, unless it is tolerated
    let call = Action::CallUser {};
    scores(infeasible, std::slice::from_ref(&call), &plain, (true, 1.0));
    let patient = EpisodeOptions { calls_tolerated: 1, ..plain.clone() };
    scores(infeasible, std::slice::from_ref(&call), &patient, (false, 0.0));
    scores(infeasible, &[call.clone(), call], &patient, (true, 1.0));
    // at the limit an action counts as giving up, unless it ends the episode or waits; in the hard mode none does
    let limited = EpisodeOptions { give_up_at: Some(2), ..plain.clone() };
    let press = Action::Press { key: "enter".into() };
    scores(infeasible, &[press.clone(), press.clone()], &limited, (true, 1.0));
    scores(infeasible, &[press.clone(), press.clone()], &plain, (false, 0.0));
    scores(infeasible, &[press.clone(), Action::Wait {}], &limited, (false, 0.0));
    scores(WANTS_YES, &[press, finished()], &limited, (true, 1.0));
}

/// As in OSWorld's agent, whatever else a response contains.
#[test]
fn an_action_that_ends_or_waits_replaces_its_whole_response() {
    let mut fixture = new_fixture(WANTS_YES, EpisodeOptions::default());
    fixture.reset();
    let press = Action::Press { key: "enter".into() };
    fixture.desktop.record_response("Action: press(key='enter')\n\nwait()");
    for action in [&press, &Action::Wait {}] {
        assert!(!fixture.desktop.step(action, soon()).unwrap().terminated);
    }
    fixture.desktop.record_response("Action: press(key='enter')\n\nfinished()");
    assert!(fixture.desktop.step(&press, soon()).unwrap().terminated);
    let requests = fixture.requests.lock().unwrap().join("\n");
    assert!(!requests.contains("pyautogui.press"), "{requests}");
    let lines = fixture.result("traj.jsonl");
    let actions: Vec<&str> = ["WAIT", "DONE"].into_iter().filter(|action| lines.contains(action)).collect();
    assert_eq!((lines.lines().count(), actions.len()), (2, 2), "{lines}");
}

/// Tool calls run in order, up to the one that ends the episode.
#[test]
fn tool_calls_run_one_after_the_other() {
    let options = EpisodeOptions { grammar: Grammar::ComputerUse, ..EpisodeOptions::default() };
    let mut fixture = new_fixture(WANTS_YES, options);
    fixture.reset();
    let calls = [
        Action::Hover { start_box: ModelBox::point(10.0, 20.0) },
        Action::DragTo { end_box: ModelBox::point(30.0, 40.0), seconds: 0.5 },
        Action::TypeVerbatim { text: "a\nb\n".into() },
        Action::Wheel { clicks: -7.0, horizontal: true },
        Action::Wait {},
        Action::Infeasible {},
    ];
    fixture.desktop.record_response(&Grammar::ComputerUse.render(None, &calls));
    for (number, action) in calls.iter().enumerate() {
        let ended = fixture.desktop.step(action, soon()).unwrap().terminated;
        assert_eq!(ended, number + 1 == calls.len());
    }
    assert_eq!(fixture.desktop.step(&Action::Wait {}, soon()).unwrap_err(), EnvironmentError::NoEpisode);
    let requests = fixture.requests.lock().unwrap().join("\n");
    for code in ["moveTo(10.0, 20.0)", "dragTo(30.0, 40.0, duration=0.5", "hscroll(-7)", "write('a"] {
        assert!(requests.contains(&format!("pyautogui.{code}")), "{code}: {requests}");
    }
    let lines = fixture.result("traj.jsonl");
    assert_eq!((lines.lines().count(), lines.contains("FAIL")), (calls.len(), true), "{lines}");
}

#[test]
fn what_is_wrong_is_the_task_s_the_desktop_s_or_the_time_s() {
    let mut fixture = new_fixture(WANTS_YES, EpisodeOptions::default());
    assert_eq!(fixture.desktop.evaluate(soon()).unwrap_err(), EnvironmentError::NoEpisode);
    let unknown = fixture.desktop.reset(&task("os", "unknown"), 0, soon()).unwrap_err();
    assert!(matches!(unknown, EnvironmentError::BadTask { .. }), "{unknown}");
    fixture.reset();
    let late = fixture.desktop.step(&finished(), Instant::now()).unwrap_err();
    assert!(matches!(late, EnvironmentError::Deadline { during: "step" }), "{late}");
}
