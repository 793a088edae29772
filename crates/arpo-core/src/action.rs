//! The actions of an agent: those of UI-TARS, and those that only `computer_use` has.
//!
//! `arpo-agent` parses actions from text. Their coordinates are the agent's (pixels of the resized image that it sees, or a
//! grid) until `arpo-agent` has mapped them to the screen.

use serde::{Deserialize, Serialize};

/// A rectangle in the agent's coordinates. Most models give a point: an empty rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelBox {
    /// Horizontal start.
    pub x1: f64,
    /// Vertical start.
    pub y1: f64,
    /// Horizontal end.
    pub x2: f64,
    /// Vertical end.
    pub y2: f64,
}

impl ModelBox {
    /// The point (x, y).
    pub fn point(x: f64, y: f64) -> Self {
        Self { x1: x, y1: y, x2: x, y2: y }
    }

    /// True for an empty rectangle.
    #[expect(clippy::float_cmp, reason = "a point is made of the same two numbers, not of nearly equal ones")]
    pub fn is_point(&self) -> bool {
        self.x1 == self.x2 && self.y1 == self.y2
    }

    /// Where a click on the rectangle lands.
    pub fn centre(&self) -> (f64, f64) {
        (f64::midpoint(self.x1, self.x2), f64::midpoint(self.y1, self.y2))
    }
}

/// The direction of a scroll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Towards the start of the page.
    Up,
    /// Towards the end of the page.
    Down,
    /// Towards the start of the line.
    Left,
    /// Towards the end of the line.
    Right,
}

/// A button of the mouse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MouseButton {
    /// The primary button.
    Left,
    /// The wheel.
    Middle,
    /// The secondary button.
    Right,
}

/// One action of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Left click.
    Click {
        /// Where.
        start_box: ModelBox,
    },
    /// Double click with the left button.
    LeftDouble {
        /// Where.
        start_box: ModelBox,
    },
    /// Right click.
    RightSingle {
        /// Where.
        start_box: ModelBox,
    },
    /// Three clicks with the left button.
    LeftTriple {
        /// Where.
        start_box: ModelBox,
    },
    /// Click with the middle button.
    MiddleSingle {
        /// Where.
        start_box: ModelBox,
    },
    /// Click where the pointer is.
    ClickHere {
        /// With this button.
        button: MouseButton,
        /// From 1 to 3 times.
        times: u8,
    },
    /// Move the pointer and do nothing else.
    Hover {
        /// Where to.
        start_box: ModelBox,
    },
    /// Press the left button, move, release.
    Drag {
        /// From.
        start_box: ModelBox,
        /// To.
        end_box: ModelBox,
    },
    /// Press the left button where the pointer is, move, release.
    DragTo {
        /// To.
        end_box: ModelBox,
        /// Seconds that the move takes.
        seconds: f64,
    },
    /// Select text or items by dragging over them.
    Select {
        /// From.
        start_box: ModelBox,
        /// To.
        end_box: ModelBox,
    },
    /// Scroll the wheel.
    Scroll {
        /// Where; at the pointer, if absent.
        start_box: Option<ModelBox>,
        /// Which way.
        direction: Direction,
    },
    /// Turn the wheel where the pointer is.
    Wheel {
        /// By this many clicks: up or to the right, if positive.
        clicks: f64,
        /// Sideways.
        horizontal: bool,
    },
    /// Press keys together: `["ctrl", "c"]`.
    Hotkey {
        /// In the order they are pressed; UI-TARS cannot write a key that contains white space.
        keys: Vec<String>,
    },
    /// Press and release one key.
    Press {
        /// Its name.
        key: String,
    },
    /// Press a key and hold it.
    Keydown {
        /// Its name.
        key: String,
    },
    /// Release a held key.
    Keyup {
        /// Its name.
        key: String,
    },
    /// Type text; a trailing line break submits it.
    Type {
        /// The text.
        content: String,
    },
    /// Type text exactly as it is: every line break is a press of enter.
    TypeVerbatim {
        /// The text.
        text: String,
    },
    /// Let time pass.
    Wait {},
    /// The task is done.
    Finished {
        /// The agent's closing remark.
        content: Option<String>,
    },
    /// The task cannot be done: the user is called.
    CallUser {},
    /// The task cannot be done.
    Infeasible {},
    /// The environment is broken, in the agent's view.
    ErrorEnv {},
    /// Well-formed, but not an action of this space: does nothing.
    Other {
        /// What the agent called it.
        name: String,
        /// Its arguments as written.
        arguments: Vec<(String, String)>,
    },
}

impl Action {
    /// The places that it names.
    pub fn boxes_mut(&mut self) -> Vec<&mut ModelBox> {
        match self {
            Self::Click { start_box }
            | Self::LeftDouble { start_box }
            | Self::RightSingle { start_box }
            | Self::LeftTriple { start_box }
            | Self::MiddleSingle { start_box }
            | Self::Hover { start_box } => vec![start_box],
            Self::Drag { start_box, end_box } | Self::Select { start_box, end_box } => {
                vec![start_box, end_box]
            }
            Self::DragTo { end_box, .. } => vec![end_box],
            Self::Scroll { start_box, .. } => start_box.iter_mut().collect(),
            Self::ClickHere { .. }
            | Self::Wheel { .. }
            | Self::Hotkey { .. }
            | Self::Press { .. }
            | Self::Keydown { .. }
            | Self::Keyup { .. }
            | Self::Type { .. }
            | Self::TypeVerbatim { .. }
            | Self::Wait {}
            | Self::Finished { .. }
            | Self::CallUser {}
            | Self::Infeasible {}
            | Self::ErrorEnv {}
            | Self::Other { .. } => vec![],
        }
    }
}
