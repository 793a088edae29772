//! The applications: each has a plain state, a view of it, and a handler for its widgets.
//!
//! A module holds `State` (what the window shows and what is not yet saved), `view` (the window), `dialog` (the
//! dialog over it, if any) and `event` (a widget was used). Saved data goes into the world.

pub(crate) mod alarms;
pub(crate) mod editor;
pub(crate) mod files;
pub(crate) mod mail;
pub(crate) mod player;
pub(crate) mod settings;
pub(crate) mod sheet;
pub(crate) mod shop;

use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Node, Role, View};
use crate::world::App;
use serde::{Deserialize, Serialize};

/// The state of every window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct States {
    pub(crate) settings: settings::State,
    pub(crate) files: files::State,
    pub(crate) editor: editor::State,
    pub(crate) sheet: sheet::State,
    pub(crate) mail: mail::State,
    pub(crate) alarms: alarms::State,
    pub(crate) player: player::State,
    pub(crate) shop: shop::State,
}

/// What an application's window shows.
pub(crate) fn view(desktop: &Desktop, app: App) -> View {
    match app {
        App::Settings => settings::view(desktop),
        App::Files => files::view(desktop),
        App::Editor => editor::view(desktop),
        App::Sheet => sheet::view(desktop),
        App::Mail => mail::view(desktop),
        App::Alarms => alarms::view(desktop),
        App::Player => player::view(desktop),
        App::Shop => shop::view(desktop),
    }
}

/// The dialog over an application's window.
pub(crate) fn dialog(desktop: &Desktop, app: App) -> Option<View> {
    match app {
        App::Files => files::dialog(desktop),
        App::Editor => editor::dialog(desktop),
        App::Mail => mail::dialog(desktop),
        App::Alarms => alarms::dialog(desktop),
        App::Settings | App::Sheet | App::Player | App::Shop => None,
    }
}

/// Handles the use of an application's widget.
pub(crate) fn event(desktop: &mut Desktop, app: App, verb: &str, which: &str, gesture: &Gesture) {
    match app {
        App::Settings => settings::event(desktop, verb, which, gesture),
        App::Files => files::event(desktop, verb, which, gesture),
        App::Editor => editor::event(desktop, verb, which, gesture),
        App::Sheet => sheet::event(desktop, verb, which, gesture),
        App::Mail => mail::event(desktop, verb, which, gesture),
        App::Alarms => alarms::event(desktop, verb, which, gesture),
        App::Player => player::event(desktop, verb, which, gesture),
        App::Shop => shop::event(desktop, verb, which, gesture),
    }
}

/// A label and a field beside it.
pub(crate) fn labelled_field(id: &str, label: &str, text: &str) -> Group {
    Group::fixed(vec![
        Node::new(Role::Label, format!("{id}:label"), label).size(1, 4),
        Node::new(Role::Field, id, label).text(text),
    ])
}

/// The two buttons that end a dialog.
pub(crate) fn yes_no(yes: (String, &str), no: (String, &str)) -> Group {
    Group::shuffled(vec![
        Node::new(Role::Button, yes.0, yes.1).size(1, 3).keys("enter"),
        Node::new(Role::Button, no.0, no.1).size(1, 3).keys("escape"),
    ])
}
