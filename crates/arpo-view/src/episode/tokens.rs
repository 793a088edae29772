//! The tokens of an episode: their text, the log-probability they were sampled with, and the learner's ratio.

use arpo_lines::LineFile;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The tokens of a turn, in order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepTokens {
    /// Their text; empty if only the numbers are known.
    #[serde(default)]
    pub pieces: Vec<String>,
    /// Log-probabilities of the sampler.
    #[serde(default)]
    pub logp: Vec<f64>,
    /// New over old probability in the last update that used them.
    #[serde(default)]
    pub ratio: Option<Vec<Option<f64>>>,
}

impl StepTokens {
    /// Numbers alone.
    pub fn without_pieces(logp: &[f64]) -> Self {
        Self { pieces: vec![], logp: logp.to_vec(), ratio: None }
    }
}

/// A line of a file of tokens.
#[derive(Deserialize)]
struct Line {
    id: String,
    #[serde(default)]
    steps: Vec<StepTokens>,
}

/// The tokens of an episode in a file beside it; none if there is no such file or line. Later lines win: an episode has one for
/// each update that used it.
pub fn read(path: &Path, id: &str) -> Vec<StepTokens> {
    // lines of other episodes are not parsed
    let Ok(wanted) = serde_json::to_vec(id) else { return vec![] };
    let mut found = vec![];
    let read = LineFile::new(path).follow(
        || {},
        |_, line| {
            let head = &line[..line.len().min(wanted.len() + 64)];
            if head.windows(wanted.len()).any(|part| part == wanted)
                && let Ok(line) = serde_json::from_slice::<Line>(line)
                && line.id == id
            {
                found = line.steps;
            }
            true
        },
    );
    if read.is_err() {
        return vec![];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_episode_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tokens.jsonl");
        let lines = concat!(
            "{\"id\":\"1:a:0\",\"steps\":[{\"pieces\":[\"x\"],\"logp\":[-0.5],\"ratio\":null}]}\n",
            "{\"id\":\"1:a:1\",\"steps\":[{\"pieces\":[\"<b>\",\"y\"],\"logp\":[-1.0,0.0],\"ratio\":[1.25,null]}]}\n",
            "{\"id\":\"1:a:1\",\"steps\":[{\"pieces\"",
        );
        std::fs::write(&path, lines).unwrap();
        let found = read(&path, "1:a:1");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pieces, ["<b>", "y"]);
        assert_eq!(found[0].ratio, Some(vec![Some(1.25), None]));
        assert!(read(&path, "1:b:1").is_empty());
        assert!(read(&folder.path().join("none"), "1:a:1").is_empty());
    }
}
