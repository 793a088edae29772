//! The scores that `docs/environments.md` states are the scores.

use arpo_env::scores::{PolicyKind, scores};
use arpo_env::tasks::Suite;
use std::path::Path;

fn stated(suite: Suite) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/environments.md");
    let text = std::fs::read_to_string(path).unwrap();
    let start = format!("| {} | ", suite.key());
    let rows = text.lines().filter(|line| line.starts_with(&start)).map(str::to_owned);
    rows.filter(|row| PolicyKind::ALL.iter().any(|kind| row.contains(&format!("| {} |", kind.key()))))
        .collect()
}

fn are_the_scores(suite: Suite) {
    let found: Vec<String> = PolicyKind::ALL
        .iter()
        .map(|kind| {
            let found = scores(suite, suite.screen(), *kind, 5).unwrap();
            format!(
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
                suite.key(),
                kind.key(),
                found.feasible,
                found.infeasible,
                found.all,
                found.actions
            )
        })
        .collect();
    assert_eq!(stated(suite), found);
}

#[test]
fn of_the_pocket_suite() {
    are_the_scores(Suite::Pocket);
}

#[test]
fn of_the_desktop_suite() {
    are_the_scores(Suite::Desktop);
}
