//! The parts of a run, created from its configuration: collector, policy, learner.

use super::ranks::{self, Gathered, Processes, Shared};
use super::setup::{self, Loaded};
use super::state::RunState;
use crate::TrainError;
use crate::base_model;
use crate::collect::Collector;
use crate::learner::ranks::{RankedLearner, SharedRanks};
use crate::learner::{Learner, LocalLearner};
use crate::memory::guarded;
use crate::memory_plan::{MemoryPlan, Work};
use crate::policy::served::ServedModel;
use crate::policy::{RankedPolicy, RolloutPolicy};
use crate::run::RunFolder;
use crate::run::episodes::tokens::Decode;
use crate::run::notices::Notices;
use crate::run::stop::StopSwitch;
use crate::run::training_state::{MODEL, RestoredModel, load_model};
use arpo_core::config::{CollectMode, Config, Moments, OptimiserConfig, RolloutEngine};
use arpo_env::faults::FaultCounts;
use arpo_model::checkpoint::layout::ParameterLayout;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use std::path::Path;
use std::sync::Arc;

/// The parts that a trainer coordinates, independent of their implementations.
pub struct Parts {
    /// Collects episodes on the suite's desktops.
    pub collector: Collector,
    /// Counts the faults injected into the desktops.
    pub faults: Arc<FaultCounts>,
    /// Generates responses.
    pub policy: Box<dyn RolloutPolicy>,
    /// Makes the updates.
    pub learner: Box<dyn Learner>,
    /// The plan of the memory of the device that samples.
    pub plan: MemoryPlan,
    /// Decodes the policy's tokens, for the record.
    pub decode: Decode,
}

impl Parts {
    /// Policy and learner in this process and its other ranks, from the base model or from a checkpoint, and the suite's desktops.
    pub fn local(
        config: &Config,
        checkpoint: Option<&Path>,
        state: &RunState,
        folder: &RunFolder,
        stop: &StopSwitch,
        notices: &Notices,
    ) -> Result<Self, TrainError> {
        // a checkpoint holds the model's dimensions: the base model need not exist any more
        let dimensions = match checkpoint {
            Some(checkpoint) => arpo_model::config::read(&checkpoint.join(MODEL))?,
            None => base_model::dimensions(&config.model.base)?,
        };
        let plan = setup::checked_memory(config, &dimensions, Work::Training)?;
        let sampling_plan = setup::checked_sampling_memory(config, &dimensions)?;
        let reserved = setup::reserved_memory(config, setup::dtype_and_device(config)?.1)?;
        let optimiser_config = OptimiserConfig { moments: plan.moments, ..config.optimiser.clone() };
        let buffer_of = |layout: &ParameterLayout| setup::gradient_buffer(config, layout);
        let ranks = ranks::gather(config, folder.path(), stop, notices)?;
        let (loaded, restored) = match checkpoint {
            None => {
                let loaded = setup::load(config)?;
                let weights = guarded("allocating gradients", "nothing else on the device", || {
                    Ok(loaded.weights.with_gradients(buffer_of))
                })?;
                (Loaded { weights, ..loaded }, None)
            }
            Some(checkpoint) => {
                // whole moments need not fit on the device of a rank
                let divided = config.learn.learners() > 1;
                let moments = if divided { Moments::Host } else { optimiser_config.moments };
                let whole = OptimiserConfig { moments, ..optimiser_config.clone() };
                let dtype_and_device = setup::dtype_and_device(config)?;
                let restored = guarded("loading the checkpoint", "nothing else on the device", || {
                    load_model(checkpoint, dtype_and_device, buffer_of, whole)
                })?;
                let RestoredModel { config: dimensions, weights, side_files, optimiser } = restored;
                let agent = Arc::new(setup::agent(config, &dimensions, &side_files)?);
                (Loaded { config: dimensions, weights, side_files, agent }, Some(optimiser))
            }
        };
        let Connected { shard, others, samplers } =
            guarded("allocating moments", "nothing else on the device", || match ranks {
                None => Ok(Connected::default()),
                Some(gathered) => {
                    let shared = Shared {
                        config,
                        dimensions: &loaded.config,
                        side_files: &loaded.side_files,
                        weights: &loaded.weights,
                        restored: restored.as_ref(),
                        optimiser: optimiser_config.clone(),
                        skipped: state.skipped,
                        incidents: folder.incidents(),
                        notices,
                    };
                    Connected::new(&shared, gathered)
                }
            })?;
        let optimiser = match shard {
            Some(shard) => {
                // the whole moments, of which the shard is a part
                drop(restored);
                shard
            }
            None => guarded("allocating moments", "nothing else on the device", || {
                Ok(restored.unwrap_or_else(|| AdamW::new(&loaded.weights, optimiser_config)))
            })?,
        };
        // before desktops are started and a reference model is loaded
        if stop.requested() {
            return Err(TrainError::Interrupted);
        }
        let Loaded { config: dimensions, weights, side_files, agent } = loaded;
        // a synchronous run never samples while it learns: one copy of the weights is enough
        let shares = config.collect.mode == CollectMode::Synchronous;
        let sampled_with = || if shares { weights.share() } else { weights.to_kind(weights.kind()) };
        let side_files = setup::side_files_of(config, side_files);
        if config.rollout.engine == RolloutEngine::Builtin && !config.rollout.gpus.is_empty() {
            notices.say(
                "`rollout.gpus` is without effect: it is for servers, and the built-in engine samples on the GPUs of the \
                 ranks, which `learn.gpus` divides",
            );
        }
        let sentinel = samplers.as_ref().map(SharedRanks::sentinel);
        let version = state.version();
        let (policy, features): (Box<dyn RolloutPolicy>, _) = match (config.rollout.engine, samplers) {
            (RolloutEngine::Builtin, Some(samplers)) => {
                let (learning, sampling) = (config.learn.learners(), config.learn.samplers());
                notices.say(&format!("ranks that learn: {learning}; ranks that only sample: {sampling}"));
                let running = sampling_plan.as_ref().map_or(1, |plan| plan.running);
                let (trained, agent) = ((weights.share(), version), Arc::clone(&agent));
                let options = setup::response_options(config);
                (Box::new(RankedPolicy::sampling_elsewhere(trained, agent, options, running, samplers)), None)
            }
            (RolloutEngine::Builtin, None) => {
                let policy =
                    setup::policy_within(&plan, config, &dimensions, &sampled_with(), &agent, version);
                let features = config.model.freeze_vision.then(|| policy.engine().features());
                match &others {
                    Some(others) if ranks::all_sample(config) => {
                        (Box::new(RankedPolicy::new(policy, others.clone())), features)
                    }
                    Some(_) => {
                        notices.say(
                            "slower than necessary: rank 0 alone samples, because sampling and learning overlap; \
                             `learn.gpus` sets how many ranks learn, so that the others sample, and with \
                             `collect.mode` = \"synchronous\" all ranks do both",
                        );
                        (Box::new(policy), features)
                    }
                    None => (Box::new(policy), features),
                }
            }
            (RolloutEngine::Vllm | RolloutEngine::Sglang, _) => {
                let model = ServedModel {
                    config: dimensions.clone(),
                    weights: sampled_with(),
                    side_files: side_files.clone(),
                    agent: Arc::clone(&agent),
                    version,
                };
                (Box::new(setup::served(config, model, &folder.sampler(), notices)?), None)
            }
        };
        let faults = Arc::new(FaultCounts::default());
        let source = setup::source(config, Some(folder.path()), stop, notices)?;
        setup::open(source.as_ref(), stop)?;
        let collector = setup::collector_of(config, source, &faults).stopped_by(stop.clone());
        let reference = setup::reference(config, &agent)?;
        if let Some(others) = &others {
            ranks::give_reference(reference.as_ref(), others)?;
        }
        let model = setup::trainable_model(config, &dimensions, weights, &agent);
        let updater = Updater::new(model, optimiser, Some(folder.incidents())).with_skipped(state.skipped);
        let learner = LocalLearner::new(updater, agent.processor.clone(), config.model.micro_batch_tokens)
            .stopped_by(stop.clone())
            .watching_samplers(sentinel)
            .with_reference(reference)
            .with_features(features)
            .with_side_files(side_files)
            .copying_weights(!shares)
            .reserving(reserved);
        let learner: Box<dyn Learner> = match others {
            None => Box::new(learner),
            Some(others) => Box::new(RankedLearner::new(learner, others)),
        };
        let tokenizer = Arc::clone(&agent.tokenizer);
        let decode: Decode = Arc::new(move |tokens| tokenizer.decode(tokens, false).ok());
        Ok(Self { collector, faults, policy, learner, plan: sampling_plan.unwrap_or(plan), decode })
    }
}

/// The other ranks of a run, which have the model.
#[derive(Default)]
struct Connected {
    /// Rank 0's shard of the optimiser; `None` if it has all of it.
    shard: Option<AdamW>,
    /// Those that learn.
    others: Option<SharedRanks>,
    /// Those that only sample.
    samplers: Option<SharedRanks>,
}

impl Connected {
    /// Gives the ranks the model.
    fn new(shared: &Shared, gathered: Gathered) -> Result<Self, TrainError> {
        // before the groups, so that it is dropped after them, however this ends: it waits for processes, which end once their
        // group has told them that the run is over
        let processes: Arc<Processes> = Arc::new(gathered.processes);
        let Gathered { learners, samplers, .. } = gathered;
        // the ranks of a machine share its memory
        let gib = shared.config.replay.screens_gib / shared.config.learn.local_ranks() as f64;
        let budget = (gib * f64::from(1 << 30)) as usize;
        let known = |tensors| SharedRanks::new(tensors, budget, Box::new(Arc::clone(&processes)));
        let samplers = samplers.map(|group| shared.give_samplers(group)).transpose()?.map(known);
        if learners.size() == 1 {
            return Ok(Self { samplers, ..Self::default() });
        }
        let (shard, tensors) = shared.give(learners)?;
        Ok(Self { shard: Some(shard), others: Some(known(tensors)), samplers })
    }
}
