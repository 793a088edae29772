//! The demonstrations of each update, made ahead of the learner on other threads, so that it never waits for them.

use super::SupervisedOptions;
use super::desktops::on_desktops;
use super::letters::{LetterBatch, token_grid};
use super::reading::{Lesson, Reading, lesson};
use crate::TrainError;
use crate::agent::Agent;
use crate::demonstrations::{
    Demonstration, Questions, SCREENS_OF_AN_EPISODE, episode, grounding, screens_on_the_way,
};
use crate::dialogue::Assembled;
use crate::images::BatchImages;
use arpo_core::random::{Purpose, stream};
use arpo_env::embedded::EmbeddedDesktop;
use image::RgbImage;
use rand::RngExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Demonstrations are numbered from here; evaluation uses other numbers.
const FIRST_DEMONSTRATION: u64 = 1 << 32;

/// Most batches that are made at the same time. Demonstrations are made on all cores, but the screenshots of a batch, hundreds
/// of megabytes on large screens, are compared with each other on one.
const MOST_MAKERS: usize = 4;

/// Cores for each batch that is made.
const CORES_PER_MAKER: usize = 4;

/// Batches that are ready, divided among the makers, of which each has at least one ready beside the one it makes. A batch of
/// the desktop suite is about 350 MB: with four makers and the learner's own, nine of them are 3 GB.
const AHEAD: usize = 2;

/// The demonstrations of one update.
#[derive(Debug)]
pub struct DemonstrationBatch {
    /// Sorted by length, so that equally long ones are computed together.
    pub(super) sequences: Vec<Assembled>,
    pub(super) images: BatchImages,
}

/// What an update learns from.
#[derive(Debug)]
pub enum UpdateBatch {
    /// Letters on screens, for the vision tower.
    Letters(LetterBatch),
    /// Demonstrations.
    Demonstrations(DemonstrationBatch),
}

/// The batches of updates, in order. They do not depend on the number of threads.
#[derive(Debug)]
pub struct Batches {
    /// Updates take turns: each maker makes every n-th batch. They end when this is dropped.
    makers: Vec<Receiver<Result<UpdateBatch, TrainError>>>,
    turn: usize,
}

/// As many makers as pay off on this machine.
pub fn makers() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / CORES_PER_MAKER).clamp(1, MOST_MAKERS)
}

/// Prepares the batches of updates from `first` on, `count` of them at the same time.
pub fn batches(agent: &Arc<Agent>, options: &SupervisedOptions, first: u64, count: usize) -> Batches {
    let count = count.max(1);
    let maker = |number: usize| {
        let (sender, receiver) = sync_channel((AHEAD / count).max(1));
        let (agent, options) = (Arc::clone(agent), options.clone());
        std::thread::spawn(move || {
            for update in (first + number as u64..options.updates).step_by(count) {
                if sender.send(batch(&agent, &options, update)).is_err() {
                    return;
                }
            }
        });
        receiver
    };
    Batches { makers: (0..count).map(maker).collect(), turn: 0 }
}

impl Iterator for Batches {
    type Item = Result<UpdateBatch, TrainError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.makers[self.turn].recv().ok()?;
        self.turn = (self.turn + 1) % self.makers.len();
        Some(batch)
    }
}

fn batch(agent: &Agent, options: &SupervisedOptions, update: u64) -> Result<UpdateBatch, TrainError> {
    let mut rng = stream(options.seed, Purpose::Batches, update, 0);
    let is_grounding = update < options.first_on_episodes() || rng.random_bool(options.grounding_share);
    let count = match (is_grounding, options.reading.question_steps) {
        (true, None) => options.screens.div_ceil(SCREENS_OF_AN_EPISODE),
        (true, Some(_)) => options.screens,
        (false, _) => options.episodes,
    } as u64;
    // far apart, so that no two updates share demonstrations
    let first = FIRST_DEMONSTRATION + (options.seed << 40) + update * 4096;
    let numbers = first..first + count;
    let Reading { question_steps: steps_before, spelled_names: names_first, .. } = options.reading;
    if update < options.letter_updates {
        let look = options.suite.screen();
        let grid = token_grid(agent, look.width, look.height)?;
        let screens = on_desktops(options.suite, numbers, |desktop, number| {
            let Lesson { task, .. } = lesson(options, number)?;
            let mut rng = stream(number, Purpose::Environment, 4, 0);
            let written = |desktop: &EmbeddedDesktop| desktop.written(grid);
            screens_on_the_way(desktop, &task, number, steps_before, &mut rng, written)?
                .into_iter()
                .map(|(screen, written)| Ok((screen.image()?, written)))
                .collect::<Result<Vec<_>, TrainError>>()
        })?;
        return Ok(UpdateBatch::Letters(LetterBatch::new(agent, &screens.concat(), options.suite)?));
    }
    let made = on_desktops(options.suite, numbers, |desktop, number| {
        let Lesson { task, reworded } = lesson(options, number)?;
        if is_grounding {
            let asked = Questions { steps_before, reworded, names_first, suite: options.suite };
            grounding(agent, desktop, &task, number, asked)
        } else {
            Ok(episode(agent, desktop, &task, number)?.into_iter().collect())
        }
    })?;
    let mut demonstrations: Vec<Demonstration> = made.into_iter().flatten().collect();
    demonstrations.retain(|one| !one.assembled.spans.is_empty());
    demonstrations.sort_by_key(|one| one.assembled.tokens.len());
    let screens: Vec<&[Arc<RgbImage>]> = demonstrations.iter().map(|one| one.screens.as_slice()).collect();
    let images = BatchImages::new(&agent.processor, &screens)?;
    Ok(UpdateBatch::Demonstrations(DemonstrationBatch {
        sequences: demonstrations.into_iter().map(|one| one.assembled).collect(),
        images,
    }))
}
