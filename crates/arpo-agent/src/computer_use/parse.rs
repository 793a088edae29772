//! From a response to its calls, line by line.
//!
//! Lines are stripped, and empty ones dropped. A line that begins with `action:` in any case describes the step and is never
//! anything else, even inside a call. Between the tags stands one JSON object; a line that is such an object counts without
//! tags as well. Tags may share a line with the JSON or follow the description. Everything else, a thought for example, is
//! ignored.
//!
//! A call that is not for this tool or has no known action is skipped, and an error only if nothing is left. A call with an
//! argument of the wrong type makes the whole response an error.

use super::vocabulary::{self, Problem};
use super::{ACTION, CLOSE, OPEN, TOOL};
use crate::parse::{ParseError, Response, syntax_error};
use arpo_core::action::{Action, MouseButton};
use serde_json::Value;

/// Parses a response. The thought is the line that describes the step.
///
/// ```
/// use arpo_agent::computer_use::parse;
/// use arpo_core::action::{Action, ModelBox};
///
/// let call = r#"{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [10, 20]}}"#;
/// let response = parse(&format!("Action: Save.\n<tool_call>\n{call}\n</tool_call>"))?;
/// assert_eq!(response.thought.as_deref(), Some("Save."));
/// assert_eq!(response.actions, [Action::Click { start_box: ModelBox::point(10.0, 20.0) }]);
/// # Ok::<(), arpo_agent::parse::ParseError>(())
/// ```
pub fn parse(response: &str) -> Result<Response, ParseError> {
    parsed(response, &Scan::of(response))
}

/// The line that stands for a past response in the prompt: its description, else the name of its first action, else
/// nothing.
pub fn step_summary(response: &str) -> String {
    let scan = Scan::of(response);
    if let Some(description) = scan.description {
        return description.to_owned();
    }
    let actions = parsed(response, &scan).map(|response| response.actions).unwrap_or_default();
    actions.first().map(|action| format!("Performing {} action", function(action))).unwrap_or_default()
}

fn parsed(response: &str, scan: &Scan) -> Result<Response, ParseError> {
    let (mut actions, mut skipped) = (vec![], None);
    for call in &scan.calls {
        match call.actions(response) {
            Ok(of_call) => actions.extend(of_call),
            Err(Unusable::Skipped(error)) => drop(skipped.get_or_insert(error)),
            Err(Unusable::Malformed(error)) => return Err(error),
        }
    }
    if actions.is_empty() {
        return Err(skipped.unwrap_or(ParseError::NoCall));
    }
    Ok(Response { thought: scan.description.map(str::to_owned), actions })
}

/// A piece of a response, without the white space around it.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    /// Its byte position in the response.
    at: usize,
}

impl<'a> Piece<'a> {
    fn new(text: &'a str, at: usize) -> Self {
        let start = text.len() - text.trim_start().len();
        Self { text: text.trim(), at: at + start }
    }

    fn from(self, byte: usize) -> Self {
        Self::new(&self.text[byte..], self.at + byte)
    }

    fn after(self, prefix: &str) -> Option<Self> {
        self.text.starts_with(prefix).then(|| self.from(prefix.len()))
    }

    fn is_description(self) -> bool {
        self.text.get(..ACTION.len()).is_some_and(|start| start.eq_ignore_ascii_case(ACTION))
    }
}

/// The JSON of one call, in lines.
#[derive(Default)]
struct Call<'a> {
    lines: Vec<Piece<'a>>,
}

/// Why a call gives no action.
enum Unusable {
    Skipped(ParseError),
    Malformed(ParseError),
}

/// The lines of a response, sorted.
#[derive(Default)]
struct Scan<'a> {
    description: Option<&'a str>,
    calls: Vec<Call<'a>>,
    open: Option<Call<'a>>,
}

impl<'a> Scan<'a> {
    fn of(response: &'a str) -> Self {
        let mut scan = Self::default();
        let mut at = 0;
        for line in response.split('\n') {
            let mut piece = Some(Piece::new(line, at));
            while let Some(next) = piece.filter(|piece| !piece.text.is_empty()) {
                piece = scan.take(next);
            }
            at += line.len() + 1;
        }
        // a response that was cut off may still hold a whole call
        scan.close();
        scan
    }

    /// Takes a line, or what is left of one; returns what it did not take.
    fn take(&mut self, piece: Piece<'a>) -> Option<Piece<'a>> {
        if piece.is_description() {
            let tag = piece.text.match_indices(OPEN).map(|(at, _)| at).find(|at| {
                let after = piece.text[at + OPEN.len()..].trim_start();
                after.is_empty() || after.starts_with('{')
            });
            self.describe(&piece.text[..tag.unwrap_or(piece.text.len())]);
            return tag.map(|tag| piece.from(tag));
        }
        if let Some(rest) = piece.after(OPEN) {
            self.open.get_or_insert_default();
            return Some(rest).filter(|rest| rest.text.starts_with('{'));
        }
        if let Some(rest) = piece.after(CLOSE) {
            self.close();
            return Some(rest).filter(|rest| rest.text.starts_with(OPEN));
        }
        let Some(call) = &mut self.open else {
            let alone = Call { lines: vec![piece] };
            let is_call = |value: &Value| value.get("name").is_some() && value.get("arguments").is_some();
            if piece.text.starts_with('{') && alone.decode().is_ok_and(|value| is_call(&value)) {
                self.calls.push(alone);
            }
            return None;
        };
        // the closing tag may stand behind the JSON; inside a string it is text
        for (tag, _) in piece.text.match_indices(CLOSE) {
            let before = Piece::new(&piece.text[..tag], piece.at);
            if before.text.ends_with('}') {
                call.lines.push(before);
                if call.decode().is_ok() {
                    return Some(piece.from(tag));
                }
                call.lines.pop();
            }
        }
        call.lines.push(piece);
        None
    }

    /// The first description that is not empty counts. It is what follows the last marker, or the whole line if the marker is
    /// in another case.
    fn describe(&mut self, line: &'a str) {
        let description = line.rsplit(ACTION).next().unwrap_or(line).trim();
        if self.description.is_none() && !description.is_empty() {
            self.description = Some(description);
        }
    }

    fn close(&mut self) {
        self.calls.extend(self.open.take().filter(|call| !call.lines.is_empty()));
    }
}

impl Call<'_> {
    fn decode(&self) -> serde_json::Result<Value> {
        let lines: Vec<&str> = self.lines.iter().map(|line| line.text).collect();
        serde_json::from_str(&lines.join("\n"))
    }

    fn actions(&self, response: &str) -> Result<Vec<Action>, Unusable> {
        let start = self.lines.first().map_or(0, |line| line.at);
        let expected = |expected: &str| syntax_error(response, start, expected);
        let value = self.decode().map_err(|error| Unusable::Skipped(self.undecodable(response, &error)))?;
        let object = value.as_object().ok_or_else(|| {
            Unusable::Malformed(expected(
                "a tool call like {\"name\": \"computer_use\", \"arguments\": {...}}",
            ))
        })?;
        if object.get("name").and_then(Value::as_str) != Some(TOOL) {
            return Err(Unusable::Skipped(expected("a call with \"name\": \"computer_use\"")));
        }
        let arguments = match object.get("arguments") {
            None => return Err(Unusable::Skipped(expected("a call with \"arguments\""))),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Unusable::Malformed(expected("\"arguments\" that are an object"))),
        };
        let name = match arguments.get("action") {
            None => return Err(Unusable::Skipped(expected("arguments with \"action\""))),
            Some(Value::String(name)) => name,
            Some(_) => return Err(Unusable::Skipped(expected("an \"action\" that is a string"))),
        };
        let meaning = |expected: String| {
            let at = response[..start].chars().count();
            ParseError::Meaning { at, action: name.clone(), expected }
        };
        vocabulary::actions(name, arguments).map_err(|problem| match problem {
            Problem::UnknownAction => {
                let known = vocabulary::NAMES.join(", ");
                Unusable::Skipped(expected(&format!("one of the actions {known}, not {name:?}")))
            }
            Problem::Argument(needs) => Unusable::Malformed(meaning(needs)),
        })
    }

    /// The decoder's line and column as a position in the response.
    fn undecodable(&self, response: &str, error: &serde_json::Error) -> ParseError {
        let line = self.lines.get(error.line().saturating_sub(1)).or(self.lines.last());
        let at = line.map_or(0, |line| line.at + error.column().saturating_sub(1).min(line.text.len()));
        let at = (0..=at.min(response.len())).rev().find(|&at| response.is_char_boundary(at)).unwrap_or(0);
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default();
        syntax_error(response, at, &format!("a tool call in JSON ({reason})"))
    }
}

/// What the reference calls an action in a summary: the function of pyautogui that it runs.
fn function(action: &Action) -> &'static str {
    match action {
        Action::Click { .. } | Action::ClickHere { button: MouseButton::Left, times: 1 } => "click",
        Action::RightSingle { .. } | Action::ClickHere { button: MouseButton::Right, .. } => "rightClick",
        Action::MiddleSingle { .. } | Action::ClickHere { button: MouseButton::Middle, .. } => "middleClick",
        Action::LeftDouble { .. } | Action::ClickHere { times: 2, .. } => "doubleClick",
        Action::LeftTriple { .. } | Action::ClickHere { .. } => "tripleClick",
        Action::Hover { .. } => "moveTo",
        Action::Drag { .. } | Action::DragTo { .. } | Action::Select { .. } => "dragTo",
        Action::Wheel { horizontal: true, .. } => "hscroll",
        Action::Wheel { .. } | Action::Scroll { .. } => "scroll",
        Action::Hotkey { .. } => "hotkey",
        Action::Press { .. } | Action::Type { .. } | Action::TypeVerbatim { .. } => "press",
        Action::Keydown { .. } => "keyDown",
        Action::Keyup { .. } => "keyUp",
        Action::Wait {} | Action::Other { .. } => "wait",
        Action::Finished { .. } => "done",
        Action::Infeasible {} | Action::CallUser {} | Action::ErrorEnv {} => "fail",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::action::ModelBox;

    const CLICK: &str =
        r#"{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [1, 2]}}"#;

    fn call(arguments: &str) -> String {
        format!("<tool_call>\n{{\"name\": \"computer_use\", \"arguments\": {arguments}}}\n</tool_call>")
    }

    #[test]
    fn tags_need_no_lines_of_their_own() {
        let click = Action::Click { start_box: ModelBox::point(1.0, 2.0) };
        for (text, calls) in [
            (format!("<tool_call>{CLICK}</tool_call><tool_call>{CLICK}</tool_call>"), 2),
            (format!("Action: go <tool_call>{CLICK}</tool_call>"), 1),
            (format!("Action: type <tool_call> there\n<tool_call>\n{CLICK}\n</tool_call>"), 1),
            (format!("<tool_call>\nAction: late\n{CLICK}"), 1),
            (format!("{CLICK}\n{CLICK}"), 2),
        ] {
            assert_eq!(parse(&text).unwrap().actions, vec![click.clone(); calls], "{text}");
        }
        let tags_in_text = call(r#"{"action": "type", "text": "}</tool_call>\n<tool_call>"}"#);
        assert_eq!(
            parse(&tags_in_text).unwrap().actions,
            [Action::TypeVerbatim { text: "}</tool_call>\n<tool_call>".into() }]
        );
    }

    #[test]
    fn calls_that_are_not_for_this_tool_are_skipped_beside_others() {
        let other = r#"<tool_call>{"name": "search", "arguments": {}}</tool_call>"#;
        assert_eq!(
            parse(&format!("{other}\n{}", call(r#"{"action": "wait"}"#))).unwrap().actions,
            [Action::Wait {}]
        );
        let broken = call(r#"{"action": "left_click", "coordinate": "here"}"#);
        assert!(parse(&format!("{}\n{broken}", call(r#"{"action": "wait"}"#))).is_err());
    }

    #[test]
    fn errors_have_a_position_and_a_reason() {
        for (text, message) in [
            ("Action: nothing".to_owned(), "the response has no <tool_call> of computer_use".to_owned()),
            (
                "我\n<tool_call>\n{\"name\": }\n</tool_call>".into(),
                "at character 23: expected a tool call in JSON (expected value), found \"}\\n</tool_call>\"".into(),
            ),
            (
                "<tool_call>\n[1]\n</tool_call>".into(),
                "at character 12: expected a tool call like {\"name\": \"computer_use\", \"arguments\": {...}}, \
                 found \"[1]\\n</tool_call>\""
                    .into(),
            ),
            (
                call(r#"{"action": "left_click", "coordinate": [315]}"#),
                "at character 12: left_click needs \"coordinate\": [x, y] with two numbers, not [315]".into(),
            ),
            (
                call(r#"{"action": "key"}"#),
                "at character 12: key needs \"keys\" with at least one key, such as [\"ctrl\", \"c\"]".into(),
            ),
            (
                call(r#"{"action": "type", "text": 5}"#),
                "at character 12: type needs \"text\" that is a string, not 5".into(),
            ),
        ] {
            assert_eq!(parse(&text).unwrap_err().to_string(), message, "{text}");
        }
        let unknown = parse(&call(r#"{"action": "LEFT_CLICK"}"#)).unwrap_err().to_string();
        assert!(unknown.starts_with("at character 12: expected one of the actions key, "), "{unknown}");
        assert!(unknown.contains("not \"LEFT_CLICK\", found "), "{unknown}");
    }

    #[test]
    fn summaries() {
        assert_eq!(step_summary("Thought: x\nAction: Open it."), "Open it.");
        assert_eq!(step_summary(&call(r#"{"action": "triple_click"}"#)), "Performing tripleClick action");
        assert_eq!(step_summary(&call(r#"{"action": "answer", "text": "4"}"#)), "Performing done action");
        assert_eq!(step_summary("nothing"), "");
    }

    /// Tags without end take time in proportion to the text, and no stack.
    #[test]
    fn many_tags_are_no_problem() {
        let text = "</tool_call><tool_call>".repeat(20_000);
        assert_eq!(parse(&text), Err(ParseError::NoCall));
        assert!(parse(&format!("<tool_call>{{\"a\": \"{}", "</tool_call>".repeat(20_000))).is_err());
    }
}
