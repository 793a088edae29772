//! Key names of pyautogui as X key symbols. Names unknown to pyautogui do nothing.

/// The symbol of the left shift key.
pub const SHIFT: u32 = 0xffe1;

/// X's symbol of a character: its code in Latin-1, and above that its code with a mark.
pub fn of_character(character: char) -> u32 {
    const UNICODE: u32 = 0x0100_0000;
    match character {
        '\n' | '\r' => 0xff0d,
        '\t' => 0xff09,
        '\u{8}' => 0xff08,
        '\u{1b}' => 0xff1b,
        '\u{7f}' => 0xffff,
        ' '..='~' | '\u{a0}'..='\u{ff}' => character.into(),
        _ => UNICODE + u32::from(character),
    }
}

/// The symbol of a key by its name in pyautogui, where a longer name is the same in capitals.
pub fn of_name(name: &str) -> Option<u32> {
    let mut characters = name.chars();
    if let (Some(only), None) = (characters.next(), characters.next()) {
        return Some(of_character(only));
    }
    let name = name.to_lowercase();
    if let Some(number) = name.strip_prefix('f').and_then(|number| number.parse::<u32>().ok()) {
        return (1..=24).contains(&number).then_some(0xffbe + number - 1);
    }
    if let Some(digit) = name.strip_prefix("num").and_then(|digit| digit.parse::<u32>().ok()) {
        return (digit <= 9).then_some(0xffb0 + digit);
    }
    NAMES.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, symbol)| *symbol)
}

/// Lower-case names with their symbol.
const NAMES: &[(&[&str], u32)] = &[
    (&["backspace"], 0xff08),
    (&["tab"], 0xff09),
    (&["enter", "return"], 0xff0d),
    (&["pause"], 0xff13),
    (&["scrolllock"], 0xff14),
    (&["esc", "escape"], 0xff1b),
    (&["home"], 0xff50),
    (&["left"], 0xff51),
    (&["up"], 0xff52),
    (&["right"], 0xff53),
    (&["down"], 0xff54),
    (&["pgup", "pageup"], 0xff55),
    (&["pgdn", "pagedown"], 0xff56),
    (&["end"], 0xff57),
    (&["select"], 0xff60),
    (&["print", "prtsc", "prtscr", "prntscrn", "printscreen"], 0xff61),
    (&["execute"], 0xff62),
    (&["insert"], 0xff63),
    (&["apps"], 0xff67),
    (&["help"], 0xff6a),
    (&["numlock"], 0xff7f),
    (&["multiply"], 0xffaa),
    (&["add"], 0xffab),
    (&["separator"], 0xffac),
    (&["subtract"], 0xffad),
    (&["decimal"], 0xffae),
    (&["divide"], 0xffaf),
    (&["shift", "shiftleft"], SHIFT),
    (&["shiftright"], 0xffe2),
    (&["ctrl", "ctrlleft"], 0xffe3),
    (&["ctrlright"], 0xffe4),
    (&["capslock"], 0xffe5),
    (&["alt", "altleft"], 0xffe9),
    (&["altright"], 0xffea),
    (&["win", "winleft"], 0xffeb),
    (&["winright"], 0xffec),
    (&["del", "delete"], 0xffff),
    (&["space"], 0x20),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pyautogui() {
        for (name, symbol) in [
            ("a", Some(0x61)),
            ("A", Some(0x41)),
            ("~", Some(0x7e)),
            ("ü", Some(0xfc)),
            ("漢", Some(0x0100_6f22)),
            ("\n", Some(0xff0d)),
            ("Enter", Some(0xff0d)),
            ("ctrl", Some(0xffe3)),
            ("f1", Some(0xffbe)),
            ("F12", Some(0xffc9)),
            ("f25", None),
            ("num0", Some(0xffb0)),
            ("numlock", Some(0xff7f)),
            ("fn", None),
            ("command", None),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(of_name(name), symbol, "{name}");
        }
    }
}
