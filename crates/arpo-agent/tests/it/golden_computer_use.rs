//! `computer_use` against the results of the agents that speak it (`computer_use.json` and the two prompts): EvoCUA's, and
//! where that one has a defect, the golden file's own rule (`ours`).

use crate::golden::text;
use arpo_agent::computer_use::{self, parse, step_summary};
use arpo_agent::conversation::{Content, Message, Turn, conversation};
use arpo_agent::coordinates::Coordinates;
use arpo_agent::geometry::{PixelLimits, ScreenMap, Size, smart_resize};
use arpo_agent::pyautogui::statements;
use arpo_agent::style::AgentStyle;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::action::{Action, ModelBox};
use arpo_core::trajectory::ImageRef;
use serde::Deserialize;
use serde_json::{Value, json};

/// The divisor of the reference.
const GRID: Coordinates = Coordinates::Grid { divisor: 999 };

#[derive(Deserialize)]
struct Golden {
    screen: [u32; 2],
    cases: Vec<Case>,
    scaling: Vec<Scaling>,
    smart_resize: Vec<Resize>,
    history: Vec<History>,
}

#[derive(Deserialize)]
struct Case {
    dialect: String,
    response: String,
    evocua: Option<Expected>,
    ours: Option<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    instruction: Option<String>,
    calls: Option<Vec<Value>>,
    answer: Option<String>,
    #[serde(default)]
    malformed: bool,
}

#[derive(Deserialize)]
struct Scaling {
    screen: [u32; 2],
    coordinate: [f64; 2],
    osworld_evocua: [f64; 2],
    cookbook: [f64; 2],
}

#[derive(Deserialize)]
struct Resize {
    height: u32,
    width: u32,
    resized: [u32; 2],
}

#[derive(Deserialize)]
struct History {
    reference: String,
    #[serde(rename = "history_n")]
    turns_kept: usize,
    instruction: String,
    responses: Vec<String>,
    messages: Vec<Value>,
}

fn golden() -> Golden {
    let golden: Golden = serde_json::from_str(&text("computer_use.json")).unwrap();
    assert!(!golden.cases.is_empty() && !golden.scaling.is_empty() && !golden.history.is_empty());
    golden
}

fn size([width, height]: [u32; 2]) -> Size {
    Size { width, height }
}

/// What an action asks of the environment, in the golden file's words: `WAIT`, `DONE`, `FAIL`, or calls of pyautogui.
fn asked(action: &Action, screen: Size) -> Value {
    let action = GRID.to_screen(action, screen, screen);
    match action {
        Action::Wait {} => return json!("WAIT"),
        Action::Finished { .. } => return json!("DONE"),
        Action::Infeasible {} => return json!("FAIL"),
        _ => {}
    }
    let map = ScreenMap { screen, model: screen };
    statements(&action, &map).iter().flat_map(|statement| calls(statement)).collect()
}

/// The calls that a statement of ours stands for; written text is a press for each character.
fn calls(statement: &str) -> Vec<Value> {
    let (function, arguments) = statement.strip_prefix("pyautogui.").unwrap().split_once('(').unwrap();
    let arguments = arguments.strip_suffix(')').unwrap();
    if function == "write" {
        let literal = arguments.strip_suffix(", interval=0.1").unwrap();
        let key = |c: char| if c == '\n' { "enter".to_owned() } else { c.to_string() };
        return string(literal).chars().map(|c| json!(["press", key(c)])).collect();
    }
    let mut positional: Vec<Value> = vec![];
    let mut named = serde_json::Map::new();
    for argument in arguments.split(", ").filter(|argument| !argument.is_empty()) {
        match argument.split_once('=').filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_lowercase()))
        {
            Some((name, value)) => drop(named.insert(name.to_owned(), value_of(value))),
            None => positional.push(value_of(argument)),
        }
    }
    let button = named.remove("button").unwrap_or(json!("left"));
    let clicks = named.remove("clicks").unwrap_or(json!(1));
    let function = match (function, button.as_str().unwrap(), clicks.as_f64().unwrap() as u8) {
        ("click", "right", _) => "rightClick",
        ("click", "middle", _) => "middleClick",
        ("click", _, 2) => "doubleClick",
        ("click", _, 3) => "tripleClick",
        (function, ..) => function,
    };
    // pyautogui's default
    named.retain(|name, value| name != "duration" || value.as_f64() != Some(0.0));
    let mut call = vec![json!(function)];
    call.extend(positional);
    if !named.is_empty() {
        call.push(Value::Object(named));
    }
    vec![Value::Array(call)]
}

fn value_of(argument: &str) -> Value {
    if argument.starts_with('\'') { json!(string(argument)) } else { json!(argument.parse::<f64>().unwrap()) }
}

/// The text of one of our Python literals: the UI-TARS parser reads Python's strings.
fn string(literal: &str) -> String {
    let read = arpo_agent::parse::parse(&format!("Action: other(text={literal})")).unwrap();
    match &read.actions[..] {
        [Action::Other { arguments, .. }] => arguments[0].1.clone(),
        actions => panic!("{actions:?}"),
    }
}

/// Whole numbers and their like are equal; part of a click of the wheel is none in pyautogui.
fn comparable(mut calls: Value) -> Value {
    fn plain(value: &mut Value) {
        match value {
            Value::Number(number) => *value = json!(number.as_f64()),
            Value::Array(values) => values.iter_mut().for_each(plain),
            Value::Object(values) => values.values_mut().for_each(plain),
            _ => {}
        }
    }
    plain(&mut calls);
    for call in calls.as_array_mut().into_iter().flatten() {
        if let Some([function, clicks]) = call.as_array_mut().map(Vec::as_mut_slice)
            && (function == "scroll" || function == "hscroll")
        {
            *clicks = json!(clicks.as_f64().map(f64::trunc));
        }
    }
    calls
}

#[test]
fn golden_computer_use_responses() {
    let golden = golden();
    let (mut accepted, mut refused) = (0, 0);
    for case in golden.cases.iter().filter(|case| case.dialect == "json") {
        let expected = case.ours.as_ref().or(case.evocua.as_ref()).expect("a result");
        let calls = expected.calls.clone().filter(|_| !expected.malformed).unwrap_or_default();
        let response = match parse(&case.response) {
            Ok(response) => response,
            Err(error) => {
                assert!(calls.is_empty(), "{}\n{error}", case.response);
                refused += 1;
                continue;
            }
        };
        accepted += 1;
        let ours: Vec<Value> =
            response.actions.iter().map(|action| comparable(asked(action, size(golden.screen)))).collect();
        let theirs: Vec<Value> = calls.into_iter().map(comparable).collect();
        assert_eq!(ours, theirs, "{}", case.response);
        if let Some(answer) = &expected.answer {
            assert_eq!(response.actions, [Action::Finished { content: Some(answer.clone()) }]);
        }
        let rendered = computer_use::response(response.thought.as_deref(), &response.actions);
        assert_eq!(parse(&rendered).unwrap().actions, response.actions, "{rendered}");
    }
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}

#[test]
fn golden_computer_use_step_summaries() {
    for case in golden().cases.iter().filter(|case| case.dialect == "json") {
        let expected = case.ours.as_ref().or(case.evocua.as_ref()).expect("a result");
        if let Some(instruction) = expected.instruction.as_ref().filter(|_| !expected.malformed) {
            assert_eq!(&step_summary(&case.response), instruction, "{}", case.response);
        }
    }
}

#[test]
fn golden_computer_use_grid() {
    for Scaling { screen, coordinate: [x, y], osworld_evocua, cookbook } in golden().scaling {
        let action = Action::Click { start_box: ModelBox::point(x, y) };
        let pixel = |divisor| {
            let grid = Coordinates::Grid { divisor };
            match grid.to_screen(&action, size(screen), size(screen)) {
                Action::Click { start_box } => start_box.centre(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(pixel(999), osworld_evocua.into());
        // the cookbook does not round
        let (x, y) = pixel(1000);
        assert!((cookbook[0] - x).abs() < 1.0 && (cookbook[1] - y).abs() < 1.0, "{x} {y} {cookbook:?}");
    }
}

#[test]
fn golden_computer_use_smart_resize() {
    let limits = PixelLimits { min: 3136, max: 13_107_200 };
    for Resize { height, width, resized } in golden().smart_resize {
        let ours = smart_resize(Size { width, height }, 32, limits).unwrap();
        assert_eq!([ours.height, ours.width], resized, "{width}x{height}");
    }
}

/// A message in the golden file's format.
fn as_json(message: &Message) -> Value {
    let part = |part: &Content| match part {
        Content::Text(text) if text == computer_use::SYSTEM => json!({"text": "<system>"}),
        Content::Text(text) => json!({ "text": text }),
        Content::Image(image) => json!({"image": image.digest.parse::<usize>().unwrap()}),
    };
    let content: Vec<Value> = message.content.iter().map(part).collect();
    json!({"role": message.role.name(), "content": content})
}

#[test]
fn golden_computer_use_history() {
    let mut cases = 0;
    for case in golden().history {
        if !matches!(case.reference.as_str(), "osworld" | "evocua") {
            continue;
        }
        cases += 1;
        let screenshot = |number: usize| ImageRef { digest: number.to_string(), width: 1920, height: 1080 };
        let past: Vec<Turn> = (0..)
            .zip(&case.responses)
            .map(|(number, response)| Turn { screenshot: screenshot(number), response: response.clone() })
            .collect();
        let style = AgentStyle::computer_use(ScreenshotWindow::new(case.turns_kept + 1, 1), 999);
        let built = conversation(&case.instruction, &past, Some(&screenshot(past.len())), &style);
        assert_eq!(built.iter().map(as_json).collect::<Vec<_>>(), case.messages);
    }
    assert!(cases > 0);
}

#[test]
fn golden_computer_use_prompts() {
    assert_eq!(computer_use::SYSTEM, text("computer_use_prompt.txt"));
    assert_eq!(computer_use::SYSTEM_EVOCUA, text("computer_use_prompt_evocua.txt"));
}
