//! Files: folders to make, entries to rename, move and delete, from the difference of two worlds.

use crate::apps::files::Dialog;
use crate::desktop::Desktop;
use crate::oracle::{Want, click};
use crate::world::{World, join_path, split_path};

/// One thing to do with the files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Chore {
    NewFolder(String),
    /// An entry (a folder's path ends with a slash) and its new name.
    Rename(String, String),
    /// A file and its new folder.
    Move(String, String),
    Delete(String),
}

/// The first chore, if there is any.
fn chore(now: &World, target: &World) -> Option<Chore> {
    let inside = |world: &World, folder: &str| -> Vec<String> {
        let files = world.files.keys().filter(|path| split_path(path).0 == folder);
        files.map(|path| split_path(path).1.to_owned()).collect()
    };
    let new_folders: Vec<&String> = target.folders.difference(&now.folders).collect();
    let old_folders: Vec<&String> = now.folders.difference(&target.folders).collect();
    for old in &old_folders {
        if let Some(new) = new_folders.iter().find(|new| inside(target, new) == inside(now, old)) {
            return Some(Chore::Rename(format!("{old}/"), (*new).clone()));
        }
    }
    if let Some(new) = new_folders.first() {
        return Some(Chore::NewFolder((*new).clone()));
    }
    let added: Vec<&String> = target.files.keys().filter(|path| !now.files.contains_key(*path)).collect();
    for path in now.files.keys().filter(|path| !target.files.contains_key(*path)) {
        let (folder, name) = split_path(path);
        let same = |new: &&&String| target.files.get(**new) == now.files.get(path);
        let moved = added.iter().filter(same).find(|new| split_path(new).1 == name);
        let renamed = added.iter().filter(same).find(|new| split_path(new).0 == folder);
        if let Some(new) = moved {
            return Some(Chore::Move(path.clone(), split_path(new).0.to_owned()));
        }
        if let Some(new) = renamed {
            return Some(Chore::Rename(path.clone(), split_path(new).1.to_owned()));
        }
        if let Some(new) = added.iter().find(same) {
            let (new_folder, _) = split_path(new);
            let free = !now.files.contains_key(&join_path(new_folder, name));
            return free.then(|| Chore::Move(path.clone(), new_folder.to_owned()));
        }
        if !old_folders.iter().any(|old| *old == folder) {
            return Some(Chore::Delete(path.clone()));
        }
    }
    old_folders.first().map(|old| Chore::Delete(format!("{old}/")))
}

pub(crate) fn plan(desktop: &Desktop, target: &World, context_menus: bool) -> Option<Want> {
    let chore = chore(&desktop.world, target)?;
    let state = &desktop.session.states.files;
    let (dialog, entry, folder) = match &chore {
        Chore::NewFolder(_) => (Dialog::NewFolder, "", ""),
        Chore::Rename(path, _) => (Dialog::Rename, path.as_str(), parent(path)),
        Chore::Move(path, _) => (Dialog::Move, path.as_str(), parent(path)),
        Chore::Delete(path) => (Dialog::Delete, path.as_str(), parent(path)),
    };
    if state.dialog == dialog && (entry.is_empty() || state.selected == entry) {
        return match &chore {
            Chore::NewFolder(name) | Chore::Rename(_, name) if state.name != *name => {
                Some(Want::Type("files:name".into(), name.clone()))
            }
            Chore::NewFolder(_) => click("files:create"),
            Chore::Rename(..) => click("files:renamed"),
            Chore::Move(_, folder) => click(format!("files:target:{folder}")),
            Chore::Delete(_) => click("files:deleted"),
        };
    }
    if state.dialog != Dialog::Closed {
        return click("files:close");
    }
    if state.folder != folder {
        if !state.folder.is_empty() {
            return click("files:up");
        }
        return Some(Want::Double(format!("files:item:{folder}/")));
    }
    if let Chore::NewFolder(_) = chore {
        return click("files:new");
    }
    let menu = desktop.session.menu.as_deref().is_some_and(|id| id.starts_with("files:"));
    if state.selected != entry || (context_menus && !menu) {
        let item = format!("files:item:{entry}");
        return Some(if context_menus { Want::Right(item) } else { Want::Click(item) });
    }
    let verb = match chore {
        Chore::Rename(..) => "rename",
        Chore::Move(..) => "move",
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
