//! Scores of the scripted policies over all listed tasks and five seeds: the table of `docs/environments.md`.

use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::policies::{Scripted, play};
use arpo_env::tasks::Suite;
use std::collections::BTreeMap;

/// Steps an episode may take.
const MAX_STEPS: usize = 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen())?;
        for name in ["oracle", "detours", "clumsy", "random"] {
            let (mut feasible, mut infeasible) = (Vec::new(), Vec::new());
            let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
            for (index, task) in suite.all_tasks().enumerate() {
                for seed in 0..5 {
                    let own = seed * 1000 + index as u64;
                    let mut policy = match name {
                        "oracle" => Scripted::oracle(),
                        "detours" => Scripted::Oracle(arpo_env::oracle::Oracle::with_detours(own, 0.2)),
                        "clumsy" => Scripted::clumsy(own, 0.1),
                        _ => Scripted::random(own),
                    };
                    let played = play(&mut environment, task, seed, &mut policy, MAX_STEPS)?;
                    if task.evaluator.get("infeasible").is_some() {
                        infeasible.push(played.score);
                    } else {
                        feasible.push(played.score);
                        *lengths.entry(played.actions.len() - 1).or_default() += 1;
                        if name == "oracle" && played.score < 1.0 {
                            println!("{} {seed} {:?} {:?}", task.id, task.instruction, played);
                        }
                    }
                }
            }
            let mean = |scores: &[f64]| 100.0 * scores.iter().sum::<f64>() / scores.len() as f64;
            println!(
                "{} {name}: feasible {:.1} %, infeasible {:.1} %, all {:.1} %",
                suite.key(),
                mean(&feasible),
                mean(&infeasible),
                mean(&[feasible.clone(), infeasible].concat())
            );
            if name == "oracle" {
                println!("{} actions before the end: {lengths:?}", suite.key());
            }
        }
    }
    Ok(())
}
