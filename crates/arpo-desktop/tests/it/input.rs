//! Scripts of pyautogui arrive as events at a window.

use crate::display::{Display, WIDTH, Witness};
use arpo_desktop::script;
use arpo_desktop::x11::input::{InputDriver, ScriptOutcome};
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{ConnectionExt, KeyButMask};

fn perform(input: &mut InputDriver, code: &str) -> ScriptOutcome {
    let effects = script::read(code).unwrap_or_else(|| panic!("{code}"));
    input.perform(&effects, Instant::now() + Duration::from_secs(20)).unwrap()
}

/// The symbols that keys had when they were pressed, as a program would read them.
fn typed(witness: &Witness) -> Vec<u32> {
    let setup = witness.x.setup();
    let (first, last) = (setup.min_keycode, setup.max_keycode);
    let mapping = witness.x.get_keyboard_mapping(first, last - first + 1).unwrap().reply().unwrap();
    let per_key = usize::from(mapping.keysyms_per_keycode);
    let symbol = |event: &Event| match event {
        Event::KeyPress(press) => {
            let level = usize::from(press.state.contains(KeyButMask::SHIFT));
            Some(mapping.keysyms[usize::from(press.detail - first) * per_key + level])
        }
        _ => None,
    };
    let is_shift = |symbol: &u32| matches!(symbol, 0xffe1 | 0xffe2);
    witness.events().iter().filter_map(symbol).filter(|symbol| !is_shift(symbol)).collect()
}

#[test]
fn text_arrives_as_it_was_written() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    let mut input = InputDriver::open(&display.name).unwrap();
    let text = "Hello, World! <b> {x} ~$% \"q\" 'a' ü€漢字é 😀 09";
    assert_eq!(perform(&mut input, &format!("pyautogui.write({text:?})")), ScriptOutcome::Done);
    let characters: String = typed(&witness)
        .into_iter()
        .map(|symbol| {
            char::from_u32(if symbol > 0x0100_0000 { symbol - 0x0100_0000 } else { symbol }).unwrap()
        })
        .collect();
    assert_eq!(characters, text);
}

#[test]
fn more_new_characters_than_free_keys() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    let mut input = InputDriver::open(&display.name).unwrap();
    let text: String = (0..300).map(|at| char::from_u32(0x4e00 + at).unwrap()).collect();
    assert_eq!(perform(&mut input, &format!("pyautogui.write('{text}')")), ScriptOutcome::Done);
    let presses = witness.events().into_iter().filter(|event| matches!(event, Event::KeyPress(_))).count();
    assert_eq!(presses, 300);
    // and the keyboard still has its letters
    assert_eq!(perform(&mut input, "pyautogui.write('abc')"), ScriptOutcome::Done);
    assert_eq!(typed(&witness), ['a', 'b', 'c'].map(u32::from));
}

#[test]
fn keys_are_held_together() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    let mut input = InputDriver::open(&display.name).unwrap();
    perform(&mut input, "pyautogui.hotkey('ctrl', 'shift', 's')");
    let events = witness.events();
    let pressed: Vec<_> = events
        .iter()
        .filter_map(
            |event| if let Event::KeyPress(press) = event { Some((press.detail, press.state)) } else { None },
        )
        .collect();
    let released: Vec<u8> = events
        .iter()
        .filter_map(|event| if let Event::KeyRelease(release) = event { Some(release.detail) } else { None })
        .collect();
    assert_eq!(pressed.len(), 3);
    assert!(pressed[2].1.contains(KeyButMask::CONTROL) && pressed[2].1.contains(KeyButMask::SHIFT));
    assert_eq!(released, pressed.iter().rev().map(|(code, _)| *code).collect::<Vec<_>>());

    perform(&mut input, "pyautogui.keyDown('shift'); pyautogui.write('aA'); pyautogui.keyUp('shift')");
    assert_eq!(typed(&witness), ['A', 'A'].map(u32::from));
    // an unknown key does nothing
    perform(&mut input, "pyautogui.press(['hyperspace', 'enter'])");
    assert_eq!(typed(&witness), [0xff0d]);
}

#[test]
fn the_pointer_clicks_scrolls_and_drags() {
    let Some(display) = Display::start() else { return };
    let witness = Witness::new(&display);
    let mut input = InputDriver::open(&display.name).unwrap();
    let presses = |witness: &Witness| -> Vec<(u8, i16, i16)> {
        let press = |event: Event| match event {
            Event::ButtonPress(press) => Some((press.detail, press.root_x, press.root_y)),
            _ => None,
        };
        witness.events().into_iter().filter_map(press).collect()
    };
    perform(&mut input, "pyautogui.click(10.9, 20, button='right'); pyautogui.doubleClick(30, 40)");
    assert_eq!(presses(&witness), [(3, 10, 20), (1, 30, 40), (1, 30, 40)]);
    perform(
        &mut input,
        "pyautogui.scroll(2, x=50, y=60); pyautogui.scroll(-1); pyautogui.hscroll(1); pyautogui.hscroll(-1)",
    );
    assert_eq!(presses(&witness), [4, 4, 5, 7, 6].map(|button| (button, 50, 60)));
    perform(&mut input, "pyautogui.moveTo(99999, -5)");
    assert_eq!(
        witness.x.query_pointer(witness.root).unwrap().reply().unwrap().root_x,
        i16::try_from(WIDTH).unwrap() - 1
    );

    let start = Instant::now();
    perform(
        &mut input,
        "pyautogui.moveTo(100, 100); pyautogui.PAUSE = 0; pyautogui.dragTo(200, 150, duration=0.4)",
    );
    assert!(start.elapsed() >= Duration::from_millis(400));
    let events = witness.events();
    let held = |event: &&Event| matches!(event, Event::MotionNotify(motion) if motion.state.contains(KeyButMask::BUTTON1));
    assert!(events.iter().filter(held).count() >= 5, "a drag goes in steps");
    let end = events.iter().find_map(|event| match event {
        Event::ButtonRelease(release) if release.detail == 1 => Some((release.root_x, release.root_y)),
        _ => None,
    });
    assert_eq!(end, Some((200, 150)));
}

#[test]
fn a_script_ends_when_its_time_is_over() {
    let Some(display) = Display::start() else { return };
    let mut input = InputDriver::open(&display.name).unwrap();
    let effects = script::read("time.sleep(60)").unwrap();
    let start = Instant::now();
    let ended = input.perform(&effects, start + Duration::from_millis(100)).unwrap();
    assert_eq!(ended, ScriptOutcome::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(10));
}
