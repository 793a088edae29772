//! A display: an egui context, the passes that carry out an action, and the image after it.

use crate::desktop::{Desktop, Focus};
use crate::draw::font;
use crate::draw::palette::{ATLAS_SIDE, pixel_scale, style};
use crate::draw::raster::{Atlas, Canvas};
use crate::draw::widgets::{Interactions, SceneRenderer};
use crate::layout::Scene;
use crate::look::{Font, Look};
use egui::{Context, Event, Id, Memory, Modifiers, OutputCommand, RawInput, Rect, Vec2, pos2};
use image::RgbImage;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Seconds per pass on the simulated clock.
const PASS_SECS: f64 = 0.01;
/// Simulated seconds between actions: too long for two clicks to become a double click.
const ACTION_SECS: f64 = 2.0;

/// The outcome of one pass.
pub(crate) struct PassResult {
    pub(crate) used: Interactions,
    /// Text that was cut or copied.
    pub(crate) copied: Option<String>,
}

/// An egui context with its framebuffer.
pub(crate) struct Display {
    context: Context,
    atlas: Atlas,
    canvas: Canvas,
    image: Arc<RgbImage>,
    look: Look,
    clock: f64,
    /// The focus as egui has it.
    focus: Option<Focus>,
}

impl std::fmt::Debug for Display {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Display").field("look", &self.look).finish_non_exhaustive()
    }
}

impl Display {
    pub(crate) fn new(look: &Look) -> Self {
        let context = Context::default();
        let style = style(look);
        context.all_styles_mut(|old| *old = style.clone());
        context.options_mut(|options| {
            options.max_passes = NonZeroUsize::MIN;
            options.tessellation_options.feathering = false;
            options.input_options.max_click_duration = f64::INFINITY;
        });
        context.set_theme(match look.theme {
            crate::look::Theme::Light => egui::Theme::Light,
            crate::look::Theme::Dark => egui::Theme::Dark,
        });
        if look.pocket() || look.font == Font::Pixel {
            context.add_glyph_rasterizer(font::rasterizer(pixel_scale(look)));
        }
        let image = Arc::new(RgbImage::new(look.width, look.height));
        let (atlas, canvas, look) = (Atlas::default(), Canvas::default(), look.clone());
        Self { context, atlas, canvas, image, look, clock: 0.0, focus: None }
    }

    pub(crate) fn look(&self) -> &Look {
        &self.look
    }

    /// The last image.
    pub(crate) fn last_image(&self) -> Arc<RgbImage> {
        Arc::clone(&self.image)
    }

    /// Starts from a state: nothing of an earlier episode is left in egui except its glyphs.
    pub(crate) fn reset(&mut self, desktop: &Desktop, scene: &Scene) {
        self.context.memory_mut(|memory| {
            let options = std::mem::take(&mut memory.options);
            *memory = Memory::default();
            memory.options = options;
        });
        (self.clock, self.focus) = (self.clock + ACTION_SECS, None);
        let pointer = desktop.session.pointer.map(|(x, y)| Event::PointerMoved(pos2(x, y)));
        for events in [vec![], vec![pointer.unwrap_or(Event::PointerGone)]] {
            self.pass(desktop, scene, events, Modifiers::default());
        }
    }

    /// Lets time pass between two actions.
    pub(crate) fn advance_clock(&mut self) {
        self.clock += ACTION_SECS;
    }

    fn run(
        &mut self,
        desktop: &Desktop,
        scene: &Scene,
        events: Vec<Event>,
        modifiers: Modifiers,
    ) -> (Interactions, egui::FullOutput) {
        self.clock += PASS_SECS;
        let size = egui::vec2(self.look.width as f32, self.look.height as f32);
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(pos2(0.0, 0.0), size)),
            max_texture_side: Some(ATLAS_SIDE),
            time: Some(self.clock),
            events: std::iter::once(Event::ModifiersChanged(modifiers)).chain(events).collect(),
            ..RawInput::default()
        };
        let take_focus = desktop.session.focus != self.focus;
        if take_focus && desktop.session.focus.is_none() {
            self.context.memory_mut(|memory| {
                if let Some(id) = memory.focused() {
                    memory.surrender_focus(id);
                }
            });
        }
        let mut renderer = SceneRenderer { desktop, scene, take_focus, used: Interactions::default() };
        let output = self.context.run_ui(input, |ui| {
            ui.spacing_mut().item_spacing = Vec2::ZERO;
            renderer.draw(ui);
        });
        let used = renderer.used;
        self.focus.clone_from(&used.focus);
        (used, output)
    }

    /// One pass with input; nothing is drawn.
    pub(crate) fn pass(
        &mut self,
        desktop: &Desktop,
        scene: &Scene,
        events: Vec<Event>,
        modifiers: Modifiers,
    ) -> PassResult {
        let (used, output) = self.run(desktop, scene, events, modifiers);
        let copied = output.platform_output.commands.iter().find_map(|command| match command {
            OutputCommand::CopyText(text) => Some(text.clone()),
            _ => None,
        });
        self.atlas.update(output.textures_delta);
        PassResult { used, copied }
    }

    /// Renders a state; also returns the keyboard focus.
    pub(crate) fn render(&mut self, desktop: &Desktop, scene: &Scene) -> (Arc<RgbImage>, Option<Focus>) {
        let (used, output) = self.run(desktop, scene, vec![], Modifiers::default());
        self.atlas.update(output.textures_delta);
        let primitives = self.context.tessellate(output.shapes, output.pixels_per_point);
        if Arc::get_mut(&mut self.image).is_none() {
            self.image = Arc::new(RgbImage::new(self.look.width, self.look.height));
        }
        if let Some(image) = Arc::get_mut(&mut self.image) {
            self.canvas.paint(image, &self.atlas, &primitives);
            if self.look.tint {
                tint(image);
            }
        }
        self.clear_history(used.focus.as_ref());
        (Arc::clone(&self.image), used.focus)
    }

    /// Clears the focused field's history in egui except the cursor, so that a restored desktop continues
    /// exactly as the saved one would have.
    fn clear_history(&self, focus: Option<&Focus>) {
        let Some(focus) = focus else { return };
        let id = Id::unique(&focus.id);
        if let Some(old) = egui::text_edit::TextEditState::load(&self.context, id) {
            let mut state = egui::text_edit::TextEditState::default();
            state.cursor.set_char_range(old.cursor.char_range());
            state.store(&self.context, id);
        }
    }
}

/// Red fades towards the left and blue towards the top, to half.
fn tint(image: &mut RgbImage) {
    let (width, height) = (image.width(), image.height());
    let pixels: &mut [u8] = image;
    for (y, row) in pixels.chunks_exact_mut(width as usize * 3).enumerate() {
        let blue = 128 + 128 * y as u32 / height;
        for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let red = 128 + 128 * x as u32 / width;
            pixel[0] = ((u32::from(pixel[0]) * red) >> 8) as u8;
            pixel[2] = ((u32::from(pixel[2]) * blue) >> 8) as u8;
        }
    }
}
