//! Rendered actions parse back to themselves, and coordinates are mapped correctly.

use arpo_agent::geometry::{PixelLimits, SIDE_FACTOR, ScreenMap, Size, UITARS_LIMITS, smart_resize};
use arpo_agent::parse::parse;
use arpo_agent::render;
use arpo_core::action::{Action, Direction, ModelBox};
use proptest::prelude::*;

/// Text with everything that could break a parser.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::collection::vec(
            prop::sample::select(vec![
                "'", "\"", "\\", "\n", "\n\n", ")", "')", "(", ",", "n", " ", "Action:", "Action", ":", "é",
                "\0"
            ]),
            0..12
        )
        .prop_map(|parts| parts.concat()),
    ]
}

fn any_box() -> impl Strategy<Value = ModelBox> {
    let number = || prop_oneof![(0u32..4000).prop_map(f64::from), -1e4..1e4f64, prop::num::f64::NORMAL];
    prop_oneof![
        (number(), number()).prop_map(|(x, y)| ModelBox::point(x, y)),
        (number(), number(), number(), number()).prop_map(|(x1, y1, x2, y2)| ModelBox { x1, y1, x2, y2 }),
    ]
}

fn side() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..300, 1u32..5000]
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![Just("ctrl".to_owned()), Just("+".to_owned()), "[a-z0-9'\\\\]{1,8}"]
}

fn any_action() -> impl Strategy<Value = Action> {
    let direction =
        prop::sample::select(vec![Direction::Up, Direction::Down, Direction::Left, Direction::Right]);
    let arguments = prop::collection::btree_map("[a-z_]{1,6}", any_text(), 0..3)
        .prop_map(|arguments| arguments.into_iter().collect::<Vec<_>>());
    prop_oneof![
        any_box().prop_map(|start_box| Action::Click { start_box }),
        any_box().prop_map(|start_box| Action::LeftDouble { start_box }),
        any_box().prop_map(|start_box| Action::RightSingle { start_box }),
        any_box().prop_map(|start_box| Action::Hover { start_box }),
        (any_box(), any_box()).prop_map(|(start_box, end_box)| Action::Drag { start_box, end_box }),
        (any_box(), any_box()).prop_map(|(start_box, end_box)| Action::Select { start_box, end_box }),
        (prop::option::of(any_box()), direction)
            .prop_map(|(start_box, direction)| Action::Scroll { start_box, direction }),
        prop::collection::vec(any_key(), 1..4).prop_map(|keys| Action::Hotkey { keys }),
        any_key().prop_map(|key| Action::Press { key }),
        any_key().prop_map(|key| Action::Keydown { key }),
        any_key().prop_map(|key| Action::Keyup { key }),
        any_text().prop_map(|content| Action::Type { content }),
        Just(Action::Wait {}),
        prop::option::of(any_text()).prop_map(|content| Action::Finished { content }),
        Just(Action::CallUser {}),
        Just(Action::ErrorEnv {}),
        ("zoom_[a-z]{0,4}", arguments).prop_map(|(name, arguments)| Action::Other { name, arguments }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rendered_actions_parse_back(actions in prop::collection::vec(any_action(), 1..4)) {
        let text = render::response(None, &actions);
        let read = parse(&text);
        prop_assert_eq!(read.as_ref().map(|response| &response.actions), Ok(&actions), "{}", text);
    }

    #[test]
    fn rendered_thoughts_parse_back(thought in any_text(), action in any_action()) {
        // the marker ends a thought wherever it is
        let thought = thought.replace(':', "").trim().to_owned();
        let text = render::response(Some(&thought), std::slice::from_ref(&action));
        let read = parse(&text).unwrap();
        prop_assert_eq!(read.thought.unwrap_or_default(), thought);
        prop_assert_eq!(read.actions, [action]);
    }

    // limits that are close together may have no size between them: an image that is enlarged may then end above the upper one, one
    // that is shrunk below the lower one
    #[test]
    fn resized_images_keep_the_rules(
        width in side(), height in side(), min in 1u64..100_000, spare in prop_oneof![1u64..100_000, 1u64..20_000_000],
    ) {
        let limits = PixelLimits { min, max: min + spare };
        if let Ok(resized) = smart_resize(Size { width, height }, SIDE_FACTOR, limits) {
            prop_assert!(resized.width % SIDE_FACTOR == 0 && resized.height % SIDE_FACTOR == 0);
            prop_assert!(resized.width > 0 && resized.height > 0);
            let pixels = u64::from(resized.width) * u64::from(resized.height);
            let one_less = u64::from(resized.width - SIDE_FACTOR) * u64::from(resized.height - SIDE_FACTOR);
            // a side is at least 28, so a narrow image may stay above the upper limit
            let narrow = one_less == 0;
            prop_assert!(pixels <= limits.max || narrow || one_less < limits.min, "{pixels} pixels within {limits:?}");
            prop_assert!(pixels >= limits.min || limits.max < 2 * limits.min || pixels > limits.max / 4);
            // the proportions hold within one multiple of 28 on either side
            let factor = f64::from(SIDE_FACTOR);
            let (w, h) = (f64::from(resized.width), f64::from(resized.height));
            let original = f64::from(width) / f64::from(height);
            prop_assert!(narrow || original <= (w + factor) / (h - factor));
            prop_assert!(narrow || original >= (w - factor) / (h + factor));
        }
    }

    #[test]
    fn pixels_are_on_the_screen(model_box in any_box(), width in 28u32..4000, height in 28u32..4000) {
        let map = ScreenMap::new(Size { width, height }, UITARS_LIMITS).unwrap();
        let (x, y) = map.to_pixel(&model_box);
        prop_assert!(x < width && y < height);
    }
}
