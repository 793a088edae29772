//! The walk through the tree: each object is described once, many concurrently, within the depth and width limits of
//! OSWorld's server and a time limit of ours.

use super::bus::{Accessible, Bus, BusClient, BusError};
use super::names;
use super::xml::{Namespace, Node, number};
use futures_util::future::join_all;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Depth limit; applications are at depth 1.
const MAX_DEPTH: usize = 50;
/// Limit of the children of one object.
const MAX_CHILDREN: usize = 1024;
/// Time limit of a tree; what was found by then is the tree.
const TREE_LIMIT: Duration = Duration::from_secs(30);
/// Concurrent calls per application.
const MAX_CONCURRENT: usize = 16;
/// Cells of a spreadsheet row requested at once.
const CELLS_PER_BATCH: i32 = 16;

/// How the children of an object are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Below a spreadsheet, where tables have millions of cells.
    Spreadsheet,
}

/// The whole desktop, all applications concurrently.
pub async fn desktop(bus: &Bus) -> Result<Node, BusError> {
    let deadline = Instant::now() + TREE_LIMIT;
    let applications = bus.applications().await?;
    let walks: Vec<Walk> = applications.iter().map(|_| Walk::new(bus, deadline)).collect();
    let nodes =
        join_all(walks.iter().zip(applications).map(|(walk, object)| walk.node(object, 1, Kind::Plain)));
    let mut root = Node::new("desktop frame");
    root.children = nodes.await.into_iter().flatten().collect();
    Ok(root)
}

/// The text of the focused terminal in the active window. None unless there is exactly one. OSWorld's server supports
/// GNOME's terminal only; here it may be any.
pub async fn terminal(bus: &Bus) -> Result<Option<String>, BusError> {
    let deadline = Instant::now() + TREE_LIMIT;
    for application in bus.applications().await? {
        let walk = Walk::new(bus, deadline);
        // an application that does not respond has no terminal to show
        for frame in walk.client.children(&application).await.unwrap_or_default() {
            let (role, states) = tokio::join!(walk.client.role(&frame), walk.client.states(&frame));
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
    client: BusClient,
    deadline: Instant,
    permits: Semaphore,
}

type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Walk {
    fn new(bus: &Bus, deadline: Instant) -> Self {
        Self { client: BusClient::new(bus.clone()), deadline, permits: Semaphore::new(MAX_CONCURRENT) }
    }

    /// An object with its descendants; none if it is gone or the time is up.
    fn node(&self, object: Accessible, depth: usize, kind: Kind) -> BoxedFuture<'_, Option<Node>> {
        Box::pin(async move {
            let (mut node, children) = self.described(&object).await?;
            let kind = if node.role == "document spreadsheet" { Kind::Spreadsheet } else { kind };
            if depth < MAX_DEPTH && children > 0 {
                node.children = if kind == Kind::Spreadsheet && node.role == "table" {
                    self.cells(&object, depth).await
                } else {
                    let children = self.children(&object, children).await.unwrap_or_default();
                    let nodes = children.into_iter().map(|child| self.node(child, depth + 1, kind));
                    join_all(nodes).await.into_iter().flatten().collect()
                };
            }
            Some(node)
        })
    }

    /// The description of an object, and its number of children.
    async fn described(&self, object: &Accessible) -> Option<(Node, i32)> {
        let _permit = self.permits.acquire().await.ok()?;
        timeout_at(self.deadline, self.describe(object)).await.ok()?.ok()
    }

    async fn describe(&self, object: &Accessible) -> Result<(Node, i32), BusError> {
        let client = &self.client;
        let (name, role, states, attributes, interfaces, children) = tokio::join!(
            client.name(object),
            client.role(object),
            client.states(object),
            client.attributes(object),
            client.interfaces(object),
            client.child_count(object),
        );
        let role = match names::role(role?) {
            Some(name) => name.to_owned(),
            None => client.role_name(object).await.unwrap_or_default(),
        };
        let mut node = Node::new(&role);
        node.set(Namespace::None, "name", name.unwrap_or_default());
        for state in names::states(&states.unwrap_or_default()) {
            node.set(Namespace::State, state, "true");
        }
        for (name, value) in attributes.unwrap_or_default() {
            if !name.is_empty() {
                node.set(Namespace::Attribute, &name, value);
            }
        }
        let interfaces = interfaces.unwrap_or_default();
        self.add_details(object, &mut node, &interfaces).await;
        Ok((node, children.unwrap_or(0)))
    }

    /// Adds what the interfaces of an object report. One that does not respond adds nothing.
    async fn add_details(&self, object: &Accessible, node: &mut Node, interfaces: &[String]) {
        let has = |name: &str| interfaces.iter().any(|interface| interface == name);
        let is_seen = node.is("visible") && node.is("showing");
        let (extents, text, values, actions) = tokio::join!(
            async { if is_seen && has("Component") { self.client.extents(object).await.ok() } else { None } },
            async { if has("Text") { self.client.text(object).await.ok() } else { None } },
            async { if has("Value") { self.values(object).await } else { vec![] } },
            async { if has("Action") { self.actions(object).await } else { vec![] } },
        );
        if let Some((x, y, width, height)) = extents {
            node.set(Namespace::Component, "screencoord", format!("({x}, {y})"));
            node.set(Namespace::Component, "size", format!("({width}, {height})"));
        }
        // placeholders for embedded objects
        node.text = text.unwrap_or_default().replace(['\u{fffc}', '\u{fffd}'], "");
        for (interface, name) in [("Image", "image"), ("Selection", "selection")] {
            if has(interface) {
                node.set(Namespace::None, name, "true");
            }
        }
        for (name, value) in values {
            node.set(Namespace::Value, name, number(value));
        }
        for [name, description, key] in actions {
            let name = name.replace(' ', "-");
            node.set(Namespace::Action, &format!("{name}_desc"), description);
            node.set(Namespace::Action, &format!("{name}_kb"), key);
        }
    }

    async fn values(&self, object: &Accessible) -> Vec<(&'static str, f64)> {
        let names = [
            ("value", "CurrentValue"),
            ("min", "MinimumValue"),
            ("max", "MaximumValue"),
            ("step", "MinimumIncrement"),
        ];
        let asked = names.map(|(name, property)| async move {
            Some((name, self.client.number(object, property).await.ok()?))
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    async fn actions(&self, object: &Accessible) -> Vec<[String; 3]> {
        let count = self.client.action_count(object).await.unwrap_or(0).min(MAX_CHILDREN as i32);
        let asked = (0..count).map(|index| async move {
            let (name, description, key) = tokio::join!(
                self.client.action(object, "GetName", index),
                self.client.action(object, "GetDescription", index),
                self.client.action(object, "GetKeyBinding", index),
            );
            Some([name.ok()?, description.unwrap_or_default(), key.unwrap_or_default()])
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The children of an object, up to the limit. An object with very many is not asked for all of them.
    async fn children(&self, object: &Accessible, count: i32) -> Result<Vec<Accessible>, BusError> {
        let _permit = self.permits.acquire().await.map_err(|error| BusError::Failed(error.to_string()))?;
        let asked = async {
            if count as usize <= MAX_CHILDREN {
                return self.client.children(object).await;
            }
            let mut children = Vec::new();
            for index in 0..MAX_CHILDREN as i32 {
                children.extend(self.client.child(object, index).await?);
            }
            Ok(children)
        };
        timeout_at(self.deadline, asked).await.unwrap_or(Err(BusError::Hangs))
    }

    /// The visible cells of a spreadsheet, row by row from the top left corner.
    async fn cells(&self, table: &Accessible, depth: usize) -> Vec<Node> {
        let mut cells = Vec::new();
        let Ok(columns @ 1..) = self.client.columns(table).await else { return cells };
        let first = self.first_cell(table).await.unwrap_or(0);
        let (mut row, left) = (first / columns, first % columns);
        while Instant::now() < self.deadline {
            let before = cells.len();
            let mut column = left;
            'row: while column < columns {
                let end = columns.min(column + CELLS_PER_BATCH);
                let asked = (column..end).map(|column| async move {
                    let index = row.checked_mul(columns)?.checked_add(column)?;
                    let cell = self.client.child(table, index).await.ok()??;
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

    /// The index of the top left visible cell of a table.
    async fn first_cell(&self, table: &Accessible) -> Option<i32> {
        const INSIDE_PX: i32 = 3;
        let (x, y, ..) = self.client.extents(table).await.ok()?;
        let cell = self.client.at(table, x.max(0) + INSIDE_PX, y.max(0) + INSIDE_PX).await.ok()??;
        self.client.index(&cell).await.ok().filter(|index| *index >= 0)
    }
}
