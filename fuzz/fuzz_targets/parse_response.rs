//! No response makes the parser panic, and what it parses survives a round trip through its own rendering.
//!
//!     cargo +nightly fuzz run parse_response

#![no_main]

use arpo_agent::geometry::{ScreenMap, Size, UITARS_LIMITS};
use arpo_agent::{conversation, parse, pyautogui, render};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = conversation::with_box_tokens(text);
    if let Ok(response) = parse::parse(text) {
        let again = parse::parse(&render::response(None, &response.actions)).expect("what we render we can read");
        assert_eq!(again.actions, response.actions);
        let map = ScreenMap::new(Size { width: 1920, height: 1080 }, UITARS_LIMITS).expect("a real screen");
        let _ = pyautogui::osworld_actions(&response.actions, &map);
    }
});
