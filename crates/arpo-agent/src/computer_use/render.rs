//! Renders actions as calls, such that [`parse`](super::parse()) reads the same actions again. An action that `computer_use`
//! does not have becomes calls with the same effect.

use super::vocabulary::DRAG_SECONDS;
use super::{ACTION, CLOSE, OPEN, TOOL};
use arpo_core::action::{Action, Direction, ModelBox, MouseButton};

/// How far one scroll of UI-TARS goes, in clicks of the wheel.
const SCROLL_CLICKS: f64 = 5.0;

/// A response: the line that describes the step, if there is one, then the calls.
pub fn response(description: Option<&str>, actions: &[Action]) -> String {
    let calls: Vec<String> = actions.iter().flat_map(calls).collect();
    description.map(described).unwrap_or_default() + &calls.join("\n")
}

/// The line that describes a step. It stays one line, and holds no call.
pub fn described(description: &str) -> String {
    format!("{ACTION} {}\n", description.replace(['\n', '\r'], " ").replace(OPEN, ""))
}

/// One action as calls.
pub fn calls(action: &Action) -> Vec<String> {
    arguments(action)
        .into_iter()
        .map(|arguments| format!("{OPEN}\n{{\"name\": \"{TOOL}\", \"arguments\": {{{arguments}}}}}\n{CLOSE}"))
        .collect()
}

fn arguments(action: &Action) -> Vec<String> {
    let at = |name: &str, place: &ModelBox| {
        let (x, y) = place.centre();
        format!("\"action\": \"{name}\", \"coordinate\": [{x}, {y}]")
    };
    let named = |name: &str| format!("\"action\": \"{name}\"");
    let keys = |name: &str, keys: &[String]| {
        let keys: Vec<String> = keys.iter().map(|key| quoted(key)).collect();
        format!("\"action\": \"{name}\", \"keys\": [{}]", keys.join(", "))
    };
    let typed = |text: &str| format!("\"action\": \"type\", \"text\": {}", quoted(text));
    let drag = |end: &ModelBox, seconds: f64| {
        let usual = (seconds - DRAG_SECONDS).abs() < f64::EPSILON;
        let duration = if usual { String::new() } else { format!(", \"duration\": {seconds}") };
        at("left_click_drag", end) + &duration
    };
    let wheel = |clicks: f64, horizontal: bool| {
        let name = if horizontal { "hscroll" } else { "scroll" };
        format!("\"action\": \"{name}\", \"pixels\": {clicks}")
    };
    let one = match action {
        Action::Click { start_box } => at("left_click", start_box),
        Action::LeftDouble { start_box } => at("double_click", start_box),
        Action::LeftTriple { start_box } => at("triple_click", start_box),
        Action::RightSingle { start_box } => at("right_click", start_box),
        Action::MiddleSingle { start_box } => at("middle_click", start_box),
        Action::ClickHere { button, times } => named(match (button, times) {
            (MouseButton::Right, _) => "right_click",
            (MouseButton::Middle, _) => "middle_click",
            (MouseButton::Left, 0 | 1) => "left_click",
            (MouseButton::Left, 2) => "double_click",
            (MouseButton::Left, _) => "triple_click",
        }),
        Action::Hover { start_box } => at("mouse_move", start_box),
        Action::DragTo { end_box, seconds } => drag(end_box, *seconds),
        Action::Drag { start_box, end_box } | Action::Select { start_box, end_box } => {
            return vec![at("mouse_move", start_box), drag(end_box, DRAG_SECONDS)];
        }
        Action::Wheel { clicks, horizontal } => wheel(*clicks, *horizontal),
        Action::Scroll { start_box, direction } => {
            let scroll = match direction {
                Direction::Up => wheel(SCROLL_CLICKS, false),
                Direction::Down => wheel(-SCROLL_CLICKS, false),
                Direction::Left => wheel(-SCROLL_CLICKS, true),
                Direction::Right => wheel(SCROLL_CLICKS, true),
            };
            let moved = start_box.as_ref().map(|start_box| at("mouse_move", start_box));
            return moved.into_iter().chain([scroll]).collect();
        }
        Action::Hotkey { keys: pressed } => keys("key", pressed),
        Action::Press { key } => keys("key", std::slice::from_ref(key)),
        Action::Keydown { key } => keys("key_down", std::slice::from_ref(key)),
        Action::Keyup { key } => keys("key_up", std::slice::from_ref(key)),
        Action::TypeVerbatim { text } => typed(text),
        Action::Type { content } => {
            // UI-TARS presses enter once for all line breaks at the end
            let text = content.trim_end_matches('\n');
            typed(&if text.len() < content.len() { format!("{text}\n") } else { text.to_owned() })
        }
        Action::Wait {} => named("wait"),
        Action::Finished { content: Some(answer) } => {
            format!("\"action\": \"answer\", \"text\": {}", quoted(answer))
        }
        Action::Finished { content: None } => named("terminate") + ", \"status\": \"success\"",
        Action::Infeasible {} | Action::CallUser {} | Action::ErrorEnv {} => {
            named("terminate") + ", \"status\": \"failure\""
        }
        Action::Other { name, .. } => format!("\"action\": {}", quoted(name)),
    };
    vec![one]
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::computer_use::parse;

    #[test]
    fn calls_look_as_models_write_them() {
        let click = Action::Click { start_box: ModelBox::point(412.0, 77.0) };
        assert_eq!(
            response(Some("Click the\nSave button."), &[click]),
            "Action: Click the Save button.\n<tool_call>\n{\"name\": \"computer_use\", \"arguments\": {\"action\": \
             \"left_click\", \"coordinate\": [412, 77]}}\n</tool_call>"
        );
    }

    #[test]
    fn what_ui_tars_has_alone_is_done_in_several_calls() {
        let (start_box, end_box) = (ModelBox::point(1.0, 2.0), ModelBox::point(3.0, 4.0));
        let read = |action: Action| parse(&response(None, &[action])).unwrap().actions;
        let drag = [Action::Hover { start_box }, Action::DragTo { end_box, seconds: 0.5 }];
        assert_eq!(read(Action::Drag { start_box, end_box }), drag);
        assert_eq!(
            read(Action::Scroll { start_box: Some(start_box), direction: Direction::Left }),
            [Action::Hover { start_box }, Action::Wheel { clicks: -5.0, horizontal: true }]
        );
        assert_eq!(
            read(Action::Type { content: "a\nb\n\n".into() }),
            [Action::TypeVerbatim { text: "a\nb\n".into() }]
        );
        assert_eq!(read(Action::CallUser {}), [Action::Infeasible {}]);
    }
}
