//! Sheet, alarms and player: cells, times and songs, from the difference of two worlds.

use crate::apps::alarms::MINUTE_STEP;
use crate::apps::player::pauses;
use crate::apps::sheet::{cell_name, cell_position, dimensions, sorted_by, sum_above};
use crate::desktop::Desktop;
use crate::oracle::{Intent, click};
use crate::world::World;

pub(crate) fn plan_sheet(desktop: &Desktop, target: &World) -> Option<Intent> {
    let now = &desktop.world.sheet;
    let cells = now.keys().chain(target.sheet.keys());
    let mut differing: Vec<&String> =
        cells.filter(|cell| now.get(*cell) != target.sheet.get(*cell)).collect();
    differing.sort();
    differing.dedup();
    let first = *differing.first()?;
    let selected = &desktop.session.states.sheet.cell;
    let (columns, rows, _) = dimensions(desktop.look.pocket());
    for (column, descending) in (0..columns).flat_map(|column| [(column, false), (column, true)]) {
        let sorts = differing.len() > 2 && !(descending && desktop.look.pocket());
        if sorts && sorted_by(now, column, descending, (columns, rows)) == target.sheet {
            let there = cell_position(selected).is_some_and(|(at, _)| at == column);
            let button = if descending { "sheet:down" } else { "sheet:sort" };
            return click(if there {
                button.to_owned()
            } else {
                format!("sheet:cell:{}", cell_name(column, 0))
            });
        }
    }
    // sums come after what they add up
    let wanted = |cell: &String| target.sheet.get(cell).cloned().unwrap_or_default();
    let is_sum = |cell: &String| sum_above(&target.sheet, cell).is_some_and(|sum| sum == wanted(cell));
    let cell = differing.iter().find(|cell| !is_sum(cell)).copied().unwrap_or(first);
    if selected != cell {
        return click(format!("sheet:cell:{cell}"));
    }
    if is_sum(cell) && sum_above(now, cell) == Some(wanted(cell)) {
        return click("sheet:sum");
    }
    Some(Intent::Type("sheet:edit".into(), wanted(cell)))
}

pub(crate) fn plan_alarms(desktop: &Desktop, target: &World) -> Option<Intent> {
    let now = &desktop.world.alarms;
    let state = &desktop.session.states.alarms;
    let changed = now.iter().find(|(time, alarm)| target.alarms.get(*time) != Some(*alarm));
    if let Some((time, _)) = changed {
        if state.draft.is_some() {
            return click("alarms:cancel");
        }
        if state.selected != *time {
            return click(format!("alarms:item:{time}"));
        }
        return click(if target.alarms.contains_key(time) { "alarms:switch" } else { "alarms:delete" });
    }
    let new = target.alarms.keys().find(|time| !now.contains_key(*time))?;
    let (hour, minute) = new.split_once(':')?;
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    let Some((draft_hour, draft_minute)) = state.draft else { return click("alarms:new") };
    let sign =
        |from: u32, to: u32, round: u32| if (to + round - from) % round <= round / 2 { "+" } else { "-" };
    if draft_hour != hour {
        click(format!("alarms:hour:{}", sign(draft_hour, hour, 24)))
    } else if draft_minute != minute {
        let steps = 60 / MINUTE_STEP;
        click(format!("alarms:minute:{}", sign(draft_minute / MINUTE_STEP, minute / MINUTE_STEP, steps)))
    } else {
        click("alarms:save")
    }
}

pub(crate) fn plan_player(desktop: &Desktop, target: &World) -> Option<Intent> {
    let (now, wanted) = (&desktop.world.player, &target.player);
    let state = &desktop.session.states.player;
    let select = |song: &str| {
        let shown = !state.list || now.list.contains(song);
        click(if shown { format!("player:song:{song}") } else { "player:tab:all".into() })
    };
    if now.volume != wanted.volume {
        return Some(Intent::Slide("player:volume".into(), wanted.volume));
    }
    if now.mix != wanted.mix {
        return click("player:mix");
    }
    if let Some(song) = now.list.symmetric_difference(&wanted.list).next() {
        return if state.selected == *song { click("player:add") } else { select(song) };
    }
    if now.song != wanted.song || now.playing != wanted.playing {
        if state.selected != wanted.song
            && !wanted.song.is_empty()
            && !(now.song == wanted.song && pauses(desktop))
        {
            return select(&wanted.song);
        }
        return click("player:play");
    }
    None
}
