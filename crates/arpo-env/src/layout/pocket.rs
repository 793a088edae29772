//! The pocket layout: one window at a time on cells of 56x28 pixels, one widget in a cell.
//!
//! A widget's rectangle and text lie in its cell so that the text starts on a boundary of the model's 14-pixel
//! patches and stays inside one row of patches. What does not fit goes to further pages.

use crate::desktop::Desktop;
use crate::layout::{HiddenWidget, Line, Scene, ScrollState, Surface, lines};
use crate::look::{CELL, Look};
use crate::view::{Node, Role, View};
use crate::world::App;
use egui::{Rect, pos2, vec2};

/// The widget's rectangle in its cell.
const WIDGET: Rect = Rect { min: pos2(2.0, 12.0), max: pos2(54.0, 27.0) };
/// Where text starts, from the corner of the cell: on a patch boundary across, inside one patch row down.
pub(crate) const TEXT: (f32, f32) = (14.0, 15.0);

fn columns(look: &Look) -> usize {
    (look.width / CELL.0) as usize
}

fn rows(look: &Look) -> usize {
    (look.height / CELL.1) as usize
}

fn cell_rect(column: usize, row: usize, span: usize) -> Rect {
    let corner = vec2(column as f32 * CELL.0 as f32, row as f32 * CELL.1 as f32);
    let wider = (span.max(1) - 1) as f32 * CELL.0 as f32;
    Rect::from_min_max(WIDGET.min + corner, WIDGET.max + corner + vec2(wider, 0.0))
}

/// The corner of the cell that a widget's rectangle lies in.
pub(crate) fn cell_corner(rect: Rect) -> egui::Pos2 {
    rect.min - WIDGET.min.to_vec2()
}

pub(crate) fn scene(desktop: &Desktop) -> Scene {
    let look = &desktop.look;
    let mut scene = Scene::default();
    let screen = Rect::from_min_size(pos2(0.0, 0.0), vec2(look.width as f32, look.height as f32));
    scene.panel(Surface::Wallpaper, screen);
    if let Some(view) = desktop.notice_view() {
        scene.panel(Surface::Dialog, screen);
        window(&mut scene, desktop, &view, None, true);
        return scene;
    }
    let Some(app) = desktop.front() else {
        launcher(&mut scene, desktop);
        return scene;
    };
    let dialog = crate::apps::dialog(desktop, app);
    scene.panel(if dialog.is_some() { Surface::Dialog } else { Surface::Window(app) }, screen);
    let view = desktop.active_view(app);
    window(&mut scene, desktop, &view, Some(app), dialog.is_some());
    if let Some(menu) = &view.menu {
        let below = screen.with_min_y(CELL.1 as f32);
        scene.panel(Surface::Menu, below);
        let groups = [crate::view::Group::fixed(menu.entries.clone())];
        for (row, line) in lines(look, &groups, columns(look), |node| node.span).into_iter().enumerate() {
            put(&mut scene, line, row + 1);
        }
    }
    scene
}

fn put(scene: &mut Scene, line: Line, row: usize) {
    for (node, column) in line {
        let rect = cell_rect(column, row, node.span);
        scene.widget(node, rect, true);
    }
}

/// Applications in cells in a seeded order.
fn launcher(scene: &mut Scene, desktop: &Desktop) {
    let look = &desktop.look;
    let mut cells: Vec<(usize, usize)> =
        (0..rows(look)).flat_map(|row| (0..columns(look)).map(move |column| (column, row))).collect();
    if look.order.is_some() {
        cells.sort_by_key(|(column, row)| look.seeded_hash(&format!("cell {column} {row}")));
    }
    for (app, (column, row)) in App::ALL.into_iter().zip(cells) {
        let node = Node::new(Role::Button, format!("bar:{app}"), desktop.app_name(app));
        scene.widget(node, cell_rect(column, row, 1), true);
    }
}

/// A full-screen window or dialog: a line with the title, then the content.
fn window(scene: &mut Scene, desktop: &Desktop, view: &View, app: Option<App>, dialog: bool) {
    let look = &desktop.look;
    let (across, down) = (columns(look), rows(look));
    let size: fn(&Node) -> usize = |node| node.span;
    let mut top = lines(look, &view.top, across, size);
    let mut body = lines(look, &view.body, across, size);
    let mut bottom = lines(look, &view.bottom, across, size);
    for line in &mut bottom {
        shift(look, line, across);
    }
    // where the screen is too low for the fixed lines, some of them scroll with the body
    while top.len() + bottom.len() + 2 > down {
        match top.pop() {
            Some(line) => body.insert(0, line),
            None => body.push(bottom.remove(0)),
        }
    }
    let shown = down - 1 - top.len() - bottom.len();
    let pages = body.len().div_ceil(shown).max(1);
    let page = app.and_then(|app| desktop.session.scroll.get(&app)).map_or(0, |page| (*page).min(pages - 1));
    let mut title = Node::new(Role::Label, "title", view.title.clone());
    if dialog {
        scene.widget(title.size(across - 1, 1), cell_rect(0, 0, across - 1), true);
    } else {
        title.span = 1;
        scene.widget(Node::new(Role::Button, "home", "Home"), cell_rect(0, 0, 1), true);
        scene.widget(title, cell_rect(1, 0, 1), true);
    }
    if let Some(app) = app.filter(|_| pages > 1) {
        scene.widget(
            Node::new(Role::Button, format!("more:{app}"), "More"),
            cell_rect(across - 1, 0, 1),
            true,
        );
    }
    let first_body = 1 + top.len();
    let last_rows = down - bottom.len();
    for (index, line) in top.into_iter().enumerate() {
        put(scene, line, 1 + index);
    }
    for (index, line) in body.into_iter().enumerate() {
        if index / shown == page {
            put(scene, line, first_body + index % shown);
        } else if let Some(app) = app {
            let hidden =
                |(node, _): (Node, usize)| HiddenWidget { id: node.id, app, below: index / shown > page };
            scene.hidden.extend(line.into_iter().map(hidden));
        }
    }
    for (index, line) in bottom.into_iter().enumerate() {
        put(scene, line, last_rows + index);
    }
    if let Some(app) = app {
        scene.scrolled.insert(app, ScrollState { offset: page, last: pages - 1 });
    }
}

/// Shifts a line with free cells by a seeded number of cells.
fn shift(look: &Look, line: &mut Line, across: usize) {
    let used = line.last().map_or(0, |(node, column)| column + node.span.min(across));
    let name = line.iter().map(|(node, _)| node.id.as_str()).min().unwrap_or_default();
    let by = (look.seeded_hash(&format!("gap {name}")) % (across - used.min(across) + 1) as u64) as usize;
    for (_, column) in line {
        *column += by;
    }
}
