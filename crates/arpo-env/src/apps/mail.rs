//! Mail: folders of messages; reading, replying, archiving, deleting and writing them.

use crate::apps::{labelled_field, yes_no};
use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Node, Role, Value, View};
use crate::world::{App, Message};
use serde::{Deserialize, Serialize};

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// The open folder.
    pub(crate) folder: String,
    /// The open message's subject.
    pub(crate) open: Option<String>,
    /// The message being written.
    pub(crate) draft: Option<Draft>,
}

/// A message being written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Draft {
    pub(crate) to: String,
    pub(crate) subject: String,
    pub(crate) text: String,
}

impl Default for State {
    fn default() -> Self {
        Self { folder: FOLDERS[0].into(), open: None, draft: None }
    }
}

pub(crate) const FOLDERS: [&str; 3] = ["Inbox", "Sent", "Archive"];

/// A folder's name on the screen; a pocket cell holds six characters.
fn folder_label(folder: &'static str, pocket: bool) -> &'static str {
    if pocket && folder == "Archive" { "Store" } else { folder }
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let state = &desktop.session.states.mail;
    let pocket = desktop.look.pocket();
    let archive = folder_label("Archive", pocket);
    if let Some((subject, message)) =
        state.open.as_ref().and_then(|subject| desktop.world.mail.get_key_value(subject))
    {
        let label = |id: &str, text: String| Node::new(Role::Label, format!("mail:{id}"), text);
        let inbox = message.folder == FOLDERS[0];
        let view = View::new(if pocket { subject.clone() } else { format!("Mail - {subject}") });
        let whom = if message.folder == FOLDERS[1] { "To" } else { "From" };
        return view
            .body(Group::fixed(vec![label("person", format!("{whom} {}", message.person))]))
            .body(Group::fixed(vec![label("shown", message.text.clone())]))
            .bottom(Group::fixed(vec![
                Node::new(Role::Button, "mail:back", "Back").keys("escape"),
                Node::new(Role::Button, "mail:reply", "Reply").enabled(inbox),
                Node::new(Role::Button, "mail:archive", archive).size(1, 3).enabled(inbox),
                Node::new(Role::Button, "mail:delete", "Delete").keys("delete"),
            ]));
    }
    let tab = |folder: &'static str| {
        let label = folder_label(folder, pocket);
        Node::new(Role::Tab, format!("mail:folder:{folder}"), label).on(state.folder == folder)
    };
    let here = desktop.world.mail.iter().filter(|(_, message)| message.folder == state.folder);
    let item = |(subject, message): (&String, &Message)| {
        let label = if pocket { subject.clone() } else { format!("{subject}  ({})", message.person) };
        Node::new(Role::Item, format!("mail:item:{subject}"), label).on(false)
    };
    let items = here.map(item).collect();
    View::new(desktop.app_name(App::Mail))
        .top(Group::fixed(FOLDERS.map(tab).into()))
        .body(Group::shuffled(items))
        .bottom(Group::fixed(vec![Node::new(Role::Button, "mail:new", "New").keys("ctrl+n")]))
}

pub(crate) fn dialog(desktop: &Desktop) -> Option<View> {
    let draft = desktop.session.states.mail.draft.as_ref()?;
    let pocket = desktop.look.pocket();
    let view = View::new(if pocket { "New" } else { "Message" })
        .body(labelled_field("mail:to", "To", &draft.to))
        .body(labelled_field("mail:subject", if pocket { "About" } else { "Subject" }, &draft.subject))
        .body(labelled_field("mail:text", "Text", &draft.text));
    Some(view.bottom(yes_no(("mail:send".into(), "Send"), ("mail:cancel".into(), "Cancel"))))
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, gesture: &Gesture) {
    let state = &mut desktop.session.states.mail;
    match (verb, gesture) {
        ("folder", _) => {
            which.clone_into(&mut state.folder);
            desktop.scroll_to_start();
        }
        ("item", _) => {
            state.open = Some(which.to_owned());
            desktop.scroll_to_start();
        }
        ("back", _) => state.open = None,
        ("new", _) => state.draft = Some(Draft::default()),
        ("cancel", _) => state.draft = None,
        ("reply", _) => {
            if let Some((subject, message)) =
                state.open.as_ref().and_then(|subject| desktop.world.mail.get_key_value(subject))
            {
                let to = message.person.clone();
                state.draft = Some(Draft { to, subject: reply_subject(subject), text: String::new() });
            }
        }
        ("archive", _) => {
            if let Some(message) = state.open.take().and_then(|subject| desktop.world.mail.get_mut(&subject))
            {
                FOLDERS[2].clone_into(&mut message.folder);
            }
        }
        ("delete", _) => {
            if let Some(subject) = state.open.take() {
                desktop.world.mail.remove(&subject);
            }
        }
        ("to" | "subject" | "text", Gesture::Set(Value::Text(text))) => {
            if let Some(draft) = &mut state.draft {
                match verb {
                    "to" => draft.to.clone_from(text),
                    "subject" => draft.subject.clone_from(text),
                    _ => draft.text.clone_from(text),
                }
            }
        }
        ("send", _) => send(desktop),
        _ => {}
    }
}

/// The subject of a reply.
pub(crate) fn reply_subject(subject: &str) -> String {
    format!("Re {subject}")
}

/// Sends a draft with a receiver and a subject; a second message with the same subject gets a `+` appended.
fn send(desktop: &mut Desktop) {
    let state = &mut desktop.session.states.mail;
    let Some(draft) = &state.draft else { return };
    let (person, mut subject) = (draft.to.trim().to_owned(), draft.subject.trim().to_owned());
    if person.is_empty() || subject.is_empty() {
        return;
    }
    while desktop.world.mail.contains_key(&subject) {
        subject.push('+');
    }
    let text = draft.text.clone();
    desktop.world.mail.insert(subject, Message { folder: FOLDERS[1].into(), person, text });
    state.draft = None;
    state.open = None;
}
