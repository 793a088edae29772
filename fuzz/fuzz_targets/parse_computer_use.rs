//! No response makes the parser of tool calls panic, and what it parses survives a round trip through its own rendering.
//!
//!     cargo +nightly fuzz run parse_computer_use

#![no_main]

use arpo_agent::coordinates::Coordinates;
use arpo_agent::geometry::{ScreenMap, Size};
use arpo_agent::{computer_use, pyautogui};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = computer_use::step_summary(text);
    if let Ok(response) = computer_use::parse(text) {
        let rendered = computer_use::response(None, &response.actions);
        let again = computer_use::parse(&rendered).expect("what we render we can read");
        assert_eq!(again.actions, response.actions);
        let screen = Size { width: 1920, height: 1080 };
        let map = ScreenMap { screen, model: screen };
        for action in &response.actions {
            let action = Coordinates::Grid { divisor: 999 }.on_screen(action, screen, screen);
            let _ = pyautogui::osworld_actions(&[action], &map);
        }
    }
});
