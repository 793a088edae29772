//! Applies an action to the state: runs the egui passes that carry it out and the effects of the widgets it used.

use crate::desktop::{Desktop, Window};
use crate::draw::display::Display;
use crate::keys;
use crate::layout::{self, Scene, SceneItem, Surface};
use crate::view::{Gesture, Role, Value};
use crate::world::App;
use arpo_core::action::{Action, Direction, ModelBox, MouseButton};
use egui::{Event, Modifiers, PointerButton, Pos2, pos2};

/// Characters typed per action; the rest is dropped.
const TYPED_LIMIT: usize = 4096;
/// Line breaks pressed per action.
const LINES_LIMIT: usize = 64;
/// Rows per scroll on a desktop; a pocket screen scrolls by one page.
const WHEEL_ROWS: isize = 3;
/// Clicks of the wheel in a scroll.
const SCROLL_CLICKS: f64 = 5.0;
/// Pixels of a title bar that stay on the screen.
const TITLE_KEPT: f32 = 60.0;

/// Carries an action out; `scene` is what is on the screen.
pub(crate) fn act(desktop: &mut Desktop, display: &mut Display, scene: &mut Scene, action: &Action) {
    let mut driver = InputDriver { desktop, display, scene };
    match action {
        Action::Click { start_box } => driver.click(start_box, PointerButton::Primary, 1),
        Action::LeftDouble { start_box } => driver.click(start_box, PointerButton::Primary, 2),
        Action::RightSingle { start_box } => driver.click(start_box, PointerButton::Secondary, 1),
        Action::LeftTriple { start_box } => driver.click(start_box, PointerButton::Primary, 3),
        Action::MiddleSingle { start_box } => driver.click(start_box, PointerButton::Middle, 1),
        Action::ClickHere { button, times } => {
            let button = match button {
                MouseButton::Left => PointerButton::Primary,
                MouseButton::Middle => PointerButton::Middle,
                MouseButton::Right => PointerButton::Secondary,
            };
            if let Some(at) = driver.pointer() {
                driver.click_at(at, button, usize::from(*times));
            }
        }
        Action::Hover { start_box } => {
            if let Some(at) = driver.point(start_box) {
                driver.pass(vec![Event::PointerMoved(at)]);
            }
        }
        Action::Drag { start_box, end_box } | Action::Select { start_box, end_box } => {
            let start = driver.point(start_box);
            driver.drag(start, end_box);
        }
        Action::DragTo { end_box, .. } => {
            let start = driver.pointer();
            driver.drag(start, end_box);
        }
        Action::Scroll { start_box, direction } => driver.scroll(start_box.as_ref(), *direction),
        Action::Wheel { clicks, horizontal } => driver.wheel(*clicks, *horizontal),
        Action::Hotkey { keys } => driver.hotkey(keys),
        Action::Press { key } => driver.hotkey(std::slice::from_ref(key)),
        Action::Keydown { key } => {
            let name = keys::canonical(key);
            if keys::is_modifier(&name) {
                if !driver.desktop.session.held.contains(&name) {
                    driver.desktop.session.held.push(name);
                }
            } else {
                driver.hotkey(std::slice::from_ref(key));
            }
        }
        Action::Keyup { key } => {
            let name = keys::canonical(key);
            driver.desktop.session.held.retain(|held| *held != name);
        }
        Action::Type { content } => driver.type_text(content),
        Action::TypeVerbatim { text } => driver.type_verbatim(text),
        Action::Wait {}
        | Action::Finished { .. }
        | Action::CallUser {}
        | Action::Infeasible {}
        | Action::ErrorEnv {}
        | Action::Other { .. } => {}
    }
    display.advance_clock();
}

struct InputDriver<'a> {
    desktop: &'a mut Desktop,
    display: &'a mut Display,
    scene: &'a mut Scene,
}

impl InputDriver<'_> {
    /// A point on the screen; none outside it, where there is nothing to act on.
    fn point(&mut self, target_box: &ModelBox) -> Option<Pos2> {
        let (x, y) = target_box.centre();
        let inside = |value: f64, side: u32| value >= 0.0 && value < f64::from(side);
        let look = &self.desktop.look;
        let at = (inside(x, look.width) && inside(y, look.height)).then(|| pos2(x as f32, y as f32));
        if let Some(at) = at {
            self.desktop.session.pointer = Some((at.x, at.y));
        }
        at
    }

    fn modifiers(&self) -> Modifiers {
        keys::modifiers(&self.desktop.session.held)
    }

    /// Runs one egui pass and applies its effects.
    fn pass(&mut self, events: Vec<Event>) {
        let modifiers = self.modifiers();
        self.pass_with(events, modifiers);
    }

    fn pass_with(&mut self, events: Vec<Event>, modifiers: Modifiers) {
        let pressed = events.iter().any(|event| matches!(event, Event::PointerButton { pressed: true, .. }));
        let passed = self.display.pass(self.desktop, self.scene, events, modifiers);
        self.desktop.session.focus = passed.used.focus;
        if let Some(text) = passed.copied {
            self.desktop.session.clipboard = text;
        }
        if pressed && passed.used.gestures.is_empty() {
            self.desktop.session.menu = None;
        }
        for (id, gesture) in passed.used.gestures {
            self.apply(&id, &gesture);
        }
        *self.scene = layout::scene(self.desktop);
    }

    /// Applies the effect of a used widget: windows and pages here, everything else in the desktop.
    fn apply(&mut self, id: &str, gesture: &Gesture) {
        let owner = id.split(':').next().unwrap_or_default();
        let app = App::of_key(id.split(':').nth(1).unwrap_or_default());
        match (owner, gesture) {
            // only files have a menu of their own; elsewhere a right click closes one and does nothing else
            (_, Gesture::Right) if !id.starts_with("files:item:") => self.desktop.session.menu = None,
            ("more", _) => {
                if let Some((app, scrolled)) = app.and_then(|app| Some((app, self.scene.scrolled.get(&app)?)))
                {
                    let next = if scrolled.offset >= scrolled.last { 0 } else { scrolled.offset + 1 };
                    self.desktop.session.scroll.insert(app, next);
                }
            }
            ("title", _) => {
                let Some(app) = app else { return };
                if self.desktop.front() != Some(app) {
                    self.desktop.open(app);
                }
                let look = self.desktop.look.clone();
                if let (Gesture::Moved(x, y), Some(window)) =
                    (gesture, self.desktop.session.windows.last_mut())
                {
                    shift(window, *x, *y, (look.width as f32, look.height as f32));
                }
            }
            _ => {
                if let Some(app) = App::of_key(owner)
                    && self.desktop.front() != Some(app)
                {
                    self.desktop.open(app);
                }
                if let Gesture::Set(Value::Text(_)) = gesture {
                    let node = self.scene.widgets().find(|placed| placed.node.id == id);
                    if let Some(Value::Text(before)) = node.map(|placed| placed.node.value.clone()) {
                        self.desktop.push_undo(id, &before);
                    }
                }
                self.desktop.handle(id, gesture);
            }
        }
    }

    /// Where the pointer is; nowhere before it was moved for the first time.
    fn pointer(&self) -> Option<Pos2> {
        self.desktop.session.pointer.map(|(x, y)| pos2(x, y))
    }

    fn click(&mut self, target_box: &ModelBox, button: PointerButton, times: usize) {
        if let Some(at) = self.point(target_box) {
            self.click_at(at, button, times);
        }
    }

    fn click_at(&mut self, pos: Pos2, button: PointerButton, times: usize) {
        let modifiers = self.modifiers();
        let press = |pressed| Event::PointerButton { pos, button, pressed, modifiers };
        for _ in 0..times {
            self.pass(vec![Event::PointerMoved(pos), press(true), press(false)]);
        }
    }

    fn drag(&mut self, start: Option<Pos2>, to: &ModelBox) {
        let (Some(start), Some(end)) = (start, self.point(to)) else { return };
        let modifiers = self.modifiers();
        let press =
            |pos, pressed| Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers };
        self.pass(vec![Event::PointerMoved(start), press(start, true)]);
        self.pass(vec![Event::PointerMoved(start + (end - start) / 2.0)]);
        self.pass(vec![Event::PointerMoved(end)]);
        self.pass(vec![press(end, false)]);
    }

    fn scroll(&mut self, target_box: Option<&ModelBox>, direction: Direction) {
        let at = match target_box {
            Some(target_box) => self.point(target_box),
            None => self.pointer(),
        };
        let step = self.scroll_rows();
        let (rows, columns) = match direction {
            Direction::Up => (-step, 0),
            Direction::Down => (step, 0),
            Direction::Left => (0, -1),
            Direction::Right => (0, 1),
        };
        self.scroll_by(at, rows, columns);
    }

    /// As far as so many clicks of the wheel are of a scroll, and at least one row or column.
    fn wheel(&mut self, clicks: f64, horizontal: bool) {
        let scrolls = clicks.trunc() / SCROLL_CLICKS;
        if scrolls == 0.0 || scrolls.is_nan() {
            return;
        }
        let far = |most: isize| (scrolls.abs() * most as f64).round().clamp(1.0, 1e6) as isize;
        let (rows, columns) = match (horizontal, scrolls > 0.0) {
            (false, true) => (-far(self.scroll_rows()), 0),
            (false, false) => (far(self.scroll_rows()), 0),
            (true, true) => (0, far(1)),
            (true, false) => (0, -far(1)),
        };
        self.scroll_by(self.pointer(), rows, columns);
    }

    fn scroll_rows(&self) -> isize {
        if self.desktop.look.pocket() { 1 } else { WHEEL_ROWS }
    }

    fn scroll_by(&mut self, at: Option<Pos2>, rows: isize, columns: isize) {
        let Some(app) = self.window_at(at) else { return };
        let scrolled = self.scene.scrolled.get(&app).copied().unwrap_or_default();
        let target = scrolled.offset.saturating_add_signed(rows).min(scrolled.last);
        let by = target as isize - self.desktop.session.scroll.get(&app).map_or(0, |rows| *rows as isize);
        self.desktop.scroll(app, by, columns);
        *self.scene = layout::scene(self.desktop);
    }

    /// The window under a point, or the front one without a point.
    fn window_at(&self, at: Option<Pos2>) -> Option<App> {
        let Some(at) = at else { return self.desktop.front() };
        let panel = self.scene.items.iter().rev().find_map(|item| match item {
            SceneItem::Panel { surface: Surface::ScrollBar | Surface::Shade, .. } => None,
            SceneItem::Panel { surface, rect } if rect.contains(at) => Some(*surface),
            _ => None,
        })?;
        match panel {
            Surface::Window(app) => Some(app),
            Surface::Dialog | Surface::Menu => self.desktop.front(),
            _ => None,
        }
    }

    fn focused_role(&self) -> Option<Role> {
        let focus = self.desktop.session.focus.as_ref()?;
        let node = self.scene.widgets().find(|placed| placed.node.id == focus.id)?;
        Some(node.node.role)
    }

    /// Keys pressed together: widget shortcuts first, then the clipboard, then egui.
    fn hotkey(&mut self, names: &[String]) {
        let mut held = self.desktop.session.held.clone();
        let mut last = None;
        for name in names {
            let name = keys::canonical(name);
            if keys::is_modifier(&name) {
                held.push(name);
            } else {
                last = Some(name);
            }
        }
        let Some(name) = last.filter(|name| keys::is_key(name)) else { return };
        held.sort();
        held.dedup();
        let combination =
            held.iter().chain([&name]).map(|key| key.to_lowercase()).collect::<Vec<_>>().join("+");
        if self.widget_shortcut(&combination) {
            return;
        }
        let modifiers = keys::modifiers(&held);
        let events = match combination.as_str() {
            "ctrl+c" => vec![Event::Copy],
            "ctrl+x" => vec![Event::Cut],
            "ctrl+v" => vec![Event::Paste(self.desktop.session.clipboard.clone())],
            "ctrl+z" => {
                self.desktop.undo();
                *self.scene = layout::scene(self.desktop);
                return;
            }
            _ => keys::press(&name, modifiers),
        };
        self.pass_with(events, modifiers);
    }

    /// Activates the widget on the screen that has this shortcut, if any.
    fn widget_shortcut(&mut self, combination: &str) -> bool {
        if combination == "escape" && self.desktop.session.menu.take().is_some() {
            *self.scene = layout::scene(self.desktop);
            return true;
        }
        // in a text these keys edit; on a button they press it
        let belongs_to_focus = match (combination, self.focused_role()) {
            ("enter", None | Some(Role::Field)) => false,
            ("enter", Some(_)) | ("delete", Some(Role::Field | Role::Text)) => true,
            _ => false,
        };
        if belongs_to_focus {
            return false;
        }
        let node = self
            .scene
            .widgets()
            .rev()
            .find(|placed| placed.active && placed.node.enabled && placed.node.keys == combination);
        let Some(id) = node.map(|placed| placed.node.id.clone()) else { return false };
        self.apply(&id, &Gesture::Click);
        *self.scene = layout::scene(self.desktop);
        true
    }

    /// Types text; line breaks at its end are one press of enter, those inside are one each.
    fn type_text(&mut self, content: &str) {
        let mut text = content;
        while let Some(shorter) = text.strip_suffix('\n').or_else(|| text.strip_suffix("\\n")) {
            text = shorter;
        }
        let submits = text.len() < content.len();
        self.type_verbatim(text);
        if submits {
            self.hotkey(&["enter".to_owned()]);
        }
    }

    /// Types text; every line break is a press of enter.
    fn type_verbatim(&mut self, text: &str) {
        let typed: String =
            text.chars().filter(|c| *c == '\n' || !c.is_control()).take(TYPED_LIMIT).collect();
        for (index, line) in typed.split('\n').take(LINES_LIMIT).enumerate() {
            if index > 0 {
                self.hotkey(&["enter".to_owned()]);
            }
            if !line.is_empty() {
                self.pass(vec![Event::Text(line.to_owned())]);
            }
        }
    }
}

/// Moves a window and keeps its title bar within reach.
fn shift(window: &mut Window, x: i32, y: i32, screen: (f32, f32)) {
    window.x = (window.x + x as f32).clamp(-TITLE_KEPT, screen.0 - TITLE_KEPT);
    window.y = (window.y + y as f32).clamp(0.0, screen.1 - TITLE_KEPT);
}
