//! Files: folders to make, entries to rename, move and delete, from the difference of two worlds.

use crate::apps::files::Dialog;
use crate::desktop::Desktop;
use crate::oracle::{Intent, click};
use crate::world::{World, join_path, split_path};

/// One operation on the files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileOperation {
    NewFolder(String),
    /// An entry (a folder's path ends with a slash) and its new name.
    Rename(String, String),
    /// A file and its new folder.
    Move(String, String),
    Delete(String),
}

/// The first operation still to do, if any.
fn operation(now: &World, target: &World) -> Option<FileOperation> {
    let inside = |world: &World, folder: &str| -> Vec<String> {
        let files = world.files.keys().filter(|path| split_path(path).0 == folder);
        files.map(|path| split_path(path).1.to_owned()).collect()
    };
    let new_folders: Vec<&String> = target.folders.difference(&now.folders).collect();
    let old_folders: Vec<&String> = now.folders.difference(&target.folders).collect();
    for old in &old_folders {
        if let Some(new) = new_folders.iter().find(|new| inside(target, new) == inside(now, old)) {
            return Some(FileOperation::Rename(format!("{old}/"), (*new).clone()));
        }
    }
    if let Some(new) = new_folders.first() {
        return Some(FileOperation::NewFolder((*new).clone()));
    }
    let added: Vec<&String> = target.files.keys().filter(|path| !now.files.contains_key(*path)).collect();
    for path in now.files.keys().filter(|path| !target.files.contains_key(*path)) {
        let (folder, name) = split_path(path);
        let same = |new: &&&String| target.files.get(**new) == now.files.get(path);
        let moved = added.iter().filter(same).find(|new| split_path(new).1 == name);
        let renamed = added.iter().filter(same).find(|new| split_path(new).0 == folder);
        if let Some(new) = moved {
            return Some(FileOperation::Move(path.clone(), split_path(new).0.to_owned()));
        }
        if let Some(new) = renamed {
            return Some(FileOperation::Rename(path.clone(), split_path(new).1.to_owned()));
        }
        if let Some(new) = added.iter().find(same) {
            let (new_folder, _) = split_path(new);
            let free = !now.files.contains_key(&join_path(new_folder, name));
            return free.then(|| FileOperation::Move(path.clone(), new_folder.to_owned()));
        }
        if !old_folders.iter().any(|old| *old == folder) {
            return Some(FileOperation::Delete(path.clone()));
        }
    }
    old_folders.first().map(|old| FileOperation::Delete(format!("{old}/")))
}

pub(crate) fn plan(desktop: &Desktop, target: &World, context_menus: bool) -> Option<Intent> {
    let operation = operation(&desktop.world, target)?;
    let state = &desktop.session.states.files;
    let (dialog, entry, folder) = match &operation {
        FileOperation::NewFolder(_) => (Dialog::NewFolder, "", ""),
        FileOperation::Rename(path, _) => (Dialog::Rename, path.as_str(), parent(path)),
        FileOperation::Move(path, _) => (Dialog::Move, path.as_str(), parent(path)),
        FileOperation::Delete(path) => (Dialog::Delete, path.as_str(), parent(path)),
    };
    if state.dialog == dialog && (entry.is_empty() || state.selected == entry) {
        return match &operation {
            FileOperation::NewFolder(name) | FileOperation::Rename(_, name) if state.name != *name => {
                Some(Intent::Type("files:name".into(), name.clone()))
            }
            FileOperation::NewFolder(_) => click("files:create"),
            FileOperation::Rename(..) => click("files:renamed"),
            FileOperation::Move(_, folder) => click(format!("files:target:{folder}")),
            FileOperation::Delete(_) => click("files:deleted"),
        };
    }
    if state.dialog != Dialog::Closed {
        return click("files:close");
    }
    if state.folder != folder {
        if !state.folder.is_empty() {
            return click("files:up");
        }
        return Some(Intent::Double(format!("files:item:{folder}/")));
    }
    if let FileOperation::NewFolder(_) = operation {
        return click("files:new");
    }
    let menu = desktop.session.menu.as_deref().is_some_and(|id| id.starts_with("files:"));
    if state.selected != entry || (context_menus && !menu) {
        let item = format!("files:item:{entry}");
        return Some(if context_menus { Intent::Right(item) } else { Intent::Click(item) });
    }
    let verb = match operation {
        FileOperation::Rename(..) => "rename",
        FileOperation::Move(..) => "move",
        _ => "delete",
    };
    if menu {
        click(format!("files:{verb}:menu"))
    } else if desktop.look.pocket() {
        click("files:menu")
    } else {
        click(format!("files:{verb}"))
    }
}

/// The folder that shows an entry; folders are shown at the top.
fn parent(path: &str) -> &str {
    if path.ends_with('/') { "" } else { split_path(path).0 }
}
