//! `arpo sft`: a base model from the oracle's demonstrations.

use crate::Failure;
use crate::device::DeviceName;
use arpo_core::config::OptimiserConfig;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::tasks::Suite;
use arpo_model::checkpoint::{self, Weights};
use arpo_model::config::{self, ModelConfig};
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::step::Updater;
use arpo_model::learner::{Learner, LearnerOptions};
use arpo_model::model::Model;
use arpo_tokenizer::train;
use arpo_train::agent::{Agent, pocket_style};
use arpo_train::demonstrations::{oracle_episode, words};
use arpo_train::policy::EnginePolicy;
use arpo_train::policy::engine::ResponseOptions;
use arpo_train::supervised::{self, SupervisedOptions};
use clap::Args;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tch::{Device, Kind};

/// Oracle episodes whose text the tokenizer learns from.
const TOKENIZER_EPISODES: u64 = 3000;

/// Turns of an episode of an evaluation.
const LONGEST_EPISODE: usize = 15;

/// What `arpo sft` takes.
#[derive(Args)]
pub(crate) struct SftArguments {
    /// The new checkpoint's folder
    #[arg(long)]
    out: PathBuf,
    /// Where to compute
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceName,
    /// Updates on questions about screens only
    #[arg(long, default_value_t = 800)]
    grounding_updates: u64,
    /// Updates in all
    #[arg(long, default_value_t = 3000)]
    updates: u64,
    /// Screens in an update on questions
    #[arg(long, default_value_t = 256)]
    screens: usize,
    /// Episodes in an update on episodes
    #[arg(long, default_value_t = 128)]
    episodes: usize,
    /// Learning rate after the warm-up
    #[arg(long, default_value_t = 1e-3)]
    learning_rate: f64,
    /// Updates between evaluations
    #[arg(long, default_value_t = 50)]
    evaluate_every: u64,
    /// Tasks in an evaluation
    #[arg(long, default_value_t = 128)]
    evaluate_tasks: usize,
    /// Stop at the first evaluation with at least this success
    #[arg(long)]
    until: Option<f64>,
    /// Stop after so many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Names every draw
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(arguments: &SftArguments, out: &mut impl Write) -> Result<(), Failure> {
    if arguments.out.exists() {
        return Err(Failure::failed(format!(
            "{} is already there: expected a new folder",
            arguments.out.display()
        )));
    }
    let device = arguments.device.device()?;
    let suite = Suite::Pocket;
    let started = Instant::now();
    let side_files = side_files(suite)?;
    let config = config::pocket();
    let style = pocket_style();
    let agent = Arc::new(Agent::new(&config, &side_files, &arguments.out, style).map_err(Failure::failed)?);
    tch::manual_seed(arguments.seed as i64);
    let weights = Weights::fresh(&config, Kind::Float, device).with_gradients(|_| true);
    writeln!(out, "{} parameters, made in {:.1} s", weights.count(), started.elapsed().as_secs_f64())?;
    let responses = ResponseOptions { temperature: 1.0, max_tokens: 24 };
    let engine = engine(&config, &weights, &agent);
    let mut policy = EnginePolicy::new(engine, PolicyVersion(0), Arc::clone(&agent), responses);
    let learner_options = LearnerOptions {
        temperature: 1.0,
        forbidden: agent.forbidden.clone(),
        activation_bytes: if device == Device::Cpu { 2 << 30 } else { 60 << 30 },
        logit_rows: 1 << 16,
        length_step: 16,
    };
    let learner = Learner::new(Model::new(config.clone(), weights), learner_options);
    let optimiser = AdamW::new(
        learner.model().weights(),
        OptimiserConfig { beta2: 0.95, weight_decay: 0.01, max_grad_norm: 1.0, ..OptimiserConfig::default() },
    );
    let mut updater = Updater::new(learner, optimiser, None);
    let options = SupervisedOptions {
        suite,
        grounding_updates: arguments.grounding_updates,
        updates: arguments.updates,
        screens: arguments.screens,
        episodes: arguments.episodes,
        grounding_share: 0.2,
        learning_rate: arguments.learning_rate,
        warm_up: 100,
        seed: arguments.seed,
    };
    let batches = supervised::batches(Arc::clone(&agent), options.clone(), 0);
    let (mut recent, mut count) = (0.0, 0.0);
    for number in 0..arguments.updates {
        let batch = batches.recv().map_err(Failure::failed)?.map_err(Failure::failed)?;
        recent +=
            supervised::update(&mut updater, &agent, &options, number, &batch).map_err(Failure::failed)?;
        count += 1.0;
        let done = number + 1;
        let minutes = started.elapsed().as_secs_f64() / 60.0;
        let out_of_time = arguments.minutes.is_some_and(|limit| minutes >= limit);
        if !done.is_multiple_of(arguments.evaluate_every) && done != arguments.updates && !out_of_time {
            continue;
        }
        write!(out, "update {done:5}  loss {:.4}  {:6.1} s", recent / count, minutes * 60.0)?;
        (recent, count) = (0.0, 0.0);
        if done > arguments.grounding_updates {
            policy.refresh(PolicyVersion(done)).map_err(Failure::failed)?;
            let played = supervised::evaluate(&mut policy, suite, arguments.evaluate_tasks, LONGEST_EPISODE)
                .map_err(Failure::failed)?;
            let mut by_application: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            for (application, episode) in &played {
                by_application.entry(application).or_default().push(episode.trajectory.score);
            }
            let mean = |scores: &[f64]| scores.iter().sum::<f64>() / scores.len().max(1) as f64;
            let all: Vec<f64> = played.iter().map(|(_, episode)| episode.trajectory.score).collect();
            write!(out, "  success {:.3} ", mean(&all))?;
            for (application, scores) in &by_application {
                write!(out, " {application} {:.2}", mean(scores))?;
            }
            if arguments.until.is_some_and(|wanted| mean(&all) >= wanted) {
                writeln!(out)?;
                break;
            }
        }
        writeln!(out)?;
        out.flush()?;
        if out_of_time {
            break;
        }
    }
    let weights = updater.learner().model().weights().to_kind(Kind::Half);
    checkpoint::save(&arguments.out, &config, &weights, &side_files).map_err(Failure::failed)?;
    writeln!(out, "written: {}", arguments.out.display())?;
    Ok(())
}

fn engine(config: &ModelConfig, weights: &Weights, agent: &Agent) -> Engine {
    let options = EngineOptions {
        cache_bytes: 512 << 20,
        feature_bytes: 64 << 20,
        page_tokens: 16,
        most_running: 256,
        prompt_tokens: 1 << 15,
        forbidden: agent.forbidden.clone(),
    };
    Engine::new(
        Model::new(config.clone(), weights.share()),
        agent.processor.clone(),
        options,
        PolicyVersion(0),
    )
}

/// The tokenizer, learnt from what the oracle reads and says, and how screenshots are processed.
fn side_files(suite: Suite) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let mut desktop = EmbeddedDesktop::new(suite.screen()).map_err(Failure::failed)?;
    let mut texts = Vec::new();
    for number in 0..TOKENIZER_EPISODES {
        let episode = oracle_episode(&mut desktop, suite, number).map_err(Failure::failed)?;
        texts.push(format!("GUI agent\n{}", episode.instruction));
        texts.extend(
            desktop.widgets().iter().map(|widget| format!("find {}\n{}", widget.label, widget.label)),
        );
        texts.extend(episode.actions.iter().map(words));
    }
    let size = config::pocket().text.vocabulary as usize;
    let mut files = train::train(texts.into_iter(), size).map_err(Failure::failed)?;
    let processor = serde_json::json!({
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
        "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
        "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 1280,
        "do_resize": true, "do_rescale": true, "do_normalize": true, "do_convert_rgb": true, "resample": 3,
        "rescale_factor": 1.0 / 255.0,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.27, 0.27, 0.27],
    });
    files.insert("preprocessor_config.json".into(), format!("{processor:#}\n").into_bytes());
    Ok(files)
}
