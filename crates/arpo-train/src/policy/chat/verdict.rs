//! What is done about a chat server's error, and what the user is told. Servers word their errors differently; the texts
//! looked for here are those of vLLM and of OpenAI.

use crate::policy::http::Problem;
use std::time::Duration;

/// Wait for a server that has too many requests and does not say how long.
const BUSY_DELAY: Duration = Duration::from_secs(2);

/// What an error message can refer to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Advice<'a> {
    pub(super) key_variable: &'a str,
    pub(super) has_key: bool,
    pub(super) max_screenshots: usize,
    pub(super) model: &'a str,
}

/// What is done about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask the next server.
    Retry(String),
    /// Ask again after this time.
    Wait(Duration, String),
    /// This episode cannot be continued.
    Lost(String),
    /// Every request would fail in the same way.
    Fatal(String),
}

/// What is done about an error.
pub(super) fn verdict(problem: &Problem, advice: &Advice) -> Verdict {
    match problem {
        Problem::Unreachable(_) | Problem::Garbled(_) => Verdict::Retry(problem.to_string()),
        Problem::Busy { after, .. } => Verdict::Wait(after.unwrap_or(BUSY_DELAY), problem.to_string()),
        Problem::Refused { status, message } => refused(*status, message, problem, advice),
    }
}

fn refused(status: u16, message: &str, problem: &Problem, advice: &Advice) -> Verdict {
    let Advice { key_variable, has_key, max_screenshots, model } = advice;
    let says = |text: &str| message.to_lowercase().contains(text);
    match status {
        401 | 403 if *has_key => Verdict::Fatal(format!("it refuses the key in {key_variable}: {problem}")),
        401 | 403 => Verdict::Fatal(format!("it wants a key, and {key_variable} is not set: {problem}")),
        404 if says("model") => {
            Verdict::Fatal(format!("it has no model {model:?} (`chat.model`, --model): {problem}"))
        }
        404 => Verdict::Fatal(format!(
            "it has no chat interface here: expected the URL of an OpenAI-compatible server, ending in /v1: {problem}"
        )),
        400 if says("image") && (says("at most") || says("too many")) => Verdict::Fatal(format!(
            "it takes fewer images in a request than `agent.max_screenshots` = {max_screenshots}: expected a smaller \
             number, or vLLM started with --limit-mm-per-prompt '{{\"image\": {max_screenshots}}}': {problem}"
        )),
        400 | 413
            if says("context length") || says("too long") || says("maximum context") || status == 413 =>
        {
            Verdict::Lost(format!(
                "the conversation is longer than the server takes: expected a smaller `agent.max_screenshots` or \
                 `agent.max_tokens`, or vLLM started with a larger --max-model-len: {problem}"
            ))
        }
        400..=499 if status != 408 => Verdict::Lost(problem.to_string()),
        _ => Verdict::Retry(problem.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, message: &str) -> Verdict {
        let advice = Advice { key_variable: "KEY", has_key: false, max_screenshots: 5, model: "ui-tars" };
        verdict(&Problem::Refused { status, message: message.into() }, &advice)
    }

    fn fatal(verdict: Verdict) -> String {
        match verdict {
            Verdict::Fatal(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// The messages are those of vLLM 0.32.
    #[test]
    fn mistakes_that_every_request_repeats_are_fatal_and_explained() {
        let model = fatal(of(404, "The model `ui-tars` does not exist. Valid aliases: pocket."));
        assert!(
            model.starts_with("it has no model \"ui-tars\"") && model.ends_with("Valid aliases: pocket.")
        );
        let images = fatal(of(400, "At most 1 image(s) may be provided in one prompt. (parameter=image)"));
        assert!(images.contains("--limit-mm-per-prompt '{\"image\": 5}'"), "{images}");
        assert!(fatal(of(404, "Not Found")).contains("ending in /v1"));
        let key = fatal(of(401, "Unauthorized"));
        assert!(key.starts_with("it wants a key, and KEY is not set"), "{key}");
        let refused = Problem::Refused { status: 401, message: "Unauthorized".into() };
        let with_key = Advice { key_variable: "KEY", has_key: true, max_screenshots: 5, model: "m" };
        assert!(fatal(verdict(&refused, &with_key)).starts_with("it refuses the key in KEY"));
    }

    #[test]
    fn a_long_conversation_costs_its_episode_only() {
        let message = "This model's maximum context length is 4096 tokens. However, your prompt contains 5040 input tokens";
        let Verdict::Lost(reason) = of(400, message) else { panic!("not lost") };
        assert!(reason.contains("--max-model-len") && reason.contains("5040 input tokens"), "{reason}");
        assert!(matches!(of(400, "no such parameter"), Verdict::Lost(_)));
    }

    #[test]
    fn failures_are_tried_elsewhere_and_busy_servers_again() {
        assert!(matches!(of(500, "oops"), Verdict::Retry(_)) && matches!(of(408, ""), Verdict::Retry(_)));
        let busy = |after| verdict(&Problem::Busy { after, message: "slow down".into() }, &Advice::default());
        let three = Duration::from_secs(3);
        assert_eq!(busy(Some(three)), Verdict::Wait(three, "too many requests: slow down".into()));
        assert!(matches!(busy(None), Verdict::Wait(BUSY_DELAY, _)));
    }
}
