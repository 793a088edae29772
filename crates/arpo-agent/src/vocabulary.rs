//! The meaning of calls: the actions of UI-TARS by name, and the arguments of each.

use crate::grammar::Call;
use crate::parse::ParseError;
use arpo_core::action::{Action, Direction, ModelBox};

/// Special tokens that may still surround coordinates.
const BOX_TOKENS: [&str; 2] = ["<|box_start|>", "<|box_end|>"];

/// The action of a call. Where the reference does nothing because an argument is missing, so does this: the call becomes
/// [`Action::Other`]. A click without coordinates is an error. `response` is only used for the position of an error.
pub(crate) fn action(call: &Call, response: &str) -> Result<Action, ParseError> {
    let arguments = Arguments { call, response };
    let nothing = || Action::Other { name: call.name.clone(), arguments: call.arguments.clone() };
    Ok(match call.name.as_str() {
        "click" | "left_single" => Action::Click { start_box: arguments.required_box("start_box")? },
        "left_double" => Action::LeftDouble { start_box: arguments.required_box("start_box")? },
        "right_single" => Action::RightSingle { start_box: arguments.required_box("start_box")? },
        "hover" => Action::Hover { start_box: arguments.required_box("start_box")? },
        name @ ("drag" | "select") => {
            match (arguments.optional_box("start_box")?, arguments.optional_box("end_box")?) {
                (Some(start_box), Some(end_box)) if name == "drag" => Action::Drag { start_box, end_box },
                (Some(start_box), Some(end_box)) => Action::Select { start_box, end_box },
                _ => nothing(),
            }
        }
        "scroll" => {
            let start_box = arguments.optional_box("start_box")?;
            direction(call).map_or_else(nothing, |direction| Action::Scroll { start_box, direction })
        }
        "hotkey" => keys(call).map_or_else(nothing, |keys| Action::Hotkey { keys }),
        "press" => key(call).map_or_else(nothing, |key| Action::Press { key }),
        "keydown" => key(call).map_or_else(nothing, |key| Action::Keydown { key }),
        "keyup" => key(call).map_or_else(nothing, |key| Action::Keyup { key }),
        "type" => {
            call.argument("content").map_or_else(nothing, |text| Action::Type { content: text.to_owned() })
        }
        "wait" => Action::Wait {},
        "finished" => Action::Finished { content: call.argument("content").map(str::to_owned) },
        "call_user" => Action::CallUser {},
        "error_env" => Action::ErrorEnv {},
        _ => nothing(),
    })
}

struct Arguments<'a> {
    call: &'a Call,
    response: &'a str,
}

impl Arguments<'_> {
    fn required_box(&self, name: &str) -> Result<ModelBox, ParseError> {
        self.optional_box(name)?.ok_or_else(|| self.wrong(&format!("the argument {name}")))
    }

    fn optional_box(&self, name: &str) -> Result<Option<ModelBox>, ParseError> {
        let Some(text) = self.call.argument(name) else { return Ok(None) };
        let mut numbers = text.to_owned();
        for token in BOX_TOKENS {
            numbers = numbers.replace(token, "");
        }
        let numbers: Option<Vec<f64>> =
            numbers.replace(['(', ')'], "").split(',').map(finite_number).collect();
        match numbers.as_deref() {
            Some(&[x, y]) => Ok(Some(ModelBox::point(x, y))),
            Some(&[x1, y1, x2, y2]) => Ok(Some(ModelBox { x1, y1, x2, y2 })),
            _ => {
                Err(self
                    .wrong(&format!("{name}='(x,y)' or {name}='(x1,y1,x2,y2)' with numbers, not {text:?}")))
            }
        }
    }

    fn wrong(&self, expected: &str) -> ParseError {
        let at = self.response[..self.call.at].chars().count();
        ParseError::Meaning { at, action: self.call.name.clone(), expected: expected.to_owned() }
    }
}

/// As in the reference, the direction may be one of several words.
fn direction(call: &Call) -> Option<Direction> {
    let text = call.argument("direction")?.to_lowercase();
    let named = [
        ("up", Direction::Up),
        ("down", Direction::Down),
        ("left", Direction::Left),
        ("right", Direction::Right),
    ];
    named.into_iter().find(|(name, _)| text.contains(name)).map(|(_, direction)| direction)
}

/// `ctrl c` or `ctrl+c`.
fn keys(call: &Call) -> Option<Vec<String>> {
    let text = call.argument("key").or_else(|| call.argument("hotkey"))?;
    let keys: Vec<String> = text.split_whitespace().flat_map(joined_by_plus).map(str::to_owned).collect();
    (!keys.is_empty()).then_some(keys)
}

fn key(call: &Call) -> Option<String> {
    let text = call.argument("key").or_else(|| call.argument("press"))?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn finite_number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// The keys of `ctrl+c`; the key `+` itself is not split.
fn joined_by_plus(text: &str) -> Vec<&str> {
    let parts: Vec<&str> = text.split('+').collect();
    if parts.iter().any(|part| part.is_empty()) { vec![text] } else { parts }
}
