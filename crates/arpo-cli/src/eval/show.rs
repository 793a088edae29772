//! The table of a result folder: by domain, by group of domains, by trial.

use crate::{Failure, write_json};
use arpo_osworld::results::table::{Results, Share, Summary};
use std::io::Write;
use std::path::Path;

pub(super) fn run(folder: &Path, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let summary = Results::read(folder).map_err(Failure::failed)?.summary();
    if json { write_json(&summary, out) } else { print(&summary, out) }
}

pub(super) fn print(summary: &Summary, out: &mut impl Write) -> Result<(), Failure> {
    let row = |name: &str, Share { tasks, mean }: Share| format!("{name:<20} {tasks:>5}  {mean:.3}");
    let mut lines = vec![format!("{:<20} {:>5}  success", "domain", "tasks")];
    lines.extend(summary.domains.iter().map(|(name, share)| row(name, *share)));
    lines.extend(summary.groups.iter().map(|(name, share)| row(name, *share)));
    lines.push(row("all", summary.all));
    if summary.trials.len() > 1 {
        lines.extend(summary.trials.iter().map(|(name, share)| row(&format!("trial {name}"), *share)));
        let passes: Vec<String> =
            summary.pass_at.iter().map(|(k, share)| format!("pass@{k} {share:.3}")).collect();
        lines.push(passes.join("  "));
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
