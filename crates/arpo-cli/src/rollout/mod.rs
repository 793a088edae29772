//! `arpo rollout`: collects episodes to disk, to inspect them, to train on them with `arpo offline`, or to seed the replay
//! buffer of a run. With hints the agent is guided by a plan while it acts, and only successes are kept. The tasks are played in
//! chunks, with a file of episodes for each; what had ended of a chunk when the command was stopped is kept, too. With hints that
//! are its successes: failures that had ended are played again.

mod unfinished;

use crate::Failure;
use crate::config::Layers;
use crate::resume::resume_or_start;
use crate::show::EpisodeProgress;
use arpo_core::config::Config;
use arpo_core::task::Task;
use arpo_core::trajectory::PolicyVersion;
use arpo_suite::task_lists;
use arpo_train::TrainError;
use arpo_train::collect::GroupPlan;
use arpo_train::hints::Hints;
use arpo_train::memory_plan::Work;
use arpo_train::run::RunFolder;
use arpo_train::run::episodes::budget::EpisodeFile;
use arpo_train::run::episodes::store::{Budget, EpisodeDraft, EpisodeRecord, EpisodeStore};
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer::evaluation::{EvaluationPlan, group_plans};
use arpo_train::trainer::setup;
use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unfinished::{FileOrder, Unfinished};

/// Default number of rollouts per task.
const SAMPLES: usize = 8;

/// Names the oracle's hints.
const ORACLE: &str = "oracle";

/// The arguments of `arpo rollout`.
#[derive(Args)]
pub(crate) struct RolloutArguments {
    #[command(flatten)]
    layers: Layers,
    /// The folder for the episodes and their screenshots
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Rollouts per training task [default: 8]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=10_000))]
    samples: Option<u16>,
    /// Guide the agent by a plan for each task, and keep only successes, without the plan: `oracle`, or a JSON file
    /// {"task id": "plan"}. For `replay.seed_from`
    #[arg(long, value_name = "oracle|FILE")]
    hint: Option<String>,
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
    let Rollouts { samples, hint } = rollouts_of(arguments, &folder)?;
    let tasks = task_lists::training_tasks(&config).map_err(Failure::usage)?;
    let mut hints = hint.as_deref().map(|hint| hints_of(hint, &tasks, &config)).transpose()?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let model = setup::load(&config).map_err(Failure::of)?;
    let mut policy = setup::policy(&config, &model.config, &model.weights, &model.agent, PolicyVersion(0));
    let mut collector =
        setup::collector(&config, Some(folder.path()), &Arc::default(), &stop).map_err(Failure::of)?;
    let (mut count, mut successes, mut lost, mut is_stopped) = (0, 0, 0, false);
    let chunks = || tasks.chunks(config.collect.tasks).zip(0_u64..);
    let mut store =
        EpisodeStore::open(folder.path(), Budget::UNLIMITED, |_| true).map_err(Failure::failed)?;
    let mut unfinished = Unfinished::read(&store, chunks().count() as u64).map_err(Failure::failed)?;
    let left: Vec<_> = chunks().filter(|(_, number)| !store.has(EpisodeFile::iteration(*number))).collect();
    let open: usize = left.iter().map(|(chunk, _)| chunk.len()).sum();
    let mut done = tasks.len() - open;
    let planned = |(chunk, number): &(&[Arc<Task>], u64)| -> usize {
        let (plans, _) = plans_of(&config, chunk, *number, samples, &unfinished);
        plans.iter().map(|group| group.episodes.len()).sum()
    };
    let total: usize = left.iter().map(planned).sum();
    let mut progress = EpisodeProgress::new(total, config.reward.success_above, arguments.quiet);
    for (chunk, number) in left {
        let (mut plans, order) = plans_of(&config, chunk, number, samples, &unfinished);
        if let Some(hints) = &mut hints {
            for group in &mut plans {
                hints.give(&model.agent, group).map_err(Failure::of)?;
            }
        }
        let mut event = |event| progress.event(&event);
        let groups = match collector.collect(&mut policy, plans, &mut event) {
            Ok(collected) => {
                lost += collected.report.lost;
                collected.groups
            }
            Err(TrainError::Interrupted) => {
                is_stopped = true;
                collector.take_ended(&policy).map_err(Failure::of)?
            }
            Err(error) => return Err(Failure::of(error)),
        };
        let succeeded = |record: &EpisodeRecord| config.reward.is_success(record.trajectory.score);
        let ended = groups.into_iter().flat_map(|group| group.episodes);
        let mut records: Vec<EpisodeRecord> = ended.filter_map(|one| order.record(chunk, one)).collect();
        let has_new = !records.is_empty();
        count += records.len();
        successes += records.iter().filter(|record| succeeded(record)).count();
        records.extend(unfinished.records(chunk, &order));
        records.sort_by_key(|record| order.position(&record.trajectory.id));
        done += if is_stopped { complete_groups(&records, samples) } else { chunk.len() };
        if hints.is_some() {
            records.retain(succeeded);
        }
        if has_new || !is_stopped {
            let file = if is_stopped { unfinished.next_file() } else { EpisodeFile::iteration(number) };
            let mut draft = EpisodeDraft::new(file);
            let written = store.add(&mut draft, &records, &mut || {}).and_then(|()| store.finish(draft));
            written.and_then(|()| unfinished.remove_from(&mut store)).map_err(Failure::failed)?;
        }
        if is_stopped {
            break;
        }
    }
    drop(progress);
    if is_stopped {
        let message = format!("stopped after {done} of {} tasks; --resume continues", tasks.len());
        return Err(Failure::Stopped(Some(message)));
    }
    // of a process that was killed after it had written the last chunk
    unfinished.remove_from(&mut store).map_err(Failure::failed)?;
    let kept = if hints.is_some() { ", which are kept" } else { "" };
    writeln!(out, "{count} episodes, {successes} of them successes{kept}: {}", folder.episodes().display())?;
    if lost > 0 {
        writeln!(out, "{lost} more were lost to failures")?;
    }
    Ok(())
}

/// What is left to play of a chunk, and the order of all its episodes in their file.
fn plans_of(
    config: &Config,
    chunk: &[Arc<Task>],
    number: u64,
    samples: usize,
    unfinished: &Unfinished,
) -> (Vec<GroupPlan>, FileOrder) {
    let mut plans = group_plans(chunk, &EvaluationPlan::of(config, number, samples));
    let order = FileOrder::of(&plans);
    unfinished.leave_out_of(&mut plans);
    (plans, order)
}

/// Groups of which so many episodes have ended.
fn complete_groups(records: &[EpisodeRecord], samples: usize) -> usize {
    let mut ended: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    for record in records {
        *ended.entry(record.about.group).or_default() += 1;
    }
    ended.into_values().filter(|&count| count >= samples).count()
}

/// The hints that `--hint` names; an error if a task has none.
fn hints_of(hint: &str, tasks: &[Arc<Task>], config: &Config) -> Result<Hints, Failure> {
    let hints = if hint == ORACLE { Hints::oracle(config) } else { Hints::read(Path::new(hint)) };
    let named = |error: TrainError| Failure::usage(format!("--hint {hint}: {error}"));
    let hints = hints.map_err(named)?;
    hints.check(tasks).map_err(named)?;
    Ok(hints)
}

/// How the tasks of a folder are rolled out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollouts {
    /// Rollouts per task.
    samples: usize,
    /// Where hints come from: the oracle, or the path of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// As stored in the folder, or as given for a new one.
fn rollouts_of(arguments: &RolloutArguments, folder: &RunFolder) -> Result<Rollouts, Failure> {
    const FILE: &str = "rollouts.json";
    let path = folder.path().join(FILE);
    let known: Option<Rollouts> =
        std::fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
    let hint = arguments.hint.as_ref().map(|hint| match Path::new(hint).canonicalize() {
        Ok(path) if hint != ORACLE => path.display().to_string(),
        _ => hint.clone(),
    });
    let in_folder = folder.path().display();
    match (known, arguments.samples.map(usize::from)) {
        (Some(Rollouts { samples: known, .. }), Some(wanted)) if known != wanted => Err(Failure::usage(
            format!("--samples {wanted}: {in_folder} has {known} rollouts per task; leave the option out"),
        )),
        (Some(known), _) if hint.is_some() && known.hint != hint => Err(Failure::usage(format!(
            "--hint {}: {in_folder} has rollouts with {}; leave the option out",
            hint.unwrap_or_default(),
            known.hint.map_or("no hints".into(), |hint| format!("the hints of {hint}"))
        ))),
        (Some(known), _) => Ok(known),
        (None, wanted) => {
            let rollouts = Rollouts { samples: wanted.unwrap_or(SAMPLES), hint };
            let text = format!("{}\n", json!(rollouts));
            folder.write_file(FILE, text.as_bytes()).map_err(Failure::failed)?;
            Ok(rollouts)
        }
    }
}
