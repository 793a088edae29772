//! A Python test runs beside the agent's files, which make no score by printing one, by exiting or by writing a result.

use crate::fake_guest::FakeGuest;
use arpo_core::generation::Generation;
use arpo_osworld::error::MetricError;
use arpo_osworld::metrics::{self, Settings};
use arpo_osworld::sandbox::GuestSandbox;
use arpo_osworld::state::{FileState, State};
use serde_json::Map;
use std::time::{Duration, Instant};

const TEST: &str = "import sums\ndef test():\n    return sums.add(2, 3) == 5\n";

/// The score of a test on an agent's `sums.py`, with this machine as the guest.
fn score(test: &str, sums: &str) -> Result<f64, MetricError> {
    let guest = FakeGuest { local: true, ..FakeGuest::default() };
    let sandbox = GuestSandbox { guest: &guest, limit_seconds: 2 };
    let settings = Settings { generation: Generation::ArpoEra, sandbox: Some(&sandbox) };
    let file = |name: &str, text: &str| State::File(FileState::new(name, text.as_bytes().to_vec()));
    let (result, expected) = (State::Many(vec![file("sums.py", sums)]), file("test_suite.py", test));
    metrics::score("check_python_file_by_test_suite", &result, Some(&expected), &Map::new(), &settings)
}

fn is(score: Result<f64, MetricError>, wanted: f64) -> bool {
    score.is_ok_and(|score| (score - wanted).abs() < 1e-12)
}

#[test]
fn a_test_in_python_gives_its_score() {
    assert!(is(score(TEST, "def add(a, b):\n    return a + b\n"), 1.0));
    assert!(is(score(TEST, "def add(a, b):\n    return a - b\n"), 0.0));
    assert!(is(score("def test():\n    return 0.25\n", ""), 0.25));
    assert!(is(score("def test():\n    return 7\n", ""), 1.0));
    assert!(is(score("def test():\n    return 'yes'\n", ""), 1.0));
    assert!(is(score("def test():\n    return float('nan')\n", ""), 0.0));
    assert!(is(score("def test():\n    return -1\n", ""), 0.0));
}

#[test]
fn what_goes_wrong_in_a_test_is_named() {
    let why = |test, sums| score(test, sums).unwrap_err().to_string();
    assert_eq!(
        why(TEST, "def add(a):\n    return a\n").split(':').nth(2).unwrap().trim(),
        "raised TypeError"
    );
    assert!(why("import no_such_module", "").contains("No module named 'no_such_module'"));
    let alone = metrics::score(
        "check_python_file_by_test_suite",
        &State::Null,
        Some(&State::File(FileState::new("t.py", vec![]))),
        &Map::new(),
        &Settings::default(),
    );
    assert!(matches!(alone, Err(MetricError::Unsupported(_))));
}

#[test]
fn no_score_is_made_by_printing_exiting_or_writing_a_result() {
    for trick in [
        "import os\nprint('score 1.0', flush=True)\nos._exit(0)\n",
        "import sys\nprint('score 1.0')\nsys.exit(0)\n",
        "import os\nopen(os.path.join('..', 'check', 'result'), 'w').write('score 1.0')\nos._exit(0)\n",
        "import os\nopen(os.path.join('..', 'check', 'test_suite.py'), 'w').write('')\ndef add(a, b):\n    return 0\n",
    ] {
        assert!(!score(TEST, trick).is_ok_and(|score| score > 0.0), "{trick}");
    }
}

/// A child keeps the output open, and one never ends.
#[test]
fn a_test_ends_at_its_limit_whoever_is_left() {
    let start = Instant::now();
    let child = "import subprocess\nsubprocess.Popen(['sleep', '20'])\ndef add(a, b):\n    return a + b\n";
    assert!(is(score(TEST, child), 1.0));
    assert!(score(TEST, "while True:\n    pass\n").unwrap_err().to_string().contains("no result within 2 s"));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}
