//! The walk through the tree: each thing is described once, many at a time, within the depth and width of OSWorld's
//! server and within a time that is ours.

use super::bus::{Asker, Bus, BusError, Thing};
use super::document::{Node, Space, number};
use super::names;
use futures_util::future::join_all;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// How deep things are looked at, the applications being 1.
const DEEPEST: usize = 50;
/// How many things in one are looked at.
const WIDEST: usize = 1024;
/// How long a tree may take; what was found by then is the tree.
const TREE_LIMIT: Duration = Duration::from_secs(30);
/// How many things of an application are asked at once.
const AT_ONCE: usize = 16;
/// How many cells of a row of a spreadsheet are asked at once.
const CELLS_AT_ONCE: i32 = 16;

/// What the things in one are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Below a spreadsheet, where tables have millions of cells.
    Spreadsheet,
}

/// The whole desktop, an application at a time each.
pub async fn desktop(bus: &Bus) -> Result<Node, BusError> {
    let deadline = Instant::now() + TREE_LIMIT;
    let applications = bus.applications().await?;
    let walks: Vec<Walk> = applications.iter().map(|_| Walk::new(bus, deadline)).collect();
    let nodes =
        join_all(walks.iter().zip(applications).map(|(walk, thing)| walk.node(thing, 1, Kind::Plain)));
    let mut root = Node::new("desktop frame");
    root.children = nodes.await.into_iter().flatten().collect();
    Ok(root)
}

/// The text of the terminal that has the keyboard: the one in the active window. None unless there is exactly one.
/// OSWorld's server looks at GNOME's terminal only; here it may be any.
pub async fn terminal(bus: &Bus) -> Result<Option<String>, BusError> {
    let deadline = Instant::now() + TREE_LIMIT;
    for application in bus.applications().await? {
        let walk = Walk::new(bus, deadline);
        // an application that does not answer has no terminal to show
        for frame in walk.asker.children(&application).await.unwrap_or_default() {
            let (role, states) = tokio::join!(walk.asker.role(&frame), walk.asker.states(&frame));
            let is_frame = role.is_ok_and(|role| names::role(role) == Some("frame"));
            let is_active = states.is_ok_and(|states| names::states(&states).any(|state| state == "active"));
            if !is_frame || !is_active {
                continue;
            }
            let Some(node) = walk.node(frame, 0, Kind::Plain).await else { continue };
            let all = node.all();
            let mut focused = all.iter().filter(|node| node.role == "terminal" && node.is("focused"));
            if let (Some(only), None) = (focused.next(), focused.next()) {
                return Ok(Some(only.text.trim_end().to_owned()));
            }
        }
    }
    Ok(None)
}

/// A walk through one application.
struct Walk {
    asker: Asker,
    deadline: Instant,
    at_once: Semaphore,
}

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Walk {
    fn new(bus: &Bus, deadline: Instant) -> Self {
        Self { asker: Asker::new(bus.clone()), deadline, at_once: Semaphore::new(AT_ONCE) }
    }

    /// A thing with all that is in it; none if it is gone or the time is over.
    fn node(&self, thing: Thing, depth: usize, kind: Kind) -> Later<'_, Option<Node>> {
        Box::pin(async move {
            let (mut node, children) = self.described(&thing).await?;
            let kind = if node.role == "document spreadsheet" { Kind::Spreadsheet } else { kind };
            if depth < DEEPEST && children > 0 {
                node.children = if kind == Kind::Spreadsheet && node.role == "table" {
                    self.cells(&thing, depth).await
                } else {
                    let children = self.children(&thing, children).await.unwrap_or_default();
                    let nodes = children.into_iter().map(|child| self.node(child, depth + 1, kind));
                    join_all(nodes).await.into_iter().flatten().collect()
                };
            }
            Some(node)
        })
    }

    /// What is known of a thing, and how many things are in it.
    async fn described(&self, thing: &Thing) -> Option<(Node, i32)> {
        let _permit = self.at_once.acquire().await.ok()?;
        timeout_at(self.deadline, self.describe(thing)).await.ok()?.ok()
    }

    async fn describe(&self, thing: &Thing) -> Result<(Node, i32), BusError> {
        let asker = &self.asker;
        let (name, role, states, attributes, interfaces, children) = tokio::join!(
            asker.name(thing),
            asker.role(thing),
            asker.states(thing),
            asker.attributes(thing),
            asker.interfaces(thing),
            asker.child_count(thing),
        );
        let role = match names::role(role?) {
            Some(name) => name.to_owned(),
            None => asker.role_name(thing).await.unwrap_or_default(),
        };
        let mut node = Node::new(&role);
        node.set(Space::None, "name", name.unwrap_or_default());
        for state in names::states(&states.unwrap_or_default()) {
            node.set(Space::State, state, "true");
        }
        for (name, value) in attributes.unwrap_or_default() {
            if !name.is_empty() {
                node.set(Space::Attribute, &name, value);
            }
        }
        let interfaces = interfaces.unwrap_or_default();
        self.add_details(thing, &mut node, &interfaces).await;
        Ok((node, children.unwrap_or(0)))
    }

    /// What the interfaces of a thing tell. One that does not answer tells nothing.
    async fn add_details(&self, thing: &Thing, node: &mut Node, interfaces: &[String]) {
        let has = |name: &str| interfaces.iter().any(|interface| interface == name);
        let is_seen = node.is("visible") && node.is("showing");
        let (extents, text, values, actions) = tokio::join!(
            async { if is_seen && has("Component") { self.asker.extents(thing).await.ok() } else { None } },
            async { if has("Text") { self.asker.text(thing).await.ok() } else { None } },
            async { if has("Value") { self.values(thing).await } else { vec![] } },
            async { if has("Action") { self.actions(thing).await } else { vec![] } },
        );
        if let Some((x, y, width, height)) = extents {
            node.set(Space::Component, "screencoord", format!("({x}, {y})"));
            node.set(Space::Component, "size", format!("({width}, {height})"));
        }
        // these stand for things that are not text
        node.text = text.unwrap_or_default().replace(['\u{fffc}', '\u{fffd}'], "");
        for (interface, name) in [("Image", "image"), ("Selection", "selection")] {
            if has(interface) {
                node.set(Space::None, name, "true");
            }
        }
        for (name, value) in values {
            node.set(Space::Value, name, number(value));
        }
        for [name, description, key] in actions {
            let name = name.replace(' ', "-");
            node.set(Space::Action, &format!("{name}_desc"), description);
            node.set(Space::Action, &format!("{name}_kb"), key);
        }
    }

    async fn values(&self, thing: &Thing) -> Vec<(&'static str, f64)> {
        let names = [
            ("value", "CurrentValue"),
            ("min", "MinimumValue"),
            ("max", "MaximumValue"),
            ("step", "MinimumIncrement"),
        ];
        let asked = names.map(|(name, property)| async move {
            Some((name, self.asker.number(thing, property).await.ok()?))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn actions(&self, thing: &Thing) -> Vec<[String; 3]> {
        let count = self.asker.action_count(thing).await.unwrap_or(0).min(WIDEST as i32);
        let asked = (0..count).map(|index| async move {
            let (name, description, key) = tokio::join!(
                self.asker.action(thing, "GetName", index),
                self.asker.action(thing, "GetDescription", index),
                self.asker.action(thing, "GetKeyBinding", index),
            );
            Some([name.ok()?, description.unwrap_or_default(), key.unwrap_or_default()])
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The things in one, so many as are looked at. One with very many is not asked for them all.
    async fn children(&self, thing: &Thing, count: i32) -> Result<Vec<Thing>, BusError> {
        let _permit = self.at_once.acquire().await.map_err(|error| BusError::Failed(error.to_string()))?;
        let asked = async {
            if count as usize <= WIDEST {
                return self.asker.children(thing).await;
            }
            let mut children = Vec::new();
            for index in 0..WIDEST as i32 {
                children.extend(self.asker.child(thing, index).await?);
            }
            Ok(children)
        };
        timeout_at(self.deadline, asked).await.unwrap_or(Err(BusError::Hangs))
    }

    /// The cells of a spreadsheet that are seen, row by row from the one in the top left corner.
    async fn cells(&self, table: &Thing, depth: usize) -> Vec<Node> {
        let mut cells = Vec::new();
        let Ok(columns @ 1..) = self.asker.columns(table).await else { return cells };
        let first = self.first_cell(table).await.unwrap_or(0);
        let (mut row, left) = (first / columns, first % columns);
        while Instant::now() < self.deadline {
            let before = cells.len();
            let mut column = left;
            'row: while column < columns {
                let end = columns.min(column + CELLS_AT_ONCE);
                let asked = (column..end).map(|column| async move {
                    let index = row.checked_mul(columns)?.checked_add(column)?;
                    let cell = self.asker.child(table, index).await.ok()??;
                    self.node(cell, depth + 1, Kind::Spreadsheet).await
                });
                for cell in join_all(asked).await {
                    match cell.filter(|cell| cell.is("showing")) {
                        Some(cell) => cells.push(cell),
                        None => break 'row,
                    }
                }
                column = end;
            }
            if cells.len() == before {
                break;
            }
            row += 1;
        }
        cells
    }

    /// The index of the cell in the corner of what is seen of a table.
    async fn first_cell(&self, table: &Thing) -> Option<i32> {
        const INSIDE_PX: i32 = 3;
        let (x, y, ..) = self.asker.extents(table).await.ok()?;
        let cell = self.asker.at(table, x.max(0) + INSIDE_PX, y.max(0) + INSIDE_PX).await.ok()??;
        self.asker.index(&cell).await.ok().filter(|index| *index >= 0)
    }
}
