//! What is drawn on a screenshot for an action: marks in pixels of the screen, and a short text.

use arpo_agent::coordinates::Coordinates;
use arpo_agent::geometry::{PixelLimits, SIDE_FACTOR, Size, smart_resize};
use arpo_core::action::{Action, Direction, ModelBox, MouseButton};
use serde::Serialize;
use serde_json::Value;

/// Something drawn on a screenshot, in its pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Mark {
    /// A press of a mouse button.
    Click {
        /// Horizontal.
        x: f64,
        /// Vertical.
        y: f64,
        /// How often.
        times: u8,
        /// Which button.
        button: &'static str,
    },
    /// The pointer moves here.
    Hover {
        /// Horizontal.
        x: f64,
        /// Vertical.
        y: f64,
    },
    /// From one place to another with the button pressed.
    Drag {
        /// Horizontal start; `None` for where the pointer is.
        from: Option<(f64, f64)>,
        /// The end.
        to: (f64, f64),
    },
    /// The wheel.
    Scroll {
        /// Where; `None` for where the pointer is.
        at: Option<(f64, f64)>,
        /// Which way.
        direction: &'static str,
    },
    /// Typed text.
    Text {
        /// The text.
        text: String,
    },
    /// Pressed keys.
    Keys {
        /// In order.
        keys: Vec<String>,
    },
    /// The agent ends the episode or waits.
    End {
        /// What it says.
        text: String,
    },
}

/// An action as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownAction {
    /// In short.
    pub text: String,
    /// On the screenshot.
    pub marks: Vec<Mark>,
}

/// What the coordinates of a run's actions count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionSpace {
    /// Pixels or a grid.
    pub coordinates: Coordinates,
    /// The limits of the image that the agent sees.
    pub limits: PixelLimits,
}

/// The limits of Qwen-VL's processors, for runs whose configuration leaves them to the model.
const MODEL_LIMITS: PixelLimits = PixelLimits { min: 3136, max: 12_845_056 };

impl ActionSpace {
    /// As a run's configuration says.
    pub fn of_config(config: &toml::Table) -> Self {
        let agent = config.get("agent");
        let number = |key: &str| {
            let value = agent.and_then(|section| section.get(key)?.as_integer());
            value.and_then(|value| u64::try_from(value).ok()).filter(|&value| value > 0)
        };
        let style = agent.and_then(|section| section.get("style")?.as_str()).unwrap_or("uitars");
        let coordinates = match style {
            "computer_use" | "evocua" => {
                Coordinates::Grid { divisor: number("grid").map_or(999, |steps| steps.min(1_000_000) as u32) }
            }
            _ => Coordinates::Pixels,
        };
        let limits = PixelLimits {
            min: number("min_pixels").unwrap_or(MODEL_LIMITS.min),
            max: number("max_pixels").unwrap_or(MODEL_LIMITS.max),
        };
        Self { coordinates, limits }
    }

    /// A stored action on a screen; what is not an action of ours is shown as it is written.
    pub fn shown(&self, stored: &Value, screen: Size) -> ShownAction {
        let Ok(action) = serde_json::from_value::<Action>(stored.clone()) else {
            return ShownAction { text: stored.to_string(), marks: vec![] };
        };
        let seen = smart_resize(screen, SIDE_FACTOR, self.limits).unwrap_or(screen);
        shown(&self.coordinates.on_screen(&action, seen, screen))
    }
}

/// An action in pixels of the screen.
fn shown(action: &Action) -> ShownAction {
    let at = |place: &ModelBox| {
        let (x, y) = place.centre();
        ((x * 10.0).round() / 10.0, (y * 10.0).round() / 10.0)
    };
    let named = |place: &ModelBox| {
        let (x, y) = place.centre();
        format!("({x:.0}, {y:.0})")
    };
    let click = |place: &ModelBox, times, button| {
        let (x, y) = at(place);
        let name = match (times, button) {
            (2, _) => "double click",
            (3, _) => "triple click",
            (_, "right") => "right click",
            (_, "middle") => "middle click",
            _ => "click",
        };
        (format!("{name} {}", named(place)), vec![Mark::Click { x, y, times, button }])
    };
    let keys = |verb: &str, keys: &[String]| {
        (format!("{verb} {}", keys.join(" + ")), vec![Mark::Keys { keys: keys.to_vec() }])
    };
    let end = |text: String| (text.clone(), vec![Mark::End { text }]);
    let (text, marks) = match action {
        Action::Click { start_box } => click(start_box, 1, "left"),
        Action::LeftDouble { start_box } => click(start_box, 2, "left"),
        Action::LeftTriple { start_box } => click(start_box, 3, "left"),
        Action::RightSingle { start_box } => click(start_box, 1, "right"),
        Action::MiddleSingle { start_box } => click(start_box, 1, "middle"),
        Action::ClickHere { button, times } => {
            let button = match button {
                MouseButton::Left => "left",
                MouseButton::Middle => "middle",
                MouseButton::Right => "right",
            };
            (format!("{button} click where the pointer is, {times} times"), vec![])
        }
        Action::Hover { start_box } => {
            let (x, y) = at(start_box);
            (format!("move to {}", named(start_box)), vec![Mark::Hover { x, y }])
        }
        Action::Drag { start_box, end_box } | Action::Select { start_box, end_box } => (
            format!("drag {} to {}", named(start_box), named(end_box)),
            vec![Mark::Drag { from: Some(at(start_box)), to: at(end_box) }],
        ),
        Action::DragTo { end_box, .. } => {
            (format!("drag to {}", named(end_box)), vec![Mark::Drag { from: None, to: at(end_box) }])
        }
        Action::Scroll { start_box, direction } => {
            let direction = match direction {
                Direction::Up => "up",
                Direction::Down => "down",
                Direction::Left => "left",
                Direction::Right => "right",
            };
            let at = start_box.as_ref().map(at);
            (format!("scroll {direction}"), vec![Mark::Scroll { at, direction }])
        }
        Action::Wheel { clicks, horizontal } => {
            let direction = match (horizontal, *clicks > 0.0) {
                (false, true) => "up",
                (false, false) => "down",
                (true, true) => "right",
                (true, false) => "left",
            };
            (format!("scroll {direction} by {:.0}", clicks.abs()), vec![Mark::Scroll { at: None, direction }])
        }
        Action::Hotkey { keys: pressed } => keys("press", pressed),
        Action::Press { key } => keys("press", std::slice::from_ref(key)),
        Action::Keydown { key } => keys("hold", std::slice::from_ref(key)),
        Action::Keyup { key } => keys("release", std::slice::from_ref(key)),
        Action::Type { content: text } | Action::TypeVerbatim { text } => {
            (format!("type {text:?}"), vec![Mark::Text { text: text.clone() }])
        }
        Action::Wait {} => end("wait".into()),
        Action::Finished { content } => match content.as_deref().filter(|content| !content.is_empty()) {
            Some(content) => end(format!("finished: {content}")),
            None => end("finished".into()),
        },
        Action::CallUser {} => end("call the user".into()),
        Action::Infeasible {} => end("infeasible".into()),
        Action::ErrorEnv {} => end("the environment is broken".into()),
        Action::Other { name, arguments } => {
            let arguments: Vec<String> =
                arguments.iter().map(|(name, value)| format!("{name}={value}")).collect();
            (format!("{name}({}), which does nothing", arguments.join(", ")), vec![])
        }
    };
    ShownAction { text, marks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn place(x: f64, y: f64) -> Value {
        json!({"x1": x, "y1": y, "x2": x, "y2": y})
    }

    #[test]
    fn coordinates_are_those_of_the_screen() {
        let screen = Size { width: 1920, height: 1080 };
        let grid: toml::Table = "agent = { style = 'computer_use', grid = 1000 }".parse().unwrap();
        let click = json!({"type": "click", "start_box": place(500.0, 250.0)});
        let ShownAction { text, marks } = ActionSpace::of_config(&grid).shown(&click, screen);
        assert_eq!(text, "click (960, 270)");
        assert_eq!(marks, [Mark::Click { x: 960.0, y: 270.0, times: 1, button: "left" }]);
        // within 172 480 pixels a screen of 1920 x 1080 is seen at 532 x 308: whole tokens of 28 pixels
        let pixels: toml::Table = "agent = { style = 'uitars', max_pixels = 172480 }".parse().unwrap();
        let drag = json!({"type": "drag", "start_box": place(0.0, 0.0), "end_box": place(266.0, 154.0)});
        let shown = ActionSpace::of_config(&pixels).shown(&drag, screen);
        let Mark::Drag { from: Some(from), to } = &shown.marks[0] else { panic!("{shown:?}") };
        assert!(from.0.abs() < 1e-9 && (to.0 - 960.0).abs() < 0.1 && (to.1 - 540.0).abs() < 0.1, "{to:?}");
    }

    #[test]
    fn every_action_has_words_and_unknown_ones_are_shown_as_they_are() {
        let space = ActionSpace::of_config(&toml::Table::new());
        let screen = Size { width: 280, height: 280 };
        let text = |action: Value| space.shown(&action, screen).text;
        assert_eq!(text(json!({"type": "type", "content": "<b>hi</b>\n"})), "type \"<b>hi</b>\\n\"");
        assert_eq!(text(json!({"type": "hotkey", "keys": ["ctrl", "c"]})), "press ctrl + c");
        assert_eq!(text(json!({"type": "scroll", "start_box": null, "direction": "down"})), "scroll down");
        assert_eq!(text(json!({"type": "finished", "content": "done"})), "finished: done");
        assert_eq!(text(json!({"type": "teleport"})), r#"{"type":"teleport"}"#);
    }
}
