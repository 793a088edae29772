//! Files: a list of one folder's entries; new folders, renaming, moving and deleting, the last with a confirmation.

use crate::apps::{labelled_field, yes_no};
use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Menu, Node, Role, Value, View};
use crate::world::{App, join_path, split_path};
use serde::{Deserialize, Serialize};

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// The open folder; empty for the top.
    pub(crate) folder: String,
    /// The selected entry's path; a folder's ends with a slash.
    pub(crate) selected: String,
    /// The open dialog.
    pub(crate) dialog: Dialog,
    /// The name being typed.
    pub(crate) name: String,
}

/// The dialog over the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dialog {
    #[default]
    Closed,
    NewFolder,
    Rename,
    Move,
    Delete,
}

/// Actions on an entry.
const ACTIONS: [(&str, &str); 4] =
    [("open", "Open"), ("rename", "Rename"), ("move", "Move"), ("delete", "Delete")];

/// The name of the top folder.
pub(crate) const TOP: &str = "Top";

/// Paths of the open folder's entries; those of folders end with a slash.
pub(crate) fn entries(desktop: &Desktop) -> Vec<String> {
    let open = &desktop.session.states.files.folder;
    let folders = desktop.world.folders.iter().filter(|_| open.is_empty()).map(|folder| format!("{folder}/"));
    let files = desktop.world.files.keys().filter(|path| split_path(path).0 == open).cloned();
    folders.chain(files).collect()
}

/// The name as the list shows it.
fn shown(path: &str) -> &str {
    path.strip_suffix('/').map_or(split_path(path).1, |_| path)
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let state = &desktop.session.states.files;
    let pocket = desktop.look.pocket();
    let entry = |path: &String| {
        Node::new(Role::Item, format!("files:item:{path}"), shown(path)).on(state.selected == *path).drags()
    };
    let items = entries(desktop).iter().map(entry).collect();
    let folder = if state.folder.is_empty() { TOP } else { &state.folder };
    let title = if pocket { folder.to_owned() } else { format!("Files - {folder}") };
    let up = Node::new(Role::Button, "files:up", "Up").enabled(!state.folder.is_empty());
    let new = Node::new(Role::Button, "files:new", if pocket { "New" } else { "New folder" });
    let new = new.size(1, 3).enabled(state.folder.is_empty());
    let chosen = !state.selected.is_empty();
    let mut view = View::new(title).body(Group::shuffled(items));
    if pocket {
        let menu = Node::new(Role::Menu, "files:menu", "Edit").enabled(chosen);
        view = view.bottom(Group::fixed(vec![up, new, menu]));
    } else {
        let mut tools = vec![up, new];
        for (verb, label) in ACTIONS {
            let keys = match verb {
                "delete" => "delete",
                "rename" => "f2",
                _ => "",
            };
            tools.push(Node::new(Role::Button, format!("files:{verb}"), label).enabled(chosen).keys(keys));
        }
        tools.remove(2);
        view = view.top(Group::fixed(tools));
    }
    if let Some(anchor) = desktop.session.menu.as_ref().filter(|id| id.starts_with("files:")) {
        let entry = |(verb, label): (&str, &str)| Node::new(Role::Entry, format!("files:{verb}:menu"), label);
        view.menu = Some(Menu { anchor: anchor.clone(), entries: ACTIONS.map(entry).into() });
    }
    view
}

pub(crate) fn dialog(desktop: &Desktop) -> Option<View> {
    let state = &desktop.session.states.files;
    let name = shown(&state.selected);
    let ends = |yes: &str, yes_label, no_label| {
        yes_no((format!("files:{yes}"), yes_label), ("files:close".into(), no_label))
    };
    match state.dialog {
        Dialog::Closed => None,
        Dialog::NewFolder => Some(
            View::new(if desktop.look.pocket() { "New" } else { "New folder" })
                .body(labelled_field("files:name", "Name", &state.name))
                .bottom(ends("create", "OK", "Cancel")),
        ),
        Dialog::Rename => Some(
            View::new("Rename")
                .body(labelled_field("files:name", "Name", &state.name))
                .bottom(ends("renamed", "OK", "Cancel")),
        ),
        Dialog::Move => {
            let target = |folder: &str| {
                let label = if folder.is_empty() { TOP } else { folder };
                Node::new(Role::Item, format!("files:target:{folder}"), label).on(false)
            };
            let mut targets = vec![target("")];
            targets.extend(desktop.world.folders.iter().map(|folder| target(folder)));
            let cancel = Node::new(Role::Button, "files:close", "Cancel").size(1, 3).keys("escape");
            let view = View::new("Move").body(Group::shuffled(targets));
            Some(view.bottom(Group::fixed(vec![cancel])))
        }
        Dialog::Delete => {
            let question = Node::new(Role::Label, "files:question", format!("Delete {name}?"));
            Some(View::new("Delete").body(Group::fixed(vec![question])).bottom(ends("deleted", "Yes", "No")))
        }
    }
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, gesture: &Gesture) {
    match (verb, gesture) {
        ("item", Gesture::Click) => which.clone_into(&mut desktop.session.states.files.selected),
        ("item", Gesture::Right) => {
            which.clone_into(&mut desktop.session.states.files.selected);
            desktop.session.menu = Some(format!("files:item:{which}"));
        }
        ("item", Gesture::Onto(target)) => {
            if let Some(folder) = target.strip_prefix("files:item:").and_then(|path| path.strip_suffix('/')) {
                let folder = folder.to_owned();
                move_entry(desktop, which, &folder);
            }
        }
        ("item", Gesture::Double) => open(desktop, which),
        ("open", _) => {
            let path = desktop.session.states.files.selected.clone();
            open(desktop, &path);
        }
        ("up", _) => enter(desktop, ""),
        ("new", _) => show_dialog(desktop, Dialog::NewFolder),
        ("rename", _) => show_dialog(desktop, Dialog::Rename),
        ("move", _) => show_dialog(desktop, Dialog::Move),
        ("delete", _) => show_dialog(desktop, Dialog::Delete),
        ("close", _) => show_dialog(desktop, Dialog::Closed),
        ("name", Gesture::Set(Value::Text(name))) => desktop.session.states.files.name.clone_from(name),
        ("create", _) => {
            let name = desktop.session.states.files.name.trim().to_owned();
            if is_usable(desktop, &name) {
                desktop.world.folders.insert(name);
                show_dialog(desktop, Dialog::Closed);
            }
        }
        ("renamed", _) => rename(desktop),
        ("target", _) => {
            let path = desktop.session.states.files.selected.clone();
            move_entry(desktop, &path, which);
            show_dialog(desktop, Dialog::Closed);
        }
        ("deleted", _) => {
            let path = std::mem::take(&mut desktop.session.states.files.selected);
            if let Some(folder) = path.strip_suffix('/') {
                desktop.world.folders.remove(folder);
                desktop.world.files.retain(|file, _| split_path(file).0 != folder);
            }
            desktop.world.files.remove(&path);
            show_dialog(desktop, Dialog::Closed);
        }
        _ => {}
    }
}

/// Whether a name is free and has no slash.
fn is_usable(desktop: &Desktop, name: &str) -> bool {
    let taken = desktop.world.folders.contains(name) || desktop.world.files.contains_key(name);
    !name.is_empty() && !name.contains('/') && !taken
}

fn show_dialog(desktop: &mut Desktop, dialog: Dialog) {
    let state = &mut desktop.session.states.files;
    if matches!(dialog, Dialog::Rename | Dialog::Move | Dialog::Delete) && state.selected.is_empty() {
        return;
    }
    state.dialog = dialog;
    state.name.clear();
    desktop.scroll_to_start();
}

fn enter(desktop: &mut Desktop, folder: &str) {
    let state = &mut desktop.session.states.files;
    folder.clone_into(&mut state.folder);
    state.selected.clear();
    desktop.scroll_to_start();
}

fn open(desktop: &mut Desktop, path: &str) {
    if let Some(folder) = path.strip_suffix('/') {
        enter(desktop, folder);
    } else if desktop.world.files.contains_key(path) {
        crate::apps::editor::load(desktop, path);
        desktop.open(App::Editor);
    }
}

fn rename(desktop: &mut Desktop) {
    let name = desktop.session.states.files.name.trim().to_owned();
    let old = desktop.session.states.files.selected.clone();
    let new = if let Some(folder) = old.strip_suffix('/') {
        if !is_usable(desktop, &name) {
            return;
        }
        desktop.world.folders.remove(folder);
        desktop.world.folders.insert(name.clone());
        let inside: Vec<String> =
            desktop.world.files.keys().filter(|file| split_path(file).0 == folder).cloned().collect();
        for file in inside {
            let content = desktop.world.files.remove(&file).unwrap_or_default();
            desktop.world.files.insert(join_path(&name, split_path(&file).1), content);
        }
        format!("{name}/")
    } else {
        let new = join_path(split_path(&old).0, &name);
        let taken = desktop.world.files.contains_key(&new) || desktop.world.folders.contains(&new);
        if name.is_empty() || name.contains('/') || taken {
            return;
        }
        let Some(content) = desktop.world.files.remove(&old) else { return };
        desktop.world.files.insert(new.clone(), content);
        new
    };
    desktop.session.states.files.selected = new;
    show_dialog(desktop, Dialog::Closed);
}

/// Moves a file; folders stay where they are.
fn move_entry(desktop: &mut Desktop, path: &str, folder: &str) {
    let new = join_path(folder, split_path(path).1);
    if path.ends_with('/') || desktop.world.files.contains_key(&new) {
        return;
    }
    if let Some(content) = desktop.world.files.remove(path) {
        desktop.world.files.insert(new, content);
        desktop.session.states.files.selected.clear();
    }
}
