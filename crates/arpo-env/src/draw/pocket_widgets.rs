//! Pocket widgets: egui handles input and text; the drawing is pixel-exact inside each cell.
//!
//! Nothing changes under the pointer: an image depends on the state alone.

use crate::draw::palette::{Palette, text_font};
use crate::draw::widgets::{SceneRenderer, frame, slider_fraction};
use crate::layout::PlacedWidget;
use crate::layout::pocket::{TEXT, cell_corner};
use crate::look::{CELL, Look};
use crate::view::{Role, Value};
use egui::{Align2, Color32, Painter, Pos2, Rect, Ui, pos2, vec2};

/// Side of check boxes and radio buttons.
const MARK: f32 = 10.0;

/// Draws a widget and what it holds. Text fields are drawn by egui itself.
pub(crate) fn draw(ui: &Ui, placed: &PlacedWidget, look: &Look, focused: bool) {
    let palette = Palette::of(look);
    let painter = ui.painter();
    let PlacedWidget { node, rect, .. } = placed;
    let on = node.value == Value::On(true);
    let text_colour = match (node.enabled, on && is_filled(node.role)) {
        (false, _) => palette.faint,
        (true, true) => palette.chosen_text,
        (true, false) => palette.text,
    };
    match node.role {
        Role::Button | Role::Menu | Role::Entry | Role::Tab | Role::Item | Role::Cell | Role::Title => {
            let fill = match node.role {
                _ if on => palette.chosen,
                Role::Item | Role::Cell => palette.field,
                _ => palette.button,
            };
            painter.rect_filled(*rect, 0.0, fill);
            if !matches!(node.role, Role::Item) {
                frame(painter, *rect, 1.0, palette.edge);
            }
        }
        Role::Toggle | Role::Radio => mark(painter, *rect, on, node.role == Role::Radio, &palette),
        Role::Slider => slider(painter, *rect, &node.value, &palette),
        Role::Label | Role::Field | Role::Text => {}
    }
    if focused {
        frame(painter, rect.expand(1.0), 1.0, palette.chosen);
    }
    let corner = cell_corner(*rect);
    let mut at = corner + vec2(TEXT.0, TEXT.1);
    let label = match (&node.role, &node.value) {
        (Role::Slider, Value::Level(value, _)) => {
            // the number is in the last but one patch of the widget
            at.x = corner.x + CELL.0 as f32 * node.span as f32 - TEXT.0;
            value.to_string()
        }
        (Role::Menu, Value::Text(value)) => value.clone(),
        _ => node.label.clone(),
    };
    let clip =
        Rect::from_min_max(pos2(rect.min.x, corner.y), pos2(rect.max.x + 2.0, corner.y + CELL.1 as f32));
    text(ui, clip, at, label, text_colour, look);
    if node.role == Role::Menu {
        arrow(painter, pos2(rect.min.x + 3.0, rect.min.y + 6.0), text_colour);
    }
}

/// A small arrow downwards: a list opens here.
pub(crate) fn arrow(painter: &Painter, corner: Pos2, colour: Color32) {
    for row in 0..3_u8 {
        let row = f32::from(row);
        let line = Rect::from_min_size(corner + vec2(row, row), vec2(6.0 - 2.0 * row, 1.0));
        painter.rect_filled(line, 0.0, colour);
    }
}

fn is_filled(role: Role) -> bool {
    matches!(role, Role::Button | Role::Menu | Role::Entry | Role::Tab | Role::Item | Role::Cell)
}

/// Text whose top row of pixels is at `at`.
fn text(ui: &Ui, clip: Rect, at: Pos2, label: String, colour: Color32, look: &Look) {
    let galley = ui.painter().layout_no_wrap(label, text_font(look), colour);
    let top = at.y - glyph_top(&galley);
    ui.painter().with_clip_rect(clip.intersect(ui.clip_rect())).galley(pos2(at.x, top), galley, colour);
}

/// How far below a galley's upper edge its glyphs' pixels start.
pub(crate) fn glyph_top(galley: &egui::Galley) -> f32 {
    let glyph = galley.rows.first().and_then(|row| row.glyphs.first());
    glyph.map_or(0.0, |glyph| (glyph.pos.y + glyph.uv_rect.offset.y).round())
}

fn mark(painter: &Painter, rect: Rect, on: bool, round: bool, palette: &Palette) {
    let corner = pos2(rect.min.x, rect.min.y + 3.0);
    let square = Rect::from_min_size(corner, vec2(MARK, MARK));
    painter.rect_filled(square, 0.0, palette.field);
    frame(painter, square, 1.0, palette.text);
    if round {
        for corner in [square.left_top(), square.right_top(), square.left_bottom(), square.right_bottom()] {
            let dot = Align2::CENTER_CENTER.anchor_size(corner, vec2(4.0, 4.0)).intersect(square);
            painter.rect_filled(dot, 0.0, palette.window);
            let inner = corner + (square.center() - corner) * (3.0 / MARK);
            painter.rect_filled(Rect::from_center_size(inner, vec2(1.0, 1.0)), 0.0, palette.text);
        }
    }
    if on {
        painter.rect_filled(square.shrink(if round { 3.0 } else { 2.0 }), 0.0, palette.text);
    }
}

fn slider(painter: &Painter, rect: Rect, value: &Value, palette: &Palette) {
    let Value::Level(value, max) = value else { return };
    let track = SceneRenderer::track(rect, true);
    painter.rect_filled(
        Rect::from_x_y_ranges(track.x_range(), rect.min.y + 7.0..=rect.min.y + 9.0),
        0.0,
        palette.edge,
    );
    let x = (track.min.x + track.width() * slider_fraction(*value, *max)).round();
    painter.rect_filled(
        Rect::from_x_y_ranges(x - 3.0..=x + 3.0, rect.min.y + 2.0..=rect.min.y + 14.0),
        0.0,
        palette.chosen,
    );
}
