//! Run-length encoding of tokens on disk: equal neighbours are written once, as `[token, times]`. A screenshot is thousands
//! of equal placeholders, and an episode of fifteen would take a third of a megabyte without this.

use crate::trajectory::TokenId;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Shorter runs are written token by token.
const SHORTEST_RUN: usize = 4;

/// Limit for the length of a sequence: a longer one means a corrupt file, which must not exhaust the memory.
const LONGEST: usize = 1 << 24;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    One(u32),
    Run(u32, usize),
}

/// For `#[serde(with)]`.
pub(crate) fn serialize<S: Serializer>(tokens: &[TokenId], serializer: S) -> Result<S::Ok, S::Error> {
    let entries = tokens.chunk_by(|a, b| a == b).flat_map(|run| {
        let token = run[0].0;
        let (singles, runs) = if run.len() < SHORTEST_RUN { (run.len(), 0) } else { (0, 1) };
        let runs = std::iter::repeat_with(move || Entry::Run(token, run.len())).take(runs);
        std::iter::repeat_with(move || Entry::One(token)).take(singles).chain(runs)
    });
    serializer.collect_seq(entries)
}

/// For `#[serde(with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TokenId>, D::Error> {
    let mut tokens = vec![];
    for entry in Vec::<Entry>::deserialize(deserializer)? {
        let (token, times) = match entry {
            Entry::One(token) => (token, 1),
            Entry::Run(token, times) => (token, times),
        };
        if times > LONGEST - tokens.len() {
            return Err(D::Error::custom(format!("a sequence of more than {LONGEST} tokens")));
        }
        tokens.resize(tokens.len() + times, TokenId(token));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Tokens(#[serde(with = "super")] Vec<TokenId>);

    fn tokens(runs: &[(u32, usize)]) -> Tokens {
        Tokens(runs.iter().flat_map(|&(token, times)| std::iter::repeat_n(TokenId(token), times)).collect())
    }

    #[test]
    fn runs_are_written_once() {
        let written = |tokens: &Tokens| serde_json::to_string(tokens).unwrap();
        let all = tokens(&[(1, 1), (2, 3), (7, 2691), (3, 1)]);
        assert_eq!(written(&all), "[1,2,2,2,[7,2691],3]");
        for one in [all, tokens(&[]), tokens(&[(5, 4), (6, 5)])] {
            assert_eq!(serde_json::from_str::<Tokens>(&written(&one)).unwrap(), one);
        }
    }

    #[test]
    fn a_run_that_is_too_long_is_rejected() {
        let problem = serde_json::from_str::<Tokens>("[[7,99999999999]]").unwrap_err().to_string();
        assert!(problem.starts_with("a sequence of more than 16777216 tokens"), "{problem}");
    }
}
