//! `episodes/iteration-000007.tokens.jsonl`: for every trained token of an episode its text, the log-probability it was
//! sampled with, and the ratio of the learner's probability to the old one in the last update that used it.

use arpo_core::trajectory::{EpisodeId, TokenId, Trajectory};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// An episode whose tokens are written.
#[derive(Debug, Clone)]
pub struct TokenRecord {
    /// The episode.
    pub trajectory: Arc<Trajectory>,
    /// Of each of its trained tokens; `None` if the episode was not in an update.
    pub ratios: Option<Vec<f32>>,
    /// The iteration it was replayed in, if it was.
    pub replayed_in: Option<u64>,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a EpisodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration: Option<u64>,
    steps: Vec<StepLine>,
}

#[derive(Serialize)]
struct StepLine {
    pieces: Vec<String>,
    logp: Vec<f64>,
    ratio: Option<Vec<f64>>,
}

/// The lines of episodes.
pub fn lines(records: &[TokenRecord], pieces: &mut Pieces) -> Result<Vec<u8>, serde_json::Error> {
    let mut lines = Vec::new();
    for TokenRecord { trajectory, ratios, replayed_in } in records {
        let mut steps = Vec::with_capacity(trajectory.steps.len());
        let mut before = 0;
        for view in trajectory.views() {
            for step in &trajectory.steps[view.steps] {
                let trained = before..before + step.span.len();
                before = trained.end;
                steps.push(StepLine {
                    pieces: pieces.of(&view.tokens[step.span.start..step.span.end]),
                    logp: rounded(&trajectory.sampler_logp[trained.clone()]),
                    ratio: ratios.as_ref().map(|ratios| rounded(&ratios[trained])),
                });
            }
        }
        serde_json::to_writer(&mut lines, &Line { id: &trajectory.id, iteration: *replayed_in, steps })?;
        lines.push(b'\n');
    }
    Ok(lines)
}

/// To four decimals, which is what can be seen; the trajectory has the exact values.
fn rounded(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| (f64::from(value) * 1e4).round() / 1e4).collect()
}

/// Decodes tokens to text; `None` if they cannot be decoded.
pub type Decode = Arc<dyn Fn(&[u32]) -> Option<String> + Send + Sync>;

/// The text of single tokens, each decoded once.
pub struct Pieces {
    decode: Decode,
    known: HashMap<u32, String>,
}

/// Stands for bytes that are not text by themselves.
const NO_TEXT: char = '\u{fffd}';

/// A character has at most four bytes, so its parts are in at most this many tokens.
const LONGEST: usize = 4;

impl Pieces {
    /// Text by this decoder.
    pub fn new(decode: Decode) -> Self {
        Self { decode, known: HashMap::new() }
    }

    /// The text of each token. A character that is divided among several tokens is given to the last of them.
    fn of(&mut self, tokens: &[TokenId]) -> Vec<String> {
        let mut pieces: Vec<String> = tokens.iter().map(|token| self.one(token.0)).collect();
        let mut at = 0;
        while at < tokens.len() {
            if !pieces[at].contains(NO_TEXT) {
                at += 1;
                continue;
            }
            let longest = LONGEST.min(tokens.len() - at);
            let whole = (2..=longest).find_map(|count| {
                let ids: Vec<u32> = tokens[at..at + count].iter().map(|token| token.0).collect();
                let text = (self.decode)(&ids).filter(|text| !text.contains(NO_TEXT))?;
                Some((count, text))
            });
            let Some((count, text)) = whole else {
                at += 1;
                continue;
            };
            pieces[at..at + count].fill(String::new());
            pieces[at + count - 1] = text;
            at += count;
        }
        pieces
    }

    fn one(&mut self, token: u32) -> String {
        let Self { decode, known } = self;
        known.entry(token).or_insert_with(|| decode(&[token]).unwrap_or_else(|| NO_TEXT.into())).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::task::TaskId;
    use arpo_core::trajectory::{ImageRef, Observation, Outcome, PolicyVersion, Slice, Step, TokenSpan};
    use serde_json::{Value, json};

    fn bytes() -> Pieces {
        let decode = |tokens: &[u32]| {
            let bytes: Vec<u8> = tokens.iter().map(|&token| token as u8).collect();
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        Pieces::new(Arc::new(decode))
    }

    fn of(text: &[u8]) -> Vec<String> {
        let tokens: Vec<TokenId> = text.iter().map(|&byte| TokenId(u32::from(byte))).collect();
        bytes().of(&tokens)
    }

    #[test]
    fn a_divided_character_goes_to_its_last_token() {
        assert_eq!(of("a é b".as_bytes()), ["a", " ", "", "é", " ", "b"]);
        assert_eq!(of("🙂!".as_bytes()), ["", "", "", "🙂", "!"]);
        // half a character at the end stays unreadable
        assert_eq!(of(b"a\xc3"), ["a", "\u{fffd}"]);
        assert_eq!(of(b""), Vec::<String>::new());
    }

    /// Two slices, so that positions among the trained tokens and positions in a slice differ.
    #[test]
    fn every_token_has_its_own_values() {
        let tokens = |text: &str| text.bytes().map(|byte| TokenId(u32::from(byte))).collect::<Vec<_>>();
        let step = |start, end| Step {
            observation: Observation { screenshot: ImageRef { digest: "abc".into(), width: 8, height: 6 } },
            response: String::new(),
            actions: vec![],
            span: TokenSpan { start, end },
        };
        let task = TaskId::new("t");
        let trajectory = Arc::new(Trajectory {
            id: EpisodeId::new(3, &task, 1),
            task,
            policy_version: PolicyVersion(3),
            slices: vec![
                Slice { tokens: tokens("..ab..cd"), first_live: 0, end: 2 },
                Slice { tokens: tokens("....e"), first_live: 2, end: 3 },
            ],
            steps: vec![step(2, 4), step(6, 8), step(4, 5)],
            sampler_logp: vec![-0.1, -0.2, -0.3, -0.4, -0.123_456],
            score: 1.0,
            well_formed: true,
            outcome: Outcome::Finished {},
        });
        trajectory.check().unwrap();
        let ratios = Some(vec![1.1, 1.2, 1.3, 1.4, 0.5]);
        let fresh = TokenRecord { trajectory: Arc::clone(&trajectory), ratios, replayed_in: None };
        let replayed = TokenRecord { trajectory, ratios: None, replayed_in: Some(9) };
        let written = lines(&[fresh, replayed], &mut bytes()).unwrap();
        let read: Vec<Value> = written
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(
            read[0],
            json!({"id": "3:t:1", "steps": [
                {"pieces": ["a", "b"], "logp": [-0.1, -0.2], "ratio": [1.1, 1.2]},
                {"pieces": ["c", "d"], "logp": [-0.3, -0.4], "ratio": [1.3, 1.4]},
                {"pieces": ["e"], "logp": [-0.1235], "ratio": [0.5]},
            ]})
        );
        assert_eq!((&read[1]["iteration"], &read[1]["steps"][2]["ratio"]), (&json!(9), &Value::Null));
    }
}
