//! A picture painted by hand with egui's painter, for charts: the rasteriser and the fonts of the embedded desktop, so
//! the same pixels on every machine.

use crate::draw::raster::{Atlas, Canvas};
use egui::{Context, Painter, RawInput, Rect, Vec2};
use image::{Rgb, RgbImage};

/// A picture on white. What `paint` does is done in points that are pixels; it is asked more than once.
pub fn painted(width: u32, height: u32, mut paint: impl FnMut(&Painter)) -> RgbImage {
    let context = Context::default();
    context.options_mut(|options| {
        // circles as meshes too: the rasteriser has textures for glyphs only
        options.tessellation_options.prerasterized_discs = false;
    });
    let (mut atlas, mut canvas) = (Atlas::default(), Canvas::default());
    let mut picture = RgbImage::from_pixel(width, height, Rgb([255; 3]));
    let screen = Rect::from_min_size(egui::Pos2::ZERO, Vec2::new(width as f32, height as f32));
    // glyphs asked for in the first pass are all there in the second
    for last in [false, true] {
        let input = RawInput { screen_rect: Some(screen), ..RawInput::default() };
        let output = context.run_ui(input, |ui| paint(ui.painter()));
        atlas.update(output.textures_delta);
        if last {
            let primitives = context.tessellate(output.shapes, output.pixels_per_point);
            canvas.paint(&mut picture, &atlas, &primitives);
        }
    }
    picture
}
