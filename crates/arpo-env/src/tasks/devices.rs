//! Templates of tasks with settings, alarms and the player.

use crate::apps::alarms::{MINUTE_STEP, START, time};
use crate::tasks::maker::{Maker, Template};
use crate::world::{App, MAX_VOLUME};
use rand::RngExt;
use serde_json::json;

const fn template(name: &'static str, app: App, make: fn(&mut Maker)) -> Template {
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

fn open(maker: &mut Maker, app: App) {
    maker.in_front(app);
    let name = app.name(maker.pocket);
    maker.say("open {0}", &["Open {0}.", "Show me the {0} window.", "Start the {0} application."], &[name]);
}

fn open_settings(maker: &mut Maker) {
    let app = maker.any(&[App::Settings, App::Files, App::Sheet, App::Shop]);
    open(maker, app);
}

fn open_player(maker: &mut Maker) {
    let app = maker.any(&[App::Player, App::Alarms, App::Editor]);
    open(maker, app);
}

fn open_mail(maker: &mut Maker) {
    open(maker, App::Mail);
}

/// A switch that stands the other way at first.
fn flip(maker: &mut Maker, name: &str) -> &'static str {
    let on = maker.rng.random_bool(0.5);
    maker.given(&["settings", name, "on"], !on);
    maker.goal(&["settings", name, "on"], on);
    if on { "on" } else { "off" }
}

/// A level that is another one at first.
fn adjust(maker: &mut Maker, name: &str, max: u32) -> String {
    let wanted = maker.rng.random_range(0..=max);
    let first = (wanted + maker.rng.random_range(1..=max)) % (max + 1);
    maker.given(&["settings", name, "value"], first);
    maker.goal(&["settings", name, "value"], wanted);
    wanted.to_string()
}

/// A choice that is another one at first.
fn choose(maker: &mut Maker, name: &str, options: &[&'static str]) -> &'static str {
    let wanted = maker.rng.random_range(0..options.len());
    let first = (wanted + maker.rng.random_range(1..options.len())) % options.len();
    maker.given(&["settings", name, "value"], options[first]);
    maker.goal(&["settings", name, "value"], options[wanted]);
    options[wanted]
}

fn switch(maker: &mut Maker) {
    let (_, name) = maker.any(maker.words.switches);
    let state = flip(maker, name);
    maker.say(
        "turn {1} {0}",
        &["Turn {0} {1}.", "Please switch {0} {1} in the settings.", "I want {0} to be {1}."],
        &[name, state],
    );
}

fn two_switches(maker: &mut Maker) {
    let count = maker.words.switches.len();
    let first = maker.rng.random_range(0..count);
    let second = (first + maker.rng.random_range(1..count)) % count;
    let (one, other) = (maker.words.switches[first].1, maker.words.switches[second].1);
    let states = (flip(maker, one), flip(maker, other));
    maker.partial();
    maker.say(
        "turn {1} {0} and turn {3} {2}",
        &["Turn {0} {1} and {2} {3}.", "In the settings, switch {0} {1} and also {2} {3}."],
        &[one, states.0, other, states.1],
    );
}

fn level(maker: &mut Maker) {
    let (_, name, max) = maker.any(maker.words.levels);
    let wanted = adjust(maker, name, max);
    maker.say(
        "set {0} to {1}",
        &["Set the {0} to {1}.", "{0} should be at {1}.", "Change {0} to {1} in the settings."],
        &[name, &wanted],
    );
}

fn choice(maker: &mut Maker) {
    let (_, name, options, _) = maker.any(maker.words.choices);
    let wanted = choose(maker, name, options);
    maker.say(
        "set {0} to {1}",
        &["Set {0} to {1}.", "In the settings, choose {1} for {0}.", "I'd like {0} to be {1}."],
        &[name, wanted],
    );
}

fn switch_and_level(maker: &mut Maker) {
    let (_, name) = maker.any(maker.words.switches);
    let (_, other, max) = maker.any(maker.words.levels);
    let state = flip(maker, name);
    let wanted = adjust(maker, other, max);
    maker.partial();
    maker.say(
        "turn {1} {0} and set {2} to {3}",
        &["Turn {0} {1} and set {2} to {3}.", "Two things in the settings: {0} {1}, {2} at {3}."],
        &[name, state, other, &wanted],
    );
}

fn two_choices(maker: &mut Maker) {
    let (_, one, options, _) = maker.words.choices[0];
    let (_, other, others, _) = maker.words.choices[1];
    let (first, second) = (choose(maker, one, options), choose(maker, other, others));
    maker.say(
        "set {0} to {1} and set {2} to {3}",
        &["Set {0} to {1} and {2} to {3}.", "Please choose {1} for {0}, and {3} for {2}."],
        &[one, first, other, second],
    );
}

/// A time that few presses lead to.
fn near_time(maker: &mut Maker) -> String {
    let hour = START.0 + maker.rng.random_range(0..=2) - 1;
    let minute = maker.rng.random_range(0..4) * MINUTE_STEP;
    time(hour, minute)
}

fn new_alarm(maker: &mut Maker) {
    let time = near_time(maker);
    maker.without(&["alarms", &time]);
    maker.goal(&["alarms", &time], json!({"on": true}));
    maker.say(
        "new alarm {0}",
        &["Set an alarm for {0}.", "Wake me at {0}.", "Add a new alarm at {0}."],
        &[&time],
    );
}

fn switch_alarm(maker: &mut Maker) {
    let time = near_time(maker);
    let on = maker.rng.random_bool(0.5);
    maker.given(&["alarms", &time], json!({"on": !on}));
    maker.goal(&["alarms", &time, "on"], on);
    maker.say(
        "turn {1} alarm {0}",
        &["Turn the {0} alarm {1}.", "Switch the alarm at {0} {1}.", "The {0} alarm should be {1}."],
        &[&time, if on { "on" } else { "off" }],
    );
}

fn delete_alarm(maker: &mut Maker) {
    let time = near_time(maker);
    maker.given(&["alarms", &time], json!({"on": true}));
    maker.gone(&["alarms", &time]);
    maker.say(
        "delete alarm {0}",
        &["Delete the alarm at {0}.", "I don't need the {0} alarm any more.", "Remove the {0} alarm."],
        &[&time],
    );
}

fn later_alarm(maker: &mut Maker) {
    let (old, new) = (time(START.0 - 2, MINUTE_STEP), near_time(maker));
    maker.given(&["alarms", &old], json!({"on": true}));
    maker.without(&["alarms", &new]);
    maker.gone(&["alarms", &old]);
    maker.goal(&["alarms", &new], json!({"on": true}));
    maker.partial();
    maker.say(
        "delete alarm {0} and new alarm {1}",
        &["Replace the {0} alarm by one at {1}.", "Delete the {0} alarm and set one for {1} instead."],
        &[&old, &new],
    );
}

/// A song that is there, while the player is silent.
fn quiet(maker: &mut Maker) -> &'static str {
    let [song] = maker.names(maker.words.songs);
    maker.given(&["player", "songs", song], song);
    maker.given(&["player", "playing"], false);
    song
}

fn play(maker: &mut Maker) {
    let song = quiet(maker);
    maker.goal(&["player", "song"], song);
    maker.goal(&["player", "playing"], true);
    maker.say("play {0}", &["Play {0}.", "I'd like to hear {0}.", "Start the song {0}."], &[song]);
}

/// A volume that is another one at first.
fn louder(maker: &mut Maker) -> String {
    let wanted = maker.rng.random_range(0..=MAX_VOLUME);
    let first = (wanted + maker.rng.random_range(1..=MAX_VOLUME)) % (MAX_VOLUME + 1);
    maker.given(&["player", "volume"], first);
    maker.goal(&["player", "volume"], wanted);
    wanted.to_string()
}

fn volume(maker: &mut Maker) {
    let wanted = louder(maker);
    maker.say(
        "set Volume to {0}",
        &[
            "Set the player's volume to {0}.",
            "Turn the music to volume {0}.",
            "The volume in the player should be {0}.",
        ],
        &[&wanted],
    );
}

fn list(maker: &mut Maker) {
    let song = quiet(maker);
    maker.without(&["player", "list", song]);
    maker.goal(&["player", "list", song], song);
    maker.say(
        "add {0} to List",
        &["Add {0} to my list.", "Put the song {0} on my list.", "I want {0} in the player's list."],
        &[song],
    );
}

fn unlist(maker: &mut Maker) {
    let song = quiet(maker);
    maker.given(&["player", "list", song], song);
    maker.gone(&["player", "list", song]);
    maker.say(
        "drop {0} from List",
        &["Take {0} off my list.", "Remove the song {0} from the player's list."],
        &[song],
    );
}

fn mix(maker: &mut Maker) {
    let on = maker.rng.random_bool(0.5);
    maker.given(&["player", "mix"], !on);
    maker.goal(&["player", "mix"], on);
    maker.say(
        "turn {0} Mix",
        &["Turn shuffle {0} in the player.", "Switch the player's shuffle mode {0}."],
        &[if on { "on" } else { "off" }],
    );
}

fn play_and_volume(maker: &mut Maker) {
    let song = quiet(maker);
    let wanted = louder(maker);
    maker.goal(&["player", "song"], song);
    maker.goal(&["player", "playing"], true);
    maker.say(
        "set Volume to {1} and play {0}",
        &["Play {0} at volume {1}.", "Set the volume to {1} and start {0}."],
        &[song, &wanted],
    );
}

fn missing_setting(maker: &mut Maker) {
    let [name] = maker.names(maker.words.missing);
    maker.infeasible();
    maker.say(
        "turn on {0}",
        &["Turn {0} on.", "Please switch on {0} in the settings.", "Enable {0}."],
        &[name],
    );
}

fn missing_song(maker: &mut Maker) {
    let [song] = maker.names(maker.words.songs);
    maker.without(&["player", "songs", song]);
    maker.without(&["player", "list", song]);
    maker.infeasible();
    maker.say("play {0}", &["Play {0}.", "I'd like to hear {0}."], &[song]);
}
