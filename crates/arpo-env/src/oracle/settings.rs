//! Settings: change what differs, page by page, then apply.

use crate::apps::settings::{drafted, shown_page, value_of};
use crate::desktop::Desktop;
use crate::oracle::{Intent, click};
use crate::view::Value;
use crate::world::{Setting, World};

pub(crate) fn plan(desktop: &Desktop, target: &World) -> Option<Intent> {
    let shown = shown_page(desktop);
    let mut differing: Vec<(&String, &Setting, Value)> = desktop
        .world
        .settings
        .iter()
        .filter_map(|(name, setting)| {
            let wanted = value_of(target.settings.get(name)?);
            (drafted(desktop, name, setting) != wanted).then_some((name, setting, wanted))
        })
        .collect();
    differing.sort_by_key(|(_, setting, _)| setting.page() != shown);
    if let Some((name, setting, wanted)) = differing.into_iter().next() {
        if setting.page() != shown {
            return click(format!("settings:page:{}", setting.page()));
        }
        return match (setting, wanted) {
            (Setting::Level { .. }, Value::Level(level, _)) => {
                Some(Intent::Slide(format!("settings:level:{name}"), level))
            }
            (Setting::Choice { drop: false, .. }, Value::Text(option)) => {
                click(format!("settings:radio:{name}={option}"))
            }
            (Setting::Choice { drop: true, .. }, Value::Text(option)) => {
                let menu = format!("settings:menu:{name}");
                let open = desktop.session.menu.as_ref() == Some(&menu);
                click(if open { format!("settings:choose:{name}={option}") } else { menu })
            }
            _ => click(format!("settings:switch:{name}")),
        };
    }
    if desktop.world.settings == target.settings { None } else { click("settings:apply") }
}
