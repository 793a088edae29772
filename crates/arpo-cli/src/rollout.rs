//! `arpo rollout`: episodes to disk, to look at or to learn from with `arpo offline`.

use crate::Failure;
use crate::config::Layers;
use arpo_core::trajectory::PolicyVersion;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, Start, episodes};
use arpo_train::trainer::evaluation::{Examination, examine};
use arpo_train::trainer::setup;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// What `arpo rollout` takes.
#[derive(Args)]
pub(crate) struct RolloutArguments {
    #[command(flatten)]
    layers: Layers,
    /// The new folder for the episodes and their screenshots
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Rollouts of each training task
    #[arg(long, default_value_t = 8)]
    samples: usize,
}

pub(crate) fn run(arguments: &RolloutArguments, out: &mut impl Write) -> Result<(), Failure> {
    let config = arguments.layers.resolve()?;
    let tasks = setup::training_tasks(&config).map_err(Failure::usage)?;
    let folder = RunFolder::start(&arguments.out, Start::New).map_err(Failure::failed)?;
    folder.write_config(&config.to_toml()).map_err(Failure::failed)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let model = setup::load(&config).map_err(Failure::failed)?;
    let mut policy = setup::policy(&config, &model.config, &model.weights, &model.agent, PolicyVersion(0));
    let mut collector = setup::collector(&config, &Arc::default()).map_err(Failure::failed)?;
    let (mut count, mut successes, mut lost) = (0, 0, 0);
    for (number, chunk) in tasks.chunks(config.collect.tasks).enumerate() {
        if stop.asked() {
            break;
        }
        let examination = Examination::of(&config, number as u64, arguments.samples);
        let examined = examine(&mut collector, &mut policy, chunk, &examination, &mut |_| {})
            .map_err(Failure::failed)?;
        let played: Vec<_> = examined.episodes.into_iter().flatten().collect();
        for episode in &played {
            successes += usize::from(episode.trajectory.score > config.replay.success_above);
        }
        count += played.len();
        lost += examined.report.lost;
        episodes::write(folder.path(), number as u64, &played).map_err(Failure::failed)?;
    }
    writeln!(out, "{count} episodes, {successes} of them successes: {}", folder.episodes().display())?;
    if lost > 0 {
        writeln!(out, "{lost} more were lost to failures of desktops")?;
    }
    Ok(())
}
