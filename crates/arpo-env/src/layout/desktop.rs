//! The desktop layout: windows that overlap, dialogs over them, menus under their widget, a task bar.

use crate::desktop::Desktop;
use crate::layout::{HiddenWidget, Line, Scene, ScrollState, Surface, lines};
use crate::look::Look;
use crate::view::{Menu, Node, Role, Value, View};
use crate::world::App;
use egui::{Pos2, Rect, Vec2, pos2, vec2};

/// Columns of a window.
const COLUMNS: usize = 12;
/// Rows of the scrolling part.
const BODY_ROWS: usize = 7;
/// Rows of a dialog's scrolling part.
const DIALOG_ROWS: usize = 5;

/// Lengths in pixels at a scale.
struct Lengths {
    column: f32,
    row: f32,
    gap: f32,
    pad: f32,
    title: f32,
    bar: f32,
}

impl Lengths {
    fn of(look: &Look) -> Self {
        let scaled = |length: f32| (length * look.scale()).round();
        Self {
            column: scaled(33.0),
            row: scaled(26.0),
            gap: scaled(4.0),
            pad: scaled(8.0),
            title: scaled(24.0),
            bar: scaled(30.0),
        }
    }

    fn inner_width(&self) -> f32 {
        self.column * COLUMNS as f32
    }

    /// A window's size without the title bar's share of rows.
    fn window(&self, rows: usize) -> Vec2 {
        vec2(self.inner_width() + 2.0 * self.pad, self.title + self.row * rows as f32 + 2.0 * self.pad)
    }
}

/// Where a window opens: at a seeded position with jitter, else in a cascade.
pub(crate) fn initial_position(look: &Look, app: App) -> (f32, f32) {
    let lengths = Lengths::of(look);
    let size = lengths.window(BODY_ROWS + 3);
    let free = vec2(look.width as f32 - size.x, look.height as f32 - lengths.bar - size.y).max(Vec2::ZERO);
    let number = App::ALL.iter().position(|other| *other == app).unwrap_or(0);
    let fraction = |axis: &str| match look.order {
        Some(_) => (look.seeded_hash(&format!("window {app} {axis}")) % 1000) as f32 / 1000.0,
        None => number as f32 / App::ALL.len() as f32,
    };
    ((free.x * fraction("x")).round(), (free.y * fraction("y")).round())
}

pub(crate) fn scene(desktop: &Desktop) -> Scene {
    let look = &desktop.look;
    let lengths = Lengths::of(look);
    let screen = Rect::from_min_size(pos2(0.0, 0.0), vec2(look.width as f32, look.height as f32));
    let mut scene = Scene::default();
    scene.panel(Surface::Wallpaper, screen);
    let notice = desktop.notice_view();
    let mut menu = None;
    for window in &desktop.session.windows {
        let front = desktop.front() == Some(window.app);
        let view = crate::apps::view(desktop, window.app);
        let dialog = crate::apps::dialog(desktop, window.app);
        let active = notice.is_none() && dialog.is_none();
        let frame =
            app_window(&mut scene, desktop, &lengths, window.app, pos2(window.x, window.y), &view, active);
        if let Some(dialog) = dialog {
            scene.panel(Surface::Shade, frame);
            dialog_window(&mut scene, desktop, &lengths, window.app, frame.center(), &dialog);
        } else if front {
            menu = view.menu;
        }
    }
    task_bar(&mut scene, desktop, &lengths, screen, notice.is_none());
    if let Some(menu) = menu {
        open_menu(&mut scene, &lengths, screen, &menu);
    }
    if let Some(view) = notice {
        scene.panel(Surface::Shade, screen);
        let lines = (lines(look, &view.body, COLUMNS, share), lines(look, &view.bottom, COLUMNS, share));
        boxed(&mut scene, &lengths, screen.center(), &view.title, lines);
    }
    scene
}

fn share(node: &Node) -> usize {
    node.share
}

/// Rows that lines take; a line is as tall as its tallest widget.
fn height(lines: &[Line]) -> usize {
    lines.iter().map(line_height).sum()
}

fn line_height(line: &Line) -> usize {
    line.iter().map(|(node, _)| node.tall).max().unwrap_or(1)
}

/// Stacks lines and returns where they end.
fn put(scene: &mut Scene, lengths: &Lengths, corner: Pos2, lines: Vec<Line>, active: bool) -> f32 {
    let mut y = corner.y;
    for line in lines {
        let rows = line_height(&line);
        for (node, column) in line {
            let width = lengths.column * node.share.min(COLUMNS) as f32 - lengths.gap;
            let height = lengths.row * node.tall as f32 - lengths.gap;
            let at = pos2(corner.x + lengths.column * column as f32, y);
            scene.widget(node, Rect::from_min_size(at, vec2(width, height)), active);
        }
        y += lengths.row * rows as f32;
    }
    y
}

fn app_window(
    scene: &mut Scene,
    desktop: &Desktop,
    lengths: &Lengths,
    app: App,
    corner: Pos2,
    view: &View,
    active: bool,
) -> Rect {
    let look = &desktop.look;
    let top = lines(look, &view.top, COLUMNS, share);
    let body = lines(look, &view.body, COLUMNS, share);
    let bottom = lines(look, &view.bottom, COLUMNS, share);
    let size = lengths.window(height(&top) + BODY_ROWS + height(&bottom));
    let frame = Rect::from_min_size(corner, size);
    scene.panel(Surface::Window(app), frame);
    let bar = Rect::from_min_size(corner, vec2(size.x, lengths.title));
    scene.widget(Node::new(Role::Title, format!("title:{app}"), view.title.clone()), bar, active);
    let square = lengths.title - lengths.gap;
    let close = Rect::from_min_size(
        bar.right_top() + vec2(-square - lengths.gap / 2.0, lengths.gap / 2.0),
        vec2(square, square),
    );
    scene.widget(Node::new(Role::Button, format!("close:{app}"), "x").keys("ctrl+w"), close, active);
    let inner = corner + vec2(lengths.pad, lengths.title + lengths.pad);
    let y = put(scene, lengths, inner, top, active);
    let body_top = pos2(inner.x, y);
    scrolled_body(scene, desktop, lengths, app, body_top, body, BODY_ROWS, active);
    put(scene, lengths, pos2(inner.x, y + lengths.row * BODY_ROWS as f32), bottom, active);
    frame
}

/// The visible rows of a list, a scroll bar where there are more, and the ids of the hidden ones.
#[expect(clippy::too_many_arguments, reason = "called twice, with unrelated arguments")]
fn scrolled_body(
    scene: &mut Scene,
    desktop: &Desktop,
    lengths: &Lengths,
    app: App,
    corner: Pos2,
    body: Vec<Line>,
    shown: usize,
    active: bool,
) {
    // a text scrolls by its own lines
    let text = body.iter().flatten().find(|(node, _)| node.role == Role::Text);
    let text_lines =
        text.map(|(node, _)| if let Value::Text(text) = &node.value { text.lines().count() } else { 0 });
    let last = text_lines.unwrap_or_else(|| height(&body)).saturating_sub(shown);
    let offset = desktop.session.scroll.get(&app).map_or(0, |rows| (*rows).min(last));
    if last > 0 {
        let total = (last + shown) as f32;
        let whole = lengths.row * shown as f32;
        let bar = Rect::from_min_size(
            pos2(corner.x + lengths.inner_width(), corner.y + whole * offset as f32 / total),
            vec2((lengths.pad / 2.0).round(), (whole * shown as f32 / total).round()),
        );
        scene.panel(Surface::ScrollBar, bar);
    }
    let mut visible = Vec::new();
    for (row, line) in body.into_iter().enumerate() {
        if text_lines.is_some() || (offset..offset + shown).contains(&row) {
            visible.push(line);
        } else {
            let below = row >= offset + shown;
            scene.hidden.extend(line.into_iter().map(|(node, _)| HiddenWidget { id: node.id, app, below }));
        }
    }
    put(scene, lengths, corner, visible, active);
    scene.scrolled.insert(app, ScrollState { offset, last });
}

fn dialog_window(
    scene: &mut Scene,
    desktop: &Desktop,
    lengths: &Lengths,
    app: App,
    centre: Pos2,
    view: &View,
) {
    let look = &desktop.look;
    let body = lines(look, &view.body, COLUMNS, share);
    let bottom = lines(look, &view.bottom, COLUMNS, share);
    if height(&body) <= DIALOG_ROWS {
        boxed(scene, lengths, centre, &view.title, (body, bottom));
        return;
    }
    let inner = frame_dialog(scene, lengths, centre, &view.title, DIALOG_ROWS + height(&bottom));
    scrolled_body(scene, desktop, lengths, app, inner, body, DIALOG_ROWS, true);
    put(scene, lengths, inner + vec2(0.0, lengths.row * DIALOG_ROWS as f32), bottom, true);
}

/// A dialog without scrolling.
fn boxed(scene: &mut Scene, lengths: &Lengths, centre: Pos2, title: &str, lines: (Vec<Line>, Vec<Line>)) {
    let (body, bottom) = lines;
    let inner = frame_dialog(scene, lengths, centre, title, height(&body) + height(&bottom));
    let y = put(scene, lengths, inner, body, true);
    put(scene, lengths, pos2(inner.x, y), bottom, true);
}

/// A dialog's frame and title; returns where its content starts.
fn frame_dialog(scene: &mut Scene, lengths: &Lengths, centre: Pos2, title: &str, rows: usize) -> Pos2 {
    let size = lengths.window(rows) - vec2(0.0, lengths.pad);
    let corner = (centre - size / 2.0).round();
    let frame = Rect::from_min_size(corner, size);
    scene.panel(Surface::Dialog, frame);
    let bar = Rect::from_min_size(corner, vec2(size.x, lengths.title));
    scene.widget(Node::new(Role::Title, "title:dialog", title), bar, true);
    corner + vec2(lengths.pad, lengths.title + lengths.pad / 2.0)
}

fn task_bar(scene: &mut Scene, desktop: &Desktop, lengths: &Lengths, screen: Rect, active: bool) {
    let bar = screen.with_min_y(screen.max.y - lengths.bar);
    scene.panel(Surface::Bar, bar);
    let mut apps = App::ALL;
    if desktop.look.order.is_some() {
        apps.sort_by_key(|app| desktop.look.seeded_hash(&format!("bar {app}")));
    }
    let width = (screen.width() / apps.len() as f32).min(lengths.column * 4.0).floor();
    for (index, app) in apps.into_iter().enumerate() {
        let open = desktop.session.windows.iter().any(|window| window.app == app);
        let corner = bar.min + vec2(width * index as f32 + lengths.gap / 2.0, lengths.gap / 2.0);
        let size = vec2(width - lengths.gap, lengths.bar - lengths.gap);
        let node = Node::new(Role::Button, format!("bar:{app}"), app.name(false)).value(Value::On(open));
        scene.widget(node, Rect::from_min_size(corner, size), active);
    }
}

/// A menu below the widget it belongs to, kept on the screen.
fn open_menu(scene: &mut Scene, lengths: &Lengths, screen: Rect, menu: &Menu) {
    let anchor = scene.widgets().find(|placed| placed.node.id == menu.anchor).map(|placed| placed.rect);
    let anchor = anchor.unwrap_or(Rect::from_center_size(screen.center(), Vec2::ZERO));
    let size = vec2(lengths.column * 4.0, lengths.row * menu.entries.len() as f32 + lengths.gap);
    let x = anchor.min.x.clamp(0.0, (screen.max.x - size.x).max(0.0));
    let y = anchor.max.y.clamp(0.0, (screen.max.y - size.y).max(0.0));
    scene.panel(Surface::Menu, Rect::from_min_size(pos2(x, y), size));
    for (row, node) in menu.entries.iter().enumerate() {
        let corner = pos2(x + lengths.gap / 2.0, y + lengths.gap / 2.0 + lengths.row * row as f32);
        let size = vec2(size.x - lengths.gap, lengths.row - lengths.gap / 2.0);
        scene.widget(node.clone(), Rect::from_min_size(corner, size), true);
    }
}
