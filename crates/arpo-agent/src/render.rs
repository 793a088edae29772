//! Renders actions as UI-TARS writes them, such that [`parse`](crate::parse::parse) reads the same actions again. The few
//! actions that UI-TARS does not have become calls that it parses and that do nothing.

use arpo_core::action::{Action, Direction, ModelBox, MouseButton};
use std::fmt::Write;

/// A response in the format of UI-TARS.
pub fn response(thought: Option<&str>, actions: &[Action]) -> String {
    let thought = thought.map(|thought| format!("Thought: {thought}\n")).unwrap_or_default();
    let actions: Vec<String> = actions.iter().map(action).collect();
    format!("{thought}Action: {}", actions.join("\n\n"))
}

/// One action as a call.
pub fn action(action: &Action) -> String {
    match action {
        Action::Click { start_box } => call("click", &[("start_box", &box_text(start_box))]),
        Action::LeftDouble { start_box } => call("left_double", &[("start_box", &box_text(start_box))]),
        Action::RightSingle { start_box } => call("right_single", &[("start_box", &box_text(start_box))]),
        Action::Hover { start_box } => call("hover", &[("start_box", &box_text(start_box))]),
        Action::LeftTriple { start_box } => call("left_triple", &[("start_box", &box_text(start_box))]),
        Action::MiddleSingle { start_box } => call("middle_single", &[("start_box", &box_text(start_box))]),
        Action::ClickHere { button, times } => {
            let button = match button {
                MouseButton::Left => "left",
                MouseButton::Middle => "middle",
                MouseButton::Right => "right",
            };
            call("click_here", &[("button", button), ("times", &times.to_string())])
        }
        Action::DragTo { end_box, seconds } => {
            call("drag_to", &[("end_box", &box_text(end_box)), ("seconds", &seconds.to_string())])
        }
        Action::Wheel { clicks, horizontal } => {
            call("wheel", &[("clicks", &clicks.to_string()), ("horizontal", &horizontal.to_string())])
        }
        Action::TypeVerbatim { text } => call("type_verbatim", &[("text", text)]),
        Action::Infeasible {} => call("infeasible", &[]),
        Action::Drag { start_box, end_box } => {
            call("drag", &[("start_box", &box_text(start_box)), ("end_box", &box_text(end_box))])
        }
        Action::Select { start_box, end_box } => {
            call("select", &[("start_box", &box_text(start_box)), ("end_box", &box_text(end_box))])
        }
        Action::Scroll { start_box: Some(start_box), direction } => {
            call("scroll", &[("start_box", &box_text(start_box)), ("direction", direction_name(*direction))])
        }
        Action::Scroll { start_box: None, direction } => {
            call("scroll", &[("direction", direction_name(*direction))])
        }
        Action::Hotkey { keys } => call("hotkey", &[("key", &keys.join(" "))]),
        Action::Press { key } => call("press", &[("key", key)]),
        Action::Keydown { key } => call("keydown", &[("key", key)]),
        Action::Keyup { key } => call("keyup", &[("key", key)]),
        Action::Type { content } => call("type", &[("content", content)]),
        Action::Wait {} => call("wait", &[]),
        Action::Finished { content: Some(content) } => call("finished", &[("content", content)]),
        Action::Finished { content: None } => call("finished", &[]),
        Action::CallUser {} => call("call_user", &[]),
        Action::ErrorEnv {} => call("error_env", &[]),
        Action::Other { name, arguments } => {
            let arguments: Vec<(&str, &str)> =
                arguments.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            call(name, &arguments)
        }
    }
}

/// A Python string literal that no content can break out of.
pub(crate) fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for c in text.chars() {
        match c {
            '\'' => literal.push_str("\\'"),
            '\\' => literal.push_str("\\\\"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            c if c.is_control() => write!(literal, "\\x{:02x}", u32::from(c)).expect("strings take all text"),
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

fn call(name: &str, arguments: &[(&str, &str)]) -> String {
    // the marker inside a value would be taken for the one before the actions
    let value = |value: &str| quoted(value).replace("Action:", "Action\\x3a");
    let arguments: Vec<String> =
        arguments.iter().map(|(name, text)| format!("{name}={}", value(text))).collect();
    format!("{name}({})", arguments.join(", "))
}

fn box_text(model_box: &ModelBox) -> String {
    let ModelBox { x1, y1, x2, y2 } = model_box;
    if model_box.is_point() { format!("({x1},{y1})") } else { format!("({x1},{y1},{x2},{y2})") }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
        Direction::Left => "left",
        Direction::Right => "right",
    }
}
