//! The commands for an OSWorld desktop: `WAIT`, `DONE`, `FAIL`, or Python code for pyautogui.
//!
//! Only the action becomes code, never the thought; text goes in as a string literal that no content can break
//! out of.

use crate::geometry::ScreenMap;
use crate::render::quoted;
use arpo_core::action::{Action, Direction, ModelBox};

/// How far one scroll goes, in clicks of the wheel, as in the reference.
const SCROLL_CLICKS: i32 = 5;

/// A command for the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The task is done.
    Done,
    /// The task cannot be done.
    Fail,
    /// Let time pass.
    Wait,
    /// Run this code.
    Python(String),
}

/// The commands of one response. As in the reference, an action that ends the episode or waits replaces the whole response.
pub fn commands(actions: &[Action], map: &ScreenMap) -> Vec<Command> {
    let control = actions.iter().find_map(|action| match action {
        Action::Finished { .. } => Some(Command::Done),
        Action::Wait {} => Some(Command::Wait),
        Action::CallUser {} | Action::ErrorEnv {} => Some(Command::Fail),
        _ => None,
    });
    if let Some(control) = control {
        return vec![control];
    }
    let code = |action| {
        let lines = statements(action, map).join("\n");
        Command::Python(format!("import pyautogui\nimport time\n{lines}\n"))
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
        Action::Hover { start_box } => vec![format!("pyautogui.moveTo({})", at(start_box))],
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
        Action::Hotkey { keys } => {
            let keys: Vec<String> = keys.iter().map(|name| key(name)).collect();
            vec![format!("pyautogui.hotkey({})", keys.join(", "))]
        }
        Action::Press { key: name } => vec![format!("pyautogui.press({})", key(name))],
        Action::Keydown { key: name } => vec![format!("pyautogui.keyDown({})", key(name))],
        Action::Keyup { key: name } => vec![format!("pyautogui.keyUp({})", key(name))],
        Action::Type { content } => typing(content),
        // a comment, so it must stay on one line whatever the name contains
        Action::Other { name, .. } => {
            vec![format!("# Unrecognized action type: {}", name.replace(char::is_control, " "))]
        }
        Action::Wait {} | Action::Finished { .. } | Action::CallUser {} | Action::ErrorEnv {} => vec![],
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
    fn code_is_whole() {
        let commands = commands(&[Action::Press { key: "enter".into() }], &map());
        let code = "import pyautogui\nimport time\npyautogui.press('enter')\n";
        assert_eq!(commands, [Command::Python(code.into())]);
    }
}
