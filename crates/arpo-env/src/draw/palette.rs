//! Colours of a theme, and egui's style made of them.

use crate::draw::font;
use crate::look::{Font, Look, Theme};
use egui::epaint::FontColorTransferFunction;
use egui::style::Widgets;
use egui::{Color32, CornerRadius, FontFamily, FontId, Stroke, Style, TextStyle, Visuals};

/// The colours of a theme.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    pub(crate) wallpaper: Color32,
    pub(crate) window: Color32,
    pub(crate) dialog: Color32,
    pub(crate) menu: Color32,
    pub(crate) bar: Color32,
    pub(crate) button: Color32,
    pub(crate) field: Color32,
    pub(crate) edge: Color32,
    pub(crate) text: Color32,
    pub(crate) faint: Color32,
    pub(crate) chosen: Color32,
    pub(crate) chosen_text: Color32,
    pub(crate) title: Color32,
}

/// Wallpapers that the seed chooses from.
const WALLPAPERS: [(u8, u8, u8); 6] =
    [(58, 110, 165), (70, 130, 100), (120, 90, 140), (150, 110, 70), (60, 120, 130), (110, 110, 120)];

impl Palette {
    pub(crate) fn of(look: &Look) -> Self {
        let grey = Color32::from_gray;
        let (r, g, b) = WALLPAPERS[(look.seeded_hash("wallpaper") % WALLPAPERS.len() as u64) as usize];
        match look.theme {
            Theme::Light => Self {
                wallpaper: if look.pocket() { grey(225) } else { Color32::from_rgb(r, g, b) },
                window: grey(245),
                dialog: Color32::from_rgb(235, 235, 215),
                menu: Color32::from_rgb(225, 235, 245),
                bar: grey(210),
                button: grey(205),
                field: grey(255),
                edge: grey(110),
                text: grey(10),
                faint: grey(150),
                chosen: Color32::from_rgb(40, 90, 170),
                chosen_text: grey(255),
                title: Color32::from_rgb(190, 205, 225),
            },
            Theme::Dark => Self {
                wallpaper: if look.pocket() { grey(25) } else { Color32::from_rgb(r / 3, g / 3, b / 3) },
                window: grey(38),
                dialog: Color32::from_rgb(52, 48, 36),
                menu: Color32::from_rgb(36, 46, 60),
                bar: grey(28),
                button: grey(72),
                field: grey(18),
                edge: grey(130),
                text: grey(240),
                faint: grey(125),
                chosen: Color32::from_rgb(80, 140, 230),
                chosen_text: grey(0),
                title: Color32::from_rgb(50, 60, 85),
            },
        }
    }
}

/// The size and family of a look's text.
pub(crate) fn text_font(look: &Look) -> FontId {
    let scale = look.scale();
    match (look.pocket(), look.font) {
        (true, _) => FontId::new(font::CELL_HEIGHT as f32, FontFamily::Proportional),
        (false, Font::Pixel) => {
            FontId::new((font::CELL_HEIGHT * pixel_scale(look)) as f32, FontFamily::Proportional)
        }
        (false, Font::Proportional) => FontId::new((13.5 * scale).round(), FontFamily::Proportional),
        (false, Font::Monospace) => FontId::new((11.5 * scale).round(), FontFamily::Monospace),
    }
}

/// Screen pixels per pixel of the pocket font.
pub(crate) fn pixel_scale(look: &Look) -> usize {
    if look.height >= 900 && !look.pocket() { 2 } else { 1 }
}

/// egui's style for a look: no animation, nothing that depends on the clock.
pub(crate) fn style(look: &Look) -> Style {
    let palette = Palette::of(look);
    let mut style = Style {
        visuals: if look.theme == Theme::Light { Visuals::light() } else { Visuals::dark() },
        animation_time: 0.0,
        ..Style::default()
    };
    let font = text_font(look);
    for text_style in [TextStyle::Body, TextStyle::Button, TextStyle::Small, TextStyle::Monospace] {
        style.text_styles.insert(text_style, font.clone());
    }
    style.interaction.interact_radius = 0.0;
    style.interaction.selectable_labels = false;
    style.spacing.button_padding = egui::vec2(4.0, 1.0);
    style.spacing.interact_size = egui::vec2(8.0, 8.0);
    style.spacing.icon_width = (14.0 * look.scale()).round();
    style.spacing.icon_width_inner = (8.0 * look.scale()).round();
    let visuals = &mut style.visuals;
    visuals.text_cursor.blink = false;
    visuals.text_cursor.stroke = Stroke::new(1.0, palette.text);
    visuals.text_options.color_transfer_function = FontColorTransferFunction::Off;
    visuals.text_options.max_texture_side = ATLAS_SIDE;
    visuals.text_options.subpixel_binning = false;
    visuals.extreme_bg_color = palette.field;
    visuals.text_edit_bg_color = Some(palette.field);
    visuals.selection.bg_fill = palette.chosen;
    visuals.selection.stroke = Stroke::new(1.0, palette.chosen_text);
    // egui chooses a widget's style by its state one pass ago; with one style for all, an image depends on the state
    // alone, not on what came before or where the pointer is
    let mut widget = visuals.widgets.inactive;
    widget.fg_stroke = Stroke::new(1.0, palette.text);
    widget.bg_stroke = Stroke::new(1.0, palette.edge);
    widget.weak_bg_fill = palette.button;
    widget.bg_fill = palette.field;
    widget.corner_radius = CornerRadius::ZERO;
    widget.expansion = 0.0;
    visuals.widgets =
        Widgets { noninteractive: widget, inactive: widget, hovered: widget, active: widget, open: widget };
    style
}

/// The atlas starts small and grows downwards: thousands of desktops may live in one process.
pub(crate) const ATLAS_SIDE: usize = 1024;
