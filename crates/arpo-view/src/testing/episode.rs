//! Episodes that are made up: their turns, and their tokens.

use super::SyntheticRun;
use super::picture::screen_digest;
use serde_json::{Value, json};
use std::{fs, io};

/// A file of episodes that is being made up.
#[derive(Debug)]
pub(super) struct Draft {
    name: String,
    lines: String,
    index: Vec<Value>,
    tokens: Vec<Value>,
}

impl Draft {
    /// A file without episodes.
    pub(super) fn new(name: String) -> Self {
        Self { name, lines: String::new(), index: vec![], tokens: vec![] }
    }
}

/// What is known of an episode before it is made up.
#[derive(Debug)]
pub(super) struct Facts {
    /// The first part of its name.
    pub(super) step: u64,
    /// The number of its task.
    pub(super) task: usize,
    /// The last part of its name.
    pub(super) attempt: usize,
    /// The weights that act.
    pub(super) version: u64,
    /// Its score.
    pub(super) score: f64,
    /// The other keys of its line in the index.
    pub(super) more: Value,
}

impl SyntheticRun {
    /// Adds an episode to a file.
    pub(super) fn add(&mut self, draft: &mut Draft, facts: &Facts) {
        let (task, application) = Self::task_name(facts.task);
        let id = format!("{}:{task}:{}", facts.step, facts.attempt);
        let (trajectory, tokens, turns) = self.trajectory(&id, &task, facts);
        let text = trajectory.to_string();
        let outcome = &trajectory["outcome"];
        let mut line = json!({
            "id": id, "task": task, "instruction": format!("Open {application} and press button {}.", facts.task),
            "application": application, "version": facts.version, "turns": turns, "tokens": turns * 9,
            "score": facts.score, "outcome": outcome["type"], "reason": outcome["reason"],
            "first_screen": trajectory["steps"][0]["observation"]["screenshot"]["digest"], "file": draft.name,
            "offset": draft.lines.len(), "length": text.len(),
        });
        if let (Some(line), Some(more)) = (line.as_object_mut(), facts.more.as_object()) {
            line.extend(more.clone());
        }
        draft.index.push(line);
        draft.tokens.push(tokens);
        draft.lines.push_str(&text);
        draft.lines.push('\n');
    }

    /// Writes a file: its episodes, their tokens, then the index. One without episodes is not written.
    pub(super) fn finish(&self, draft: Draft) -> io::Result<()> {
        if draft.index.is_empty() {
            return Ok(());
        }
        let path = self.folder.join("episodes").join(&draft.name);
        fs::write(&path, draft.lines)?;
        if self.plan.tokens {
            let lines: Vec<String> = draft.tokens.iter().map(|line| format!("{line}\n")).collect();
            fs::write(path.with_extension("tokens.jsonl"), lines.concat())?;
        }
        self.append("episodes/index.jsonl", &draft.index)
    }

    /// A trajectory as a run stores it, its line of tokens, and its number of turns.
    fn trajectory(&mut self, id: &str, task: &str, facts: &Facts) -> (Value, Value, usize) {
        let (score, start) = (facts.score, facts.task + facts.attempt);
        let turns = 1 + (self.next() * self.plan.turns as f64) as usize;
        let (width, height) = self.plan.screen;
        let (mut steps, mut token_steps, mut logps, mut position) = (vec![], vec![], vec![], 20);
        for turn in 0..turns {
            let last = turn + 1 == turns;
            let x = (self.next() * f64::from(width)).floor();
            let y = (self.next() * f64::from(height)).floor();
            let place = |x: f64, y: f64| json!({"x1": x, "y1": y, "x2": x, "y2": y});
            let kind = if last && score > 0.5 { 9 } else { (self.next() * 5.0) as usize };
            let (written, action) = match kind {
                0 => (
                    "type(content='hello world')".to_owned(),
                    json!({"type": "type", "content": "hello world"}),
                ),
                1 => (
                    format!("drag(start_box='({x},{y})', end_box='({y},{x})')"),
                    json!({"type": "drag", "start_box": place(x, y), "end_box": place((x + 90.0).min(f64::from(width) - 1.0), (y + 60.0).min(f64::from(height) - 1.0))}),
                ),
                2 => ("hotkey(key='ctrl s')".to_owned(), json!({"type": "hotkey", "keys": ["ctrl", "s"]})),
                9 => ("finished(content='')".to_owned(), json!({"type": "finished", "content": ""})),
                _ => (
                    format!("click(start_box='({x},{y})')"),
                    json!({"type": "click", "start_box": place(x, y)}),
                ),
            };
            let thought = if turn == 0 { self.plan.injected } else { "" };
            let response = format!(
                "Thought: {thought}turn {} needs the button at the right.\nAction: {written}",
                turn + 1
            );
            let pieces: Vec<String> = pieces(&response);
            let logp: Vec<f64> = pieces.iter().map(|_| -2.5 * self.next().powi(4)).collect();
            let ratio: Vec<f64> = pieces.iter().map(|_| 0.8 + 0.4 * self.next()).collect();
            steps.push(json!({
                "observation": {"screenshot": {
                    "digest": screen_digest((start + turn) % self.plan.screens), "width": width, "height": height,
                }},
                "response": response, "actions": [action],
                "span": {"start": position, "end": position + pieces.len()},
            }));
            position += pieces.len() + 5;
            logps.extend(logp.iter().copied());
            token_steps.push(json!({"pieces": pieces, "logp": logp, "ratio": ratio}));
        }
        let outcome = match (score > 0.5, turns == self.plan.turns, turns % 3) {
            (false, true, _) => json!({"type": "step_limit"}),
            (false, false, 0) => json!({"type": "unparsable", "reason": "the response has no \"Action:\""}),
            _ => json!({"type": "finished"}),
        };
        let trajectory = json!({
            "id": id, "task": task, "policy_version": facts.version,
            "slices": [{"tokens": [[1, position]], "first_live": 0, "end": turns}], "steps": steps,
            "sampler_logp": logps, "score": score, "well_formed": true, "outcome": outcome,
        });
        (trajectory, json!({"id": id, "steps": token_steps}), turns)
    }
}

/// Pieces of a text, as a tokenizer would cut it.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = vec![];
    for letter in text.chars() {
        match pieces.last_mut() {
            Some(piece) if letter.is_alphanumeric() && piece.len() < 5 => piece.push(letter),
            _ => pieces.push(letter.to_string()),
        }
    }
    pieces
}
