//! Scripts that clients send are supported; everything else is left to Python.

use super::*;
use arpo_agent::geometry::{ScreenMap, Size};
use arpo_agent::pyautogui::statements;
use arpo_core::action::{Action, Direction, ModelBox, MouseButton};
use proptest::prelude::*;

fn at(x: f64, y: f64) -> ScreenPoint {
    ScreenPoint { x: Some(x), y: Some(y) }
}

#[test]
fn one_liners_of_osworlds_client() {
    let prefix = "import pyautogui; import time; pyautogui.FAILSAFE = False; ";
    let read = |code: &str| read(&format!("{prefix}{code}"));
    let none = Duration::ZERO;
    let click = |at, button, clicks| Effect::Click { at, button, clicks, interval: none };
    for (code, effects) in [
        ("pyautogui.click(100, 200)", vec![click(at(100.0, 200.0), Button::Left, 1)]),
        ("pyautogui.click(x=1.5, y=2, button='right')", vec![click(at(1.5, 2.0), Button::Right, 1)]),
        ("pyautogui.click((7, 8), clicks=3)", vec![click(at(7.0, 8.0), Button::Left, 3)]),
        ("pyautogui.click()", vec![click(ScreenPoint::default(), Button::Left, 1)]),
        ("pyautogui.doubleClick(3, 4, button='left')", vec![click(at(3.0, 4.0), Button::Left, 2)]),
        ("pyautogui.rightClick(3, 4)", vec![click(at(3.0, 4.0), Button::Right, 1)]),
        (
            "pyautogui.moveTo(5, 6); pyautogui.dragTo(7, 8, duration=1.0)",
            vec![
                Effect::Move { to: at(5.0, 6.0), duration: none },
                Effect::Drag { to: at(7.0, 8.0), duration: Duration::from_secs(1), button: Button::Left },
            ],
        ),
        (
            "pyautogui.scroll(-5, x=9, y=10)\npyautogui.hscroll(2)",
            vec![
                Effect::Scroll { at: at(9.0, 10.0), clicks: -5, sideways: false },
                Effect::Scroll { at: ScreenPoint::default(), clicks: 2, sideways: true },
            ],
        ),
        (
            "pyautogui.write(\"it's \\u00fc\\n\", interval=0.1)",
            vec![Effect::Write { text: "it's ü\n".into(), interval: Duration::from_millis(100) }],
        ),
        (
            "pyautogui.hotkey('ctrl', 's'); time.sleep(0.5);",
            vec![
                Effect::Hotkey { keys: vec!["ctrl".into(), "s".into()] },
                Effect::Sleep(Duration::from_millis(500)),
            ],
        ),
        (
            "pyautogui.press(['left', 'left'], presses=2)",
            vec![Effect::Press { keys: vec!["left".into(), "left".into()], presses: 2, interval: none }],
        ),
        (
            "pyautogui.keyDown('shift'); pyautogui.keyUp('shift')",
            vec![
                Effect::Key { key: "shift".into(), down: true },
                Effect::Key { key: "shift".into(), down: false },
            ],
        ),
        (
            "pyautogui.moveTo(5, 6, 0.5, pyautogui.easeInQuad)",
            vec![Effect::Move { to: at(5.0, 6.0), duration: Duration::from_millis(500) }],
        ),
        (
            "pyautogui.dragTo(7, 8, duration=1.0, button='left', mouseDownUp=True)",
            vec![Effect::Drag { to: at(7.0, 8.0), duration: Duration::from_secs(1), button: Button::Left }],
        ),
        ("pyautogui.PAUSE = 0.5", vec![Effect::Pause(Duration::from_millis(500))]),
        (
            "pyautogui.mouseDown(button='left')",
            vec![Effect::Hold { at: ScreenPoint::default(), button: Button::Left, down: true }],
        ),
    ] {
        assert_eq!(read(code), Some(effects), "{code}");
    }
}

/// As OSWorld's agent for UI-TARS writes its responses: thoughts as a text, text through the clipboard.
#[test]
fn scripts_of_osworlds_ui_tars_agent() {
    let code = "import pyautogui\nimport time\n\'\'\'\nObservation:\nNone\n\n  Thought:\nI \"see\" a button\n\'\'\'\n\n\
                import pyperclip\npyperclip.copy('Grüße; it\\'s')\npyautogui.hotkey('ctrl', 'v')\ntime.sleep(0.5)\n";
    let copied = vec![
        Effect::Copy { text: "Grüße; it's".into() },
        Effect::Hotkey { keys: vec!["ctrl".into(), "v".into()] },
        Effect::Sleep(Duration::from_millis(500)),
    ];
    assert_eq!(read(code), Some(copied));
    let code = "x = 1920 * 0.5\ny = (100 + 8) / 2 - 1\nname = 'a' 'b' + 'c'\npyautogui.click(x, y)\npyautogui.write(name)";
    let click =
        Effect::Click { at: at(960.0, 53.0), button: Button::Left, clicks: 1, interval: Duration::ZERO };
    let write = Effect::Write { text: "abc".into(), interval: Duration::ZERO };
    assert_eq!(read(code), Some(vec![click, write]));
}

#[test]
fn anything_else_is_for_python_as_a_whole() {
    for code in [
        "import os; os.system('x')",
        "import platform; print(platform.system())",
        "x == 3",
        "time = 3",
        "x, y = 1, 2",
        "pyautogui.click(x, y)",
        "pyautogui.click(1 // 2, 3)",
        "pyautogui.click(1 / 0, 3)",
        "pyautogui.click('1' + 2, 3)",
        "pyperclip.paste()",
        "from pyautogui import click",
        "pyautogui.click(1, 2); open('f')",
        "for i in range(3):\n    pyautogui.click(1, 2)",
        "if True:\n  pyautogui.click(1, 2)",
        "pyautogui.write(f'{x}')",
        "pyautogui.write('open",
        "pyautogui.click(1, 2, surprise=3)",
        "pyautogui.click(1, 2) pyautogui.click(3, 4)",
        "pyautogui.screenshot('a.png')",
        "pyautogui.dragTo(1, 2, mouseDownUp=False)",
        "pyautogui.moveTo(1, 2, 3, pyautogui.size)",
        "time.sleep(-1)",
        "time.sleep(1e9)",
        "pyautogui.click(nan, 2)",
        "pyautogui.press('a', presses=2.5)",
    ] {
        assert_eq!(read(code), None, "{code}");
    }
    assert_eq!(read("  \n# nothing to do\n"), Some(vec![]));
}

#[test]
fn what_our_own_agent_sends_is_understood() {
    let size = Size { width: 1920, height: 1080 };
    let map = ScreenMap { screen: size, model: size };
    let point = ModelBox::point(17.0, 23.0);
    for action in [
        Action::Click { start_box: point },
        Action::LeftDouble { start_box: point },
        Action::RightSingle { start_box: point },
        Action::Hover { start_box: point },
        Action::Drag { start_box: point, end_box: ModelBox::point(40.0, 50.0) },
        Action::Scroll { start_box: Some(point), direction: Direction::Left },
        Action::Scroll { start_box: None, direction: Direction::Down },
        Action::Hotkey { keys: vec!["ctrl".into(), "arrowleft".into()] },
        Action::Press { key: "space".into() },
        Action::Keydown { key: "shift".into() },
        Action::Type { content: "'quoted' \"twice\" \\ back\tslash 漢字\n".into() },
        Action::Other { name: "teleport".into(), arguments: vec![] },
    ] {
        let code = statements(&action, &map).join("\n");
        assert!(read(&format!("import pyautogui\nimport time\n{code}\n")).is_some(), "{code}");
    }
}

/// Actions that only `computer_use` has.
#[test]
fn tool_calls_are_understood() {
    let size = Size { width: 1920, height: 1080 };
    let map = ScreenMap { screen: size, model: size };
    let (place, here, none) = (ModelBox::point(17.0, 23.0), ScreenPoint::default(), Duration::ZERO);
    let click = |at, button, clicks| Effect::Click { at, button, clicks, interval: none };
    for (action, effect) in [
        (Action::LeftTriple { start_box: place }, click(at(17.0, 23.0), Button::Left, 3)),
        (Action::MiddleSingle { start_box: place }, click(at(17.0, 23.0), Button::Middle, 1)),
        (Action::ClickHere { button: MouseButton::Left, times: 2 }, click(here, Button::Left, 2)),
        (Action::ClickHere { button: MouseButton::Right, times: 1 }, click(here, Button::Right, 1)),
        (
            Action::DragTo { end_box: place, seconds: 0.5 },
            Effect::Drag { to: at(17.0, 23.0), duration: Duration::from_millis(500), button: Button::Left },
        ),
        (
            Action::Wheel { clicks: -7.5, horizontal: false },
            Effect::Scroll { at: here, clicks: -7, sideways: false },
        ),
        (
            Action::Wheel { clicks: 1e9, horizontal: true },
            Effect::Scroll { at: here, clicks: 10_000, sideways: true },
        ),
        (Action::Keyup { key: "ctrl".into() }, Effect::Key { key: "ctrl".into(), down: false }),
        (
            Action::TypeVerbatim { text: "it's\n\\n\t漢\n\n".into() },
            Effect::Write { text: "it's\n\\n\t漢\n\n".into(), interval: Duration::from_millis(100) },
        ),
    ] {
        let code = statements(&action, &map).join("\n");
        assert_eq!(read(&code), Some(vec![effect]), "{code}");
    }
}

proptest! {
    #[test]
    fn typed_text_comes_through_whole(text in "\\PC{1,40}") {
        prop_assume!(!text.ends_with("\\n"));
        let size = Size { width: 1920, height: 1080 };
        let map = ScreenMap { screen: size, model: size };
        let code = statements(&Action::Type { content: text.clone() }, &map).join("\n");
        let effects = read(&code).unwrap();
        prop_assert_eq!(&effects[0], &Effect::Write { text, interval: Duration::from_millis(100) });
    }

    #[test]
    fn nothing_makes_it_panic(text in "\\PC{0,60}") {
        let _ = read(&text);
        let _ = read(&format!("pyautogui.write({text})"));
    }
}
