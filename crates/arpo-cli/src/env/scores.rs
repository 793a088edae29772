//! `arpo env scores`: scores of the scripted policies over all listed tasks.

use super::write_json;
use crate::Failure;
use crate::choices::one_of;
use arpo_env::scores::{PolicyKind, Scores, scores};
use arpo_env::tasks::Suite;
use clap::{Args, value_parser};
use serde::Serialize;
use std::io::Write;

/// The arguments of `arpo env scores`.
#[derive(Args)]
pub(crate) struct ScoresArguments {
    /// Only this suite
    #[arg(long, value_parser = one_of(&Suite::ALL, Suite::key))]
    suite: Option<Suite>,
    /// Only this policy
    #[arg(long, value_parser = one_of(&PolicyKind::ALL, PolicyKind::key))]
    policy: Option<PolicyKind>,
    /// Episodes per task, with seeds 0, 1, ...
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    suite: &'static str,
    policy: &'static str,
    seeds: u64,
    #[serde(flatten)]
    scores: Scores,
}

pub(crate) fn run(arguments: &ScoresArguments, out: &mut impl Write) -> Result<(), Failure> {
    let mut rows = Vec::new();
    if !arguments.json {
        writeln!(out, "suite    policy   feasible  infeasible    all  actions")?;
    }
    for suite in Suite::ALL.into_iter().filter(|suite| arguments.suite.is_none_or(|only| only == *suite)) {
        for kind in
            PolicyKind::ALL.into_iter().filter(|kind| arguments.policy.is_none_or(|only| only == *kind))
        {
            let scores = scores(suite, suite.screen(), kind, arguments.seeds).map_err(Failure::failed)?;
            let row = Row { suite: suite.key(), policy: kind.key(), seeds: arguments.seeds, scores };
            if arguments.json {
                rows.push(row);
                continue;
            }
            let Scores { feasible, infeasible, all, actions } = row.scores;
            let (suite, policy) = (row.suite, row.policy);
            writeln!(
                out,
                "{suite:7}  {policy:7}  {feasible:8.1}  {infeasible:10.1}  {all:5.1}  {actions:7.1}"
            )?;
            // a row can take seconds, so it is printed at once
            out.flush()?;
        }
    }
    if arguments.json { write_json(&rows, out) } else { Ok(()) }
}
