//! Pixels: of the screen, of the image the model sees, and the way back.
//!
//! The model sees the screenshot resized to multiples of 28 within limits ([`smart_resize`], as Qwen2.5-VL's
//! processor does it) and names places in pixels of that image; [`ScreenMap`] finds them on the screen, with
//! the reference's order of operations, so that the results are equal to the bit.

use arpo_core::action::ModelBox;

/// Sides of a resized image are multiples of this: a patch of 14 pixels, merged two by two.
pub const SIDE_FACTOR: u32 = 28;

/// Wider or higher images are refused, as by the reference.
const MAX_ASPECT_RATIO: f64 = 200.0;

/// What UI-TARS's agent reads coordinates with, whatever the processor's own limits.
pub const UITARS_LIMITS: PixelLimits = PixelLimits { min: 100 * 28 * 28, max: 16384 * 28 * 28 };

/// A picture's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

/// How many pixels a resized image may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelLimits {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

/// An image that cannot be resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// One side is 0.
    #[error("an image of {width}x{height} pixels has no content")]
    Empty {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
    /// One side is too long for the other.
    #[error("an image of {width}x{height} pixels is too narrow: one side may be at most 200 times the other")]
    TooNarrow {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
}

/// The size at which the model sees an image: multiples of 28, within the limits where that is possible, as near
/// to the image's own proportions as that allows.
pub fn smart_resize(size: Size, limits: PixelLimits) -> Result<Size, ResizeError> {
    let Size { width, height } = size;
    if width == 0 || height == 0 {
        return Err(ResizeError::Empty { width, height });
    }
    let (w, h) = (f64::from(width), f64::from(height));
    if w.max(h) / w.min(h) > MAX_ASPECT_RATIO {
        return Err(ResizeError::TooNarrow { width, height });
    }
    let factor = f64::from(SIDE_FACTOR);
    // Python rounds halves to even, and so must we
    let nearest = |side: f64| ((side / factor).round_ties_even() * factor).max(factor);
    let (mut resized_w, mut resized_h) = (nearest(w), nearest(h));
    if resized_w * resized_h > limits.max as f64 {
        let shrink = (h * w / limits.max as f64).sqrt();
        let below = |side: f64| ((side / shrink / factor).floor() * factor).max(factor);
        (resized_w, resized_h) = (below(w), below(h));
    } else if resized_w * resized_h < limits.min as f64 {
        let grow = (limits.min as f64 / (h * w)).sqrt();
        let above = |side: f64| (side * grow / factor).ceil() * factor;
        (resized_w, resized_h) = (above(w), above(h));
    }
    Ok(Size { width: resized_w as u32, height: resized_h as u32 })
}

/// From the model's image to the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenMap {
    /// The screen.
    pub screen: Size,
    /// The image the model saw.
    pub model: Size,
}

impl ScreenMap {
    /// The map for a screen shown to the model under `limits`.
    pub fn new(screen: Size, limits: PixelLimits) -> Result<Self, ResizeError> {
        Ok(Self { screen, model: smart_resize(screen, limits)? })
    }

    /// A box as fractions of the image: `[x1, y1, x2, y2]`.
    pub fn fractions(&self, place: &ModelBox) -> [f64; 4] {
        let (w, h) = (f64::from(self.model.width), f64::from(self.model.height));
        [place.x1 / w, place.y1 / h, place.x2 / w, place.y2 / h]
    }

    /// The middle of a box in screen pixels, rounded to thousandths.
    pub fn to_screen(&self, place: &ModelBox) -> (f64, f64) {
        let [x1, y1, x2, y2] = self.fractions(place);
        let x = f64::midpoint(x1, x2) * f64::from(self.screen.width);
        let y = f64::midpoint(y1, y2) * f64::from(self.screen.height);
        (thousandths(x), thousandths(y))
    }

    /// The middle of a box as a pixel that exists on the screen.
    pub fn to_pixel(&self, place: &ModelBox) -> (u32, u32) {
        let (x, y) = self.to_screen(place);
        // `as` saturates, so that any number ends on the screen
        let within = |value: f64, side: u32| (value.floor() as u32).min(side.saturating_sub(1));
        (within(x, self.screen.width), within(y, self.screen.height))
    }
}

/// Rounds as Python's `round(x, 3)` does: by the exact decimal value, halves to even. Formatting is exact, while
/// multiplying by 1000 would round twice.
fn thousandths(value: f64) -> f64 {
    format!("{value:.3}").parse().expect("a formatted number is a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    #[test]
    fn full_hd_as_the_7b_sees_it() {
        let processor = PixelLimits { min: 3136, max: 2_116_800 };
        assert_eq!(smart_resize(size(1920, 1080), processor), Ok(size(1932, 1092)));
    }

    #[test]
    fn halves_go_to_even() {
        let free = PixelLimits { min: 1, max: u64::MAX };
        assert_eq!(smart_resize(size(70, 42), free), Ok(size(56, 56))); // 2.5 -> 2, 1.5 -> 2
        assert_eq!(smart_resize(size(1, 1), free), Ok(size(28, 28)));
    }

    #[test]
    fn impossible_images_are_refused() {
        assert_eq!(
            smart_resize(size(0, 10), UITARS_LIMITS).unwrap_err().to_string(),
            "an image of 0x10 pixels has no content"
        );
        let narrow = smart_resize(size(2010, 10), UITARS_LIMITS).unwrap_err().to_string();
        assert!(narrow.contains("2010x10"), "{narrow}");
    }

    #[test]
    fn every_number_ends_on_the_screen() {
        let map = ScreenMap::new(size(1920, 1080), UITARS_LIMITS).unwrap();
        for (x, y, pixel) in [
            (-5.0, 3.0, (0, 2)),
            (1e300, -1e300, (1919, 0)),
            (1932.0, 1092.0, (1919, 1079)),
            (966.0, 546.0, (960, 540)),
        ] {
            assert_eq!(map.to_pixel(&ModelBox::point(x, y)), pixel);
        }
    }
}
