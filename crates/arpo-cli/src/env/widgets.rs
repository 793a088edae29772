//! Widgets as text: a table of the screen, and the changes after an action.

use arpo_env::layout::Widget;
use arpo_env::view::{Role, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum number of characters shown of a text.
const SHOWN_TEXT: usize = 24;
/// Maximum width of a line of changes, so that it fits on any terminal.
const LINE_COLUMNS: usize = 72;

/// Every widget with its role, rectangle, centre and text, in drawing order.
pub(super) fn table(widgets: &[Widget]) -> String {
    let mut table = String::from("role    left,top  right,bottom  click at  label\n");
    for widget in widgets {
        let [left, top, right, bottom] = widget.rect;
        let (x, y) = widget.centre();
        let corner = |x: f32, y: f32| format!("{x:.0},{y:.0}");
        let (from, to) = (corner(left, top), corner(right, bottom));
        let centre = if widget.is_clickable() { format!("{x},{y}") } else { String::new() };
        let (role, text) = (widget.role.key(), text(widget));
        let line = format!("{role:6} {from:>9}  {to:>12}  {centre:>8}  {text}");
        writeln!(table, "{}", line.trim_end()).expect("strings take all text");
    }
    table
}

/// A widget's label, value and state.
fn text(widget: &Widget) -> String {
    let value = match &widget.value {
        Value::None => String::new(),
        Value::On(on) => match (widget.role, on) {
            (Role::Toggle, true) => "on".to_owned(),
            (Role::Toggle, false) => "off".to_owned(),
            (_, true) => "(selected)".to_owned(),
            (_, false) => String::new(),
        },
        Value::Level(level, highest) => format!("{level} of {highest}"),
        Value::Text(text) if text.chars().count() > SHOWN_TEXT => {
            let start: String = text.chars().take(SHOWN_TEXT).collect();
            format!("{start:?}...")
        }
        Value::Text(text) => format!("{text:?}"),
    };
    let label = widget.label.replace(char::is_control, " ");
    let focused = if widget.focused { "(typing goes here)" } else { "" };
    let disabled = if widget.enabled { "" } else { "(disabled)" };
    let parts: Vec<&str> =
        [&label, value.as_str(), focused, disabled].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// The changes, in at most four lines; empty if no widget changed.
pub(super) fn changes(before: &[Widget], after: &[Widget]) -> Vec<String> {
    let by_id = |widgets: &[Widget]| -> BTreeMap<String, Widget> {
        widgets.iter().map(|widget| (widget.id.clone(), widget.clone())).collect()
    };
    let (old, new) = (by_id(before), by_id(after));
    let named = |widget: &Widget| format!("{} {}", widget.role.key(), text(widget)).trim_end().to_owned();
    let kept = || after.iter().filter_map(|widget| Some((old.get(&widget.id)?, widget)));
    let came = after.iter().filter(|widget| !old.contains_key(&widget.id)).map(named).collect();
    let left = before.iter().filter(|widget| !new.contains_key(&widget.id)).map(named).collect();
    let other = kept().filter(|(was, is)| text(was) != text(is)).map(|(_, is)| named(is)).collect();
    let moved = kept()
        .filter(|(was, is)| was.rect.map(f32::to_bits) != is.rect.map(f32::to_bits))
        .map(|(_, is)| named(is))
        .collect();
    [("new", came), ("gone", left), ("now", other), ("moved", moved)]
        .into_iter()
        .filter(|(_, names): &(_, Vec<String>)| !names.is_empty())
        .map(|(what, names)| format!("{what:5}  {}", shortened(&names)))
        .collect()
}

/// As many names as fit on a line, and the number of further ones.
fn shortened(names: &[String]) -> String {
    let mut line = names[0].clone();
    for (index, name) in names.iter().enumerate().skip(1) {
        if line.chars().count() + name.chars().count() > LINE_COLUMNS - 12 {
            return format!("{line} and {} more", names.len() - index);
        }
        line = format!("{line}, {name}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widget(id: &str, role: Role, label: &str, value: Value) -> Widget {
        let (id, label) = (id.to_owned(), label.to_owned());
        Widget { id, role, label, value, rect: [0.0, 28.0, 56.0, 56.0], enabled: true, focused: false }
    }

    #[test]
    fn tables_line_up() {
        let field = Widget { focused: true, ..widget("f", Role::Field, "Name", Value::Text("a\nb".into())) };
        let widgets = [field, widget("l", Role::Label, "Hello", Value::None)];
        let expected = "role    left,top  right,bottom  click at  label\n\
                        field       0,28         56,56     28,42  Name \"a\\nb\" (typing goes here)\n\
                        label       0,28         56,56            Hello\n";
        assert_eq!(table(&widgets), expected);
    }

    #[test]
    fn changes_list_new_gone_and_changed_widgets() {
        let wifi = |on| widget("w", Role::Toggle, "Wifi", Value::On(on));
        let save = widget("s", Role::Button, "Save", Value::None);
        let shifted = Widget { rect: [0.0, 0.0, 56.0, 28.0], ..save.clone() };
        let cat = widget("c", Role::Item, "cat", Value::On(false));
        let dog = widget("d", Role::Item, "dog", Value::On(true));
        assert_eq!(
            changes(&[wifi(false), save.clone(), cat.clone()], &[wifi(true), shifted, dog]),
            ["new    item dog (selected)", "gone   item cat", "now    toggle Wifi on", "moved  button Save"]
        );
        assert!(changes(std::slice::from_ref(&save), std::slice::from_ref(&save)).is_empty());
    }

    #[test]
    fn long_lines_are_shortened_between_names() {
        let many: Vec<Widget> =
            (0..40).map(|i| widget(&i.to_string(), Role::Item, &format!("entry {i}"), Value::None)).collect();
        let lines = changes(&[], &many);
        assert!(lines[0].ends_with("more") && lines[0].len() <= 80, "{lines:?}");
    }
}
