//! Editor: one text file at a time; find and replace; saving, also under another name.

use crate::apps::{labelled_field, yes_no};
use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Menu, Node, Role, Value, View};
use crate::world::{App, split_path};
use serde::{Deserialize, Serialize};

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// The open file; empty for a new one.
    pub(crate) path: String,
    /// The text, saved or not.
    pub(crate) text: String,
    /// The open dialog.
    pub(crate) dialog: Dialog,
    /// The name being typed.
    pub(crate) name: String,
    /// The text to find.
    pub(crate) find: String,
    /// Its replacement.
    pub(crate) replace: String,
}

/// The dialog over the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dialog {
    #[default]
    Closed,
    Open,
    SaveAs,
    Find,
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let state = &desktop.session.states.editor;
    let pocket = desktop.look.pocket();
    let name = if state.path.is_empty() { "New" } else { &state.path };
    let saved = desktop.world.files.get(&state.path).is_some_and(|text| *text == state.text);
    let mark = if saved || (state.path.is_empty() && state.text.is_empty()) { "" } else { "*" };
    let title =
        if pocket { format!("{}{mark}", split_path(name).1) } else { format!("Editor - {name}{mark}") };
    let text = if pocket {
        Node::new(Role::Field, "editor:text", "Text").size(3, 12)
    } else {
        Node::new(Role::Text, "editor:text", "Text").tall(7)
    };
    let tools = vec![
        Node::new(Role::Button, "editor:save", "Save").keys("ctrl+s"),
        Node::new(Role::Menu, "editor:menu", "File").size(1, 3),
        Node::new(Role::Button, "editor:find", "Find").keys("ctrl+f"),
    ];
    let mut view = View::new(title).body(Group::fixed(vec![text.text(state.text.clone())]));
    view = if pocket { view.bottom(Group::shuffled(tools)) } else { view.top(Group::fixed(tools)) };
    if desktop.session.menu.as_deref() == Some("editor:menu") {
        let save_as = if pocket { "SaveAs" } else { "Save as" };
        let entries = vec![
            Node::new(Role::Entry, "editor:new", "New"),
            Node::new(Role::Entry, "editor:open", "Open"),
            Node::new(Role::Entry, "editor:saveas", save_as),
        ];
        view.menu = Some(Menu { anchor: "editor:menu".into(), entries });
    }
    view
}

pub(crate) fn dialog(desktop: &Desktop) -> Option<View> {
    let state = &desktop.session.states.editor;
    let close = ("editor:close".to_owned(), "Cancel");
    match state.dialog {
        Dialog::Closed => None,
        Dialog::Open => {
            let item =
                |path: &String| Node::new(Role::Item, format!("editor:file:{path}"), path.clone()).on(false);
            let files = desktop.world.files.keys().map(item);
            let fits = |node: Node| if node.label.chars().count() > 6 { node.size(2, 12) } else { node };
            let cancel = Node::new(Role::Button, close.0, close.1).size(1, 3).keys("escape");
            let view = View::new("Open").body(Group::shuffled(files.map(fits).collect()));
            Some(view.bottom(Group::fixed(vec![cancel])))
        }
        Dialog::SaveAs => Some(
            View::new(if desktop.look.pocket() { "SaveAs" } else { "Save as" })
                .body(labelled_field("editor:name", "Name", &state.name))
                .bottom(yes_no(("editor:named".into(), "OK"), close)),
        ),
        Dialog::Find => {
            let pocket = desktop.look.pocket();
            let (title, with, all) = if pocket {
                ("Find", "With", "All")
            } else {
                ("Find and replace", "Replace with", "Replace all")
            };
            let view = View::new(title)
                .body(labelled_field("editor:what", "Find", &state.find))
                .body(labelled_field("editor:with", with, &state.replace));
            Some(view.bottom(yes_no(("editor:replace".into(), all), close)))
        }
    }
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, gesture: &Gesture) {
    let state = &mut desktop.session.states.editor;
    match (verb, gesture) {
        ("text", Gesture::Set(Value::Text(text))) => state.text.clone_from(text),
        ("name", Gesture::Set(Value::Text(text))) => state.name.clone_from(text),
        ("what", Gesture::Set(Value::Text(text))) => state.find.clone_from(text),
        ("with", Gesture::Set(Value::Text(text))) => state.replace.clone_from(text),
        ("save", _) if state.path.is_empty() => show_dialog(desktop, Dialog::SaveAs),
        ("save", _) => {
            desktop.world.files.insert(state.path.clone(), state.text.clone());
        }
        ("find", _) => show_dialog(desktop, Dialog::Find),
        ("new", _) => *state = State::default(),
        ("open", _) => show_dialog(desktop, Dialog::Open),
        ("saveas", _) => show_dialog(desktop, Dialog::SaveAs),
        ("close", _) => show_dialog(desktop, Dialog::Closed),
        ("file", _) => load(desktop, which),
        ("named", _) => {
            let name = state.name.trim().to_owned();
            let (folder, file) = split_path(&name);
            let folder_exists = folder.is_empty() || desktop.world.folders.contains(folder);
            if !file.is_empty() && folder_exists && !desktop.world.folders.contains(&name) {
                desktop.world.files.insert(name.clone(), state.text.clone());
                state.path = name;
                show_dialog(desktop, Dialog::Closed);
            }
        }
        ("replace", _) if !state.find.is_empty() => {
            state.text = state.text.replace(&state.find, &state.replace);
            show_dialog(desktop, Dialog::Closed);
        }
        _ => {}
    }
}

fn show_dialog(desktop: &mut Desktop, dialog: Dialog) {
    let state = &mut desktop.session.states.editor;
    state.dialog = dialog;
    for text in [&mut state.name, &mut state.find, &mut state.replace] {
        text.clear();
    }
    desktop.scroll_to_start();
}

/// Opens a file; unsaved changes are lost.
pub(crate) fn load(desktop: &mut Desktop, path: &str) {
    let text = desktop.world.files.get(path).cloned().unwrap_or_default();
    desktop.session.states.editor = State { path: path.to_owned(), text, ..State::default() };
    desktop.session.scroll.remove(&App::Editor);
}
