//! Auxiliary templates with settings, alarms and the player.

use super::template;
use crate::tasks::builder::{TaskBuilder, Template};
use crate::tasks::devices::{adjust, choose, flip, louder, near_time};
use crate::world::App;
use rand::RngExt;
use rand::seq::SliceRandom;
use serde_json::json;

pub(super) const TEMPLATES: &[Template] = &[
    template("switch-and-choice", App::Settings, switch_and_choice),
    template("level-and-choice", App::Settings, level_and_choice),
    template("two-levels", App::Settings, two_levels),
    template("three-switches", App::Settings, three_switches),
    template("switch-two", App::Alarms, switch_two),
    template("switch-and-new", App::Alarms, switch_and_new),
    template("delete-two", App::Alarms, delete_two),
    template("volume-and-mix", App::Player, volume_and_mix),
    template("list-and-play", App::Player, list_and_play),
    template("list-two", App::Player, list_two),
    template("pause", App::Player, pause),
];

fn switch_and_choice(builder: &mut TaskBuilder) {
    let (_, name) = builder.any(builder.words.switches);
    let (_, other, options, _) = builder.any(builder.words.choices);
    let wanted = choose(builder, other, options);
    let state = flip(builder, name);
    builder.partial();
    builder.instruct(
        "set {2} to {3} and turn {1} {0}",
        &["Set {2} to {3} and turn {0} {1}.", "In the settings I want {3} for {2} and {0} {1}."],
        &[name, state, other, wanted],
    );
}

fn level_and_choice(builder: &mut TaskBuilder) {
    let (_, name, max) = builder.any(builder.words.levels);
    let (_, other, options, _) = builder.any(builder.words.choices);
    let level = adjust(builder, name, max);
    let wanted = choose(builder, other, options);
    builder.partial();
    builder.instruct(
        "set {0} {1} and {2} to {3}",
        &["Set {0} to {1} and choose {3} for {2}.", "{0} should be at {1}, and {2} should be {3}."],
        &[name, &level, other, wanted],
    );
}

fn two_levels(builder: &mut TaskBuilder) {
    let mut levels = builder.words.levels.to_vec();
    levels.shuffle(&mut builder.rng);
    let [(_, one, max), (_, other, other_max)] = [levels[0], levels[1]];
    let wanted = (adjust(builder, one, max), adjust(builder, other, other_max));
    builder.partial();
    builder.instruct(
        "set {0} {1} and {2} {3}",
        &[
            "Move the sliders {0} to {1} and {2} to {3}.",
            "Two sliders in the settings: {0} at {1}, {2} at {3}.",
        ],
        &[one, &wanted.0, other, &wanted.1],
    );
}

fn three_switches(builder: &mut TaskBuilder) {
    let mut switches = builder.words.switches.to_vec();
    switches.shuffle(&mut builder.rng);
    let [one, other, last] = [switches[0].1, switches[1].1, switches[2].1];
    let states = [one, other, last].map(|name| flip(builder, name));
    builder.partial();
    builder.instruct(
        "turn {1} {0} and turn {3} {2} and turn {5} {4}",
        &["Turn {0} {1}, {2} {3} and {4} {5}.", "Three switches in the settings: {0} {1}, {2} {3}, {4} {5}."],
        &[one, states[0], other, states[1], last, states[2]],
    );
}

/// Two different times, the earlier one first.
fn two_times(builder: &mut TaskBuilder) -> [String; 2] {
    let first = near_time(builder);
    loop {
        let second = near_time(builder);
        if second != first {
            return if first < second { [first, second] } else { [second, first] };
        }
    }
}

/// An alarm that starts in the other position.
fn flip_alarm(builder: &mut TaskBuilder, time: &str) -> &'static str {
    let on = builder.rng.random_bool(0.5);
    builder.given(&["alarms", time], json!({"on": !on}));
    builder.goal(&["alarms", time, "on"], on);
    if on { "on" } else { "off" }
}

fn switch_two(builder: &mut TaskBuilder) {
    let [first, second] = two_times(builder);
    let states = (flip_alarm(builder, &first), flip_alarm(builder, &second));
    builder.partial();
    builder.instruct(
        "turn {1} alarm {0} and turn {3} alarm {2}",
        &[
            "Turn the {0} alarm {1} and the {2} alarm {3}.",
            "The alarms: {0} should be {1}, {2} should be {3}.",
        ],
        &[&first, states.0, &second, states.1],
    );
}

fn switch_and_new(builder: &mut TaskBuilder) {
    let [old, new] = two_times(builder);
    let state = flip_alarm(builder, &old);
    builder.without(&["alarms", &new]);
    builder.goal(&["alarms", &new], json!({"on": true}));
    builder.partial();
    builder.instruct(
        "turn {1} alarm {0} and new alarm {2}",
        &["Turn the {0} alarm {1} and set one for {2}.", "Switch the alarm at {0} {1}, then wake me at {2}."],
        &[&old, state, &new],
    );
}

fn delete_two(builder: &mut TaskBuilder) {
    let times = two_times(builder);
    for time in &times {
        builder.given(&["alarms", time], json!({"on": true}));
        builder.gone(&["alarms", time]);
    }
    builder.partial();
    builder.instruct(
        "delete alarm {0} and alarm {1}",
        &["Delete the alarms at {0} and {1}.", "I need neither the {0} nor the {1} alarm any more."],
        &[&times[0], &times[1]],
    );
}

fn volume_and_mix(builder: &mut TaskBuilder) {
    let wanted = louder(builder);
    let on = builder.rng.random_bool(0.5);
    builder.given(&["player", "mix"], !on);
    builder.goal(&["player", "mix"], on);
    builder.partial();
    builder.instruct(
        "set Volume to {0} and turn {1} Mix",
        &["Set the player's volume to {0} and turn shuffle {1}.", "In the player: volume {0}, shuffle {1}."],
        &[&wanted, if on { "on" } else { "off" }],
    );
}

fn list_and_play(builder: &mut TaskBuilder) {
    let [added, played] = builder.names(builder.words.songs);
    for song in [added, played] {
        builder.given(&["player", "songs", song], song);
    }
    builder.given(&["player", "playing"], false);
    builder.without(&["player", "list", added]);
    builder.goal(&["player", "list", added], added);
    builder.goal(&["player", "song"], played);
    builder.goal(&["player", "playing"], true);
    builder.instruct(
        "add {0} to List and play {1}",
        &["Add {0} to my list and play {1}.", "Put {0} on the player's list, then start {1}."],
        &[added, played],
    );
}

fn list_two(builder: &mut TaskBuilder) {
    let songs: [&str; 2] = builder.names(builder.words.songs);
    for song in songs {
        builder.given(&["player", "songs", song], song);
        builder.without(&["player", "list", song]);
        builder.goal(&["player", "list", song], song);
    }
    builder.partial();
    builder.instruct(
        "add {0} and {1} to List",
        &["Add {0} and {1} to my list.", "I want both {0} and {1} in the player's list."],
        &songs,
    );
}

fn pause(builder: &mut TaskBuilder) {
    let [song] = builder.names(builder.words.songs);
    builder.given(&["player", "songs", song], song);
    builder.given(&["player", "song"], song);
    builder.given(&["player", "playing"], true);
    builder.goal(&["player", "playing"], false);
    builder.instruct("pause {0}", &["Pause {0}.", "Stop playing {0} for now."], &[song]);
}
