//! An image drawn with egui's painter, for charts: it uses the rasteriser and the fonts of the embedded
//! desktop, so the pixels are the same on every machine.

use crate::draw::raster::{Atlas, Canvas};
use egui::{Context, Painter, RawInput, Rect, Vec2};
use image::{Rgb, RgbImage};

/// Renders onto white. `paint` is called more than once; its points are pixels.
pub fn render(width: u32, height: u32, mut paint: impl FnMut(&Painter)) -> RgbImage {
    let context = Context::default();
    context.options_mut(|options| {
        // circles as meshes too: the rasteriser has textures for glyphs only
        options.tessellation_options.prerasterized_discs = false;
    });
    let (mut atlas, mut canvas) = (Atlas::default(), Canvas::default());
    let mut image = RgbImage::from_pixel(width, height, Rgb([255; 3]));
    let screen = Rect::from_min_size(egui::Pos2::ZERO, Vec2::new(width as f32, height as f32));
    // glyphs requested in the first pass are available in the second
    for last in [false, true] {
        let input = RawInput { screen_rect: Some(screen), ..RawInput::default() };
        let output = context.run_ui(input, |ui| paint(ui.painter()));
        atlas.update(output.textures_delta);
        if last {
            let primitives = context.tessellate(output.shapes, output.pixels_per_point);
            canvas.paint(&mut image, &atlas, &primitives);
        }
    }
    image
}
