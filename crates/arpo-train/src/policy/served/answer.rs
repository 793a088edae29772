//! Whether an answer may be trained on: it comes from the current weights, and from exactly the prompt that the learner will
//! read.

use super::fleet::Target;
use super::protocol::{Sampled, ServedOptions, ServedPrompt};
use std::fmt::Debug;

/// Tokens shown on either side of a difference.
const AROUND: usize = 6;

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It was sampled with other weights, at least in part.
    OtherWeights(String),
    /// The server tokenised earlier responses in another way than they were sampled.
    Retokenised(String),
    /// The server's context ended before the response did.
    Cut(String),
    /// It is not an answer to what was asked: the server reads prompts or images in another way.
    Wrong(String),
}

/// Checks an answer to a prompt, given by a server with the target's weights.
pub(super) fn check(
    sampled: &Sampled,
    prompt: &ServedPrompt,
    target: &Target,
    options: &ServedOptions,
) -> Result<(), Fault> {
    if sampled.labels.is_empty() || sampled.labels.iter().any(|label| *label != target.label) {
        return Err(Fault::OtherWeights(format!(
            "it answered with weights {:?}: expected {:?}; was it started again, or does another run use it?",
            sampled.labels, target.label
        )));
    }
    check_prompt(sampled, prompt)?;
    if !sampled.complete && !sampled.tokens.is_empty() && sampled.tokens.len() < options.max_tokens {
        return Err(Fault::Cut(format!(
            "its context ended after {} tokens of the response: expected a larger --max-model-len, or a smaller \
             `agent.max_screenshots` or `agent.max_tokens`",
            sampled.tokens.len()
        )));
    }
    check_tokens(sampled, options).map_err(Fault::Wrong)
}

fn check_prompt(sampled: &Sampled, prompt: &ServedPrompt) -> Result<(), Fault> {
    let Some(theirs) = &sampled.prompt else {
        return Err(Fault::Wrong("it does not say which prompt it read: expected prompt_token_ids".into()));
    };
    if let Some(difference) = difference(&prompt.tokens, theirs) {
        let reason = format!("it read another prompt than the learner will: {difference}");
        return Err(if sampled.retokenised { Fault::Retokenised(reason) } else { Fault::Wrong(reason) });
    }
    match &sampled.images {
        Some(images) if *images != prompt.images => Err(Fault::Wrong(format!(
            "it put the images elsewhere: ours {:?}, the server's {images:?}",
            prompt.images
        ))),
        None if !prompt.images.is_empty() && !sampled.retokenised => {
            Err(Fault::Wrong(format!("it saw no images: expected {}", prompt.images.len())))
        }
        _ => Ok(()),
    }
}

/// Where two sequences differ first, with what is around it in both; `None` if they are equal.
fn difference<T: PartialEq + Debug>(ours: &[T], theirs: &[T]) -> Option<String> {
    let equal = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
    if equal == ours.len() && equal == theirs.len() {
        return None;
    }
    let part = |tokens: &[T]| {
        let (start, end) = (equal.saturating_sub(AROUND), (equal + AROUND).min(tokens.len()));
        format!("{:?}", &tokens[start.min(end)..end])
    };
    Some(format!(
        "ours has {} tokens, the server's {}, and they differ from token {equal} on: ours {}, the server's {}",
        ours.len(),
        theirs.len(),
        part(ours),
        part(theirs)
    ))
}

fn check_tokens(sampled: &Sampled, options: &ServedOptions) -> Result<(), String> {
    let Sampled { tokens, logp, complete, .. } = sampled;
    if tokens.is_empty() || tokens.len() > options.max_tokens {
        return Err(format!("a response of {} tokens: expected 1 to {}", tokens.len(), options.max_tokens));
    }
    if tokens.len() != logp.len() {
        return Err(format!("{} tokens with {} log-probabilities", tokens.len(), logp.len()));
    }
    if let Some(odd) = logp.iter().find(|logp| !logp.is_finite() || **logp > 1e-3) {
        return Err(format!("a log-probability of {odd}: expected a number up to 0"));
    }
    if let Some(token) = tokens.iter().find(|token| options.forbidden.contains(token)) {
        return Err(format!("it sampled token {token}, which the request forbids"));
    }
    let ended = tokens.iter().position(|&token| token == options.end_token);
    let expected = complete.then(|| tokens.len() - 1);
    if ended != expected {
        return Err(format!(
            "a response that {} with its end token {} at {ended:?} of {} tokens",
            if *complete { "ended by itself" } else { "was cut off" },
            options.end_token,
            tokens.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ServedOptions {
        ServedOptions {
            max_tokens: 3,
            end_token: 2,
            forbidden: vec![5, 6],
            trained_temperature: 1.0,
            images: 4,
            tied_head: false,
            key_variable: "KEY".into(),
            has_key: false,
        }
    }

    fn sampled(tokens: &[u32], complete: bool) -> Sampled {
        Sampled {
            tokens: tokens.to_vec(),
            logp: vec![-0.5; tokens.len()],
            complete,
            labels: vec![],
            prompt: None,
            images: None,
            retokenised: false,
        }
    }

    #[test]
    fn a_difference_shows_both() {
        assert_eq!(difference(&[1, 2, 3], &[1, 2, 3]), None);
        let shown = difference(&[1, 2, 3], &[1, 2, 4, 5]).unwrap();
        assert_eq!(
            shown,
            "ours has 3 tokens, the server's 4, and they differ from token 2 on: ours [1, 2, 3], the server's [1, 2, 4, 5]"
        );
        assert!(difference(&[1, 2], &[1]).unwrap().ends_with("ours [1, 2], the server's [1]"));
        assert!(difference(&[1], &[]).unwrap().ends_with("ours [1], the server's []"));
    }

    #[test]
    fn tokens_are_as_they_were_asked_for() {
        assert_eq!(check_tokens(&sampled(&[9, 2], true), &options()), Ok(()));
        assert_eq!(check_tokens(&sampled(&[9, 9, 9], false), &options()), Ok(()));
        let problem = |sampled: &Sampled| check_tokens(sampled, &options()).unwrap_err();
        assert!(problem(&sampled(&[], true)).contains("0 tokens"));
        assert!(problem(&sampled(&[9, 9, 9, 2], true)).contains("4 tokens"));
        assert!(problem(&sampled(&[5, 2], true)).contains("forbids"));
        assert!(problem(&sampled(&[9, 9], true)).contains("ended by itself"));
        assert!(problem(&sampled(&[2, 9, 9], false)).contains("was cut off"));
        let with = |logp: &[f32]| Sampled { logp: logp.to_vec(), ..sampled(&[9, 2], true) };
        assert!(problem(&with(&[-0.5])).contains("1 log-probabilities"));
        for odd in [f32::NAN, f32::NEG_INFINITY, 0.5] {
            assert!(problem(&with(&[-0.5, odd])).contains("expected a number up to 0"), "{odd}");
        }
    }
}
