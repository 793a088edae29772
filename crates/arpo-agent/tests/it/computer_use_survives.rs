//! A million random responses with tool calls, many of them malformed, without a panic: calls made of real fragments, then
//! truncated and mutated. The same check as the fuzz target `parse_computer_use`, bounded and reproducible.

use arpo_agent::computer_use::{parse, response, step_summary};
use arpo_agent::coordinates::Coordinates;
use arpo_agent::geometry::{ScreenMap, Size};
use arpo_agent::pyautogui::{OsworldAction, osworld_actions};
use arpo_core::random::{Purpose, stream};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

const INPUTS: u64 = 1_000_000;

const NAMES: [&str; 18] = [
    "left_click",
    "click",
    "right_click",
    "middle_click",
    "double_click",
    "triple_click",
    "mouse_move",
    "left_click_drag",
    "type",
    "key",
    "key_down",
    "key_up",
    "scroll",
    "hscroll",
    "wait",
    "terminate",
    "answer",
    "zoom",
];

const VALUES: [&str; 24] = [
    "[10, 20]",
    "[999, 0.5]",
    "[1]",
    "[1, 2, 3]",
    "\"[1, 2]\"",
    "null",
    "{}",
    "5",
    "-7.5",
    "\"-2\"",
    "1e308",
    "1e999",
    "\"text\"",
    "\"it's\\n\\\\n\"",
    "\"\\u00e9\\ud83d\\ude42\"",
    "\"\\ud800\"",
    "\"</tool_call>\"",
    "[\"ctrl\", \"c\"]",
    "[\" \", \"]\"]",
    "[]",
    "\"enter\"",
    "\"failure\"",
    "true",
    "0.2",
];

const ARGUMENTS: [&str; 7] = ["coordinate", "text", "keys", "pixels", "duration", "status", "time"];

const PIECES: [&str; 22] = [
    "Action: go",
    "action:",
    "Thought: x",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "\n",
    "\r\n",
    " ",
    "{",
    "}",
    "\"",
    "\\",
    ", ",
    "```json",
    "é我🙂",
    "\u{0}",
    "{\"name\": \"computer_use\"",
    "null",
    "[",
    "\"arguments\": ",
];

fn pieces(random: &mut impl Rng, max: usize) -> String {
    let count = random.random_range(0..=max);
    (0..count).filter_map(|_| PIECES.choose(random).copied()).collect()
}

/// A call, often a valid one.
fn call(random: &mut impl Rng) -> String {
    let name = NAMES.choose(random).copied().unwrap_or_default();
    let mut arguments = vec![format!("\"action\": \"{name}\"")];
    for _ in 0..random.random_range(0..3) {
        let argument = ARGUMENTS.choose(random).copied().unwrap_or_default();
        let value = match argument {
            "coordinate" if random.random_bool(0.8) => "[10, 20]",
            "keys" if random.random_bool(0.8) => "[\"ctrl\", \"s\"]",
            "text" | "status" if random.random_bool(0.8) => "\"a \\\"quoted\\\" line\\n\"",
            "pixels" | "duration" | "time" if random.random_bool(0.8) => "-3",
            _ => VALUES.choose(random).copied().unwrap_or_default(),
        };
        arguments.push(format!("\"{argument}\": {value}"));
    }
    let json = format!("{{\"name\": \"computer_use\", \"arguments\": {{{}}}}}", arguments.join(", "));
    let gap = if random.random_bool(0.8) { "\n" } else { "" };
    format!("<tool_call>{gap}{json}{gap}</tool_call>")
}

fn text(random: &mut impl Rng) -> String {
    if random.random_bool(0.2) {
        return pieces(random, 16);
    }
    let count = random.random_range(1..3);
    let calls: Vec<String> = (0..count).map(|_| call(random)).collect();
    let mut text = format!("{}Action: Do it.\n{}", pieces(random, 2), calls.join("\n"));
    if random.random_bool(0.2) {
        // truncated, with something else appended
        let cut = random.random_range(0..=text.len());
        let cut = (0..=cut).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push_str(&pieces(random, 2));
    }
    text
}

#[test]
fn a_million_tool_calls_without_a_panic() {
    let screen = Size { width: 1920, height: 1080 };
    let map = ScreenMap { screen, model: screen };
    let grid = Coordinates::Grid { divisor: 999 };
    let (mut understood, mut programs, mut typed) = (0, 0, 0);
    for input in 0..INPUTS {
        let text = text(&mut stream(1, Purpose::Environment, input, 0));
        let _ = step_summary(&text);
        let Ok(read) = parse(&text) else { continue };
        understood += 1;
        assert_eq!(parse(&response(None, &read.actions)).unwrap().actions, read.actions, "{text}");
        for action in &read.actions {
            let action = grid.on_screen(action, screen, screen);
            for action in osworld_actions(&[action], &map) {
                let OsworldAction::Python(code) = action else { continue };
                programs += 1;
                typed += u32::from(code.contains("pyautogui.write("));
                let ours = |line: &str| line.starts_with("import ") || line.starts_with("pyautogui.");
                assert!(code.split('\n').all(|line| line.is_empty() || ours(line)), "{code}");
            }
        }
    }
    let counts = format!("{understood} understood, {programs} programs, {typed} of them type");
    assert!(
        understood > 200_000 && programs > 100_000 && typed > 5_000,
        "the generator tests too little: {counts}"
    );
}
