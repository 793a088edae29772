//! Worlds sampled from a seed: the content of a desktop before a task adds its own, and thus the distractors of every
//! task.

use crate::apps::alarms::{MINUTE_STEP, time};
use crate::tasks::words::Words;
use crate::world::{Alarm, MAX_VOLUME, Message, Player, Setting, World, join_path};
use arpo_core::random::{Purpose, stream};
use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};

/// The world of a seed with names from these lists.
pub(crate) fn sample(pocket: bool, words: &Words, seed: u64) -> World {
    let mut rng = stream(seed, Purpose::Environment, 0, 0);
    let mut world = World::default();
    for (page, name) in words.switches {
        let setting = Setting::Switch { page: (*page).into(), on: rng.random_bool(0.5) };
        world.settings.insert((*name).into(), setting);
    }
    for (page, name, max) in words.levels {
        let setting = Setting::Level { page: (*page).into(), value: rng.random_range(0..=*max), max: *max };
        world.settings.insert((*name).into(), setting);
    }
    for (page, name, options, drop) in words.choices {
        let value = options.choose(&mut rng).map(|option| (*option).into()).unwrap_or_default();
        let options = options.iter().map(|option| (*option).into()).collect();
        world
            .settings
            .insert((*name).into(), Setting::Choice { page: (*page).into(), value, options, drop: *drop });
    }
    let mut pick = |from: &[&str], count: usize| -> Vec<String> {
        let mut names: Vec<String> = from.iter().map(|name| (*name).to_owned()).collect();
        names.shuffle(&mut rng);
        names.truncate(count);
        names
    };
    let folders = pick(words.folders, if pocket { 2 } else { 3 });
    let files = pick(words.files, if pocket { 4 } else { 8 });
    let texts = pick(words.texts, words.texts.len());
    let subjects = pick(words.subjects, if pocket { 3 } else { 6 });
    let people = pick(words.people, words.people.len());
    let songs = pick(words.songs, if pocket { 5 } else { 8 });
    let products = pick(words.products, if pocket { 4 } else { 6 });
    for (index, name) in files.iter().enumerate() {
        // three of four at the top, the rest in the first folder
        let folder = if index % 4 == 3 { &folders[0] } else { "" };
        world.files.insert(join_path(folder, name), texts[index % texts.len()].clone());
    }
    world.folders = folders.into_iter().collect();
    for (index, subject) in subjects.into_iter().enumerate() {
        let person = people[index % people.len()].clone();
        let text = texts[(index + 3) % texts.len()].clone();
        world.mail.insert(subject, Message { folder: "Inbox".into(), person, text });
    }
    let list = songs.iter().take(1).cloned().collect();
    world.player = Player { songs: songs.into_iter().collect(), list, ..Player::default() };
    world.player.volume = rng.random_range(0..=MAX_VOLUME);
    world.products = products.into_iter().collect();
    for _ in 0..if pocket { 2 } else { 4 } {
        let (hour, minute) = (rng.random_range(5..23), rng.random_range(0..60 / MINUTE_STEP) * MINUTE_STEP);
        world.alarms.insert(time(hour, minute), Alarm { on: rng.random_bool(0.5) });
    }
    for _ in 0..if pocket { 4 } else { 9 } {
        let column = rng.random_range(0..3);
        let cell = crate::apps::sheet::cell_name(column, rng.random_range(0..if pocket { 4 } else { 8 }));
        world.sheet.insert(cell, rng.random_range(1..50).to_string());
    }
    world
}
