//! One egui pass over a scene: every widget is positioned, drawn, and checked for input.
//!
//! On the desktop these are egui's own widgets; in the pocket profile egui handles input, editing and focus, and the
//! drawing is ours. Sliders are ours in both, so that a level always has the same position.

use crate::desktop::{Desktop, Focus};
use crate::draw::palette::{Palette, text_font};
use crate::draw::pocket_widgets;
use crate::layout::{PlacedWidget, Scene, SceneItem, Surface};
use crate::view::{Gesture, Node, Role, Value};
use egui::text::{CCursor, CCursorRange};
use egui::text_edit::TextEditState;
use egui::{
    Align, Button, Checkbox, Color32, Frame, Id, Layout, Margin, Painter, RadioButton, Rect, Response, Sense,
    Stroke, TextEdit, Ui, UiBuilder, pos2, vec2,
};

/// Characters a one-line field holds.
const FIELD_LIMIT: usize = 64;
/// Characters a text holds.
const TEXT_LIMIT: usize = 2000;
/// From a slider's edge to the end of its track.
const TRACK_INSET: f32 = 6.0;
/// Width of the number beside a slider.
const NUMBER_WIDTH: f32 = 26.0;

/// The input that widgets received in a pass.
#[derive(Debug, Default)]
pub(crate) struct Interactions {
    /// Widgets that were used, in drawing order.
    pub(crate) gestures: Vec<(String, Gesture)>,
    /// The keyboard focus after the pass.
    pub(crate) focus: Option<Focus>,
}

/// Draws a scene in one pass.
pub(crate) struct SceneRenderer<'a> {
    pub(crate) desktop: &'a Desktop,
    pub(crate) scene: &'a Scene,
    /// egui's focus must follow the session's.
    pub(crate) take_focus: bool,
    pub(crate) used: Interactions,
}

/// A level as a fraction between 0 and 1.
pub(crate) fn slider_fraction(value: u32, max: u32) -> f32 {
    value.min(max) as f32 / max.max(1) as f32
}

/// A border inside a rectangle: four bars, which are drawn faster than a stroke.
pub(crate) fn frame(painter: &Painter, rect: Rect, width: f32, colour: Color32) {
    let rect = rect.round();
    for bar in [
        rect.with_max_y(rect.min.y + width),
        rect.with_min_y(rect.max.y - width),
        rect.with_max_x(rect.min.x + width),
        rect.with_min_x(rect.max.x - width),
    ] {
        painter.rect_filled(bar, 0.0, colour);
    }
}

impl SceneRenderer<'_> {
    /// The line a slider's handle moves on.
    pub(crate) fn track(rect: Rect, pocket: bool) -> Rect {
        let number = if pocket { 16.0 } else { NUMBER_WIDTH };
        Rect::from_min_max(rect.min + vec2(TRACK_INSET, 0.0), rect.max - vec2(TRACK_INSET + number, 0.0))
    }

    pub(crate) fn draw(&mut self, ui: &mut Ui) {
        let scene = self.scene;
        for (index, item) in scene.items.iter().enumerate() {
            match item {
                SceneItem::Panel { surface, rect } => self.panel(ui, index, *surface, *rect),
                SceneItem::Widget(placed) => {
                    if let Some(response) = self.widget(ui, placed) {
                        self.read(ui, placed, &response);
                    }
                }
            }
        }
    }

    fn panel(&mut self, ui: &Ui, index: usize, surface: Surface, rect: Rect) {
        let look = &self.desktop.look;
        let palette = Palette::of(look);
        let fill = match surface {
            Surface::Wallpaper => palette.wallpaper,
            Surface::Window(_) => palette.window,
            Surface::Dialog => palette.dialog,
            Surface::Menu => palette.menu,
            Surface::Bar => palette.bar,
            Surface::Shade => egui::Color32::from_black_alpha(70),
            Surface::ScrollBar => palette.faint,
        };
        ui.painter().rect_filled(rect, 0.0, fill);
        let framed =
            matches!(surface, Surface::Window(_) | Surface::Dialog | Surface::Menu) && !look.pocket();
        if framed {
            frame(ui.painter(), rect, 1.0, palette.edge);
        }
        // a panel blocks input to everything below it
        let response = ui.interact(rect, Id::unique(("panel", index)), Sense::click_and_drag());
        if let Surface::Window(app) = surface
            && (response.clicked() || response.drag_started())
            && self.desktop.front() != Some(app)
        {
            self.used.gestures.push((format!("bar:{app}"), Gesture::Click));
        }
    }

    /// Adds a widget; none for a plain label.
    fn widget(&mut self, ui: &mut Ui, placed: &PlacedWidget) -> Option<Response> {
        let PlacedWidget { node, rect, active } = placed;
        let look = &self.desktop.look;
        let usable = *active && node.enabled;
        if matches!(node.role, Role::Field | Role::Text) {
            return self.field(ui, placed);
        }
        let sense = match node.role {
            _ if !usable => Sense::hover(),
            Role::Label => Sense::hover(),
            Role::Slider | Role::Title => Sense::click_and_drag(),
            _ if node.drags => Sense::click_and_drag(),
            _ => Sense::click(),
        };
        if look.pocket() || matches!(node.role, Role::Slider | Role::Title | Role::Label) {
            let id = Id::unique(&node.id);
            self.follow_focus(ui, node, id);
            let response = (node.role != Role::Label).then(|| ui.interact(*rect, id, sense));
            let focused = response.as_ref().is_some_and(Response::has_focus);
            if look.pocket() {
                pocket_widgets::draw(ui, placed, look, focused);
            } else {
                self.desktop_own(ui, placed, focused);
            }
            return response;
        }
        Some(self.desktop_widget(ui, placed, usable, sense))
    }

    /// egui's own widgets, each in a child `Ui` with its rectangle.
    fn desktop_widget(&mut self, ui: &mut Ui, placed: &PlacedWidget, usable: bool, sense: Sense) -> Response {
        let PlacedWidget { node, rect, .. } = placed;
        let on = node.value == Value::On(true);
        let centred = matches!(node.role, Role::Button | Role::Tab);
        let align = if centred { Align::Center } else { Align::Min };
        let layout = Layout::left_to_right(Align::Center).with_main_align(align).with_main_justify(true);
        let layout = layout.with_cross_justify(true);
        let mut builder = UiBuilder::new().scope_id(Id::unique(&node.id)).max_rect(*rect).layout(layout);
        if !usable {
            builder = builder.disabled();
        }
        let mut child = ui.new_child(builder);
        child.set_clip_rect(rect.intersect(ui.clip_rect()));
        let id = child.next_auto_id();
        self.follow_focus(&child, node, id);
        let response = match node.role {
            Role::Toggle => {
                let mut checked = on;
                child.add(Checkbox::new(&mut checked, node.label.as_str()))
            }
            Role::Radio => child.add(RadioButton::new(on, node.label.as_str())),
            role => {
                let label = match (&node.role, &node.value) {
                    (Role::Menu, Value::Text(value)) => value.clone(),
                    _ => node.label.clone(),
                };
                let mut button =
                    Button::new(label).truncate().sense(sense).min_size(rect.size()).selected(on);
                if matches!(role, Role::Item | Role::Cell) && !on {
                    button = button.fill(Palette::of(&self.desktop.look).field);
                }
                let palette = Palette::of(&self.desktop.look);
                let response = child.add(button.stroke(Stroke::NONE));
                frame(child.painter(), *rect, 1.0, if usable { palette.edge } else { palette.faint });
                if role == Role::Menu {
                    let tip = pos2(rect.max.x - 14.0, rect.center().y.round() - 2.0);
                    pocket_widgets::arrow(
                        child.painter(),
                        tip,
                        if usable { palette.text } else { palette.faint },
                    );
                }
                response
            }
        };
        if response.has_focus() {
            frame(child.painter(), *rect, 2.0, Palette::of(&self.desktop.look).chosen);
        }
        response
    }

    /// Labels, title bars and sliders of the desktop.
    fn desktop_own(&self, ui: &Ui, placed: &PlacedWidget, focused: bool) {
        let PlacedWidget { node, rect, .. } = placed;
        let look = &self.desktop.look;
        let palette = Palette::of(look);
        let painter = ui.painter().with_clip_rect(rect.intersect(ui.clip_rect()));
        let draw_text = |text: String, x: f32| {
            let galley = painter.layout_no_wrap(text, text_font(look), palette.text);
            let y = (rect.center().y - galley.size().y / 2.0).round();
            painter.galley(pos2(x, y), galley, palette.text);
        };
        match (&node.role, &node.value) {
            (Role::Title, _) => {
                painter.rect_filled(*rect, 0.0, palette.title);
                draw_text(node.label.clone(), rect.min.x + 8.0);
            }
            (Role::Slider, Value::Level(value, max)) => {
                let track = Self::track(*rect, false);
                let y = rect.center().y.round();
                painter.rect_filled(
                    Rect::from_x_y_ranges(track.x_range(), y - 2.0..=y + 2.0),
                    0.0,
                    palette.edge,
                );
                let x = (track.min.x + track.width() * slider_fraction(*value, *max)).round();
                let handle = Rect::from_x_y_ranges(x - 5.0..=x + 5.0, y - 8.0..=y + 8.0);
                painter.rect_filled(handle, 2.0, if focused { palette.text } else { palette.chosen });
                draw_text(value.to_string(), rect.max.x - NUMBER_WIDTH + 4.0);
            }
            _ => draw_text(node.label.clone(), rect.min.x + 2.0),
        }
    }

    fn field(&mut self, ui: &mut Ui, placed: &PlacedWidget) -> Option<Response> {
        let PlacedWidget { node, rect, active } = placed;
        let Value::Text(before) = &node.value else { return None };
        let look = &self.desktop.look;
        let palette = Palette::of(look);
        let id = Id::unique(&node.id);
        self.follow_focus(ui, node, id);
        let mut text = before.clone();
        let multiline = node.role == Role::Text;
        ui.painter().rect_filled(*rect, 0.0, palette.field);
        frame(ui.painter(), *rect, 1.0, palette.edge);
        let font = text_font(look);
        let (left, top) = if look.pocket() {
            let sample = ui.painter().layout_no_wrap("x".into(), font.clone(), palette.text);
            (12, 3 - pocket_widgets::glyph_top(&sample) as i8)
        } else {
            let row = ui.fonts_mut(|fonts| fonts.row_height(&font));
            (4, if multiline { 4 } else { ((rect.height() - row) / 2.0).floor() as i8 })
        };
        let margin = Margin { left, right: 2, top, bottom: 0 };
        let lifted = if multiline { self.lines_above(ui, node, before, rect.height()) } else { 0.0 };
        let edit = if multiline { TextEdit::multiline(&mut text) } else { TextEdit::singleline(&mut text) };
        let edit = edit
            .id(id)
            .font(font)
            .frame(Frame::NONE.inner_margin(margin))
            .desired_width(rect.width())
            .min_size(rect.size())
            .char_limit(if multiline { TEXT_LIMIT } else { FIELD_LIMIT })
            .text_color(palette.text)
            .interactive(*active && node.enabled);
        let inner = rect.translate(vec2(0.0, -lifted));
        let mut child = ui.new_child(UiBuilder::new().scope_id(id.with("place")).max_rect(inner));
        child.set_clip_rect(rect.intersect(ui.clip_rect()));
        let response = child.add(edit);
        if response.has_focus() {
            frame(ui.painter(), *rect, 1.0, palette.chosen);
        }
        if text != *before {
            self.used.gestures.push((node.id.clone(), Gesture::Set(Value::Text(text))));
        }
        Some(response)
    }

    /// How far a text is scrolled, in pixels: to the line of the cursor while it is edited, else by the wheel.
    fn lines_above(&self, ui: &Ui, node: &Node, text: &str, height: f32) -> f32 {
        let session = &self.desktop.session;
        let row = ui.fonts_mut(|fonts| fonts.row_height(&text_font(&self.desktop.look)));
        let shown = ((height / row).floor() as usize).saturating_sub(1).max(1);
        let editing = session.focus.as_ref().filter(|focus| focus.id == node.id);
        let lines = if let Some(focus) = editing {
            let line = text.chars().take(focus.cursor).filter(|character| *character == '\n').count();
            (line + 1).saturating_sub(shown)
        } else {
            let app = node.id.split(':').next().and_then(crate::world::App::of_key);
            app.and_then(|app| session.scroll.get(&app)).copied().unwrap_or(0)
        };
        lines as f32 * row
    }

    /// Moves the keyboard focus to a widget where the session has it and egui does not yet.
    fn follow_focus(&self, ui: &Ui, node: &Node, id: Id) {
        let Some(focus) = self.desktop.session.focus.as_ref().filter(|focus| focus.id == node.id) else {
            return;
        };
        if !self.take_focus {
            return;
        }
        ui.memory_mut(|memory| memory.request_focus(id));
        if let Value::Text(text) = &node.value {
            let end = text.chars().count();
            let at = |index: usize| CCursor::new(index.min(end));
            let mut state = TextEditState::default();
            state.cursor.set_char_range(Some(CCursorRange::two(at(focus.anchor), at(focus.cursor))));
            state.store(ui.ctx(), id);
        }
    }

    /// Records how a widget was used.
    fn read(&mut self, ui: &Ui, placed: &PlacedWidget, response: &Response) {
        let PlacedWidget { node, rect, active } = placed;
        if response.has_focus() {
            let text = matches!(node.role, Role::Field | Role::Text);
            let range = if text { TextEditState::load(ui.ctx(), response.id) } else { None };
            let range = range.and_then(|state| state.cursor.char_range()).unwrap_or_default();
            let (anchor, cursor) = (range.secondary.index.0, range.primary.index.0);
            self.used.focus = Some(Focus { id: node.id.clone(), anchor, cursor });
        }
        if !active || !node.enabled || matches!(node.role, Role::Field | Role::Text) {
            return;
        }
        let mut note = |gesture| self.used.gestures.push((node.id.clone(), gesture));
        let pointer = || ui.input(|input| input.pointer.latest_pos());
        match node.role {
            Role::Slider => {
                let Value::Level(value, max) = node.value else { return };
                if (response.clicked() || response.dragged() || response.drag_stopped())
                    && let Some(at) = pointer()
                {
                    let track = SceneRenderer::track(*rect, self.desktop.look.pocket());
                    let fraction = ((at.x - track.min.x) / track.width()).clamp(0.0, 1.0);
                    let level = (fraction * max as f32).round() as u32;
                    if level != value {
                        note(Gesture::Set(Value::Level(level, max)));
                    }
                }
            }
            Role::Title => {
                let by = response.drag_delta();
                if response.dragged() && by != egui::Vec2::ZERO {
                    note(Gesture::Moved(by.x.round() as i32, by.y.round() as i32));
                } else if response.clicked() {
                    note(Gesture::Click);
                }
            }
            _ => {
                if response.double_clicked() {
                    note(Gesture::Double);
                } else if response.clicked() {
                    note(Gesture::Click);
                } else if response.secondary_clicked() {
                    note(Gesture::Right);
                } else if node.drags
                    && response.drag_stopped()
                    && let Some(at) = pointer()
                    && let Some(target) = self.scene.widgets().rev().find(|placed| placed.rect.contains(at))
                {
                    note(Gesture::Onto(target.node.id.clone()));
                }
            }
        }
    }
}
