//! Sheet: a grid of cells, a field to edit the selected one, sums and sorting.

use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Node, Role, Value, View};
use crate::world::App;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// The cell being edited.
    pub(crate) cell: String,
    /// The first column shown.
    pub(crate) column: usize,
}

impl Default for State {
    fn default() -> Self {
        Self { cell: "A1".into(), column: 0 }
    }
}

/// Columns and rows, and how many columns are shown at once.
pub(crate) fn dimensions(pocket: bool) -> (usize, usize, usize) {
    if pocket { (3, 5, 3) } else { (8, 12, 6) }
}

/// `A1` of (0, 0).
pub(crate) fn cell_name(column: usize, row: usize) -> String {
    format!("{}{}", char::from(b'A' + column as u8), row + 1)
}

/// (0, 0) of `A1`.
pub(crate) fn cell_position(name: &str) -> Option<(usize, usize)> {
    let column = name.bytes().next()?.checked_sub(b'A')?;
    let row: usize = name.get(1..)?.parse().ok()?;
    Some((usize::from(column), row.checked_sub(1)?))
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let state = &desktop.session.states.sheet;
    let pocket = desktop.look.pocket();
    let (columns, rows, shown) = dimensions(pocket);
    let content = |name: &str| desktop.world.sheet.get(name).map_or("", String::as_str);
    let mut tools = vec![
        Node::new(Role::Field, "sheet:edit", state.cell.clone()).text(content(&state.cell)).size(1, 4),
        Node::new(Role::Button, "sheet:sum", "Sum"),
        Node::new(Role::Button, "sheet:sort", if pocket { "Sort" } else { "Sort up" }),
    ];
    if !pocket {
        tools.insert(0, Node::new(Role::Label, "sheet:cellname", state.cell.clone()).size(1, 1));
        tools.push(Node::new(Role::Button, "sheet:down", "Sort down").size(1, 3));
    }
    let first = state.column.min(columns - shown);
    let mut view = View::new(desktop.app_name(App::Sheet)).top(Group::fixed(tools));
    for row in 0..rows {
        let cell = |column: usize| {
            let name = cell_name(column, row);
            let label = format!("{name} {}", content(&name));
            Node::new(Role::Cell, format!("sheet:cell:{name}"), label.trim_end()).on(name == state.cell)
        };
        view.body.push(Group::fixed((first..first + shown).map(cell).collect()));
    }
    view
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, gesture: &Gesture) {
    match (verb, gesture) {
        ("cell", _) => {
            which.clone_into(&mut desktop.session.states.sheet.cell);
            desktop.focus_all("sheet:edit");
        }
        ("edit", Gesture::Set(Value::Text(text))) => {
            let cell = desktop.session.states.sheet.cell.clone();
            write(desktop, cell, text.clone());
        }
        ("sum", _) => {
            let cell = desktop.session.states.sheet.cell.clone();
            if let Some(total) = sum_above(&desktop.world.sheet, &cell) {
                write(desktop, cell, total);
            }
        }
        ("sort", _) => sort(desktop, false),
        ("down", _) => sort(desktop, true),
        _ => {}
    }
}

fn write(desktop: &mut Desktop, cell: String, text: String) {
    if text.is_empty() {
        desktop.world.sheet.remove(&cell);
    } else {
        desktop.world.sheet.insert(cell, text);
    }
}

/// The sum of the integers above a cell; none if there are none.
pub(crate) fn sum_above(cells: &BTreeMap<String, String>, cell: &str) -> Option<String> {
    let (column, row) = cell_position(cell)?;
    let number = |row: usize| cells.get(&cell_name(column, row))?.trim().parse::<i64>().ok();
    let numbers: Vec<i64> = (0..row).filter_map(number).collect();
    let total = numbers.iter().try_fold(0_i64, |total, number| total.checked_add(*number))?;
    (!numbers.is_empty()).then(|| total.to_string())
}

/// Sorts the rows by a column: numbers by value, before words; rows without an entry there come last.
pub(crate) fn sorted_by(
    cells: &BTreeMap<String, String>,
    column: usize,
    descending: bool,
    size: (usize, usize),
) -> BTreeMap<String, String> {
    let (columns, rows) = size;
    let row_of = |row: usize| -> Vec<Option<&String>> {
        (0..columns).map(|column| cells.get(&cell_name(column, row))).collect()
    };
    let mut table: Vec<Vec<Option<&String>>> = (0..rows).map(row_of).collect();
    let key = |row: &Vec<Option<&String>>| {
        let text = row.get(column).copied().flatten();
        let number = text.and_then(|text| text.trim().parse::<i64>().ok());
        (number.is_none(), number, text.cloned())
    };
    table.sort_by(|a, b| {
        let empty = |row: &Vec<Option<&String>>| row.get(column).copied().flatten().is_none();
        let order = if descending { key(b).cmp(&key(a)) } else { key(a).cmp(&key(b)) };
        empty(a).cmp(&empty(b)).then(order)
    });
    let mut sorted = BTreeMap::new();
    for (row, contents) in table.into_iter().enumerate() {
        for (column, content) in contents.into_iter().enumerate() {
            if let Some(content) = content {
                sorted.insert(cell_name(column, row), content.clone());
            }
        }
    }
    sorted
}

fn sort(desktop: &mut Desktop, descending: bool) {
    let (columns, rows, _) = dimensions(desktop.look.pocket());
    if let Some((column, _)) = cell_position(&desktop.session.states.sheet.cell) {
        desktop.world.sheet = sorted_by(&desktop.world.sheet, column, descending, (columns, rows));
    }
}
