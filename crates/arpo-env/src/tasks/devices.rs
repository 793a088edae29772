//! Templates of tasks with settings, alarms and the player.

use crate::apps::alarms::{MINUTE_STEP, START, time};
use crate::tasks::builder::{TaskBuilder, Template};
use crate::world::{App, MAX_VOLUME};
use rand::RngExt;
use serde_json::json;

const fn template(name: &'static str, app: App, make: fn(&mut TaskBuilder)) -> Template {
    Template { name, app, make }
}

pub(crate) const TRAINING: &[Template] = &[
    template("open", App::Settings, open_settings),
    template("open", App::Player, open_player),
    template("switch", App::Settings, switch),
    template("two-switches", App::Settings, two_switches),
    template("level", App::Settings, level),
    template("choice", App::Settings, choice),
    template("new-alarm", App::Alarms, new_alarm),
    template("switch-alarm", App::Alarms, switch_alarm),
    template("delete-alarm", App::Alarms, delete_alarm),
    template("play", App::Player, play),
    template("volume", App::Player, volume),
    template("list", App::Player, list),
    template("mix", App::Player, mix),
    template("missing-setting", App::Settings, missing_setting),
    template("missing-song", App::Player, missing_song),
];

pub(crate) const HELD_OUT: &[Template] = &[
    template("open", App::Mail, open_mail),
    template("switch-and-level", App::Settings, switch_and_level),
    template("two-choices", App::Settings, two_choices),
    template("later-alarm", App::Alarms, later_alarm),
    template("play-and-volume", App::Player, play_and_volume),
    template("unlist", App::Player, unlist),
];

fn open(builder: &mut TaskBuilder, app: App) {
    builder.in_front(app);
    let name = app.name(builder.pocket);
    builder.instruct(
        "open {0}",
        &["Open {0}.", "Show me the {0} window.", "Start the {0} application."],
        &[name],
    );
}

fn open_settings(builder: &mut TaskBuilder) {
    let app = builder.any(&[App::Settings, App::Files, App::Sheet, App::Shop]);
    open(builder, app);
}

fn open_player(builder: &mut TaskBuilder) {
    let app = builder.any(&[App::Player, App::Alarms, App::Editor]);
    open(builder, app);
}

fn open_mail(builder: &mut TaskBuilder) {
    open(builder, App::Mail);
}

/// A switch that starts in the other position.
pub(crate) fn flip(builder: &mut TaskBuilder, name: &str) -> &'static str {
    let on = builder.rng.random_bool(0.5);
    builder.given(&["settings", name, "on"], !on);
    builder.goal(&["settings", name, "on"], on);
    if on { "on" } else { "off" }
}

/// A level that starts at another value.
pub(crate) fn adjust(builder: &mut TaskBuilder, name: &str, max: u32) -> String {
    let wanted = builder.rng.random_range(0..=max);
    let first = (wanted + builder.rng.random_range(1..=max)) % (max + 1);
    builder.given(&["settings", name, "value"], first);
    builder.goal(&["settings", name, "value"], wanted);
    wanted.to_string()
}

/// A choice that starts at another option.
pub(crate) fn choose(builder: &mut TaskBuilder, name: &str, options: &[&'static str]) -> &'static str {
    let wanted = builder.rng.random_range(0..options.len());
    let first = (wanted + builder.rng.random_range(1..options.len())) % options.len();
    builder.given(&["settings", name, "value"], options[first]);
    builder.goal(&["settings", name, "value"], options[wanted]);
    options[wanted]
}

fn switch(builder: &mut TaskBuilder) {
    let (_, name) = builder.any(builder.words.switches);
    let state = flip(builder, name);
    builder.instruct(
        "turn {1} {0}",
        &["Turn {0} {1}.", "Please switch {0} {1} in the settings.", "I want {0} to be {1}."],
        &[name, state],
    );
}

fn two_switches(builder: &mut TaskBuilder) {
    let count = builder.words.switches.len();
    let first = builder.rng.random_range(0..count);
    let second = (first + builder.rng.random_range(1..count)) % count;
    let (one, other) = (builder.words.switches[first].1, builder.words.switches[second].1);
    let states = (flip(builder, one), flip(builder, other));
    builder.partial();
    builder.instruct(
        "turn {1} {0} and turn {3} {2}",
        &["Turn {0} {1} and {2} {3}.", "In the settings, switch {0} {1} and also {2} {3}."],
        &[one, states.0, other, states.1],
    );
}

fn level(builder: &mut TaskBuilder) {
    let (_, name, max) = builder.any(builder.words.levels);
    let wanted = adjust(builder, name, max);
    builder.instruct(
        "set {0} to {1}",
        &["Set the {0} to {1}.", "{0} should be at {1}.", "Change {0} to {1} in the settings."],
        &[name, &wanted],
    );
}

fn choice(builder: &mut TaskBuilder) {
    let (_, name, options, _) = builder.any(builder.words.choices);
    let wanted = choose(builder, name, options);
    builder.instruct(
        "set {0} to {1}",
        &["Set {0} to {1}.", "In the settings, choose {1} for {0}.", "I'd like {0} to be {1}."],
        &[name, wanted],
    );
}

fn switch_and_level(builder: &mut TaskBuilder) {
    let (_, name) = builder.any(builder.words.switches);
    let (_, other, max) = builder.any(builder.words.levels);
    let state = flip(builder, name);
    let wanted = adjust(builder, other, max);
    builder.partial();
    builder.instruct(
        "turn {1} {0} and set {2} to {3}",
        &["Turn {0} {1} and set {2} to {3}.", "Two things in the settings: {0} {1}, {2} at {3}."],
        &[name, state, other, &wanted],
    );
}

fn two_choices(builder: &mut TaskBuilder) {
    let (_, one, options, _) = builder.words.choices[0];
    let (_, other, others, _) = builder.words.choices[1];
    let (first, second) = (choose(builder, one, options), choose(builder, other, others));
    builder.instruct(
        "set {0} to {1} and set {2} to {3}",
        &["Set {0} to {1} and {2} to {3}.", "Please choose {1} for {0}, and {3} for {2}."],
        &[one, first, other, second],
    );
}

/// A time that takes few button presses.
pub(crate) fn near_time(builder: &mut TaskBuilder) -> String {
    let hour = START.0 + builder.rng.random_range(0..=2) - 1;
    let minute = builder.rng.random_range(0..4) * MINUTE_STEP;
    time(hour, minute)
}

fn new_alarm(builder: &mut TaskBuilder) {
    let time = near_time(builder);
    builder.without(&["alarms", &time]);
    builder.goal(&["alarms", &time], json!({"on": true}));
    builder.instruct(
        "new alarm {0}",
        &["Set an alarm for {0}.", "Wake me at {0}.", "Add a new alarm at {0}."],
        &[&time],
    );
}

fn switch_alarm(builder: &mut TaskBuilder) {
    let time = near_time(builder);
    let on = builder.rng.random_bool(0.5);
    builder.given(&["alarms", &time], json!({"on": !on}));
    builder.goal(&["alarms", &time, "on"], on);
    builder.instruct(
        "turn {1} alarm {0}",
        &["Turn the {0} alarm {1}.", "Switch the alarm at {0} {1}.", "The {0} alarm should be {1}."],
        &[&time, if on { "on" } else { "off" }],
    );
}

fn delete_alarm(builder: &mut TaskBuilder) {
    let time = near_time(builder);
    builder.given(&["alarms", &time], json!({"on": true}));
    builder.gone(&["alarms", &time]);
    builder.instruct(
        "delete alarm {0}",
        &["Delete the alarm at {0}.", "I don't need the {0} alarm any more.", "Remove the {0} alarm."],
        &[&time],
    );
}

fn later_alarm(builder: &mut TaskBuilder) {
    let (old, new) = (time(START.0 - 2, MINUTE_STEP), near_time(builder));
    builder.given(&["alarms", &old], json!({"on": true}));
    builder.without(&["alarms", &new]);
    builder.gone(&["alarms", &old]);
    builder.goal(&["alarms", &new], json!({"on": true}));
    builder.partial();
    builder.instruct(
        "delete alarm {0} and new alarm {1}",
        &["Replace the {0} alarm by one at {1}.", "Delete the {0} alarm and set one for {1} instead."],
        &[&old, &new],
    );
}

/// A song in the library, while the player is paused.
fn quiet(builder: &mut TaskBuilder) -> &'static str {
    let [song] = builder.names(builder.words.songs);
    builder.given(&["player", "songs", song], song);
    builder.given(&["player", "playing"], false);
    song
}

fn play(builder: &mut TaskBuilder) {
    let song = quiet(builder);
    builder.goal(&["player", "song"], song);
    builder.goal(&["player", "playing"], true);
    builder.instruct("play {0}", &["Play {0}.", "I'd like to hear {0}.", "Start the song {0}."], &[song]);
}

/// A volume that starts at another level.
pub(crate) fn louder(builder: &mut TaskBuilder) -> String {
    let wanted = builder.rng.random_range(0..=MAX_VOLUME);
    let first = (wanted + builder.rng.random_range(1..=MAX_VOLUME)) % (MAX_VOLUME + 1);
    builder.given(&["player", "volume"], first);
    builder.goal(&["player", "volume"], wanted);
    wanted.to_string()
}

fn volume(builder: &mut TaskBuilder) {
    let wanted = louder(builder);
    builder.instruct(
        "set Volume to {0}",
        &[
            "Set the player's volume to {0}.",
            "Turn the music to volume {0}.",
            "The volume in the player should be {0}.",
        ],
        &[&wanted],
    );
}

fn list(builder: &mut TaskBuilder) {
    let song = quiet(builder);
    builder.without(&["player", "list", song]);
    builder.goal(&["player", "list", song], song);
    builder.instruct(
        "add {0} to List",
        &["Add {0} to my list.", "Put the song {0} on my list.", "I want {0} in the player's list."],
        &[song],
    );
}

fn unlist(builder: &mut TaskBuilder) {
    let song = quiet(builder);
    builder.given(&["player", "list", song], song);
    builder.gone(&["player", "list", song]);
    builder.instruct(
        "drop {0} from List",
        &["Take {0} off my list.", "Remove the song {0} from the player's list."],
        &[song],
    );
}

fn mix(builder: &mut TaskBuilder) {
    let on = builder.rng.random_bool(0.5);
    builder.given(&["player", "mix"], !on);
    builder.goal(&["player", "mix"], on);
    builder.instruct(
        "turn {0} Mix",
        &["Turn shuffle {0} in the player.", "Switch the player's shuffle mode {0}."],
        &[if on { "on" } else { "off" }],
    );
}

fn play_and_volume(builder: &mut TaskBuilder) {
    let song = quiet(builder);
    let wanted = louder(builder);
    builder.goal(&["player", "song"], song);
    builder.goal(&["player", "playing"], true);
    builder.instruct(
        "set Volume to {1} and play {0}",
        &["Play {0} at volume {1}.", "Set the volume to {1} and start {0}."],
        &[song, &wanted],
    );
}

fn missing_setting(builder: &mut TaskBuilder) {
    let [name] = builder.names(builder.words.missing);
    builder.infeasible();
    builder.instruct(
        "turn on {0}",
        &["Turn {0} on.", "Please switch on {0} in the settings.", "Enable {0}."],
        &[name],
    );
}

fn missing_song(builder: &mut TaskBuilder) {
    let [song] = builder.names(builder.words.songs);
    builder.without(&["player", "songs", song]);
    builder.without(&["player", "list", song]);
    builder.infeasible();
    builder.instruct("play {0}", &["Play {0}.", "I'd like to hear {0}."], &[song]);
}
