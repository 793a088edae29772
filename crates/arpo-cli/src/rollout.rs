//! `arpo rollout`: collects episodes to disk, to inspect them or to train on them with `arpo offline`.

use crate::Failure;
use crate::config::Layers;
use crate::resume::resume_or_start;
use crate::show::EpisodeProgress;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_suite::task_lists;
use arpo_train::TrainError;
use arpo_train::episode::CompletedEpisode;
use arpo_train::memory_plan::Work;
use arpo_train::run::RunFolder;
use arpo_train::run::about::unix_time;
use arpo_train::run::episodes::budget::EpisodeFile;
use arpo_train::run::episodes::index::{EpisodeAbout, EpisodeOrigin};
use arpo_train::run::episodes::store::{Budget, EpisodeDraft, EpisodeRecord, EpisodeStore};
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer::evaluation::{EvaluationPlan, evaluate};
use arpo_train::trainer::setup;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Default number of rollouts per task.
const SAMPLES: usize = 8;

/// The arguments of `arpo rollout`.
#[derive(Args)]
pub(crate) struct RolloutArguments {
    #[command(flatten)]
    layers: Layers,
    /// The folder for the episodes and their screenshots
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Rollouts per training task [default: 8]
    #[arg(long)]
    samples: Option<usize>,
    /// Resume the rollouts in --out, with the configuration stored there
    #[arg(long)]
    resume: bool,
    /// Print only problems and the result, no progress
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &RolloutArguments, out: &mut impl Write) -> Result<(), Failure> {
    let (folder, config) =
        resume_or_start(&arguments.out, &arguments.layers, arguments.resume, Work::Sampling)?;
    let samples = samples_of(arguments, &folder)?;
    let tasks = task_lists::training_tasks(&config).map_err(Failure::usage)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let model = setup::load(&config).map_err(Failure::of)?;
    let mut policy = setup::policy(&config, &model.config, &model.weights, &model.agent, PolicyVersion(0));
    let mut collector =
        setup::collector(&config, Some(folder.path()), &Arc::default(), &stop).map_err(Failure::of)?;
    let (mut count, mut successes, mut lost, mut interrupted) = (0, 0, 0, false);
    let chunks = || tasks.chunks(config.collect.tasks).zip(0_u64..);
    let mut store =
        EpisodeStore::open(folder.path(), Budget::UNLIMITED, |_| true).map_err(Failure::failed)?;
    let left: Vec<_> = chunks().filter(|(_, number)| !store.has(EpisodeFile::iteration(*number))).collect();
    let open: usize = left.iter().map(|(chunk, _)| chunk.len()).sum();
    let mut done = tasks.len() - open;
    let total = open * samples;
    let mut progress = EpisodeProgress::new(total, config.reward.success_above, arguments.quiet);
    for (chunk, number) in left {
        let plan = EvaluationPlan::of(&config, number, samples);
        let mut event = |event| progress.event(&event);
        let result = match evaluate(&mut collector, &mut policy, chunk, &plan, &mut event) {
            Err(TrainError::Interrupted) => {
                interrupted = true;
                break;
            }
            result => result.map_err(Failure::of)?,
        };
        let groups = chunk.iter().zip(result.episodes).enumerate();
        let records: Vec<EpisodeRecord> = groups
            .flat_map(|(group, (task, episodes))| {
                episodes.into_iter().map(move |episode| record(task, group, episode))
            })
            .collect();
        for EpisodeRecord { trajectory, .. } in &records {
            successes += usize::from(config.reward.is_success(trajectory.score));
        }
        count += records.len();
        lost += result.report.lost;
        done += chunk.len();
        let mut draft = EpisodeDraft::new(EpisodeFile::iteration(number));
        let written = store.add(&mut draft, &records, &mut || {}).and_then(|()| store.finish(draft));
        written.map_err(Failure::failed)?;
    }
    drop(progress);
    if interrupted {
        let message = format!("stopped after {done} of {} tasks; --resume continues", tasks.len());
        return Err(Failure::Stopped(Some(message)));
    }
    writeln!(out, "{count} episodes, {successes} of them successes: {}", folder.episodes().display())?;
    if lost > 0 {
        writeln!(out, "{lost} more were lost to failures")?;
    }
    Ok(())
}

/// An episode of the group with this number, as it is stored.
fn record(task: &Task, group: usize, episode: CompletedEpisode) -> EpisodeRecord {
    let about = EpisodeAbout {
        origin: EpisodeOrigin::Fresh,
        set: None,
        instruction: Some(task.instruction.clone()),
        application: Some(task.application.clone()).filter(|name| !name.is_empty()),
        group: Some(group),
        reward: None,
        advantage: None,
        time: unix_time(),
    };
    let screens = episode.screens.into_iter().map(Some).collect();
    EpisodeRecord { trajectory: Arc::new(episode.trajectory), screens, about }
}

/// Rollouts per task: as stored in the folder, or as given for a new one.
fn samples_of(arguments: &RolloutArguments, folder: &RunFolder) -> Result<usize, Failure> {
    const FILE: &str = "rollouts.json";
    let path = folder.path().join(FILE);
    let known = std::fs::read_to_string(&path).ok().and_then(|text| {
        serde_json::from_str::<Value>(&text).ok()?["samples"].as_u64().map(|samples| samples as usize)
    });
    match (known, arguments.samples) {
        (Some(known), Some(wanted)) if known != wanted => Err(Failure::usage(format!(
            "--samples {wanted}: {} has {known} rollouts per task; leave the option out",
            folder.path().display()
        ))),
        (Some(known), _) => Ok(known),
        (None, wanted) => {
            let samples = wanted.unwrap_or(SAMPLES);
            let text = format!("{}\n", json!({"samples": samples}));
            folder.write_file(FILE, text.as_bytes()).map_err(Failure::failed)?;
            Ok(samples)
        }
    }
}
