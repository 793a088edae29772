//! Mail: messages to write, answer, archive and delete, from the difference of two worlds.

use crate::apps::mail::{Draft, FOLDERS, reply_subject};
use crate::desktop::Desktop;
use crate::oracle::{Intent, click};
use crate::world::World;

pub(crate) fn plan(desktop: &Desktop, target: &World) -> Option<Intent> {
    let now = &desktop.world.mail;
    let state = &desktop.session.states.mail;
    let new = target.mail.iter().find(|(subject, _)| !now.contains_key(*subject));
    if let Some((subject, message)) = new.filter(|(_, message)| message.folder == FOLDERS[1]) {
        let answered = now
            .iter()
            .find(|(old, letter)| reply_subject(old) == *subject && letter.person == message.person);
        if let Some(draft) = &state.draft {
            return Some(fill(draft, &message.person, subject, &message.text));
        }
        return match answered {
            Some((old, _)) if state.open.as_ref() == Some(old) => click("mail:reply"),
            Some((old, letter)) if letter.folder == FOLDERS[0] => show(desktop, old, FOLDERS[0]),
            _ if state.open.is_some() => click("mail:back"),
            _ => click("mail:new"),
        };
    }
    for (subject, message) in now {
        let verb = match target.mail.get(subject) {
            None => "delete",
            Some(wanted) if wanted.folder == FOLDERS[2] && message.folder == FOLDERS[0] => "archive",
            Some(_) => continue,
        };
        if state.draft.is_some() {
            return click("mail:cancel");
        }
        if state.open.as_ref() == Some(subject) {
            return click(format!("mail:{verb}"));
        }
        return show(desktop, subject, &message.folder);
    }
    None
}

fn fill(draft: &Draft, to: &str, subject: &str, text: &str) -> Intent {
    for (id, has, wanted) in [
        ("mail:to", &draft.to, to),
        ("mail:subject", &draft.subject, subject),
        ("mail:text", &draft.text, text),
    ] {
        if has != wanted {
            return Intent::Type(id.into(), wanted.to_owned());
        }
    }
    Intent::Click("mail:send".into())
}

/// The next step towards an open message.
fn show(desktop: &Desktop, subject: &str, folder: &str) -> Option<Intent> {
    let state = &desktop.session.states.mail;
    if state.open.is_some() {
        click("mail:back")
    } else if state.folder != folder {
        click(format!("mail:folder:{folder}"))
    } else {
        click(format!("mail:item:{subject}"))
    }
}
