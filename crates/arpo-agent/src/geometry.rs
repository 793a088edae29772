//! Mapping between pixels of the screen and pixels of the image that the model sees.
//!
//! The model sees the screenshot resized to whole image tokens within limits ([`smart_resize`], as in Qwen-VL's
//! processors) and gives coordinates in pixels of that image; [`ScreenMap`] maps them to the screen, with the reference's
//! order of operations, so that the results are bit-identical.

use arpo_core::action::ModelBox;

/// The sides of an image for Qwen2.5-VL are multiples of this: patches of 14 pixels, merged two by two.
pub const SIDE_FACTOR: u32 = 28;

/// Images with a larger aspect ratio are rejected, as in the reference.
const MAX_ASPECT_RATIO: f64 = 200.0;

/// The limits that UI-TARS's agent uses for coordinates, whatever the limits of the processor.
pub const UITARS_LIMITS: PixelLimits = PixelLimits { min: 100 * 28 * 28, max: 16384 * 28 * 28 };

/// The size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

/// Limits for the number of pixels of a resized image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelLimits {
    /// Minimum.
    pub min: u64,
    /// Maximum.
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
    /// The aspect ratio is too large.
    #[error("an image of {width}x{height} pixels is too narrow: one side may be at most 200 times the other")]
    TooNarrow {
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
}

/// The size at which the model sees an image: multiples of `factor`, within the limits where that is possible, as near
/// to the image's own proportions as that allows.
pub fn smart_resize(size: Size, factor: u32, limits: PixelLimits) -> Result<Size, ResizeError> {
    let Size { width, height } = size;
    if width == 0 || height == 0 {
        return Err(ResizeError::Empty { width, height });
    }
    let (w, h) = (f64::from(width), f64::from(height));
    if w.max(h) / w.min(h) > MAX_ASPECT_RATIO {
        return Err(ResizeError::TooNarrow { width, height });
    }
    let factor = f64::from(factor);
    // as in Python, halves round to even
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

/// Maps coordinates of the model's image to the screen.
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
        Ok(Self { screen, model: smart_resize(screen, SIDE_FACTOR, limits)? })
    }

    /// A box as fractions of the image: `[x1, y1, x2, y2]`.
    pub fn fractions(&self, model_box: &ModelBox) -> [f64; 4] {
        let (w, h) = (f64::from(self.model.width), f64::from(self.model.height));
        [model_box.x1 / w, model_box.y1 / h, model_box.x2 / w, model_box.y2 / h]
    }

    /// The centre of a box in screen pixels, rounded to thousandths.
    pub fn to_screen(&self, model_box: &ModelBox) -> (f64, f64) {
        let [x1, y1, x2, y2] = self.fractions(model_box);
        let x = f64::midpoint(x1, x2) * f64::from(self.screen.width);
        let y = f64::midpoint(y1, y2) * f64::from(self.screen.height);
        (thousandths(x), thousandths(y))
    }

    /// The centre of a box as a pixel of the screen.
    pub fn to_pixel(&self, model_box: &ModelBox) -> (u32, u32) {
        let (x, y) = self.to_screen(model_box);
        // `as` saturates, so that any value is clamped to the screen
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
        assert_eq!(smart_resize(size(1920, 1080), SIDE_FACTOR, processor), Ok(size(1932, 1092)));
    }

    #[test]
    fn halves_go_to_even() {
        let free = PixelLimits { min: 1, max: u64::MAX };
        assert_eq!(smart_resize(size(70, 42), SIDE_FACTOR, free), Ok(size(56, 56))); // 2.5 -> 2, 1.5 -> 2
        assert_eq!(smart_resize(size(1, 1), SIDE_FACTOR, free), Ok(size(28, 28)));
    }

    #[test]
    fn impossible_images_are_rejected() {
        assert_eq!(
            smart_resize(size(0, 10), SIDE_FACTOR, UITARS_LIMITS).unwrap_err().to_string(),
            "an image of 0x10 pixels has no content"
        );
        let narrow = smart_resize(size(2010, 10), SIDE_FACTOR, UITARS_LIMITS).unwrap_err().to_string();
        assert!(narrow.contains("2010x10"), "{narrow}");
    }

    #[test]
    fn every_value_is_clamped_to_the_screen() {
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
