//! The whole desktop as plain state: the world, the session on top of it, and the effect of using a widget on both.
//!
//! Nothing here draws or waits. The state serialises to JSON and back, and together with the actions that follow
//! it determines every later screen image and score.

use crate::apps::{self, States};
use crate::look::Look;
use crate::view::{Gesture, Group, Node, Role, Value, View};
use crate::world::{App, World};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// World, session and look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desktop {
    /// What the applications keep.
    pub world: World,
    /// What is open, selected, focused and not yet saved.
    pub session: Session,
    /// What it looks like.
    pub look: Look,
}

/// What is open, selected, focused and not yet saved.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// Open windows, the front one last.
    pub windows: Vec<Window>,
    /// A message that covers everything until it is closed.
    pub notice: Option<String>,
    /// The widget whose menu is open.
    pub menu: Option<String>,
    /// Rows scrolled away, by window.
    pub scroll: BTreeMap<App, usize>,
    /// Where typed text goes.
    pub focus: Option<Focus>,
    /// What was cut or copied.
    pub clipboard: String,
    /// Texts before each change, the latest last: (widget, text).
    pub undo: Vec<(String, String)>,
    /// Keys held down.
    pub held: Vec<String>,
    /// Where the pointer is.
    pub pointer: Option<(f32, f32)>,
    /// The state of each application.
    pub(crate) states: States,
}

/// An open window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The application.
    pub app: App,
    /// Left edge in pixels.
    pub x: f32,
    /// Upper edge in pixels.
    pub y: f32,
}

/// The field that is being edited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Focus {
    /// Its widget.
    pub id: String,
    /// Where the selection was begun, in characters.
    pub anchor: usize,
    /// Where the cursor is, in characters.
    pub cursor: usize,
}

/// Length of the undo history.
const MAX_UNDO: usize = 32;

impl Desktop {
    /// A desktop without open windows.
    pub fn new(world: World, look: Look) -> Self {
        Self { world, session: Session::default(), look }
    }

    /// The application whose window is in front.
    pub fn front(&self) -> Option<App> {
        self.session.windows.last().map(|window| window.app)
    }

    pub(crate) fn app_name(&self, app: App) -> &'static str {
        app.name(self.look.pocket())
    }

    /// Opens a window or brings it to the front.
    pub fn open(&mut self, app: App) {
        let windows = &mut self.session.windows;
        let window = if let Some(index) = windows.iter().position(|window| window.app == app) {
            windows.remove(index)
        } else {
            let (x, y) = crate::layout::desktop::initial_position(&self.look, app);
            Window { app, x, y }
        };
        windows.push(window);
        self.session.focus = None;
        self.session.menu = None;
    }

    /// Closes a window; what was not saved in it stays with its application.
    pub fn close(&mut self, app: App) {
        self.session.windows.retain(|window| window.app != app);
        self.session.focus = None;
        self.session.menu = None;
    }

    pub(crate) fn scroll_to_start(&mut self) {
        if let Some(app) = self.front() {
            self.session.scroll.remove(&app);
        }
    }

    /// Puts the cursor into a field with everything in it selected.
    pub(crate) fn focus_all(&mut self, id: &str) {
        self.session.focus = Some(Focus { id: id.to_owned(), anchor: 0, cursor: usize::MAX });
    }

    /// A window's dialog if one is open, else the window itself.
    pub(crate) fn active_view(&self, app: App) -> View {
        apps::dialog(self, app).unwrap_or_else(|| apps::view(self, app))
    }

    /// The message that covers everything.
    pub(crate) fn notice_view(&self) -> Option<View> {
        let text = self.session.notice.as_ref()?;
        let label = Node::new(Role::Label, "notice:text", text.clone());
        let button = Node::new(Role::Button, "notice:ok", "Close").size(1, 3).keys("enter");
        Some(View::new("Notice").body(Group::fixed(vec![label])).bottom(Group::fixed(vec![button])))
    }

    /// A widget was used.
    pub(crate) fn handle(&mut self, id: &str, gesture: &Gesture) {
        let mut parts = id.splitn(3, ':');
        let (owner, verb, which) =
            (parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let menu = self.session.menu.take();
        if verb == "menu" {
            self.session.menu = if menu.as_deref() == Some(id) { None } else { Some(id.to_owned()) };
            return;
        }
        match owner {
            "notice" => self.session.notice = None,
            "home" => {
                self.session.windows.clear();
                self.session.focus = None;
            }
            "bar" => {
                if let Some(app) = App::of_key(verb) {
                    self.open(app);
                }
            }
            "close" => {
                if let Some(app) = App::of_key(verb) {
                    self.close(app);
                }
            }
            _ => {
                if let Some(app) = App::of_key(owner) {
                    apps::event(self, app, verb, which, gesture);
                }
            }
        }
    }

    /// Records the text of a field before it changes.
    pub(crate) fn push_undo(&mut self, id: &str, before: &str) {
        self.session.undo.push((id.to_owned(), before.to_owned()));
        if self.session.undo.len() > MAX_UNDO {
            self.session.undo.remove(0);
        }
    }

    /// Takes back the latest change of the focused field.
    pub(crate) fn undo(&mut self) {
        let Some(focus) = self.session.focus.clone() else { return };
        let Some(latest) = self.session.undo.iter().rposition(|(id, _)| *id == focus.id) else { return };
        let (id, text) = self.session.undo.remove(latest);
        let end = text.chars().count();
        self.handle(&id, &Gesture::Set(Value::Text(text)));
        self.session.focus = Some(Focus { id, anchor: end, cursor: end });
    }

    /// Scrolls a window's list, or a sheet sideways.
    pub(crate) fn scroll(&mut self, app: App, rows: isize, columns: isize) {
        let offset = self.session.scroll.entry(app).or_default();
        *offset = offset.saturating_add_signed(rows);
        if app == App::Sheet {
            let (all, _, shown) = apps::sheet::dimensions(self.look.pocket());
            let column = &mut self.session.states.sheet.column;
            *column = column.saturating_add_signed(columns).min(all - shown);
        }
    }
}
