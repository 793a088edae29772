//! What an application shows, before any pixel: rows of widgets with names, roles and values.
//!
//! Applications only list their widgets; a layout positions them on a screen, the renderer draws them with egui and
//! reports which widget was used how. The same nodes with their rectangles are the widget tree that the oracle and
//! grounding questions read.

use serde::{Deserialize, Serialize};

/// What kind of widget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Plain text.
    Label,
    /// Does something when clicked.
    Button,
    /// A check box.
    Toggle,
    /// One of several; shows which.
    Radio,
    /// A level, set by dragging.
    Slider,
    /// One line of text.
    Field,
    /// Lines of text.
    Text,
    /// An entry of a list, can be selected.
    Item,
    /// A page of the window.
    Tab,
    /// Opens a list of entries.
    Menu,
    /// An entry of an open menu.
    Entry,
    /// A cell of a sheet.
    Cell,
    /// A window's title bar.
    Title,
}

impl Role {
    /// Its name in listings.
    pub fn key(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Button => "button",
            Self::Toggle => "toggle",
            Self::Radio => "radio",
            Self::Slider => "slider",
            Self::Field => "field",
            Self::Text => "text",
            Self::Item => "item",
            Self::Tab => "tab",
            Self::Menu => "menu",
            Self::Entry => "entry",
            Self::Cell => "cell",
            Self::Title => "title",
        }
    }
}

/// What a widget holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Nothing.
    #[default]
    None,
    /// On or off, selected or not.
    On(bool),
    /// From 0 to the second number.
    Level(u32, u32),
    /// Text.
    Text(String),
}

/// One widget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// `application:what:which`, unique on the screen.
    pub(crate) id: String,
    /// What it is.
    pub(crate) role: Role,
    /// Its label.
    pub(crate) label: String,
    /// What it holds.
    pub(crate) value: Value,
    /// Cells it takes on the pocket grid.
    pub(crate) span: usize,
    /// Twelfths of a row it takes in a desktop window.
    pub(crate) share: usize,
    /// Rows it takes in a desktop window.
    pub(crate) tall: usize,
    /// It can be used.
    pub(crate) enabled: bool,
    /// The key or hot key that does the same as a click: `ctrl+s`, `enter`; empty for none.
    pub(crate) keys: &'static str,
    /// It can be dragged onto another widget.
    pub(crate) drags: bool,
}

impl Node {
    /// A widget with the usual size of its role.
    pub(crate) fn new(role: Role, id: impl Into<String>, label: impl Into<String>) -> Self {
        let (span, share) = match role {
            Role::Label | Role::Text => (3, 12),
            Role::Field | Role::Slider => (2, 8),
            Role::Item => (1, 12),
            Role::Toggle | Role::Radio => (1, 6),
            Role::Menu => (1, 4),
            Role::Tab | Role::Title => (1, 3),
            Role::Button | Role::Cell | Role::Entry => (1, 2),
        };
        let (id, label) = (id.into(), label.into());
        let (value, keys) = (Value::None, "");
        Self { id, role, label, value, span, share, tall: 1, enabled: true, keys, drags: false }
    }

    /// With a value.
    pub(crate) fn value(mut self, value: Value) -> Self {
        self.value = value;
        self
    }

    /// On or off, selected or not.
    pub(crate) fn on(self, on: bool) -> Self {
        self.value(Value::On(on))
    }

    /// With text.
    pub(crate) fn text(self, text: impl Into<String>) -> Self {
        self.value(Value::Text(text.into()))
    }

    /// With a size of its own: pocket cells and desktop twelfths.
    pub(crate) fn size(mut self, span: usize, share: usize) -> Self {
        (self.span, self.share) = (span, share);
        self
    }

    /// Higher than one row on the desktop.
    pub(crate) fn tall(mut self, rows: usize) -> Self {
        self.tall = rows;
        self
    }

    /// Enabled or not.
    pub(crate) fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// With a key that does the same.
    pub(crate) fn keys(mut self, keys: &'static str) -> Self {
        self.keys = keys;
        self
    }

    /// Can be dragged onto another widget.
    pub(crate) fn drags(mut self) -> Self {
        self.drags = true;
        self
    }
}

/// A sequence of widgets, laid out line by line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Group {
    /// In their order.
    pub(crate) nodes: Vec<Node>,
    /// Their order is arbitrary and may vary with the seed.
    pub(crate) shuffle: bool,
}

impl Group {
    /// Widgets whose order matters.
    pub(crate) fn fixed(nodes: Vec<Node>) -> Self {
        Self { nodes, shuffle: false }
    }

    /// Widgets whose order does not matter.
    pub(crate) fn shuffled(nodes: Vec<Node>) -> Self {
        Self { nodes, shuffle: true }
    }
}

/// An open menu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Menu {
    /// The widget it belongs to.
    pub(crate) anchor: String,
    /// What can be chosen.
    pub(crate) entries: Vec<Node>,
}

/// What a window or a dialog shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct View {
    /// In the title bar.
    pub(crate) title: String,
    /// Always shown, above.
    pub(crate) top: Vec<Group>,
    /// Scrolls where it is too long.
    pub(crate) body: Vec<Group>,
    /// Always shown, below.
    pub(crate) bottom: Vec<Group>,
    /// Covers the rest while open.
    pub(crate) menu: Option<Menu>,
}

impl View {
    /// An empty window.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds to the part above.
    pub(crate) fn top(mut self, group: Group) -> Self {
        self.top.push(group);
        self
    }

    /// Adds to the part that scrolls.
    pub(crate) fn body(mut self, group: Group) -> Self {
        self.body.push(group);
        self
    }

    /// Adds to the part below.
    pub(crate) fn bottom(mut self, group: Group) -> Self {
        self.bottom.push(group);
        self
    }
}

/// How a widget was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gesture {
    /// Clicked, or its key pressed.
    Click,
    /// Clicked twice.
    Double,
    /// Clicked with the right button.
    Right,
    /// A new text or number.
    Set(Value),
    /// Dragged onto the widget of this id.
    Onto(String),
    /// Dragged by this many pixels.
    Moved(i32, i32),
}
