//! Where an agent's coordinates are on the screen: pixels of the image it saw, or a grid over the whole screen.

use crate::geometry::Size;
use arpo_core::action::{Action, ModelBox};

/// What coordinates count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coordinates {
    /// Pixels of the resized image.
    Pixels,
    /// Steps from the left and from the top; the divisor is the last one, at the other edge.
    Grid {
        /// 999 as OSWorld's and EvoCUA's agents have it, or 1000 as in Qwen3-VL's cookbook.
        divisor: u32,
    },
}

impl Coordinates {
    /// The same action in pixels of the screen, as the reference computes them: a grid may lead one pixel past the edge, and
    /// what is outside stays outside.
    pub fn to_screen(self, action: &Action, seen: Size, screen: Size) -> Action {
        let (across, down) = (f64::from(screen.width), f64::from(screen.height));
        match self {
            Self::Pixels if seen == screen => action.clone(),
            Self::Pixels => {
                let by = (across / f64::from(seen.width), down / f64::from(seen.height));
                moved(action, |x, y| (x * by.0, y * by.1))
            }
            Self::Grid { divisor } => {
                let divisor = f64::from(divisor);
                moved(action, |x, y| ((x * across / divisor).trunc(), (y * down / divisor).trunc()))
            }
        }
    }

    /// The action for the environment: on a grid every point is on the screen, where a display keeps the pointer.
    pub fn on_screen(self, action: &Action, seen: Size, screen: Size) -> Action {
        let action = self.to_screen(action, seen, screen);
        let last = |side: u32| f64::from(side.saturating_sub(1));
        match self {
            Self::Pixels => action,
            Self::Grid { .. } => {
                moved(&action, |x, y| (x.clamp(0.0, last(screen.width)), y.clamp(0.0, last(screen.height))))
            }
        }
    }

    /// The action as an agent would write it: the opposite of [`Self::to_screen`], to the nearest step of a grid, and to the
    /// same pixel where the grid is finer than the screen.
    pub fn of_screen(self, action: &Action, seen: Size, screen: Size) -> Action {
        match self {
            Self::Pixels => self.to_screen(action, screen, seen),
            Self::Grid { divisor } => {
                let step = |value: f64, side: u32| {
                    let steps = f64::from(divisor) / f64::from(side);
                    let (first, middle) = (value.floor() * steps, (value.floor() + 0.5) * steps);
                    if steps < 1.0 { middle.round() } else { middle.floor().max(first.ceil()) }
                };
                moved(action, |x, y| (step(x, screen.width), step(y, screen.height)))
            }
        }
    }
}

/// The action with every point moved.
fn moved(action: &Action, map: impl Fn(f64, f64) -> (f64, f64)) -> Action {
    // far outside the screen, but a number: an infinite one could not be sent to another machine
    let finite = |(x, y): (f64, f64)| (x.clamp(f64::MIN, f64::MAX), y.clamp(f64::MIN, f64::MAX));
    let mut action = action.clone();
    for area in action.boxes_mut() {
        let ((x1, y1), (x2, y2)) = (finite(map(area.x1, area.y1)), finite(map(area.x2, area.y2)));
        *area = ModelBox { x1, y1, x2, y2 };
    }
    action
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::action::Direction;
    use proptest::prelude::*;

    const fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    fn click(x: f64, y: f64) -> Action {
        Action::Click { start_box: ModelBox::point(x, y) }
    }

    #[test]
    fn pixels_are_scaled_to_the_screen() {
        let (seen, screen) = (size(56, 28), size(112, 84));
        let on_screen = |action: &Action| Coordinates::Pixels.on_screen(action, seen, screen);
        let drag =
            |a, b, c, d| Action::Drag { start_box: ModelBox::point(a, b), end_box: ModelBox::point(c, d) };
        assert_eq!(on_screen(&drag(1.0, 2.0, 10.0, 20.0)), drag(2.0, 6.0, 20.0, 60.0));
        let scroll =
            |x, y| Action::Scroll { start_box: Some(ModelBox::point(x, y)), direction: Direction::Down };
        assert_eq!(on_screen(&scroll(3.0, 3.0)), scroll(6.0, 9.0));
        assert_eq!(on_screen(&Action::Wait {}), Action::Wait {});
        let far = Coordinates::Pixels.on_screen(&click(f64::MAX, 1.0), seen, screen);
        assert_eq!(far, click(f64::MAX, 3.0));
    }

    #[test]
    fn a_grid_reaches_past_the_edge_and_is_kept_on_the_screen() {
        let (grid, screen) = (Coordinates::Grid { divisor: 999 }, size(1920, 1080));
        for (given, exact, kept) in [
            ((390.0, 340.0), (749.0, 367.0), (749.0, 367.0)),
            ((999.0, 999.0), (1920.0, 1080.0), (1919.0, 1079.0)),
            ((-26.0, 149.0), (-49.0, 161.0), (0.0, 161.0)),
        ] {
            let action = click(given.0, given.1);
            assert_eq!(grid.to_screen(&action, screen, screen), click(exact.0, exact.1));
            assert_eq!(grid.on_screen(&action, screen, screen), click(kept.0, kept.1));
        }
        let thousand = Coordinates::Grid { divisor: 1000 };
        assert_eq!(thousand.to_screen(&click(500.0, 999.0), screen, screen), click(960.0, 1078.0));
    }

    proptest! {
        /// A demonstration on a screen that is smaller than the grid hits the very pixel that it shows.
        #[test]
        fn pixels_survive_the_grid(x in 0u32..999, y in 0u32..999, width in 1u32..=999, height in 1u32..=999, last in 0u32..2) {
            prop_assume!(x < width && y < height);
            let (grid, screen) = (Coordinates::Grid { divisor: 999 + last }, size(width, height));
            let action = click(f64::from(x), f64::from(y));
            let written = grid.of_screen(&action, screen, screen);
            prop_assert_eq!(grid.on_screen(&written, screen, screen), action);
        }

        /// On a larger screen it is at most a step of the grid away.
        #[test]
        fn pixels_are_near_on_a_large_screen(x in 0u32..3840, y in 0u32..2160) {
            let (grid, screen) = (Coordinates::Grid { divisor: 999 }, size(3840, 2160));
            let written = grid.of_screen(&click(f64::from(x), f64::from(y)), screen, screen);
            let Action::Click { start_box } = grid.on_screen(&written, screen, screen) else { unreachable!() };
            prop_assert!((start_box.x1 - f64::from(x)).abs() <= 4.0 && (start_box.y1 - f64::from(y)).abs() <= 4.0);
        }
    }
}
