//! The memory that a run needs, known before anything is loaded. A pure function of the model's dimensions, the
//! configuration and the size of the device.
//!
//! A synchronous run on a GPU alternates between two phases. While episodes are collected, the device holds the weights,
//! what learning keeps between updates, and the KV cache; while it learns, the cache is released and activations take its
//! memory. `arpo bench iteration` compares the plan with the memory actually used. Where some ranks learn and the others sample
//! (`learn.gpus`), the plan for training is that of a rank that learns, which has no cache, and the plan for sampling is that of
//! one that samples.

mod remedies;
mod sizes;

pub use remedies::fitting;

use arpo_agent::geometry::Size;
use arpo_core::config::{CollectMode, Config, Moments, RolloutEngine};
use arpo_model::config::ModelConfig;
use arpo_model::training::plan::{Plan, input_activation_bytes, vision_working_bytes, working_bytes};
use sizes::Sizes;
use std::fmt;

const GIB: f64 = (1u64 << 30) as f64;

/// GPU memory for the driver, the libraries and the allocator's rounding, besides all tensors.
const RESERVED_BYTES: u64 = 3 << 30;

/// Bytes per logit of a chunk: in f32 and in the three forms it takes on the way to a gradient.
const LOGIT_BYTES: u64 = 18;

/// Most rows of logits at a time; more are not faster.
const MOST_LOGIT_ROWS: u64 = 4096;

/// Default memory for logits.
const LOGITS: u64 = 1 << 30;

/// Most new prompt tokens of one pass of the rollout engine.
pub const PROMPT_TOKENS: usize = 1 << 14;

/// Defaults for a CPU: fixed, so that a run does not depend on what else the machine does.
const CPU_CACHE: u64 = 1 << 29;
const CPU_ACTIVATIONS: u64 = 2 << 30;

/// The cache of image features gets one eighth of the size of the KV cache: so the features of the 7B take as much as its
/// keys and values. With DeepStack, what keys and values are to features, if that is less.
const FEATURE_SHARE: u64 = 8;

/// Where a run computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceMemory {
    /// On a GPU with this many bytes, in bf16.
    Gpu(u64),
    /// On the CPU, in f32, with this many bytes free; `None` if the system does not report it.
    Cpu(Option<u64>),
}

/// What is done with the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Episodes are collected and trained on.
    Training,
    /// Episodes are only collected.
    Sampling,
}

/// A use of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// What it is for.
    pub name: &'static str,
    /// Its size.
    pub bytes: u64,
}

/// The memory that a run needs, and how the rest is divided.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPlan {
    /// Available bytes; `None` if unknown.
    pub available: Option<u64>,
    /// While episodes are collected.
    pub collecting: Vec<Allocation>,
    /// While it learns.
    pub learning: Vec<Allocation>,
    /// In host memory, if the device is a GPU.
    pub host: Vec<Allocation>,
    /// For keys and values.
    pub cache_bytes: u64,
    /// For image features.
    pub feature_bytes: u64,
    /// Between the forward and the backward pass.
    pub activation_bytes: u64,
    /// Rows of logits that exist at a time.
    pub logit_rows: i64,
    /// Where the optimiser's moments are.
    pub moments: Moments,
    /// Concurrent episodes.
    pub running: usize,
    /// Tokens of the longest sequence that is trained, and of a whole episode in the cache.
    pub longest_tokens: usize,
}

impl MemoryPlan {
    /// The plan for a model and a configuration, with screens of this size.
    pub fn new(model: &ModelConfig, config: &Config, screen: Size, memory: DeviceMemory, work: Work) -> Self {
        let with = |moments| Self::with_moments(model, config, screen, memory, work, moments);
        match config.optimiser.moments {
            Moments::Auto => {
                let on_device = with(Moments::Device);
                let offload = matches!(memory, DeviceMemory::Gpu(_)) && on_device.problem().is_some();
                if offload { with(Moments::Host) } else { on_device }
            }
            given => with(given),
        }
    }

    fn with_moments(
        model: &ModelConfig,
        config: &Config,
        screen: Size,
        memory: DeviceMemory,
        work: Work,
        moments: Moments,
    ) -> Self {
        let (gpu, available) = match memory {
            DeviceMemory::Gpu(bytes) => (true, Some(bytes)),
            DeviceMemory::Cpu(bytes) => (false, bytes),
        };
        let sizes = Sizes::new(model, config, screen, if gpu { 2 } else { 4 });
        let limit = (config.model.memory_gib * GIB) as u64;
        let available =
            if limit > 0 { Some(available.map_or(limit, |bytes| bytes.min(limit))) } else { available };
        let overlapped = config.collect.mode == CollectMode::Overlapped;
        let host = gpu && moments == Moments::Host;

        let trains = work == Work::Training;
        // servers, and ranks that only sample, have their own memory
        let split = config.learn.is_split();
        let sampled_elsewhere = trains && (split || config.rollout.engine != RolloutEngine::Builtin);
        let mut kept = vec![Allocation { name: "weights", bytes: sizes.weights }];
        if trains {
            kept.push(Allocation { name: "gradients", bytes: sizes.gradients });
            if sizes.gradient_buffers > 0 {
                kept.push(Allocation { name: "gradient buffers", bytes: sizes.gradient_buffers });
            }
        }
        if trains && !host {
            kept.push(Allocation { name: "moments", bytes: sizes.moments });
        }
        if trains && overlapped {
            // one copy that the rollout worker samples with or sends, one published and not yet taken; what has been sent to
            // ranks that only sample is needed here no more
            let copies = if split { config.collect.staleness.min(2) } else { 2 };
            kept.push(Allocation { name: "sampler's weights", bytes: copies * sizes.weights });
        }
        if trains && config.loss.kl_coefficient > 0.0 {
            kept.push(Allocation { name: "reference model", bytes: sizes.weights });
        }
        if gpu {
            kept.push(Allocation { name: "CUDA and its libraries", bytes: RESERVED_BYTES });
        }

        let shown = sizes.images * (sizes.micro_batch / sizes.slice.max(1)).max(1);
        let pixels = (shown * sizes.patches) as u64 * model.vision.patch_values() as u64 * 4;
        let working = working_bytes(model, sizes.micro_batch as u64, sizes.value_bytes);
        let row_bytes = model.text.vocabulary as u64 * LOGIT_BYTES;
        let mut learning = kept.clone();
        // the levels of DeepStack, as the tower gives them and as the rows of images have them
        let features = (shown * sizes.patches) as u64 / (model.vision.merge * model.vision.merge) as u64;
        let levels = (model.vision.levels() as u64 - 1) * features * model.text.hidden as u64;
        let images = 2 * pixels + 2 * levels * sizes.value_bytes;
        learning.push(Allocation { name: "images", bytes: images });
        // moments are copied back one parameter at a time, when the working memory of the passes is free
        let copied_moments = if host { 2 * sizes.largest_parameter } else { 0 };
        learning.push(Allocation { name: "working memory", bytes: working.max(copied_moments) });
        let logits = LOGITS.max(16 * row_bytes).min(MOST_LOGIT_ROWS * row_bytes);
        learning.push(Allocation { name: "logits", bytes: logits });

        let mut collecting = kept;
        let prompt = PROMPT_TOKENS.max(sizes.slice) as u64;
        let prefill = working_bytes(model, prompt, sizes.value_bytes) / 2;
        // the images of a prompt are encoded before its layers are computed
        let merged = (model.vision.merge * model.vision.merge) as u64;
        let patches = (prompt * merged).min((sizes.images * sizes.patches) as u64);
        let encoding = vision_working_bytes(model, patches, sizes.value_bytes);
        let working = if sampled_elsewhere { 0 } else { prefill.max(encoding) };
        collecting.push(Allocation { name: "working memory", bytes: working });

        let least_activations = input_activation_bytes(model, sizes.micro_batch as u64, sizes.value_bytes);
        let trained_patches = if config.model.freeze_vision { 0 } else { (shown * sizes.patches) as u64 };
        let most_activations =
            Plan::full_activation_bytes(model, sizes.micro_batch as u64, trained_patches, sizes.value_bytes)
                .max(least_activations);
        let longest_request = (sizes.slice + config.agent.max_tokens) as u64 * sizes.token_bytes;
        let episode_bytes = sizes.slice as u64 * sizes.token_bytes;
        // the learner uses the cache's memory, unless episodes are collected at the same time on the same device
        let alternating = gpu && !(overlapped && trains);
        let left = |parts: &[Allocation]| available.map_or(0, |bytes| bytes.saturating_sub(total(parts)));

        let levels = model.vision.levels() as u64;
        let feature_share = if levels == 1 {
            FEATURE_SHARE
        } else {
            let of_feature = levels * model.text.hidden as u64 * sizes.value_bytes;
            (sizes.token_bytes / of_feature).clamp(1, FEATURE_SHARE)
        };

        let given_cache = (config.model.cache_gib * GIB) as u64;
        let cache_bytes = if sampled_elsewhere {
            0
        } else if given_cache > 0 {
            given_cache
        } else if !gpu {
            CPU_CACHE
        } else {
            // if both phases run at the same time, half of what learning leaves
            let free = if alternating { left(&collecting) } else { left(&learning) / 2 };
            let most = (config.collect.desktops as u64 + 1) * episode_bytes;
            let shared = free / (feature_share + 1) * feature_share;
            shared.clamp(longest_request, most.max(longest_request))
        };
        let feature_bytes = cache_bytes / feature_share;
        collecting.push(Allocation { name: "cache", bytes: cache_bytes });
        collecting.push(Allocation { name: "features", bytes: feature_bytes });
        if !alternating {
            learning.push(Allocation { name: "cache", bytes: cache_bytes });
        }
        if !alternating || config.model.freeze_vision {
            // a frozen vision tower computes the same features again, so they are kept
            learning.push(Allocation { name: "features", bytes: feature_bytes });
        }
        let given_activations = (config.model.activation_gib * GIB) as u64;
        let activation_bytes = if given_activations > 0 {
            given_activations
        } else if !gpu {
            CPU_ACTIVATIONS
        } else {
            left(&learning).clamp(least_activations, most_activations)
        };
        learning.push(Allocation { name: "activations", bytes: activation_bytes.min(most_activations) });
        if !trains {
            learning.clear();
        }
        let fitting_episodes =
            if sampled_elsewhere { usize::MAX } else { (cache_bytes / episode_bytes.max(1)).max(1) as usize };
        Self {
            available,
            collecting,
            learning,
            host: if trains && host {
                vec![Allocation { name: "moments", bytes: sizes.moments }]
            } else {
                vec![]
            },
            cache_bytes,
            feature_bytes,
            activation_bytes,
            logit_rows: (logits / row_bytes).clamp(16, MOST_LOGIT_ROWS) as i64,
            moments: if host { Moments::Host } else { Moments::Device },
            running: match config.collect.running {
                0 => fitting_episodes.min(config.collect.desktops),
                given => given,
            },
            longest_tokens: sizes.slice,
        }
    }

    /// Why it does not fit, with the sizes; `None` if it does.
    pub fn problem(&self) -> Option<String> {
        let available = self.available?;
        let phases = [("learning", &self.learning), ("collecting", &self.collecting)];
        let (phase, parts) = phases.into_iter().max_by_key(|(_, parts)| total(parts))?;
        let needed = total(parts);
        if needed <= available {
            return None;
        }
        let list: Vec<String> =
            parts.iter().map(|part| format!("{} {}", part.name, gib(part.bytes))).collect();
        Some(format!("{phase} needs {} GiB of {}: {}", gib(needed), gib(available), list.join(", ")))
    }
}

/// Total bytes.
pub fn total(parts: &[Allocation]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
}

fn gib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / GIB)
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let available = self.available.map_or_else(|| "an unknown number of".into(), gib);
        writeln!(f, "memory: {available} GiB")?;
        for (phase, parts) in [("collecting", &self.collecting), ("learning", &self.learning)] {
            if parts.is_empty() {
                continue;
            }
            writeln!(f, "  {phase:<24} {:>7} GiB", gib(total(parts)))?;
            for Allocation { name, bytes } in parts {
                writeln!(f, "    {name:<24} {:>5}", gib(*bytes))?;
            }
        }
        for Allocation { name, bytes } in &self.host {
            writeln!(f, "  {name} on the host {:>13} GiB", gib(*bytes))?;
        }
        let Self { running, longest_tokens, .. } = self;
        write!(f, "  {running} episodes at once, sequences of up to {longest_tokens} tokens")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::config::{Layer, resolve};
    use arpo_model::config::{pocket, qwen2_5_vl_7b, qwen3_vl_8b};

    const SCREEN: Size = Size { width: 1920, height: 1080 };

    fn osworld(sets: &[&str]) -> Config {
        let sets = sets.iter().map(|set| Layer::set(set).unwrap());
        resolve(&std::iter::once(Layer::preset("osworld").unwrap()).chain(sets).collect::<Vec<_>>()).unwrap()
    }

    fn plan(gib: u64, sets: &[&str]) -> MemoryPlan {
        MemoryPlan::new(
            &qwen2_5_vl_7b(),
            &osworld(sets),
            SCREEN,
            DeviceMemory::Gpu(gib << 30),
            Work::Training,
        )
    }

    fn part(parts: &[Allocation], name: &str) -> f64 {
        parts.iter().filter(|part| part.name == name).map(|part| part.bytes as f64 / GIB).sum()
    }

    /// 8.29e9 parameters in bf16; 28 layers of 2 x 4 x 128 values for each token.
    #[test]
    fn the_7b_on_one_h200_by_hand() {
        let plan = plan(140, &[]);
        assert_eq!(plan.problem(), None);
        assert!((part(&plan.learning, "weights") - 15.45).abs() < 0.05);
        assert!((part(&plan.learning, "moments") - 30.9).abs() < 0.1);
        let tokens = plan.longest_tokens as f64;
        // 15 screenshots of 2 691 features
        assert!(tokens > 15.0 * 2691.0 && tokens < 46_000.0, "{tokens}");
        let episode = tokens * 57_344.0;
        assert_eq!(plan.running, (plan.cache_bytes as f64 / episode) as usize);
        // the learner uses the cache's memory
        assert!((part(&plan.learning, "cache")).abs() < 1e-9 && part(&plan.collecting, "cache") > 50.0);
        assert!(plan.activation_bytes > 50 << 30);
    }

    #[test]
    fn the_7b_fits_an_80_gb_card_with_its_moments_on_the_host() {
        let plan = plan(78, &[]);
        assert_eq!((plan.problem(), plan.moments), (None, Moments::Host));
        assert!((part(&plan.host, "moments") - 30.9).abs() < 0.1);
        let there = self::plan(78, &["optimiser.moments=\"device\""]).problem().unwrap();
        assert!(there.starts_with("learning needs") && there.contains("of 78.0: weights 15.4"), "{there}");
    }

    #[test]
    fn ranks_divide_the_moments_and_the_gradients() {
        let moments = plan(78, &["learn.ranks=8"]);
        assert_eq!((moments.problem(), moments.moments), (None, Moments::Device));
        assert!((part(&moments.learning, "moments") - 30.9 / 8.0).abs() < 0.02);
        assert!((part(&moments.learning, "gradients") - 19.61).abs() < 0.02, "{moments}");
        let gradients = plan(78, &["learn.ranks=8", "learn.zero_stage=2"]);
        assert!((part(&gradients.learning, "gradients") - 19.61 / 8.0).abs() < 0.02, "{gradients}");
        assert!((part(&gradients.learning, "gradient buffers") - 5.48).abs() < 0.02, "{gradients}");
        assert!(gradients.activation_bytes > moments.activation_bytes + (11 << 30), "{gradients}");
        // one process has nothing to divide
        assert_eq!(plan(78, &["learn.zero_stage=2"]), plan(78, &[]));
    }

    /// The published Qwen2.5-VL 32B.
    fn qwen2_5_vl_32b() -> ModelConfig {
        let text = serde_json::json!({
            "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
            "intermediate_size": 27648, "vocab_size": 152_064, "rms_norm_eps": 1e-6,
            "rope_parameters": {"mrope_section": [16, 24, 24], "rope_theta": 1e6, "rope_type": "default"},
        });
        let vision = serde_json::json!({"out_hidden_size": 5120, "intermediate_size": 3456});
        let published =
            serde_json::json!({"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision});
        arpo_model::config::parse(published).unwrap()
    }

    /// 33.45e9 parameters in bf16; gradients of 2.35e9 in the attention's projections, of embedding, head and vision tower in
    /// f32. Two blocks, one of embedding and head, and the vision tower have whole gradients.
    #[test]
    fn a_32b_on_eight_cards_needs_its_gradients_in_shards() {
        let plan = |stage: &str| {
            let sets = [
                "learn.ranks=8",
                stage,
                "agent.max_screenshots=10",
                "agent.max_tokens=1024",
                "model.micro_batch_tokens=16384",
            ];
            let memory = DeviceMemory::Gpu(140 << 30);
            MemoryPlan::new(&qwen2_5_vl_32b(), &osworld(&sets), SCREEN, memory, Work::Training)
        };
        let whole = plan("learn.zero_stage=1");
        assert!((part(&whole.learning, "gradients") - 70.87).abs() < 0.1, "{whole}");
        let problem = whole.problem().unwrap();
        assert!(problem.starts_with("learning needs"), "{problem}");
        let sharded = plan("learn.zero_stage=2");
        assert_eq!((sharded.problem(), sharded.moments), (None, Moments::Device), "{sharded}");
        for (name, gib) in
            [("weights", 62.31), ("gradients", 8.86), ("gradient buffers", 7.42), ("moments", 15.58)]
        {
            assert!((part(&sharded.learning, name) - gib).abs() < 0.05, "{name}: {sharded}");
        }
    }

    #[test]
    fn a_plan_that_does_not_fit_is_refused_with_keys_that_would_help() {
        let refused = |gib: u64, sets: &[&str]| {
            let memory = DeviceMemory::Gpu(gib << 30);
            fitting(&qwen2_5_vl_7b(), &osworld(sets), SCREEN, memory, Work::Training).unwrap_err()
        };
        let by_moments = refused(78, &["optimiser.moments=\"device\""]);
        assert!(by_moments.ends_with("; it would fit with `optimiser.moments` = \"host\""), "{by_moments}");
        let by_window = refused(52, &[]);
        assert!(by_window.contains("`agent.max_screenshots` = 5"), "{by_window}");
        let never = refused(24, &[]);
        assert!(never.ends_with("expected a larger device or a smaller model"), "{never}");
        let given = refused(140, &["model.activation_gib=100"]);
        assert!(given.contains("`model.activation_gib` = 0 and `model.cache_gib` = 0"), "{given}");
    }

    /// Episodes that are collected during an update keep their cache.
    #[test]
    fn an_overlapped_run_divides_the_rest_between_both_phases() {
        let overlapped =
            ["collect.mode=\"overlapped\"", "loss.old=\"sampler\"", "optimiser.moments=\"host\""];
        let plan = plan(140, &overlapped);
        assert_eq!(plan.problem(), None, "{plan}");
        assert!(part(&plan.learning, "cache") > 10.0 && part(&plan.learning, "activations") > 10.0, "{plan}");
    }

    /// Those that learn have no cache, those that sample nothing but weights and cache.
    #[test]
    fn ranks_that_learn_and_ranks_that_only_sample() {
        let overlapped = ["collect.mode=\"overlapped\"", "loss.old=\"sampler\""];
        let sets = [&["learn.ranks=8", "learn.gpus=4"][..], &overlapped].concat();
        let learning = plan(140, &sets);
        assert_eq!(learning.problem(), None, "{learning}");
        assert_eq!((learning.cache_bytes, learning.feature_bytes), (0, 0));
        // 30.9 between four
        assert!((part(&learning.learning, "moments") - 7.73).abs() < 0.05, "{learning}");
        // a copy of the weights on its way to the others
        assert!((part(&learning.learning, "sampler's weights") - 15.45).abs() < 0.05, "{learning}");
        let sampling = |sets: &[&str]| {
            let memory = DeviceMemory::Gpu(140 << 30);
            MemoryPlan::new(&qwen2_5_vl_7b(), &osworld(sets), SCREEN, memory, Work::Sampling)
        };
        let plan = sampling(&sets);
        let names: Vec<&str> = plan.collecting.iter().map(|part| part.name).collect();
        assert_eq!(names, ["weights", "CUDA and its libraries", "working memory", "cache", "features"]);
        assert!(plan.learning.is_empty() && part(&plan.collecting, "cache") > 50.0, "{plan}");
        // that others learn meanwhile takes nothing from it
        assert_eq!(plan, sampling(&[]));
    }

    #[test]
    fn a_frozen_vision_tower_keeps_its_features() {
        let plan = plan(140, &["model.freeze_vision=true"]);
        assert_eq!(plan.problem(), None);
        assert!(part(&plan.learning, "features") > 1.0 && part(&plan.learning, "cache").abs() < 1e-9);
    }

    /// On a device with memory for it, unless it is frozen.
    #[test]
    fn a_large_device_keeps_the_vision_tower() {
        let [trained, frozen] = [plan(400, &[]), plan(400, &["model.freeze_vision=true"])]
            .map(|plan| part(&plan.learning, "activations"));
        assert!(trained > frozen + 100.0, "{trained} {frozen}");
    }

    /// Free memory changes by the minute; the plan must not.
    #[test]
    fn the_defaults_of_a_cpu_do_not_depend_on_free_memory() {
        let config =
            resolve(&["model.cache_gib=0", "model.activation_gib=0"].map(|set| Layer::set(set).unwrap()));
        let screen = Size { width: 168, height: 140 };
        let plans = [5, 50].map(|gib: u64| {
            let memory = DeviceMemory::Cpu(Some(gib << 30));
            MemoryPlan::new(&pocket(), config.as_ref().unwrap(), screen, memory, Work::Training)
        });
        assert_eq!(plans[0].cache_bytes, plans[1].cache_bytes);
        assert_eq!(
            (plans[0].activation_bytes, plans[0].running),
            (plans[1].activation_bytes, plans[1].running)
        );
    }

    /// Memory grows with the longest slice, not with the episode.
    #[test]
    fn a_hundred_turns_need_the_memory_of_their_window() {
        let long = plan(140, &["collect.max_steps=100"]);
        let short = plan(140, &[]);
        let response_tokens = 85.0 * 212.0;
        let more = long.longest_tokens as f64 - short.longest_tokens as f64;
        assert!((more - response_tokens).abs() < 1.0, "{more}");
    }

    /// The quick preset fits into 4 GiB with all its desktops running.
    #[test]
    fn the_quick_preset_runs_all_its_desktops() {
        let config = resolve(&[Layer::preset("quick").unwrap()]).unwrap();
        let screen = Size { width: 168, height: 140 };
        let memory = DeviceMemory::Cpu(Some(4 << 30));
        let plan = MemoryPlan::new(&pocket(), &config, screen, memory, Work::Training);
        assert_eq!((plan.problem(), plan.running), (None, 64));
        assert_eq!((plan.cache_bytes, plan.activation_bytes), (1 << 29, 2 << 30));
    }

    /// 36 layers of 2 x 8 x 128 values for each token, and four levels of 4 096 values for each feature.
    #[test]
    fn qwen3_vl_8b_by_hand() {
        let memory = DeviceMemory::Gpu(140 << 30);
        let plan = MemoryPlan::new(&qwen3_vl_8b(), &osworld(&[]), SCREEN, memory, Work::Training);
        assert_eq!(plan.problem(), None, "{plan}");
        // 8.77e9 parameters in bf16
        assert!((part(&plan.learning, "weights") - 16.3).abs() < 0.1, "{plan}");
        // 15 screenshots of 60 x 34 features, the tool's description and 15 responses
        let tokens = plan.longest_tokens as f64;
        assert!(tokens > 15.0 * 2040.0 + 1000.0 && tokens < 36_500.0, "{tokens}");
        // a feature takes 2/9 of what a token takes in the cache
        assert_eq!(plan.feature_bytes, plan.cache_bytes / 4);
        // a prompt of this length is longer than what the tower encodes at once
        let encoding = vision_working_bytes(&qwen3_vl_8b(), 15 * 8160, 2) as f64 / GIB;
        assert!(part(&plan.collecting, "working memory") >= encoding && encoding > 1.0, "{encoding}");
    }

    #[test]
    fn sampling_alone_needs_no_gradients() {
        let memory = DeviceMemory::Gpu(32 << 30);
        let config = osworld(&[]);
        let plan = MemoryPlan::new(&qwen2_5_vl_7b(), &config, SCREEN, memory, Work::Sampling);
        assert!(plan.problem().is_none() && plan.learning.is_empty(), "{plan}");
        assert!((part(&plan.collecting, "gradients")).abs() < 1e-9);
    }
}
