//! A million responses, most of them broken, without a panic: pieces of real ones put together at random, then
//! cut and changed. The same check as the fuzz target `parse_response`, bounded and repeatable.

use arpo_agent::geometry::{ScreenMap, Size, UITARS_LIMITS};
use arpo_agent::parse::parse;
use arpo_agent::pyautogui::{Command, commands};
use arpo_agent::render;
use arpo_core::random::{Purpose, stream};
use rand::RngExt;
use rand::seq::IndexedRandom;

const INPUTS: u64 = 1_000_000;

const PIECES: [&str; 40] = [
    "Thought: ",
    "Reflection: ",
    "Action_Summary: ",
    "Action: ",
    "Action:",
    "\n",
    "\n\n",
    " ",
    "click(",
    "type(",
    "drag(",
    "scroll(",
    "hotkey(",
    "finished(",
    "wait()",
    "zoom(",
    "start_box='",
    "end_box='",
    "content='",
    "key='",
    "direction='",
    "(10,20)",
    "(1,2,3,4)",
    "<|box_start|>",
    "<|box_end|>",
    "')",
    "'",
    "\"",
    "\\",
    "\\x4",
    "\\u00e9",
    "\\777",
    "ctrl c",
    "down",
    ", ",
    ")",
    "é我🙂",
    "\u{0}",
    "1e999",
    "-.5",
];

#[test]
fn a_million_responses_without_a_panic() {
    let map = ScreenMap::new(Size { width: 1920, height: 1080 }, UITARS_LIMITS).unwrap();
    let mut understood = 0;
    for input in 0..INPUTS {
        let mut random = stream(0, Purpose::Environment, input, 0);
        let count = random.random_range(0..16);
        let mut text: String = (0..count).filter_map(|_| PIECES.choose(&mut random).copied()).collect();
        if random.random_bool(0.5) {
            text.insert_str(0, "Action: wait()\n\nclick(start_box='(1,2)')\n\n");
        }
        if random.random_bool(0.3) {
            let cut = random.random_range(0..=text.len());
            let cut = (0..=cut).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(cut);
        }
        if let Ok(response) = parse(&text) {
            understood += 1;
            assert_eq!(parse(&render::response(None, &response.actions)).unwrap().actions, response.actions);
            for command in commands(&response.actions, &map) {
                let Command::Python(code) = command else { continue };
                let statement = |line: &str| {
                    ["import ", "pyautogui.", "time.sleep(0.5)", "# "]
                        .iter()
                        .any(|start| line.starts_with(start))
                };
                assert!(code.lines().all(statement), "{code}");
            }
        }
    }
    assert!(understood > INPUTS / 100, "only {understood} were responses: the generator tests too little");
}
