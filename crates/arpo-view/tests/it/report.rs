//! Reports: one file with everything in it, and the same numbers as a table and as a picture.

use crate::fixture::plan;
use arpo_view::report::{csv, page, png, seeds};
use arpo_view::run::Run;
use arpo_view::testing::{Plan, SyntheticRun};
use base64::Engine;
use sha2::Digest;
use std::path::Path;

fn runs(folder: &Path) -> Vec<Run> {
    let plain = Plan { method: "GRPO", final_success: 0.6, ..plan() };
    for (name, plan, seed) in [("arpo-0", plan(), 0), ("arpo-1", plan(), 1), ("grpo-0", plain, 0)] {
        SyntheticRun::whole(&folder.join(name), plan, seed).unwrap();
    }
    ["arpo-0", "arpo-1", "grpo-0"].iter().map(|name| Run::open(&folder.join(name)).unwrap()).collect()
}

#[test]
fn runs_that_differ_in_their_seed_are_one_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let runs = runs(folder.path());
    let experiments = seeds::experiments(&runs);
    let named: Vec<(&str, &[usize])> =
        experiments.iter().map(|one| (one.name.as_str(), one.runs.as_slice())).collect();
    assert_eq!(named, [("ARPO", [0, 1].as_slice()), ("GRPO", [2].as_slice())]);
    let results = experiments[0].results(&runs);
    assert_eq!(
        results.iter().map(|result| result.set.as_str()).collect::<Vec<_>>(),
        ["training", "held_out"]
    );
    // by hand: the mean of two, and Student's interval with one degree of freedom
    let last = |run: usize| runs[run].metrics.last("evaluation/training").unwrap();
    let (a, b) = (last(0), last(1));
    assert!((results[0].last.mean - f64::midpoint(a, b)).abs() < 1e-12);
    let half = 12.706 * (a - b).abs() / 2.0;
    let (low, high) = results[0].last.interval.unwrap();
    assert!((high - low - 2.0 * half).abs() < 1e-9);
    let alone = &experiments[1].results(&runs)[0];
    assert!(alone.seeds == 1 && alone.last.interval.is_some(), "of one run: the interval of its evaluation");
}

#[test]
fn a_report_is_one_file_and_what_a_model_wrote_is_text_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let injected = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    SyntheticRun::whole(&folder.path().join("run"), Plan { injected, ..plan() }, 5).unwrap();
    let mut runs = vec![Run::open(&folder.path().join("run")).unwrap()];
    let html = page::html(&mut runs, "2026-11-17").unwrap();
    assert!(!html.contains("<script>alert") && !html.contains("<img src=x"), "injected");
    assert!(html.contains("\\u003cscript>alert(1)"), "the episode is in it");
    assert!(
        !html.contains("src=\"/") && !html.contains("<link") && !html.contains("https://"),
        "nothing is loaded"
    );
    assert!(
        html.contains("data:image/png;base64,") && html.contains("level-") && html.contains("group_size")
    );
    // the policy allows exactly the script that is in it
    let script = html.split("<script type=\"module\">").nth(1).unwrap().split("</script>").next().unwrap();
    let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(script.as_bytes()));
    let policy = html.replace("&#x2f;", "/").replace("&#x27;", "'");
    assert!(policy.contains(&format!("script-src 'sha256-{hash}'")), "{hash}");
    assert!(!script.contains("import ") && !script.contains("\nexport "), "one script");
}

#[test]
fn numbers_as_a_table_and_as_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let runs = runs(folder.path());
    let text = csv(&runs);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 3 * 13);
    let columns: Vec<&str> = lines[0].split(',').collect();
    let score = columns.iter().position(|name| *name == "reward/score").unwrap();
    let cells: Vec<&str> = lines[2].split(',').collect();
    assert_eq!((cells[0], cells[1], cells.len()), ("arpo-0", "1", columns.len()));
    let expected = runs[0].metrics.column("reward/score").unwrap()[1];
    assert!((cells[score].parse::<f64>().unwrap() - expected).abs() < 1e-12);
    let picture = image::load_from_memory(&png(&runs)).unwrap();
    assert_eq!((picture.width(), picture.height()), (800, 450));
}
