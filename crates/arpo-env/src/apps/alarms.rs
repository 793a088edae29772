//! Alarms: a list by time, switched on and off; new ones are set with buttons that count.

use crate::apps::yes_no;
use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Node, Role, View};
use crate::world::{Alarm, App};
use serde::{Deserialize, Serialize};

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// The selected alarm's time.
    pub(crate) selected: String,
    /// The time being set: hour and minute.
    pub(crate) draft: Option<(u32, u32)>,
}

/// The time a new alarm starts from.
pub(crate) const START: (u32, u32) = (7, 0);
/// Minutes per button press.
pub(crate) const MINUTE_STEP: u32 = 10;

/// A time as the list shows it.
pub(crate) fn time(hour: u32, minute: u32) -> String {
    format!("{hour:02}:{minute:02}")
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let state = &desktop.session.states.alarms;
    let item = |(time, alarm): (&String, &Alarm)| {
        let mark = if alarm.on { "" } else { " off" };
        let label = if desktop.look.pocket() {
            format!("{time}{}", if alarm.on { "" } else { "-" })
        } else {
            format!("{time}{mark}")
        };
        Node::new(Role::Item, format!("alarms:item:{time}"), label).on(*time == state.selected)
    };
    let items = desktop.world.alarms.iter().map(item).collect();
    let chosen = desktop.world.alarms.contains_key(&state.selected);
    View::new(desktop.app_name(App::Alarms)).body(Group::fixed(items)).bottom(Group::shuffled(vec![
        Node::new(Role::Button, "alarms:new", "New").keys("ctrl+n"),
        Node::new(Role::Button, "alarms:switch", "On/Off").size(1, 3).enabled(chosen),
        Node::new(Role::Button, "alarms:delete", "Delete").enabled(chosen).keys("delete"),
    ]))
}

pub(crate) fn dialog(desktop: &Desktop) -> Option<View> {
    let (hour, minute) = desktop.session.states.alarms.draft?;
    let line = |unit: &str, number: u32| {
        let short = unit.get(..1).unwrap_or_default().to_uppercase();
        let button =
            |sign: &str| Node::new(Role::Button, format!("alarms:{unit}:{sign}"), format!("{short} {sign}"));
        Group::fixed(vec![
            button("-"),
            Node::new(Role::Label, format!("alarms:{unit}:shown"), format!("{number:02}")).size(1, 2),
            button("+"),
        ])
    };
    let view = View::new(if desktop.look.pocket() { "New" } else { "New alarm" })
        .body(line("hour", hour))
        .body(line("minute", minute));
    Some(view.bottom(yes_no(("alarms:save".into(), "Save"), ("alarms:cancel".into(), "Cancel"))))
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, _: &Gesture) {
    let state = &mut desktop.session.states.alarms;
    match (verb, which) {
        ("item", _) => which.clone_into(&mut state.selected),
        ("new", _) => {
            state.draft = Some(START);
            desktop.scroll_to_start();
        }
        ("switch", _) => {
            if let Some(alarm) = desktop.world.alarms.get_mut(&state.selected) {
                alarm.on = !alarm.on;
            }
        }
        ("delete", _) => {
            desktop.world.alarms.remove(&std::mem::take(&mut state.selected));
        }
        ("cancel", _) => state.draft = None,
        ("save", _) => {
            if let Some((hour, minute)) = state.draft.take() {
                desktop.world.alarms.entry(time(hour, minute)).or_insert(Alarm { on: true });
            }
        }
        ("hour", sign) => {
            if let Some((hour, _)) = &mut state.draft {
                *hour = (*hour + if sign == "+" { 1 } else { 23 }) % 24;
            }
        }
        ("minute", sign) => {
            if let Some((_, minute)) = &mut state.draft {
                *minute = (*minute + if sign == "+" { MINUTE_STEP } else { 60 - MINUTE_STEP }) % 60;
            }
        }
        _ => {}
    }
}
