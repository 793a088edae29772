//! A million random responses, many of them malformed, without a panic: calls made of real fragments, then truncated and
//! mutated. The same check as the fuzz target `parse_response`, bounded and reproducible.

use arpo_agent::geometry::{ScreenMap, Size, UITARS_LIMITS};
use arpo_agent::parse::parse;
use arpo_agent::pyautogui::{OsworldAction, osworld_actions};
use arpo_agent::render;
use arpo_core::random::{Purpose, stream};
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

const INPUTS: u64 = 1_000_000;

const NAMES: [&str; 12] = [
    "click", "type", "drag", "scroll", "hotkey", "press", "keyup", "hover", "finished", "wait", "zoom",
    "select",
];

const ARGUMENTS: [&str; 5] = ["start_box", "end_box", "content", "key", "direction"];

const PIECES: [&str; 34] = [
    "Thought: ",
    "Reflection: ",
    "Action_Summary: ",
    "Action: ",
    "\n",
    "\n\n",
    " ",
    "(10,20)",
    "(1,2,3,4)",
    "10,20",
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
    "ctrl+c",
    "down",
    "left",
    ", ",
    "=",
    "(",
    ")",
    "#",
    "é我🙂",
    "\u{0}",
    "\r",
    "1e999",
    "-.5",
    "import os",
];

fn pieces(random: &mut impl Rng, max: usize) -> String {
    let count = random.random_range(0..=max);
    (0..count).filter_map(|_| PIECES.choose(random).copied()).collect()
}

/// A call, often a valid one: `name(argument='pieces', ...)`.
fn call(random: &mut impl Rng) -> String {
    let name = NAMES.choose(random).copied().unwrap_or_default();
    let count = random.random_range(0..3);
    let arguments: Vec<String> = (0..count)
        .map(|_| {
            let argument = ARGUMENTS.choose(random).copied().unwrap_or_default();
            let value = match argument {
                "start_box" | "end_box" if random.random_bool(0.9) => "(10,20)".to_owned(),
                _ => pieces(random, 3),
            };
            format!("{argument}='{value}'")
        })
        .collect();
    format!("{name}({})", arguments.join(", "))
}

fn response(random: &mut impl Rng) -> String {
    if random.random_bool(0.3) {
        return pieces(random, 16);
    }
    let count = random.random_range(1..3);
    let calls: Vec<String> = (0..count).map(|_| call(random)).collect();
    let mut text = format!("{}Action: {}", pieces(random, 2), calls.join("\n\n"));
    if random.random_bool(0.2) {
        // truncated, with something else appended
        let cut = random.random_range(0..=text.len());
        let cut = (0..=cut).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push_str(&pieces(random, 2));
    }
    text
}

/// Every statement stays on one line, and there are no other statements than ours.
fn is_ours(line: &str) -> bool {
    ["import pyautogui", "import time", "pyautogui.", "time.sleep(0.5)", "# "]
        .iter()
        .any(|start| line.starts_with(start))
}

#[test]
fn a_million_responses_without_a_panic() {
    let map = ScreenMap::new(Size { width: 1920, height: 1080 }, UITARS_LIMITS).unwrap();
    let (mut understood, mut programs, mut typed) = (0, 0, 0);
    for input in 0..INPUTS {
        let text = response(&mut stream(0, Purpose::Environment, input, 0));
        let Ok(response) = parse(&text) else { continue };
        understood += 1;
        assert_eq!(
            parse(&render::response(None, &response.actions)).unwrap().actions,
            response.actions,
            "{text}"
        );
        for action in osworld_actions(&response.actions, &map) {
            let OsworldAction::Python(code) = action else { continue };
            programs += 1;
            typed += u32::from(code.contains("pyautogui.write("));
            assert!(code.split('\n').all(|line| line.is_empty() || is_ours(line)), "{code}");
            assert!(!code.contains('\r'), "{code}");
        }
    }
    let counts = format!("{understood} understood, {programs} programs, {typed} of them type");
    assert!(
        understood > 200_000 && programs > 100_000 && typed > 5_000,
        "the generator tests too little: {counts}"
    );
}
