//! Prints the scores of the scripted policies over all listed tasks and five seeds, as rows of
//! `docs/environments.md`.

#![expect(clippy::print_stdout, reason = "its result")]

use arpo_env::scores::{PolicyKind, scores};
use arpo_env::tasks::Suite;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for suite in Suite::ALL {
        for kind in PolicyKind::ALL {
            let found = scores(suite, suite.screen(), kind, 5)?;
            println!(
                "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
                suite.key(),
                kind.key(),
                found.feasible,
                found.infeasible,
                found.all,
                found.actions
            );
        }
    }
    Ok(())
}
