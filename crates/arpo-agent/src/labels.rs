//! Which tokens of an episode are the agent's and therefore trained.
//!
//! A chat template writes a turn as a header (`<|im_start|>assistant` and a line break), the response, an end token and a
//! line break. The response and the end token are trained. This finds them in externally tokenised conversations; those
//! built by this program track them directly.

use arpo_core::trajectory::{TokenId, TokenSpan};

/// The tokens a chat template puts around an agent's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnMarks {
    /// The tokens that open the turn; not empty.
    pub header: Vec<TokenId>,
    /// The token that ends it.
    pub end: TokenId,
}

/// The trained span of each turn of the agent, in order. A last turn without an end token (truncated by a limit) extends
/// to the end of the sequence.
pub fn trained_spans(tokens: &[TokenId], marks: &TurnMarks) -> Vec<TokenSpan> {
    assert!(!marks.header.is_empty(), "a turn without a header cannot be found");
    let mut spans = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].starts_with(&marks.header) {
            at += 1;
            continue;
        }
        let start = at + marks.header.len();
        let end = tokens[start..].iter().position(|&token| token == marks.end);
        let end = end.map_or(tokens.len(), |length| start + length + 1);
        spans.push(TokenSpan { start, end });
        at = end;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 2 opens a turn, 9 ends it, 8 separates.
    fn spans(tokens: &[u32]) -> Vec<(usize, usize)> {
        let tokens: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
        let marks = TurnMarks { header: vec![TokenId(1), TokenId(2)], end: TokenId(9) };
        trained_spans(&tokens, &marks).iter().map(|span| (span.start, span.end)).collect()
    }

    #[test]
    fn responses_and_end_tokens_are_trained() {
        let tokens = [1, 5, 9, 8, 1, 2, 5, 6, 9, 8, 1, 2, 9, 8, 7];
        assert_eq!(spans(&tokens), [(6, 9), (12, 13)]);
    }

    #[test]
    fn a_truncated_turn_extends_to_the_end() {
        assert_eq!(spans(&[1, 2, 5, 6]), [(2, 4)]);
        assert_eq!(spans(&[1, 2]), [(2, 2)]);
        assert_eq!(spans(&[]), []);
    }
}
