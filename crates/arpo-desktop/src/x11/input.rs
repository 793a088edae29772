//! Effects as pointer and keyboard events (XTEST), with pyautogui's timing.

use super::keyboard::{Keyboard, Stroke};
use super::{Connection, XError, clipboard, keysyms};
use crate::script::{Button, Effect, ScreenPoint};
use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{
    BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, ConnectionExt as _, KEY_PRESS_EVENT, KEY_RELEASE_EVENT,
    MOTION_NOTIFY_EVENT,
};
use x11rb::protocol::xtest::ConnectionExt as _;

/// What pyautogui waits after each of its calls. Between a click and the typing that follows, the window gets its
/// focus in this time.
const PAUSE: Duration = Duration::from_millis(100);
/// A move that takes longer than this is made in steps, as in pyautogui.
const SHORTEST_GLIDE: Duration = Duration::from_millis(100);
const GLIDE_STEP: Duration = Duration::from_millis(20);
/// Time for programs to reload the keyboard mapping.
const AFTER_NEW_SYMBOL: Duration = Duration::from_millis(20);

const WHEEL_UP: u8 = 4;
const WHEEL_DOWN: u8 = 5;
const WHEEL_LEFT: u8 = 6;
const WHEEL_RIGHT: u8 = 7;

/// The outcome of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptOutcome {
    /// It ran to its end.
    Done,
    /// It timed out.
    TimedOut,
    /// It failed, for this reason.
    Failed(String),
}

/// Drives the pointer and the keyboard.
#[derive(Debug)]
pub struct InputDriver {
    display: String,
    connection: Connection,
    keyboard: Keyboard,
    /// Keys remapped to a symbol of ours, the oldest first. They keep it until the key is needed for another symbol: a
    /// program may read the symbol long after the key was pressed.
    borrowed: VecDeque<u8>,
    /// Shift is held by a script.
    holds_shift: bool,
}

impl InputDriver {
    /// On a display with XTEST.
    pub fn open(display: &str) -> Result<Self, XError> {
        let connection = Connection::open(display)?;
        connection.x.xtest_get_version(2, 2)?.reply()?;
        let keyboard = read_keyboard(&connection)?;
        let (display, borrowed) = (display.to_owned(), VecDeque::new());
        Ok(Self { display, connection, keyboard, borrowed, holds_shift: false })
    }

    /// Performs a script until its deadline.
    pub fn perform(&mut self, effects: &[Effect], deadline: Instant) -> Result<ScriptOutcome, XError> {
        // a session may have changed its layout
        self.keyboard = read_keyboard(&self.connection)?;
        let mut pause = PAUSE;
        for (index, effect) in effects.iter().enumerate() {
            let in_time = match effect {
                Effect::Pause(duration) => {
                    pause = *duration;
                    true
                }
                Effect::Sleep(duration) => sleep(*duration, deadline),
                Effect::Copy { text } => match clipboard::copy(&self.display, text, deadline) {
                    Ok(()) => true,
                    Err(problem) => return Ok(ScriptOutcome::Failed(problem)),
                },
                effect => {
                    let is_last = index + 1 == effects.len();
                    self.act(effect, deadline)? && (is_last || sleep(pause, deadline))
                }
            };
            if !in_time || Instant::now() > deadline {
                return Ok(ScriptOutcome::TimedOut);
            }
        }
        Ok(ScriptOutcome::Done)
    }

    /// Performs one effect; false if the deadline passed before its end.
    fn act(&mut self, effect: &Effect, deadline: Instant) -> Result<bool, XError> {
        let in_time = match effect {
            Effect::Move { to, duration } => self.glide(*to, *duration, deadline)?,
            Effect::Click { at, button, clicks, interval } => {
                self.go(*at)?;
                let mut in_time = true;
                for _ in 0..*clicks {
                    self.click(number(*button))?;
                    in_time = in_time && sleep(*interval, deadline);
                }
                in_time
            }
            Effect::Drag { to, duration, button } => {
                self.event(BUTTON_PRESS_EVENT, number(*button), (0, 0))?;
                let in_time = self.glide(*to, *duration, deadline)?;
                self.event(BUTTON_RELEASE_EVENT, number(*button), (0, 0))?;
                in_time
            }
            Effect::Hold { at, button, down } => {
                self.go(*at)?;
                let kind = if *down { BUTTON_PRESS_EVENT } else { BUTTON_RELEASE_EVENT };
                self.event(kind, number(*button), (0, 0))?;
                true
            }
            Effect::Scroll { at, clicks, sideways } => {
                self.go(*at)?;
                let button = match (*sideways, *clicks > 0) {
                    (false, true) => WHEEL_UP,
                    (false, false) => WHEEL_DOWN,
                    (true, true) => WHEEL_RIGHT,
                    (true, false) => WHEEL_LEFT,
                };
                (0..clicks.unsigned_abs()).try_for_each(|_| self.click(button))?;
                true
            }
            Effect::Write { text, interval } => {
                let mut in_time = true;
                for character in text.chars().filter(|_| deadline > Instant::now()) {
                    self.tap(keysyms::of_character(character))?;
                    in_time = in_time && sleep(*interval, deadline);
                }
                in_time
            }
            Effect::Press { keys, presses, interval } => {
                let mut in_time = true;
                for key in (0..*presses).flat_map(|_| keys) {
                    if let Some(symbol) = keysyms::of_name(key) {
                        self.tap(symbol)?;
                    }
                    in_time = in_time && sleep(*interval, deadline);
                }
                in_time
            }
            Effect::Key { key, down } => {
                self.key(key, *down)?;
                true
            }
            Effect::Hotkey { keys } => {
                keys.iter().try_for_each(|key| self.key(key, true))?;
                keys.iter().rev().try_for_each(|key| self.key(key, false))?;
                true
            }
            Effect::Sleep(_) | Effect::Pause(_) | Effect::Copy { .. } => true,
        };
        self.connection.sync()?;
        Ok(in_time)
    }

    fn event(&self, kind: u8, detail: u8, (x, y): (i16, i16)) -> Result<(), XError> {
        const NOW: u32 = 0;
        const ANY_DEVICE: u8 = 0;
        let root = self.connection.root();
        self.connection.x.xtest_fake_input(kind, detail, NOW, root, x, y, ANY_DEVICE)?;
        Ok(())
    }

    fn click(&self, button: u8) -> Result<(), XError> {
        self.event(BUTTON_PRESS_EVENT, button, (0, 0))?;
        self.event(BUTTON_RELEASE_EVENT, button, (0, 0))
    }

    fn go(&self, to: ScreenPoint) -> Result<(), XError> {
        if to == ScreenPoint::default() {
            return Ok(());
        }
        let point = target(to, self.connection.pointer()?, self.connection.size()?);
        self.event(MOTION_NOTIFY_EVENT, 0, point)
    }

    /// Moves in steps over a duration.
    fn glide(&self, to: ScreenPoint, duration: Duration, deadline: Instant) -> Result<bool, XError> {
        if duration <= SHORTEST_GLIDE {
            self.go(to)?;
            return Ok(true);
        }
        let from = self.connection.pointer()?;
        let end = target(to, from, self.connection.size()?);
        let start = Instant::now();
        loop {
            let part = (start.elapsed().as_secs_f64() / duration.as_secs_f64()).min(1.0);
            self.event(MOTION_NOTIFY_EVENT, 0, between(from, end, part))?;
            self.connection.sync()?;
            if part >= 1.0 {
                return Ok(true);
            }
            let left = duration.saturating_sub(start.elapsed());
            if !sleep(left.min(GLIDE_STEP), deadline) {
                return Ok(false);
            }
        }
    }

    /// Presses and releases the key of a symbol.
    fn tap(&mut self, symbol: u32) -> Result<(), XError> {
        let Some(stroke) = self.stroke(symbol)? else { return Ok(()) };
        self.press(stroke)?;
        self.event(KEY_RELEASE_EVENT, stroke.code, (0, 0))
    }

    /// Presses or releases a key by its name.
    fn key(&mut self, name: &str, down: bool) -> Result<(), XError> {
        let Some(symbol) = keysyms::of_name(name) else { return Ok(()) };
        let Some(stroke) = self.stroke(symbol)? else { return Ok(()) };
        if symbol == keysyms::SHIFT {
            self.holds_shift = down;
        }
        if down { self.press(stroke) } else { self.event(KEY_RELEASE_EVENT, stroke.code, (0, 0)) }
    }

    /// Shift is held while the key goes down, which is when its symbol is decided.
    fn press(&mut self, stroke: Stroke) -> Result<(), XError> {
        let shift = stroke.shift && !self.holds_shift;
        let shift = shift.then(|| self.keyboard.find(keysyms::SHIFT)).flatten();
        if let Some(shift) = shift {
            self.event(KEY_PRESS_EVENT, shift.code, (0, 0))?;
        }
        self.event(KEY_PRESS_EVENT, stroke.code, (0, 0))?;
        if let Some(shift) = shift {
            self.event(KEY_RELEASE_EVENT, shift.code, (0, 0))?;
        }
        Ok(())
    }

    /// The key of a symbol. A symbol without a key is mapped to a free key; none if every key is taken.
    fn stroke(&mut self, symbol: u32) -> Result<Option<Stroke>, XError> {
        if let Some(found) = self.keyboard.find(symbol) {
            return Ok(Some(found));
        }
        let free = self.keyboard.free().next();
        let Some(code) = free.or_else(|| self.borrowed.pop_front()) else { return Ok(None) };
        self.connection.x.change_keyboard_mapping(1, code, 2, &[symbol, symbol])?.check()?;
        self.connection.sync()?;
        self.keyboard.set(code, symbol);
        self.borrowed.push_back(code);
        thread::sleep(AFTER_NEW_SYMBOL);
        Ok(self.keyboard.find(symbol))
    }
}

fn read_keyboard(connection: &Connection) -> Result<Keyboard, XError> {
    let setup = connection.x.setup();
    let (first, last) = (setup.min_keycode, setup.max_keycode);
    let mapping = connection.x.get_keyboard_mapping(first, last - first + 1)?.reply()?;
    Ok(Keyboard::new(first, mapping.keysyms_per_keycode, mapping.keysyms))
}

/// Sleeps until the deadline at most; false if that cut it short.
fn sleep(duration: Duration, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    thread::sleep(duration.min(left));
    duration <= left
}

fn number(button: Button) -> u8 {
    match button {
        Button::Left => 1,
        Button::Middle => 2,
        Button::Right => 3,
    }
}

/// A pixel of the screen: fractions are truncated and points outside are clamped to the edge, as pyautogui does.
fn target(to: ScreenPoint, from: (i16, i16), (width, height): (u16, u16)) -> (i16, i16) {
    let along = |to: Option<f64>, from: i16, size: u16| {
        let last = f64::from(size.min(i16::MAX as u16).saturating_sub(1));
        to.map_or(from, |to| to.trunc().clamp(0.0, last) as i16)
    };
    (along(to.x, from.0, width), along(to.y, from.1, height))
}

fn between(from: (i16, i16), to: (i16, i16), part: f64) -> (i16, i16) {
    let along =
        |from: i16, to: i16| (f64::from(from) + (f64::from(to) - f64::from(from)) * part).round() as i16;
    (along(from.0, to.0), along(from.1, to.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_pixels_of_the_screen() {
        let point = |x, y| ScreenPoint { x: Some(x), y: Some(y) };
        let screen = (100, 50);
        assert_eq!(target(point(10.9, 20.1), (0, 0), screen), (10, 20));
        assert_eq!(target(point(-5.0, 1e9), (0, 0), screen), (0, 49));
        assert_eq!(target(ScreenPoint { x: None, y: Some(3.0) }, (7, 8), screen), (7, 3));
    }

    #[test]
    fn a_glide_begins_and_ends_exactly() {
        assert_eq!(between((0, 10), (100, -10), 0.0), (0, 10));
        assert_eq!(between((0, 10), (100, -10), 0.5), (50, 0));
        assert_eq!(between((0, 10), (100, -10), 1.0), (100, -10));
    }
}
