//! Names of keys, as pyautogui and UI-TARS spell them, and the egui events they make.

use egui::{Event, Key, Modifiers};

/// A key name in one spelling: `Return` and `enter` are the same key.
pub(crate) fn canonical(name: &str) -> String {
    let name = name.trim();
    // a single character keeps its case: it is typed
    if name.chars().count() == 1 {
        return name.to_owned();
    }
    let lower = name.to_lowercase();
    match lower.as_str() {
        "return" | "kp_enter" => "enter",
        "esc" => "escape",
        "del" => "delete",
        "arrowleft" | "leftarrow" => "left",
        "arrowright" | "rightarrow" => "right",
        "arrowup" | "uparrow" => "up",
        "arrowdown" | "downarrow" => "down",
        "pgup" | "page_up" => "pageup",
        "pgdn" | "pagedn" | "page_down" => "pagedown",
        "control" | "ctrlleft" | "ctrlright" | "cmd" | "command" | "meta" => "ctrl",
        "altleft" | "altright" | "option" => "alt",
        "shiftleft" | "shiftright" => "shift",
        "back" => "backspace",
        "spacebar" => "space",
        other => other,
    }
    .to_owned()
}

/// True if the key exists: pressing any other does nothing.
pub fn is_key(name: &str) -> bool {
    let name = canonical(name);
    is_modifier(&name) || !press(&name, Modifiers::default()).is_empty()
}

/// True for keys that change what others do.
pub(crate) fn is_modifier(name: &str) -> bool {
    matches!(name, "ctrl" | "alt" | "shift")
}

/// What held keys mean to egui.
pub(crate) fn modifiers(held: &[String]) -> Modifiers {
    let has = |name: &str| held.iter().any(|key| key == name);
    Modifiers {
        alt: has("alt"),
        ctrl: has("ctrl"),
        shift: has("shift"),
        mac_cmd: false,
        command: has("ctrl"),
    }
}

/// egui's key; none if there is no such key.
fn key(name: &str) -> Option<Key> {
    Some(match name {
        "enter" => Key::Enter,
        "tab" => Key::Tab,
        "escape" => Key::Escape,
        "backspace" => Key::Backspace,
        "delete" => Key::Delete,
        "insert" => Key::Insert,
        "space" | " " => Key::Space,
        "left" => Key::ArrowLeft,
        "right" => Key::ArrowRight,
        "up" => Key::ArrowUp,
        "down" => Key::ArrowDown,
        "home" => Key::Home,
        "end" => Key::End,
        "pageup" => Key::PageUp,
        "pagedown" => Key::PageDown,
        _ if name.chars().count() == 1 || is_function_key(name) => Key::from_name(&name.to_uppercase())?,
        _ => return None,
    })
}

fn is_function_key(name: &str) -> bool {
    name.strip_prefix('f').is_some_and(|number| number.parse::<u8>().is_ok_and(|n| (1..=12).contains(&n)))
}

/// A key pressed and released, typing what it types; nothing for an unknown key.
pub(crate) fn press(name: &str, modifiers: Modifiers) -> Vec<Event> {
    let mut events = Vec::new();
    let event = |key, pressed| Event::Key { key, physical_key: None, pressed, repeat: false, modifiers };
    let known = key(name);
    events.extend(known.map(|key| event(key, true)));
    let typed = match name {
        "space" => Some(" ".to_owned()),
        _ if name.chars().count() == 1 => {
            Some(if modifiers.shift { name.to_uppercase() } else { name.to_owned() })
        }
        _ => None,
    };
    if let Some(text) = typed.filter(|_| !modifiers.ctrl && !modifiers.alt) {
        events.push(Event::Text(text));
    }
    events.extend(known.map(|key| event(key, false)));
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_unified() {
        for (spelling, name) in
            [("Return", "enter"), ("ESC", "escape"), ("arrowdown", "down"), ("a", "a"), ("A", "A")]
        {
            assert_eq!(canonical(spelling), name);
        }
    }

    #[test]
    fn keys_press_type_or_do_nothing() {
        let none = Modifiers::default();
        assert_eq!(press("a", none).len(), 3);
        assert_eq!(press("enter", none).len(), 2);
        assert_eq!(press("é", none), [Event::Text("é".into())]);
        assert_eq!(press("hyperspace", none), []);
        assert_eq!(press("f5", none).len(), 2);
        assert_eq!(press("f99", none), []);
        assert!(is_key("Return") && is_key("ctrl") && is_key("é") && !is_key("hyperspace"));
    }
}
