//! From views to rectangles: a scene lists every panel and widget with its rectangle, in drawing order.
//!
//! The scene is also the widget tree: which widgets are visible, which are covered, which scrolling would reveal.

pub(crate) mod desktop;
pub(crate) mod pocket;

use crate::desktop::Desktop;
use crate::look::{Look, Profile};
use crate::view::{Group, Node, Role, Value};
use crate::world::App;
use egui::Rect;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A background that widgets lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    Wallpaper,
    Window(App),
    Dialog,
    Menu,
    Bar,
    /// Darkens what lies below a dialog.
    Shade,
    /// The scroll bar beside a list.
    ScrollBar,
}

/// One item to draw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SceneItem {
    Panel { surface: Surface, rect: Rect },
    Widget(PlacedWidget),
}

/// A widget with its rectangle.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlacedWidget {
    pub(crate) node: Node,
    /// Where it is drawn and used.
    pub(crate) rect: Rect,
    /// It takes input: nothing modal lies over it.
    pub(crate) active: bool,
}

/// A widget that scrolling would reveal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HiddenWidget {
    pub(crate) id: String,
    pub(crate) app: App,
    /// It lies below the visible part.
    pub(crate) below: bool,
}

/// How far a window is scrolled: in pages on a pocket screen, in rows on a desktop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScrollState {
    pub(crate) offset: usize,
    pub(crate) last: usize,
}

/// Everything on the screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Scene {
    pub(crate) items: Vec<SceneItem>,
    pub(crate) hidden: Vec<HiddenWidget>,
    pub(crate) scrolled: BTreeMap<App, ScrollState>,
}

/// A widget as the oracle and grounding questions see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Widget {
    /// Unique on the screen.
    pub id: String,
    /// What it is.
    pub role: Role,
    /// Its label.
    pub label: String,
    /// What it holds.
    pub value: Value,
    /// Left, top, right, bottom in pixels.
    pub rect: [f32; 4],
    /// It can be used.
    pub enabled: bool,
    /// Typed text goes here.
    pub focused: bool,
}

impl Widget {
    /// Its centre, on a whole pixel.
    pub fn centre(&self) -> (f64, f64) {
        let [left, top, right, bottom] = self.rect.map(f64::from);
        (f64::midpoint(left, right).floor(), f64::midpoint(top, bottom).floor())
    }

    /// True if a click on it has an effect.
    pub fn is_clickable(&self) -> bool {
        self.enabled && !matches!(self.role, Role::Label | Role::Title)
    }
}

/// Lays the whole desktop out.
pub(crate) fn scene(desktop: &Desktop) -> Scene {
    match desktop.look.profile {
        Profile::Pocket => pocket::scene(desktop),
        Profile::Desktop => desktop::scene(desktop),
    }
}

impl Scene {
    pub(crate) fn panel(&mut self, surface: Surface, rect: Rect) {
        self.items.push(SceneItem::Panel { surface, rect });
    }

    pub(crate) fn widget(&mut self, node: Node, rect: Rect, active: bool) {
        self.items.push(SceneItem::Widget(PlacedWidget { node, rect, active }));
    }

    /// Widgets in drawing order.
    pub(crate) fn widgets(&self) -> impl DoubleEndedIterator<Item = &PlacedWidget> {
        self.items.iter().filter_map(|item| match item {
            SceneItem::Widget(placed) => Some(placed),
            SceneItem::Panel { .. } => None,
        })
    }

    /// Visible widgets that are not under a dialog or another window.
    pub(crate) fn tree(&self, desktop: &Desktop) -> Vec<Widget> {
        let mut covers: Vec<Rect> = Vec::new();
        let mut tree = Vec::new();
        for item in self.items.iter().rev() {
            match item {
                SceneItem::Panel { surface: Surface::ScrollBar, .. } => {}
                SceneItem::Panel { rect, .. } => covers.push(*rect),
                SceneItem::Widget(PlacedWidget { node, rect, active }) => {
                    let covered = covers.iter().any(|cover| cover.contains(rect.center()));
                    if *active && !covered {
                        let focused = desktop.session.focus.as_ref().is_some_and(|focus| focus.id == node.id);
                        tree.push(Widget {
                            id: node.id.clone(),
                            role: node.role,
                            label: node.label.clone(),
                            value: node.value.clone(),
                            rect: [rect.min.x, rect.min.y, rect.max.x, rect.max.y],
                            enabled: node.enabled,
                            focused,
                        });
                    }
                }
            }
        }
        tree.reverse();
        tree
    }
}

/// A line of widgets: (widget, first column).
pub(crate) type Line = Vec<(Node, usize)>;

/// Breaks groups into lines of `columns`; every group starts a line.
pub(crate) fn lines(look: &Look, groups: &[Group], columns: usize, size: fn(&Node) -> usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for group in groups.iter().filter(|group| !group.nodes.is_empty()) {
        let mut nodes: Vec<&Node> = group.nodes.iter().collect();
        if group.shuffle && look.order.is_some() {
            nodes.sort_by_key(|node| look.seeded_hash(&node.id));
        }
        let mut line: Line = Vec::new();
        let mut column = 0;
        for node in nodes {
            let width = size(node).min(columns);
            if column + width > columns {
                lines.push(std::mem::take(&mut line));
                column = 0;
            }
            line.push((node.clone(), column));
            column += width;
        }
        lines.push(line);
    }
    lines
}
