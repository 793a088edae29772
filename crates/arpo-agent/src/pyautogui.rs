//! The actions of an OSWorld desktop: `WAIT`, `DONE`, `FAIL`, or Python code for pyautogui.
//!
//! Only the action becomes code, never the thought; text goes in as a string literal that no content can break
//! out of.

use crate::geometry::ScreenMap;
use crate::render::quoted;
use arpo_core::action::{Action, Direction, ModelBox, MouseButton};

/// How far one scroll goes, in clicks of the wheel, as in the reference.
const SCROLL_CLICKS: i32 = 5;

/// More clicks of the wheel than this are a mistake, and would take minutes.
const MOST_CLICKS: f64 = 10_000.0;

/// What the environment of OSWorld is given as an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OsworldAction {
    /// The task is done.
    Done,
    /// The task cannot be done.
    Fail,
    /// Let time pass.
    Wait,
    /// Run this code.
    Python(String),
}

/// Those of one response. As in the reference, an action that ends the episode or waits replaces the whole response.
pub fn osworld_actions(actions: &[Action], map: &ScreenMap) -> Vec<OsworldAction> {
    let control = actions.iter().find_map(|action| match action {
        Action::Finished { .. } => Some(OsworldAction::Done),
        Action::Wait {} => Some(OsworldAction::Wait),
        Action::CallUser {} | Action::Infeasible {} | Action::ErrorEnv {} => Some(OsworldAction::Fail),
        _ => None,
    });
    if let Some(control) = control {
        return vec![control];
    }
    let code = |action| {
        let lines = statements(action, map).join("\n");
        OsworldAction::Python(format!("import pyautogui\nimport time\n{lines}\n"))
    };
    actions.iter().map(code).collect()
}

/// The Python statements of one action; none for an action that needs no pyautogui.
pub fn statements(action: &Action, map: &ScreenMap) -> Vec<String> {
    let at = |model_box: &ModelBox| {
        let (x, y) = map.to_screen(model_box);
        format!("{x:?}, {y:?}")
    };
    match action {
        Action::Click { start_box } => vec![format!("pyautogui.click({}, button='left')", at(start_box))],
        Action::LeftDouble { start_box } => {
            vec![format!("pyautogui.doubleClick({}, button='left')", at(start_box))]
        }
        Action::RightSingle { start_box } => {
            vec![format!("pyautogui.click({}, button='right')", at(start_box))]
        }
        Action::LeftTriple { start_box } => {
            vec![format!("pyautogui.tripleClick({}, button='left')", at(start_box))]
        }
        Action::MiddleSingle { start_box } => {
            vec![format!("pyautogui.click({}, button='middle')", at(start_box))]
        }
        Action::ClickHere { button, times } => {
            let button = match button {
                MouseButton::Left => "left",
                MouseButton::Middle => "middle",
                MouseButton::Right => "right",
            };
            vec![format!("pyautogui.click(clicks={times}, button='{button}')")]
        }
        Action::Hover { start_box } => vec![format!("pyautogui.moveTo({})", at(start_box))],
        Action::DragTo { end_box, seconds } => {
            vec![format!("pyautogui.dragTo({}, duration={seconds:?}, button='left')", at(end_box))]
        }
        Action::Drag { start_box, end_box } | Action::Select { start_box, end_box } => vec![
            format!("pyautogui.moveTo({})", at(start_box)),
            format!("pyautogui.dragTo({}, duration=1.0)", at(end_box)),
        ],
        Action::Scroll { start_box, direction } => {
            let (function, clicks) = match direction {
                Direction::Up => ("scroll", SCROLL_CLICKS),
                Direction::Down => ("scroll", -SCROLL_CLICKS),
                Direction::Left => ("hscroll", -SCROLL_CLICKS),
                Direction::Right => ("hscroll", SCROLL_CLICKS),
            };
            let position = start_box.as_ref().map(|start_box| map.to_screen(start_box));
            let position = position.map(|(x, y)| format!(", x={x:?}, y={y:?}")).unwrap_or_default();
            vec![format!("pyautogui.{function}({clicks}{position})")]
        }
        Action::Wheel { clicks, horizontal } => {
            let function = if *horizontal { "hscroll" } else { "scroll" };
            // part of a click is none, as in pyautogui
            let clicks = clicks.trunc().clamp(-MOST_CLICKS, MOST_CLICKS) as i32;
            vec![format!("pyautogui.{function}({clicks})")]
        }
        Action::Hotkey { keys } => {
            let keys: Vec<String> = keys.iter().map(|name| key(name)).collect();
            vec![format!("pyautogui.hotkey({})", keys.join(", "))]
        }
        Action::Press { key: name } => vec![format!("pyautogui.press({})", key(name))],
        Action::Keydown { key: name } => vec![format!("pyautogui.keyDown({})", key(name))],
        Action::Keyup { key: name } => vec![format!("pyautogui.keyUp({})", key(name))],
        Action::Type { content } => typing(content),
        Action::TypeVerbatim { text } if text.is_empty() => vec![],
        // a press for each character, and for a line break that of enter
        Action::TypeVerbatim { text } => vec![format!("pyautogui.write({}, interval=0.1)", quoted(text))],
        // a comment, so it must stay on one line whatever the name contains
        Action::Other { name, .. } => {
            vec![format!("# Unrecognized action type: {}", name.replace(char::is_control, " "))]
        }
        Action::Wait {}
        | Action::Finished { .. }
        | Action::CallUser {}
        | Action::Infeasible {}
        | Action::ErrorEnv {} => vec![],
    }
}

/// Trailing line breaks submit the text, also doubly escaped ones: enter is pressed once for all of them.
fn typing(content: &str) -> Vec<String> {
    let mut text = content;
    while let Some(shorter) = text.strip_suffix('\n').or_else(|| text.strip_suffix("\\n")) {
        text = shorter;
    }
    let mut lines = Vec::new();
    if !text.is_empty() {
        lines.push(format!("pyautogui.write({}, interval=0.1)", quoted(text)));
        lines.push("time.sleep(0.5)".to_owned());
    }
    if text.len() < content.len() {
        lines.push("pyautogui.press('enter')".to_owned());
    }
    lines
}

/// A key as pyautogui names it.
fn key(name: &str) -> String {
    quoted(match name {
        "arrowleft" => "left",
        "arrowright" => "right",
        "arrowup" => "up",
        "arrowdown" => "down",
        "space" => " ",
        name => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Size, UITARS_LIMITS};

    fn map() -> ScreenMap {
        ScreenMap::new(Size { width: 1920, height: 1080 }, UITARS_LIMITS).unwrap()
    }

    #[test]
    fn scrolling_sideways_scrolls() {
        let scroll = |direction| statements(&Action::Scroll { start_box: None, direction }, &map());
        assert_eq!(scroll(Direction::Left), ["pyautogui.hscroll(-5)"]);
        assert_eq!(scroll(Direction::Right), ["pyautogui.hscroll(5)"]);
    }

    #[test]
    fn no_text_breaks_out_of_its_string() {
        let content = "'); import os; os.remove('x')\\".to_owned();
        assert_eq!(
            statements(&Action::Type { content }, &map())[0],
            r"pyautogui.write('\'); import os; os.remove(\'x\')\\', interval=0.1)"
        );
        let other = Action::Other { name: "x\nimport os".into(), arguments: vec![] };
        assert_eq!(statements(&other, &map()), ["# Unrecognized action type: x import os"]);
        let keys = vec!["a'".to_owned(), "b\n".to_owned()];
        assert_eq!(statements(&Action::Hotkey { keys }, &map()), [r"pyautogui.hotkey('a\'', 'b\n')"]);
    }

    #[test]
    fn line_breaks_at_the_end_submit() {
        let typed = |content: &str| statements(&Action::Type { content: content.into() }, &map()).len();
        assert_eq!(
            [typed(""), typed("a"), typed("a\n"), typed("a\n\n"), typed("\n"), typed("a\\n")],
            [0, 2, 3, 3, 1, 3]
        );
    }

    #[test]
    fn actions_of_computer_use_alone() {
        let place = ModelBox::point(966.0, 546.0);
        let here = |button, times| Action::ClickHere { button, times };
        for (action, code) in [
            (Action::LeftTriple { start_box: place }, "pyautogui.tripleClick(960.0, 540.0, button='left')"),
            (Action::MiddleSingle { start_box: place }, "pyautogui.click(960.0, 540.0, button='middle')"),
            (here(MouseButton::Left, 3), "pyautogui.click(clicks=3, button='left')"),
            (here(MouseButton::Right, 1), "pyautogui.click(clicks=1, button='right')"),
            (
                Action::DragTo { end_box: place, seconds: 0.5 },
                "pyautogui.dragTo(960.0, 540.0, duration=0.5, button='left')",
            ),
            (Action::Wheel { clicks: -7.5, horizontal: false }, "pyautogui.scroll(-7)"),
            (Action::Wheel { clicks: 1e300, horizontal: true }, "pyautogui.hscroll(10000)"),
            (
                Action::TypeVerbatim { text: "it's\n\\n\n".into() },
                "pyautogui.write('it\\'s\\n\\\\n\\n', interval=0.1)",
            ),
        ] {
            assert_eq!(statements(&action, &map()), [code]);
        }
        assert!(statements(&Action::TypeVerbatim { text: String::new() }, &map()).is_empty());
        assert_eq!(osworld_actions(&[Action::Infeasible {}], &map()), [OsworldAction::Fail]);
    }

    #[test]
    fn code_is_whole() {
        let actions = osworld_actions(&[Action::Press { key: "enter".into() }], &map());
        let code = "import pyautogui\nimport time\npyautogui.press('enter')\n";
        assert_eq!(actions, [OsworldAction::Python(code.into())]);
    }
}
