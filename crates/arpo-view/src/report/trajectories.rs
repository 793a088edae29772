//! The episodes that a report shows: a success and a failure of each run, the last ones of a length that fits on a page.

use crate::run::Run;
use crate::run::index::{Origin, Row};
use crate::run::screens::png;
use base64::Engine;
use serde_json::{Value, json};

/// Turns of an episode that are shown.
const MOST_TURNS: usize = 8;
/// Width of its pictures.
const WIDTH: u32 = 480;

/// The chosen episodes of a run, with their screenshots inside.
pub fn chosen(run: &mut Run) -> Vec<Value> {
    let (index, success_above) = (run.index(), run.info.success_above());
    let fits =
        |row: &&Row| index.is_kept(row) && row.origin != Origin::Replayed && row.turns as usize <= MOST_TURNS;
    let last = |solved: bool| {
        let candidates =
            index.rows.iter().rev().filter(fits).filter(|row| (row.score > success_above) == solved);
        // of the newest ones the longest: there is more to see
        candidates.take(40).max_by_key(|row| row.turns)
    };
    let wanted: Vec<(String, String)> = [last(true), last(false)]
        .into_iter()
        .flatten()
        .map(|row| (index.file_of(row).name.to_string(), row.id.to_string()))
        .collect();
    wanted.iter().filter_map(|(file, id)| shown(run, file, id)).collect()
}

/// An episode with its pictures; `None` if it cannot be read.
fn shown(run: &mut Run, file: &str, id: &str) -> Option<Value> {
    let (row, episode) = run.episode(file, id).ok()?;
    let picture = |digest: &str| {
        let path = run.screen_path(digest).ok()??;
        let encoded = base64::engine::general_purpose::STANDARD.encode(png(&path, Some(WIDTH)).ok()?);
        Some(format!("data:image/png;base64,{encoded}"))
    };
    let steps: Vec<Value> = episode
        .steps
        .iter()
        .map(|step| {
            let image = step.screen.as_ref().and_then(|screen| picture(&screen.digest));
            json!({"image": image, "screen": step.screen, "actions": step.actions, "thought": step.thought})
        })
        .collect();
    let names = run.index().task_of(&row);
    Some(json!({
        "id": id, "task": &*names.task, "instruction": names.instruction.as_deref(), "score": row.score,
        "iteration": row.iteration, "origin": row.origin, "set": row.set, "outcome": row.outcome, "steps": steps,
    }))
}
