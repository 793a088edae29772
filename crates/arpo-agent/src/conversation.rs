//! The conversation before a turn: system prompt, task, then screenshots and responses in alternation.
//!
//! It contains at most N screenshots, selected by the [`window`](crate::window). What is left of older turns depends on the
//! style: their text, with a short text in place of the screenshot; or one line each beside the first screenshot.

use crate::style::{AgentStyle, PastTurns};
use crate::{computer_use, prompt};
use arpo_core::trajectory::ImageRef;

/// The role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The system prompt.
    System,
    /// The task and the screenshots.
    User,
    /// The agent.
    Assistant,
}

impl Role {
    /// As chat templates name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// A part of a message: text or an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text.
    Text(String),
    /// An image by reference.
    Image(ImageRef),
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its role.
    pub role: Role,
    /// Its parts, in order.
    pub content: Vec<Content>,
}

impl Message {
    /// A message of one text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, content: vec![Content::Text(text.into())] }
    }

    /// A message of one image.
    pub fn image(role: Role, image: ImageRef) -> Self {
        Self { role, content: vec![Content::Image(image)] }
    }
}

/// One past turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What the agent saw.
    pub screenshot: ImageRef,
    /// Its response.
    pub response: String,
}

/// The messages before the next turn: all past turns, then the current screenshot. Without `current` (at the end of the
/// episode or of a slice) it ends with the last response.
pub fn conversation(
    instruction: &str,
    past: &[Turn],
    current: Option<&ImageRef>,
    style: &AgentStyle,
) -> Vec<Message> {
    let first_live = style.window.first_live(past.len() + usize::from(current.is_some()));
    let task = prompt::for_task(&style.template, instruction);
    let system = Message::text(Role::System, style.system.clone());
    let rest = match style.past {
        PastTurns::Responses { restore_box_tokens } => {
            with_responses(task, past, current, first_live, restore_box_tokens)
        }
        PastTurns::Summary => with_summary(&task, past, current, first_live),
    };
    std::iter::once(system).chain(rest).collect()
}

fn with_responses(
    task: String,
    past: &[Turn],
    current: Option<&ImageRef>,
    first_live: usize,
    restore_box_tokens: bool,
) -> Vec<Message> {
    let mut messages = vec![Message::text(Role::User, task)];
    for (number, turn) in past.iter().enumerate() {
        messages.push(if number < first_live {
            Message::text(Role::User, prompt::OMITTED_SCREENSHOT)
        } else {
            Message::image(Role::User, turn.screenshot.clone())
        });
        let response =
            if restore_box_tokens { with_box_tokens(&turn.response) } else { turn.response.clone() };
        messages.push(Message::text(Role::Assistant, response));
    }
    messages.extend(current.map(|image| Message::image(Role::User, image.clone())));
    messages
}

/// Text without special tokens: what the model wrote must not become an image or another message when it is quoted.
fn plain(text: &str) -> String {
    text.replace("<|", "< |")
}

/// As Qwen3-VL's agents have it: only turns whose screenshot is shown stay, and the first of them also holds the task and a
/// line for each earlier step.
fn with_summary(task: &str, past: &[Turn], current: Option<&ImageRef>, first_live: usize) -> Vec<Message> {
    let (earlier, live) = past.split_at(first_live.min(past.len()));
    let lines: Vec<String> = earlier
        .iter()
        .enumerate()
        .map(|(number, turn)| (number + 1, plain(&computer_use::step_summary(&turn.response))))
        .map(|(step, summary)| format!("Step {step}: {summary}"))
        .collect();
    let summary = if lines.is_empty() { "None".to_owned() } else { lines.join("\n") };
    let mut text = Some(Content::Text(format!("{task}{summary}")));
    let mut screenshot = |image: &ImageRef| Message {
        role: Role::User,
        content: std::iter::once(Content::Image(image.clone())).chain(text.take()).collect(),
    };
    let mut messages = Vec::new();
    for turn in live {
        messages.push(screenshot(&turn.screenshot));
        messages.push(Message::text(Role::Assistant, turn.response.clone()));
    }
    messages.extend(current.map(screenshot));
    messages
}

/// Wraps `(x,y)` of start and end boxes in the special tokens that UI-TARS generates around coordinates and that decoding
/// drops. As in the reference: only integers without a space between them, and text after further `Action: ` markers is
/// joined by blank lines.
pub fn with_box_tokens(response: &str) -> String {
    let mut parts = response.split("Action: ");
    let before = parts.next().unwrap_or("");
    let actions: Vec<String> = parts.map(|action| wrap_boxes(action.trim())).collect();
    if actions.is_empty() || !response.contains("start_box=") {
        return response.to_owned();
    }
    format!("{before}Action: {}", actions.join("\n\n"))
}

fn wrap_boxes(action: &str) -> String {
    let mut wrapped = String::with_capacity(action.len() + 64);
    let mut rest = action;
    while let Some(at) = rest.find("_box='(") {
        let open = at + "_box='".len();
        let (before, from_open) = rest.split_at(open);
        wrapped.push_str(before);
        let close = from_open.find(")'").map(|close| close + 1);
        match close {
            Some(close) if is_point(&from_open[..close]) && is_box_name(before) => {
                wrapped.push_str("<|box_start|>");
                wrapped.push_str(&from_open[..close]);
                wrapped.push_str("<|box_end|>");
                rest = &from_open[close..];
            }
            _ => {
                wrapped.push('(');
                rest = &from_open[1..];
            }
        }
    }
    wrapped + rest
}

/// `(12,34)`: two integers.
fn is_point(text: &str) -> bool {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    inner.and_then(|inner| inner.split_once(',')).is_some_and(|(x, y)| digits(x) && digits(y))
}

fn is_box_name(before: &str) -> bool {
    before.ends_with("start_box='") || before.ends_with("end_box='")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::ScreenshotWindow;

    fn screenshot_ref(number: usize) -> ImageRef {
        ImageRef { digest: number.to_string(), width: 1920, height: 1080 }
    }

    fn turns(count: usize) -> Vec<Turn> {
        let turn = |number| Turn {
            screenshot: screenshot_ref(number),
            response: format!("Action: wait() #{number}"),
        };
        (0..count).map(turn).collect()
    }

    /// "p0 r0 p1" for screenshots and responses, "-" for an omitted screenshot, without the two opening messages.
    fn outline(past: usize, current: Option<usize>, max: usize, advance: usize) -> String {
        let style = AgentStyle::uitars(ScreenshotWindow::new(max, advance));
        let messages = conversation("x", &turns(past), current.map(screenshot_ref).as_ref(), &style);
        assert_eq!(messages[0].role, Role::System);
        assert_eq!(messages[1].role, Role::User);
        let name = |message: &Message| match message.content.as_slice() {
            [Content::Image(image)] => format!("p{}", image.digest),
            [Content::Text(text)] if message.role == Role::User => {
                assert_eq!(text, prompt::OMITTED_SCREENSHOT);
                "-".into()
            }
            [Content::Text(text)] => format!("r{}", text.rsplit('#').next().unwrap_or("")),
            parts => panic!("{} parts", parts.len()),
        };
        messages[2..].iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn screenshots_and_responses_alternate() {
        assert_eq!(outline(0, Some(0), 15, 0), "p0");
        assert_eq!(outline(2, Some(2), 15, 0), "p0 r0 p1 r1 p2");
        assert_eq!(outline(2, None, 15, 0), "p0 r0 p1 r1");
    }

    #[test]
    fn only_live_screenshots_are_shown() {
        assert_eq!(outline(3, Some(3), 2, 1), "- r0 - r1 p2 r2 p3");
        assert_eq!(outline(3, Some(3), 1, 0), "- r0 - r1 - r2 p3");
        assert_eq!(outline(3, None, 2, 1), "- r0 p1 r1 p2 r2");
        let shown = |past| outline(past, Some(past), 15, 5).matches('p').count();
        assert_eq!([13, 14, 15, 19, 20, 40].map(shown), [14, 15, 11, 15, 11, 11]);
    }

    /// Keeps the KV cache of the prefix valid: until the window advances, a conversation extends the previous one.
    #[test]
    fn between_advances_a_conversation_only_grows() {
        let mut kept = 0;
        for past in 1..40 {
            let [before, now] = [past - 1, past].map(|past| outline(past, Some(past), 6, 3));
            kept += usize::from(now.starts_with(&before));
        }
        assert_eq!(kept, 39 - 12, "an advance at the 7th screenshot and at every third after it");
    }

    #[test]
    fn box_tokens_are_restored() {
        assert_eq!(
            with_box_tokens("Action: drag(start_box='(1,2)', end_box='(3,4)')"),
            "Action: drag(start_box='<|box_start|>(1,2)<|box_end|>', end_box='<|box_start|>(3,4)<|box_end|>')"
        );
        for untouched in [
            "Action: click(start_box='(1.5,2)')",
            "Action: type(content='(1,2)')",
            "click(start_box='(1,2)')",
        ] {
            assert_eq!(with_box_tokens(untouched), untouched);
        }
    }
}
