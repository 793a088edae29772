//! The actions in OSWorld's records: pyautogui code, `WAIT`, `DONE` and `FAIL`, or the objects of its other action space.
//!
//! The code is read for what can be drawn, never executed. What is not understood is shown as it is written.

use crate::episode::marks::{Mark, ShownAction};
use serde_json::Value;

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
enum Argument {
    Number(f64),
    Text(String),
    List(Vec<String>),
    Other,
}

/// A recorded action.
pub fn shown(action: &Value) -> ShownAction {
    match action {
        Value::String(code) => of_code(code),
        Value::Object(fields) => {
            let number = |name: &str| fields.get("parameters").unwrap_or(action)[name].as_f64();
            let kind = fields.get("action_type").and_then(Value::as_str).unwrap_or("");
            let marks = match (kind, number("x").zip(number("y"))) {
                ("CLICK" | "DOUBLE_CLICK" | "RIGHT_CLICK", Some((x, y))) => vec![Mark::Click {
                    x,
                    y,
                    times: if kind == "DOUBLE_CLICK" { 2 } else { 1 },
                    button: if kind == "RIGHT_CLICK" { "right" } else { "left" },
                }],
                ("MOVE_TO", Some((x, y))) => vec![Mark::Hover { x, y }],
                ("DRAG_TO", Some(to)) => vec![Mark::Drag { from: None, to }],
                ("WAIT" | "DONE" | "FAIL", _) => vec![Mark::End { text: kind.to_lowercase() }],
                _ => vec![],
            };
            ShownAction { text: action.to_string(), marks }
        }
        other => ShownAction { text: other.to_string(), marks: vec![] },
    }
}

fn of_code(code: &str) -> ShownAction {
    if let "WAIT" | "DONE" | "FAIL" = code.trim() {
        let text = code.trim().to_lowercase();
        return ShownAction { text: text.clone(), marks: vec![Mark::End { text }] };
    }
    let (mut marks, mut pointer) = (Vec::new(), None);
    for (name, arguments) in calls(code) {
        marks.extend(mark(name, &arguments, &mut pointer));
    }
    let lines = code.lines().map(str::trim);
    let said: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with("import ")).map(without_module).collect();
    ShownAction { text: said.join("; "), marks }
}

fn without_module(line: &str) -> &str {
    line.strip_prefix("pyautogui.").unwrap_or(line)
}

type Arguments = Vec<(Option<String>, Argument)>;

/// What a call draws. A move before a drag is where the drag begins.
fn mark(name: &str, arguments: &Arguments, pointer: &mut Option<(f64, f64)>) -> Option<Mark> {
    let named = |wanted: &str| {
        arguments.iter().find(|(name, _)| name.as_deref() == Some(wanted)).map(|(_, value)| value)
    };
    let at = |index: usize| {
        let unnamed = arguments.iter().filter(|(name, _)| name.is_none()).nth(index);
        unnamed.map(|(_, value)| value)
    };
    let number = |name: &str, index: usize| match named(name).or_else(|| at(index)) {
        Some(Argument::Number(value)) => Some(*value),
        _ => None,
    };
    let place = || number("x", 0).zip(number("y", 1));
    match name {
        "click" | "doubleClick" | "tripleClick" | "rightClick" | "middleClick" => {
            let (x, y) = place().or(*pointer)?;
            *pointer = Some((x, y));
            let button = match (name, named("button")) {
                ("rightClick", _) => "right",
                ("middleClick", _) => "middle",
                (_, Some(Argument::Text(button))) if button == "right" => "right",
                (_, Some(Argument::Text(button))) if button == "middle" => "middle",
                _ => "left",
            };
            let times = match name {
                "doubleClick" => 2,
                "tripleClick" => 3,
                _ => number("clicks", 2).map_or(1, |clicks| clicks.clamp(1.0, 9.0) as u8),
            };
            Some(Mark::Click { x, y, times, button })
        }
        "moveTo" | "mouseDown" => {
            let (x, y) = place()?;
            *pointer = Some((x, y));
            Some(Mark::Hover { x, y })
        }
        "dragTo" => {
            let to = place()?;
            let from = pointer.replace(to);
            Some(Mark::Drag { from, to })
        }
        "scroll" | "vscroll" | "hscroll" => {
            let clicks = number("clicks", 0)?;
            let at = number("x", 1).zip(number("y", 2)).or(*pointer);
            let direction = match (name, clicks > 0.0) {
                ("hscroll", true) => "right",
                ("hscroll", false) => "left",
                (_, true) => "up",
                (_, false) => "down",
            };
            Some(Mark::Scroll { at, direction })
        }
        "typewrite" | "write" => match named("message").or_else(|| at(0))? {
            Argument::Text(text) => Some(Mark::Text { text: text.clone() }),
            Argument::List(keys) => Some(Mark::Keys { keys: keys.clone() }),
            _ => None,
        },
        "press" | "hotkey" | "keyDown" | "keyUp" => {
            let keys: Vec<String> = arguments
                .iter()
                .filter(|(name, _)| name.as_deref().is_none_or(|name| name.starts_with("key")))
                .flat_map(|(_, value)| match value {
                    Argument::Text(key) => vec![key.clone()],
                    Argument::List(keys) => keys.clone(),
                    _ => vec![],
                })
                .collect();
            (!keys.is_empty()).then_some(Mark::Keys { keys })
        }
        _ => None,
    }
}

/// The calls `pyautogui.name(...)` of some code.
fn calls(code: &str) -> Vec<(&str, Arguments)> {
    let (mut found, mut rest) = (Vec::new(), code);
    while let Some(start) = rest.find("pyautogui.") {
        rest = &rest[start + "pyautogui.".len()..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let Some(inside) = after.strip_prefix('(') else { continue };
        let (arguments, left) = arguments(inside);
        found.push((name, arguments));
        rest = left;
    }
    found
}

/// The arguments up to the closing bracket, and what follows it.
fn arguments(text: &str) -> (Arguments, &str) {
    let (mut parts, mut start, mut depth, mut quote, mut escaped) = (vec![], 0, 0_usize, None, false);
    let mut end = text.len();
    for (index, letter) in text.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')') if depth == 0 => {
                end = index;
                break;
            }
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..end]);
    let parsed = parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).map(|part| {
        let name = part.split_once('=').filter(|(name, _)| {
            let name = name.trim();
            !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
        });
        match name {
            Some((name, value)) => (Some(name.trim().to_owned()), argument(value.trim())),
            None => (None, argument(part)),
        }
    });
    (parsed.collect(), text.get(end + 1..).unwrap_or(""))
}

fn argument(text: &str) -> Argument {
    if let Ok(number) = text.parse::<f64>() {
        return Argument::Number(number);
    }
    if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let items = arguments(inside).0.into_iter();
        return Argument::List(
            items
                .filter_map(|(_, item)| if let Argument::Text(text) = item { Some(text) } else { None })
                .collect(),
        );
    }
    literal(text).map_or(Argument::Other, Argument::Text)
}

/// A string of one, or three, quotes of either kind.
fn literal(text: &str) -> Option<String> {
    let inside = ["'''", "\"\"\"", "'", "\""].iter().find_map(|quote| {
        let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
        Some(inside)
    })?;
    let (mut read, mut letters) = (String::new(), inside.chars());
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            read.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => read.push('\n'),
            Some('t') => read.push('\t'),
            Some(other) => read.push(other),
            None => {}
        }
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn marks(code: &str) -> Vec<Mark> {
        shown(&json!(code)).marks
    }

    #[test]
    fn code_becomes_marks() {
        assert_eq!(
            marks("import pyautogui\nimport time\npyautogui.click(960.5, 540, button='right')\n"),
            [Mark::Click { x: 960.5, y: 540.0, times: 1, button: "right" }]
        );
        assert_eq!(
            marks("pyautogui.moveTo(x=1, y=2); pyautogui.dragTo(30, 40, duration=1.0)"),
            [Mark::Hover { x: 1.0, y: 2.0 }, Mark::Drag { from: Some((1.0, 2.0)), to: (30.0, 40.0) }]
        );
        assert_eq!(
            marks("pyautogui.typewrite('it\\'s, (so) \\n', interval=0.1)"),
            [Mark::Text { text: "it's, (so) \n".into() }]
        );
        assert_eq!(
            marks("pyautogui.hotkey('ctrl', 'c')"),
            [Mark::Keys { keys: vec!["ctrl".into(), "c".into()] }]
        );
        assert_eq!(marks("pyautogui.press(['a','b'])"), [Mark::Keys { keys: vec!["a".into(), "b".into()] }]);
        assert_eq!(
            marks("pyautogui.scroll(-5, x=10, y=20)"),
            [Mark::Scroll { at: Some((10.0, 20.0)), direction: "down" }]
        );
        assert_eq!(marks("DONE"), [Mark::End { text: "done".into() }]);
    }

    #[test]
    fn what_is_not_understood_is_shown_as_it_is() {
        for code in [
            "pyautogui.click(",
            "pyautogui.",
            "pyautogui.click(here())",
            "print('<script>')",
            "'",
            "pyautogui.press('",
        ] {
            let shown = shown(&json!(code));
            assert_eq!(shown.marks, [], "{code}");
        }
        let action = json!({"action_type": "CLICK", "parameters": {"x": 3, "y": 4}});
        assert_eq!(shown(&action).marks, [Mark::Click { x: 3.0, y: 4.0, times: 1, button: "left" }]);
        assert_eq!(shown(&json!(null)).text, "null");
    }
}
