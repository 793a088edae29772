//! Player: songs, a playlist, playing and pausing, the volume.

use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Node, Role, Value, View};
use crate::world::{App, MAX_VOLUME};
use serde::{Deserialize, Serialize};

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// The playlist is shown instead of all songs.
    pub(crate) list: bool,
    /// The selected song; empty for none.
    pub(crate) selected: String,
}

/// Whether the play button would pause: nothing but the playing song is selected.
pub(crate) fn pauses(desktop: &Desktop) -> bool {
    let (player, selected) = (&desktop.world.player, &desktop.session.states.player.selected);
    player.playing && (selected.is_empty() || *selected == player.song)
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let player = &desktop.world.player;
    let pocket = desktop.look.pocket();
    let list = desktop.session.states.player.list;
    let selected = &desktop.session.states.player.selected;
    let tab = |key: &str, label: &str, on| Node::new(Role::Tab, format!("player:tab:{key}"), label).on(on);
    let song = |song: &String| {
        Node::new(Role::Item, format!("player:song:{song}"), song.clone()).on(song == selected)
    };
    let songs = if list { &player.list } else { &player.songs };
    let listed = player.list.contains(selected);
    let volume = Node::new(Role::Slider, "player:volume", "Volume");
    let title = if player.song.is_empty() { desktop.app_name(App::Player) } else { &player.song };
    View::new(title)
        .top(Group::fixed(vec![
            Node::new(Role::Label, "player:volumelabel", "Volume").size(1, 4),
            volume.value(Value::Level(player.volume, MAX_VOLUME)),
        ]))
        .top(Group::fixed(vec![
            tab("all", "All", !list),
            tab("list", "List", list),
            Node::new(Role::Toggle, "player:mix", if pocket { "Mix" } else { "Shuffle" }).on(player.mix),
        ]))
        .body(Group::shuffled(songs.iter().map(song).collect()))
        .bottom(Group::shuffled(vec![
            Node::new(Role::Button, "player:play", if pauses(desktop) { "Pause" } else { "Play" })
                .enabled(!player.song.is_empty() || !selected.is_empty()),
            Node::new(Role::Button, "player:next", "Next"),
            Node::new(Role::Button, "player:add", if listed { "Drop" } else { "Add" })
                .enabled(!selected.is_empty()),
        ]))
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, gesture: &Gesture) {
    let pauses = pauses(desktop);
    let selected = &mut desktop.session.states.player.selected;
    let player = &mut desktop.world.player;
    match (verb, gesture) {
        ("volume", Gesture::Set(Value::Level(value, _))) => player.volume = *value,
        ("tab", _) => {
            desktop.session.states.player.list = which == "list";
            desktop.scroll_to_start();
        }
        ("mix", _) => player.mix = !player.mix,
        ("song", _) => which.clone_into(selected),
        ("play", _) => {
            if !selected.is_empty() {
                player.song.clone_from(selected);
            }
            player.playing = !pauses;
        }
        ("next", _) => {
            let after = player.songs.iter().skip_while(|song| **song != player.song).nth(1);
            if let Some(song) = after.or(player.songs.first()).cloned() {
                player.song = song;
                selected.clear();
            }
        }
        ("add", _) if !player.list.remove(selected) => {
            player.list.insert(selected.clone());
        }
        _ => {}
    }
}
