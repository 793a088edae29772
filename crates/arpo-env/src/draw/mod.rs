//! Drawing and input: egui passes over a scene, and the pixels of the last one.

pub(crate) mod display;
pub(crate) mod font;
mod palette;
mod pocket_widgets;
pub(crate) mod raster;
mod widgets;

use crate::layout::Widget;
use crate::view::Value;

/// Where to click a slider to set a level; none if the widget is not a slider.
pub(crate) fn slider_point(widget: &Widget, level: u32, pocket: bool) -> Option<(f64, f64)> {
    let Value::Level(_, max) = widget.value else { return None };
    let [left, top, right, bottom] = widget.rect;
    let rect = egui::Rect::from_min_max(egui::pos2(left, top), egui::pos2(right, bottom));
    let track = widgets::SceneRenderer::track(rect, pocket);
    let x = track.min.x + track.width() * widgets::slider_fraction(level, max);
    Some((f64::from(x.round()), widget.centre().1))
}
