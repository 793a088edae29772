//! The action space of UI-TARS.
//!
//! Coordinates are pixels of the resized image that the model sees; `arpo-agent` parses actions from text and maps these
//! pixels to the screen.

use serde::{Deserialize, Serialize};

/// A rectangle in pixels of the model's image. Most models give a point: an empty rectangle.
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
    /// Press keys together: `["ctrl", "c"]`.
    Hotkey {
        /// In the order they are pressed; none contains white space.
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
    /// Let time pass.
    Wait {},
    /// The task is done.
    Finished {
        /// The agent's closing remark.
        content: Option<String>,
    },
    /// The task cannot be done: the user is called.
    CallUser {},
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
