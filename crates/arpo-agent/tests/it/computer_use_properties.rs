//! Actions rendered as tool calls parse back to themselves.

use arpo_agent::computer_use::{parse, response};
use arpo_core::action::{Action, ModelBox, MouseButton};
use proptest::prelude::*;

/// Text with everything that could break a parser.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::collection::vec(
            prop::sample::select(vec![
                "\"",
                "\\",
                "\n",
                "{",
                "}",
                "]",
                "<tool_call>",
                "</tool_call>",
                "\nAction:",
                "action: ",
                ",",
                "é",
                "\0",
                "\u{2028}",
                "\\u0041"
            ]),
            0..12
        )
        .prop_map(|parts| parts.concat()),
    ]
}

fn any_place() -> impl Strategy<Value = ModelBox> {
    let number = || prop_oneof![(0u32..1001).prop_map(f64::from), -1e4..1e4f64, prop::num::f64::NORMAL];
    (number(), number()).prop_map(|(x, y)| ModelBox::point(x, y))
}

fn any_key() -> impl Strategy<Value = String> {
    let known = ["ctrl", " ", "]", "[", "+", "\"", "<", "\\", "enter", "5", "é"].map(str::to_owned);
    prop_oneof![prop::sample::select(known.to_vec()), "[a-z0-9'\\\\]{1,8}"]
}

fn any_action() -> impl Strategy<Value = Action> {
    let buttons = prop::sample::select(vec![
        (MouseButton::Left, 1),
        (MouseButton::Left, 2),
        (MouseButton::Left, 3),
        (MouseButton::Middle, 1),
        (MouseButton::Right, 1),
    ]);
    prop_oneof![
        any_place().prop_map(|start_box| Action::Click { start_box }),
        any_place().prop_map(|start_box| Action::LeftDouble { start_box }),
        any_place().prop_map(|start_box| Action::LeftTriple { start_box }),
        any_place().prop_map(|start_box| Action::RightSingle { start_box }),
        any_place().prop_map(|start_box| Action::MiddleSingle { start_box }),
        buttons.prop_map(|(button, times)| Action::ClickHere { button, times }),
        any_place().prop_map(|start_box| Action::Hover { start_box }),
        (any_place(), prop_oneof![Just(0.5), 0.0..60.0f64])
            .prop_map(|(end_box, seconds)| Action::DragTo { end_box, seconds }),
        (prop_oneof![(-500..500i32).prop_map(f64::from), prop::num::f64::NORMAL], any::<bool>())
            .prop_map(|(clicks, horizontal)| Action::Wheel { clicks, horizontal }),
        prop::collection::vec(any_key(), 2..4).prop_map(|keys| Action::Hotkey { keys }),
        any_key().prop_map(|key| Action::Press { key }),
        any_key().prop_map(|key| Action::Keydown { key }),
        any_key().prop_map(|key| Action::Keyup { key }),
        any_text().prop_map(|text| Action::TypeVerbatim { text }),
        Just(Action::Wait {}),
        prop::option::of(any_text()).prop_map(|content| Action::Finished { content }),
        Just(Action::Infeasible {}),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rendered_calls_parse_back(actions in prop::collection::vec(any_action(), 1..4)) {
        let text = response(None, &actions);
        let read = parse(&text);
        prop_assert_eq!(read.as_ref().map(|response| &response.actions), Ok(&actions), "{}", text);
    }

    #[test]
    fn rendered_descriptions_parse_back(words in "[a-zA-Z<>{}\" .,]{1,40}", action in any_action()) {
        prop_assume!(!words.trim().is_empty());
        let read = parse(&response(Some(&words), std::slice::from_ref(&action))).unwrap();
        prop_assert_eq!(read.thought.as_deref(), Some(words.trim()));
        prop_assert_eq!(read.actions, [action]);
    }
}
