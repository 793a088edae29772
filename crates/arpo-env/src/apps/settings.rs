//! Settings: pages of switches, levels and choices. Changes wait until they are applied or cancelled.

use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Menu, Node, Role, Value, View};
use crate::world::Setting;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// The shown page; empty for the first.
    pub(crate) page: String,
    /// Changed but not yet applied values, by setting.
    pub(crate) draft: BTreeMap<String, Value>,
}

/// Pages of the existing settings, in order.
pub(crate) fn pages(desktop: &Desktop) -> Vec<&str> {
    let pages: BTreeSet<&str> = desktop.world.settings.values().map(Setting::page).collect();
    pages.into_iter().collect()
}

/// The page that is shown.
pub(crate) fn shown_page(desktop: &Desktop) -> String {
    let pages = pages(desktop);
    let chosen = desktop.session.states.settings.page.as_str();
    let page = pages.iter().find(|page| **page == chosen).or(pages.first());
    page.map(|page| (*page).to_owned()).unwrap_or_default()
}

/// A setting's value as a widget holds it.
pub(crate) fn value_of(setting: &Setting) -> Value {
    match setting {
        Setting::Switch { on, .. } => Value::On(*on),
        Setting::Level { value, max, .. } => Value::Level(*value, *max),
        Setting::Choice { value, .. } => Value::Text(value.clone()),
    }
}

/// The value of a setting, including a change not yet applied.
pub(crate) fn drafted(desktop: &Desktop, name: &str, setting: &Setting) -> Value {
    desktop.session.states.settings.draft.get(name).cloned().unwrap_or_else(|| value_of(setting))
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let shown = shown_page(desktop);
    let tab = |page: &&str| Node::new(Role::Tab, format!("settings:page:{page}"), *page).on(*page == shown);
    let tabs = pages(desktop).iter().map(tab).collect();
    let changed = !desktop.session.states.settings.draft.is_empty();
    let mut view = View::new(desktop.app_name(crate::world::App::Settings)).top(Group::fixed(tabs)).bottom(
        Group::shuffled(vec![
            Node::new(Role::Button, "settings:apply", "Apply").size(1, 3).enabled(changed).keys("ctrl+s"),
            Node::new(Role::Button, "settings:cancel", "Cancel").size(1, 3).enabled(changed).keys("escape"),
        ]),
    );
    let mut switches = Vec::new();
    for (name, setting) in desktop.world.settings.iter().filter(|(_, setting)| setting.page() == shown) {
        let value = drafted(desktop, name, setting);
        let label = || Node::new(Role::Label, format!("settings:label:{name}"), name.clone()).size(1, 4);
        match setting {
            Setting::Switch { .. } => {
                switches.push(Node::new(Role::Toggle, format!("settings:switch:{name}"), name).value(value));
            }
            Setting::Level { .. } => view.body.push(Group::fixed(vec![
                label(),
                Node::new(Role::Slider, format!("settings:level:{name}"), name).value(value),
            ])),
            Setting::Choice { options, drop: false, .. } => {
                let radio = |option: &String| {
                    Node::new(Role::Radio, format!("settings:radio:{name}={option}"), option)
                        .on(value == Value::Text(option.clone()))
                        .size(1, 4)
                };
                let mut nodes: Vec<Node> = options.iter().map(radio).collect();
                if !desktop.look.pocket() {
                    nodes.insert(0, label().size(3, 12));
                }
                view.body.push(Group::fixed(nodes));
            }
            Setting::Choice { options, drop: true, .. } => {
                let id = format!("settings:menu:{name}");
                let node = Node::new(Role::Menu, id.clone(), name).value(value).size(2, 6);
                view.body.push(Group::fixed(vec![label(), node]));
                if desktop.session.menu.as_ref() == Some(&id) {
                    let entry = |option: &String| {
                        Node::new(Role::Entry, format!("settings:choose:{name}={option}"), option)
                    };
                    view.menu = Some(Menu { anchor: id, entries: options.iter().map(entry).collect() });
                }
            }
        }
    }
    view.body.insert(0, Group::shuffled(switches));
    view
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, gesture: &Gesture) {
    let state = &mut desktop.session.states.settings;
    match (verb, gesture) {
        ("page", _) => {
            which.clone_into(&mut state.page);
            desktop.scroll_to_start();
        }
        ("apply", _) => {
            for (name, value) in std::mem::take(&mut state.draft) {
                match (desktop.world.settings.get_mut(&name), value) {
                    (Some(Setting::Switch { on, .. }), Value::On(new)) => *on = new,
                    (Some(Setting::Level { value, .. }), Value::Level(new, _)) => *value = new,
                    (Some(Setting::Choice { value, .. }), Value::Text(new)) => *value = new,
                    _ => {}
                }
            }
        }
        ("cancel", _) => state.draft.clear(),
        ("switch", _) => {
            if let Some(setting @ Setting::Switch { .. }) = desktop.world.settings.get(which) {
                let on = drafted(desktop, which, setting) == Value::On(true);
                change(desktop, which, Value::On(!on));
            }
        }
        ("level", Gesture::Set(value)) => change(desktop, which, value.clone()),
        ("radio" | "choose", _) => {
            if let Some((name, option)) = which.split_once('=') {
                change(desktop, name, Value::Text(option.to_owned()));
            }
        }
        _ => {}
    }
}

/// Records a change, or drops it if it restores the applied value.
fn change(desktop: &mut Desktop, name: &str, value: Value) {
    let unchanged = desktop.world.settings.get(name).map(value_of).as_ref() == Some(&value);
    let draft = &mut desktop.session.states.settings.draft;
    if unchanged {
        draft.remove(name);
    } else {
        draft.insert(name.to_owned(), value);
    }
}
