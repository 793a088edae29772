//! What the arguments of a call mean: the actions of `computer_use` by name.

use arpo_core::action::{Action, ModelBox, MouseButton};
use serde_json::{Map, Value};

/// Every action.
pub(super) const NAMES: [&str; 16] = [
    "key",
    "key_down",
    "key_up",
    "type",
    "mouse_move",
    "left_click",
    "left_click_drag",
    "right_click",
    "middle_click",
    "double_click",
    "triple_click",
    "scroll",
    "hscroll",
    "wait",
    "terminate",
    "answer",
];

/// How long a drag takes if the call does not say.
pub(super) const DRAG_SECONDS: f64 = 0.5;

/// No drag takes longer, whatever the call says.
const LONGEST_DRAG_SECONDS: f64 = 60.0;

/// Why arguments have no meaning.
#[derive(Debug)]
pub(super) enum Problem {
    UnknownAction,
    /// What the action needs.
    Argument(String),
}

/// The actions of one call; several for keys that are held or released. Arguments that an action does not use are ignored,
/// as are a `coordinate` of a scroll and the `time` of a wait.
pub(super) fn actions(name: &str, arguments: &Map<String, Value>) -> Result<Vec<Action>, Problem> {
    let point = || point(arguments);
    let click = |at: fn(ModelBox) -> Action, button, times| {
        Ok(point()?.map_or(Action::ClickHere { button, times }, at))
    };
    let one: Result<Action, Problem> = match name {
        "left_click" | "click" => click(|start_box| Action::Click { start_box }, MouseButton::Left, 1),
        "double_click" => click(|start_box| Action::LeftDouble { start_box }, MouseButton::Left, 2),
        "triple_click" => click(|start_box| Action::LeftTriple { start_box }, MouseButton::Left, 3),
        "right_click" => click(|start_box| Action::RightSingle { start_box }, MouseButton::Right, 1),
        "middle_click" => click(|start_box| Action::MiddleSingle { start_box }, MouseButton::Middle, 1),
        // as in the reference, the corner is where a move without a target goes
        "mouse_move" => Ok(Action::Hover { start_box: point()?.unwrap_or(CORNER) }),
        "left_click_drag" => Ok(match point()? {
            Some(end_box) => {
                let seconds = number(arguments, "duration")?.unwrap_or(DRAG_SECONDS);
                Action::DragTo { end_box, seconds: seconds.clamp(0.0, LONGEST_DRAG_SECONDS) }
            }
            None => Action::DragTo { end_box: CORNER, seconds: 0.0 },
        }),
        "scroll" | "hscroll" => {
            let clicks = number(arguments, "pixels")?.unwrap_or(0.0);
            Ok(Action::Wheel { clicks, horizontal: name == "hscroll" })
        }
        "type" => Ok(Action::TypeVerbatim { text: text(arguments, "text")?.unwrap_or_default() }),
        "key" => {
            let mut keys = keys(arguments)?;
            let first = keys.remove(0);
            Ok(if keys.is_empty() {
                Action::Press { key: first }
            } else {
                keys.insert(0, first);
                Action::Hotkey { keys }
            })
        }
        "key_down" => return Ok(keys(arguments)?.into_iter().map(|key| Action::Keydown { key }).collect()),
        "key_up" => {
            return Ok(keys(arguments)?.into_iter().rev().map(|key| Action::Keyup { key }).collect());
        }
        "wait" => Ok(Action::Wait {}),
        "terminate" => Ok(match text(arguments, "status")? {
            Some(status) if status.eq_ignore_ascii_case("failure") => Action::Infeasible {},
            _ => Action::Finished { content: None },
        }),
        "answer" => match text(arguments, "text")? {
            Some(answer) => Ok(Action::Finished { content: Some(answer) }),
            None => Err(Problem::Argument("\"text\" with the answer".into())),
        },
        _ => Err(Problem::UnknownAction),
    };
    one.map(|action| vec![action])
}

const CORNER: ModelBox = ModelBox { x1: 0.0, y1: 0.0, x2: 0.0, y2: 0.0 };

/// `coordinate`: two numbers.
fn point(arguments: &Map<String, Value>) -> Result<Option<ModelBox>, Problem> {
    let Some(value) = arguments.get("coordinate") else { return Ok(None) };
    if let Some([x, y]) = value.as_array().map(Vec::as_slice)
        && let (Some(x), Some(y)) = (x.as_f64(), y.as_f64())
    {
        return Ok(Some(ModelBox::point(x, y)));
    }
    Err(Problem::Argument(format!("\"coordinate\": [x, y] with two numbers, not {value}")))
}

/// A number, also one in quotes.
fn number(arguments: &Map<String, Value>, name: &str) -> Result<Option<f64>, Problem> {
    let Some(value) = arguments.get(name) else { return Ok(None) };
    let number = match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        value => value.as_f64(),
    };
    number.map(Some).ok_or_else(|| Problem::Argument(format!("\"{name}\" that is a number, not {value}")))
}

fn text(arguments: &Map<String, Value>, name: &str) -> Result<Option<String>, Problem> {
    match arguments.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(value) => Err(Problem::Argument(format!("\"{name}\" that is a string, not {value}"))),
    }
}

/// `keys`: names in a list, or one name alone; at least one.
fn keys(arguments: &Map<String, Value>) -> Result<Vec<String>, Problem> {
    let value = arguments.get("keys").unwrap_or(&Value::Null);
    let names = match value {
        Value::Array(names) => names.as_slice(),
        one => std::slice::from_ref(one),
    };
    let keys: Option<Vec<String>> = names
        .iter()
        .map(|name| match name {
            Value::String(name) => key(name),
            Value::Number(digit) => Some(digit.to_string()),
            _ => None,
        })
        .collect();
    keys.filter(|keys| !keys.is_empty())
        .ok_or_else(|| Problem::Argument("\"keys\" with at least one key, such as [\"ctrl\", \"c\"]".into()))
}

/// A key without white space and brackets around it, which models copy from the prompt; unless it is such a key.
fn key(written: &str) -> Option<String> {
    let mut name = written;
    loop {
        let inner = name.trim();
        let inner = inner.strip_prefix("keys=[").unwrap_or(inner);
        let inner = inner.strip_suffix(']').unwrap_or(inner).trim();
        match inner {
            "" => return name.trim().chars().next().or_else(|| name.chars().next()).map(String::from),
            inner if inner == name => return Some(name.to_owned()),
            inner => name = inner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cleaned_once_and_for_all() {
        for (written, pressed) in [
            ("ctrl", "ctrl"),
            (" c ] ", "c"),
            ("keys=[ctrl", "ctrl"),
            ("keys=[ keys=[a]]", "a"),
            (" ", " "),
            ("  ", " "),
            ("\t", "\t"),
            ("]", "]"),
            ("]]", "]"),
            ("[", "["),
        ] {
            assert_eq!(key(written).as_deref(), Some(pressed), "{written:?}");
            assert_eq!(key(pressed).as_deref(), Some(pressed), "{written:?}");
        }
        assert_eq!(key(""), None);
    }

    #[test]
    fn every_name_is_known() {
        let arguments = serde_json::json!({"keys": ["a"], "text": "b"});
        let arguments = arguments.as_object().unwrap();
        for name in NAMES {
            assert!(actions(name, arguments).is_ok(), "{name}");
        }
    }
}
