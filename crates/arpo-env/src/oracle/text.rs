//! Text files: open, change, save, from the difference of two worlds.

use crate::apps::editor::Dialog;
use crate::desktop::Desktop;
use crate::oracle::{Intent, click};
use crate::world::World;

/// The one word replacement that explains every difference of two texts; only where the word occurs at least twice,
/// since a single word is retyped faster.
fn replaced_word(old: &str, new: &str) -> Option<(String, String)> {
    let (old_words, new_words): (Vec<&str>, Vec<&str>) = (old.split(' ').collect(), new.split(' ').collect());
    if old_words.len() != new_words.len() {
        return None;
    }
    let changes: Vec<(&str, &str)> =
        old_words.into_iter().zip(new_words).filter(|(before, after)| before != after).collect();
    let (before, after) = *changes.first()?;
    let explains = !before.is_empty() && old.replace(before, after) == new;
    (explains && changes.len() > 1).then(|| (before.to_owned(), after.to_owned()))
}

pub(crate) fn plan(desktop: &Desktop, target: &World) -> Option<Intent> {
    let differs = |(path, content): &(&String, &String)| desktop.world.files.get(*path) != Some(*content);
    let (path, content) = target.files.iter().find(differs)?;
    let state = &desktop.session.states.editor;
    let exists = desktop.world.files.contains_key(path);
    if state.text == *content && (exists == (state.path == *path)) {
        return save(desktop, path, exists);
    }
    if exists || state.text != *content {
        let source = if exists {
            Some(path)
        } else {
            desktop.world.files.iter().find(|(_, text)| *text == content).map(|(path, _)| path)
        };
        return match source {
            Some(source) if state.path != *source => open(desktop, source),
            None if !state.path.is_empty() => menu_entry(desktop, "editor:new"),
            Some(source) => change(desktop, &desktop.world.files[source], content),
            None if state.dialog != Dialog::Closed => click("editor:close"),
            None => Some(Intent::Type("editor:text".into(), content.clone())),
        };
    }
    save(desktop, path, exists)
}

/// Changes the open text to the wanted content.
fn change(desktop: &Desktop, saved: &str, content: &str) -> Option<Intent> {
    let state = &desktop.session.states.editor;
    if state.text == saved
        && let Some((before, after)) = replaced_word(&state.text, content)
    {
        return match state.dialog {
            Dialog::Find if state.find != before => Some(Intent::Type("editor:what".into(), before)),
            Dialog::Find if state.replace != after => Some(Intent::Type("editor:with".into(), after)),
            Dialog::Find => click("editor:replace"),
            Dialog::Closed => click("editor:find"),
            _ => click("editor:close"),
        };
    }
    if state.dialog != Dialog::Closed {
        return click("editor:close");
    }
    Some(Intent::Type("editor:text".into(), content.to_owned()))
}

fn open(desktop: &Desktop, path: &str) -> Option<Intent> {
    match desktop.session.states.editor.dialog {
        Dialog::Open => click(format!("editor:file:{path}")),
        _ => menu_entry(desktop, "editor:open"),
    }
}

fn save(desktop: &Desktop, path: &str, exists: bool) -> Option<Intent> {
    let state = &desktop.session.states.editor;
    match state.dialog {
        Dialog::SaveAs if !exists && state.name == *path => click("editor:named"),
        Dialog::SaveAs if !exists => Some(Intent::Type("editor:name".into(), path.to_owned())),
        Dialog::Closed if exists || state.path.is_empty() => click("editor:save"),
        _ => menu_entry(desktop, "editor:saveas"),
    }
}

/// An entry of the menu, which is opened first; a dialog is closed before.
fn menu_entry(desktop: &Desktop, entry: &str) -> Option<Intent> {
    if desktop.session.states.editor.dialog != Dialog::Closed {
        return click("editor:close");
    }
    let open = desktop.session.menu.as_deref() == Some("editor:menu");
    click(if open { entry } else { "editor:menu" })
}
