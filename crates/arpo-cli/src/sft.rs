//! `arpo sft`: trains a base model on the oracle's demonstrations.

use crate::Failure;
use crate::device::DeviceName;
use arpo_env::tasks::Suite;
use arpo_train::TrainError;
use arpo_train::run::Start;
use arpo_train::run::stop::StopSwitch;
use arpo_train::supervised::run::{Schedule, SupervisedEvent, train};
use arpo_train::supervised::{Family, NamesKnown, Precision, Reading, SupervisedOptions, fresh, resuming};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tch::Device;

/// After this many updates an untrained tower knows the letters of pocket screens: their loss is below 0.1.
const LETTER_UPDATES: u64 = 400;

/// Updates on questions of a model whose tower knows letters: it reads new names with 0.17 after 1 000 of them, 0.79 after these.
const READING_UPDATES: u64 = 2400;

/// The same without letters, where more do not make it read.
const GROUNDING_UPDATES: u64 = 700;

/// Learning rates of an untrained model and of a given one.
const LEARNING_RATES: [f64; 2] = [1e-3, 5e-4];

/// The arguments of `arpo sft`.
#[derive(Args)]
pub(crate) struct SftArguments {
    /// The run folder; the model is written to its subfolder `model`
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Resume the run in --out
    #[arg(long)]
    resume: bool,
    /// The suite of tasks: pocket (small screens), or desktop (large screens, for a larger model)
    #[arg(long, value_enum, default_value = "pocket")]
    suite: SuiteName,
    /// The family of the model: qwen2.5-vl acts like UI-TARS, qwen3-vl through `computer_use` (the desktop suite
    /// needs --dimensions)
    #[arg(long, value_enum, default_value = "qwen2.5-vl")]
    family: FamilyName,
    /// The small model to begin with, a Hugging Face folder or `pocket`, instead of an untrained one, with its tokenizer and image
    /// processor. Its vision tower is trained by --letter-updates only, otherwise frozen. If it was made by this command, use another
    /// --seed: a seed's demonstrations are always the same
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["dimensions", "spaces"])]
    model: Option<String>,
    /// A config.json with the dimensions of the model, instead of those for its suite and family
    #[arg(long, value_name = "FILE")]
    dimensions: Option<String>,
    /// The device
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// The type to compute in: auto is bf16 for the desktop suite on a GPU, else f32. The optimiser's weights are f32 either
    /// way
    #[arg(long, value_enum, default_value = "auto")]
    precision: PrecisionName,
    /// Updates of the first phase, in which the vision tower alone learns the letters on the screens; then it is frozen. With 0 the
    /// tower of an untrained model learns with the language model [default: 400; with --model or the desktop suite 0]
    #[arg(long)]
    letter_updates: Option<u64>,
    /// Updates of the second phase, on grounding questions only [default: 2400 after letters, else 700; with
    /// --model 0]
    #[arg(long)]
    grounding_updates: Option<u64>,
    /// Updates in total
    #[arg(long, default_value_t = 4800)]
    updates: u64,
    /// Screens per update on grounding questions
    #[arg(long, default_value_t = 256)]
    screens: usize,
    /// Episodes per update on episodes
    #[arg(long, default_value_t = 128)]
    episodes: usize,
    /// Fraction of updates on grounding questions in the last phase
    #[arg(long, default_value_t = 0.2)]
    grounding_share: f64,
    /// Sampling weight of the tasks of an application or a training template, such as editor=2; the default is 1, 1000 is the
    /// most, and 0 leaves them to reinforcement learning. May be repeated
    #[arg(long, value_name = "NAME=WEIGHT", value_parser = weight)]
    weight: Vec<(String, u32)>,
    /// Fraction of demonstrations with invented names, which have to be read: random syllables, words that are in no list
    #[arg(long, value_name = "FRACTION", default_value_t = Reading::default().invented)]
    invented_names: f64,
    /// Fraction of demonstrations of two training tasks in one
    #[arg(long, value_name = "FRACTION", default_value_t = Reading::default().composed)]
    composed: f64,
    /// Fraction of the other demonstrations that are of auxiliary templates, which are neither trained on nor held out
    #[arg(long, value_name = "FRACTION", default_value_t = Reading::default().auxiliary)]
    auxiliary: f64,
    /// Fraction of demonstrations with other words in their instruction or questions
    #[arg(long, value_name = "FRACTION", default_value_t = Reading::default().reworded)]
    reworded: f64,
    /// Most actions of the oracle before the screen that grounding questions are about; without it, every screen of the
    /// oracle's episode is equally likely
    #[arg(long)]
    question_steps: Option<usize>,
    /// Spaces in the tokenizer: tokens of their own, or joined with the word after them
    #[arg(long, value_enum, default_value = "separate")]
    spaces: SpacesName,
    /// Names in the tokenizer: spelled letter by letter, and asked about first, or cut into parts that occur often
    #[arg(long, value_enum, default_value = "spelled")]
    names: NamesName,
    /// Learning rate after the warm-up [default: 1e-3; with --model 5e-4]
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Last N of --updates, in which the learning rate falls evenly, to 1 / (N + 1) of --learning-rate in the very last; a run
    /// that --minutes or --until ends before them keeps its rate
    #[arg(long, value_name = "N", default_value_t = 0)]
    cool_down: u64,
    /// Updates between evaluations; a checkpoint is written at each
    #[arg(long, default_value_t = 50)]
    evaluate_every: u64,
    /// Further tasks of the training templates per evaluation
    #[arg(long, default_value_t = 208)]
    evaluate_tasks: usize,
    /// Tasks of the held-out templates per evaluation; 0 leaves them out
    #[arg(long, default_value_t = 64)]
    evaluate_held_out: usize,
    /// Stop at the first evaluation with at least this success rate on further tasks
    #[arg(long)]
    until: Option<f64>,
    /// Stop at the first evaluation with at least this success rate on held-out tasks, and that of --until if given
    #[arg(long)]
    until_held_out: Option<f64>,
    /// Stop after this many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Random seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SuiteName {
    Pocket,
    Desktop,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PrecisionName {
    Auto,
    F32,
    Bf16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SpacesName {
    Separate,
    Joined,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NamesName {
    Spelled,
    Parts,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilyName {
    #[value(name = "qwen2.5-vl")]
    Qwen25Vl,
    #[value(name = "qwen3-vl")]
    Qwen3Vl,
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = text.split_once('=').ok_or("expected NAME=WEIGHT, such as editor=2")?;
    let weight =
        weight.parse().map_err(|_| format!("{weight:?} is not a weight: expected a whole number"))?;
    Ok((name.to_owned(), weight))
}

pub(crate) fn run(arguments: &SftArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = arguments.device.device()?;
    let suite = match arguments.suite {
        SuiteName::Pocket => Suite::Pocket,
        SuiteName::Desktop => Suite::Desktop,
    };
    for (what, count) in [
        ("--screens", arguments.screens),
        ("--episodes", arguments.episodes),
        ("--evaluate-tasks", arguments.evaluate_tasks),
        ("--evaluate-every", arguments.evaluate_every as usize),
    ] {
        if count == 0 {
            return Err(Failure::usage(format!("{what} 0: expected at least 1")));
        }
    }
    let is_untrained = arguments.model.is_none();
    let letter_updates = arguments.letter_updates.unwrap_or(match suite {
        Suite::Pocket if is_untrained => LETTER_UPDATES,
        Suite::Pocket | Suite::Desktop => 0,
    });
    let grounding_updates = match (is_untrained, letter_updates) {
        (false, _) => 0,
        (true, 0) => GROUNDING_UPDATES,
        (true, _) => READING_UPDATES,
    };
    let options = SupervisedOptions {
        suite,
        family: match arguments.family {
            FamilyName::Qwen25Vl => Family::Qwen25Vl,
            FamilyName::Qwen3Vl => Family::Qwen3Vl,
        },
        model: arguments.model.clone(),
        dimensions: arguments.dimensions.clone(),
        letter_updates,
        grounding_updates: arguments.grounding_updates.unwrap_or(grounding_updates),
        updates: arguments.updates,
        screens: arguments.screens,
        episodes: arguments.episodes,
        grounding_share: arguments.grounding_share,
        weights: arguments.weight.iter().cloned().collect(),
        reading: Reading {
            invented: arguments.invented_names,
            composed: arguments.composed,
            auxiliary: arguments.auxiliary,
            reworded: arguments.reworded,
            question_steps: arguments.question_steps,
            separate_spaces: arguments.spaces == SpacesName::Separate,
            spelled_names: arguments.names == NamesName::Spelled,
        },
        precision: match arguments.precision {
            // a GPU computes the pocket model in the time that it takes to launch its kernels, whatever their type
            PrecisionName::Auto if suite == Suite::Desktop && device != Device::Cpu => Precision::Bf16,
            PrecisionName::Auto | PrecisionName::F32 => Precision::F32,
            PrecisionName::Bf16 => Precision::Bf16,
        },
        learning_rate: arguments.learning_rate.unwrap_or(LEARNING_RATES[usize::from(!is_untrained)]),
        warm_up: 100,
        cool_down: arguments.cool_down,
        max_steps: 15,
        seed: arguments.seed,
    };
    options.check().map_err(Failure::usage)?;
    if arguments.until_held_out.is_some() && arguments.evaluate_held_out == 0 {
        return Err(Failure::usage(
            "--until-held-out needs held-out tasks: expected --evaluate-held-out 1 or more",
        ));
    }
    let first_on_episodes = options.first_on_episodes();
    if options.updates <= first_on_episodes {
        let needs_episodes = [("--until", arguments.until), ("--until-held-out", arguments.until_held_out)];
        if let Some((option, _)) = needs_episodes.iter().find(|(_, goal)| goal.is_some()) {
            return Err(Failure::usage(format!(
                "--updates {}: {option} needs episodes, which begin after {first_on_episodes} updates on letters and questions: \
                 expected more updates, or fewer --letter-updates or --grounding-updates",
                options.updates
            )));
        }
        crate::resume::say(Some(format!(
            "no update is on episodes, which begin after {first_on_episodes} updates on letters and questions"
        )));
    }
    let schedule = Schedule {
        every: arguments.evaluate_every,
        tasks: arguments.evaluate_tasks,
        held_out_tasks: arguments.evaluate_held_out,
        until: arguments.until,
        until_held_out: arguments.until_held_out,
        limit: arguments.minutes.map(time_limit).transpose()?,
    };
    let start = if arguments.resume { Start::Resume } else { Start::New };
    if start == Start::New {
        // before there is a folder: a resumed run has its dimensions in its checkpoint
        fresh::dimensions(&options).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let folder = crate::resume::start(&arguments.out, start)?;
    if let Some(stored) = folder.config().map_err(Failure::failed)? {
        let changes = resuming::changes(&stored, &options).map_err(|refused| {
            Failure::usage(format!(
                "--resume: this would change the run in {}: {refused}; expected the options that it began with",
                arguments.out.display()
            ))
        })?;
        for change in changes {
            crate::resume::say(Some(change.description()));
        }
    }
    folder.write_config(&options.to_toml()).map_err(Failure::failed)?;
    let stop = StopSwitch::listening().map_err(Failure::failed)?;
    let bar = bar(arguments.updates, arguments.json);
    let (mut problem, mut made) = (Ok(()), 0);
    let model = train(&options, &schedule, &folder, start, device, &stop, &mut |event| {
        if let SupervisedEvent::Started { updates, .. } | SupervisedEvent::Updated { updates, .. } = &event {
            made = *updates;
        }
        let shown = show(&event, arguments.json, &bar, out);
        problem = std::mem::replace(&mut problem, Ok(())).and(shown);
    });
    bar.finish_and_clear();
    let model = model.map_err(|error| match error {
        TrainError::Interrupted => {
            let all = arguments.updates;
            Failure::Stopped(Some(format!("stopped after {made} of {all} updates; --resume continues")))
        }
        error => Failure::of(error),
    })?;
    problem?;
    writeln!(out, "written: {}", model.display())?;
    Ok(())
}

fn time_limit(minutes: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| {
        Failure::usage(format!(
            "--minutes {minutes:?}: expected a number, at least 0, or no --minutes for no limit"
        ))
    })
}

/// The progress bar, on a terminal only; elsewhere only evaluations are printed.
fn bar(updates: u64, hidden: bool) -> ProgressBar {
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(updates) };
    let style = ProgressStyle::with_template("updates {pos:>5}/{len} {bar:30} {eta} left  {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn show(event: &SupervisedEvent, json: bool, bar: &ProgressBar, out: &mut impl Write) -> Result<(), Failure> {
    if json {
        if !matches!(event, SupervisedEvent::Updated { .. }) {
            serde_json::to_writer(&mut *out, event).map_err(std::io::Error::from)?;
            writeln!(out)?;
            out.flush()?;
        }
        return Ok(());
    }
    match event {
        SupervisedEvent::Started { parameters, updates } => {
            bar.set_position(*updates);
            let resumed =
                if *updates > 0 { format!(", resumed after update {updates}") } else { String::new() };
            bar.suspend(|| writeln!(out, "{parameters} parameters{resumed}"))?;
        }
        SupervisedEvent::Notice { message } => bar.suspend(|| writeln!(out, "{message}"))?,
        SupervisedEvent::Updated { updates, loss } => {
            bar.set_position(*updates);
            bar.set_message(format!("loss {loss:.3}"));
        }
        SupervisedEvent::Evaluated {
            updates,
            seconds,
            waited_seconds,
            evaluation_seconds,
            loss,
            success,
            applications,
            held_out,
            names,
        } => {
            let held_out =
                held_out.map_or_else(String::new, |success| format!("  held out {:.3}", success.mean));
            let evaluation = success.map_or_else(String::new, |success| {
                let by: Vec<String> =
                    applications.iter().map(|(name, mean)| format!("{name} {mean:.2}")).collect();
                format!("  success {:.3}{held_out}  {}", success.mean, by.join(" "))
            });
            let names = names.map_or_else(String::new, |NamesKnown { found, read, typed }| {
                format!("  names found {found:.3} read {read:.3} typed {typed:.3}")
            });
            let times =
                format!("{seconds:6.1} s (waited {waited_seconds:.1}, evaluation {evaluation_seconds:.1})");
            bar.suspend(|| writeln!(out, "update {updates:5}  {times}  loss {loss:.4}{names}{evaluation}"))?;
        }
    }
    out.flush()?;
    Ok(())
}
