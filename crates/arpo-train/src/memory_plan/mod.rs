//! What a run needs of its device, known before anything is loaded. Pure: from the model's dimensions, the configuration
//! and the size of the device to the share of each part, in both phases.
//!
//! A synchronous run on a GPU has two phases that follow each other. While episodes are collected the device holds the
//! weights, what learning keeps between updates, and the cache; while it learns, the cache is given back and activations
//! take its place. `arpo bench iteration` says how far the sums are from what is used.

mod remedies;
mod sizes;

pub use remedies::fitting;

use arpo_agent::geometry::Size;
use arpo_core::config::{CollectMode, Config, Moments};
use arpo_model::config::ModelConfig;
use arpo_model::learner::plan::{Plan, kept_of_inputs, working_bytes};
use sizes::Sizes;
use std::fmt;

const GIB: f64 = (1u64 << 30) as f64;

/// What the driver, the libraries and the allocator's rounding take of a GPU, beside all tensors.
const RESERVED_BYTES: u64 = 3 << 30;

/// Logits of a chunk, in f32 and in the three forms they take on the way to a gradient, by number.
const LOGIT_BYTES: u64 = 18;

/// Rows of logits that exist at a time at most; more are not faster.
const MOST_LOGIT_ROWS: u64 = 4096;

/// Memory for logits, where nothing else says how much.
const LOGITS: u64 = 1 << 30;

/// New prompt tokens of one pass of the rollout engine.
pub const PROMPT_TOKENS: usize = 1 << 14;

/// What a CPU is given where nothing says how much: fixed, so that a run does not depend on what else the machine does.
const CPU_CACHE: u64 = 1 << 29;
const CPU_ACTIVATIONS: u64 = 2 << 30;

/// Of the memory for collecting an eighth as much as for keys and values is for features of pictures.
const FEATURE_SHARE: u64 = 8;

/// Where a run computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On a GPU with so many bytes, in bf16.
    Gpu(u64),
    /// On the CPU, in f32, with so many bytes free; `None` where the system does not say.
    Cpu(Option<u64>),
}

/// What is done with the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Episodes are collected and learnt from.
    Training,
    /// Episodes are only collected.
    Sampling,
}

/// A part of the device's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What lies there.
    pub name: &'static str,
    /// How much.
    pub bytes: u64,
}

/// What a run needs, and how what is left is shared out.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPlan {
    /// Bytes there are; `None` if nobody knows.
    pub available: Option<u64>,
    /// While episodes are collected.
    pub collecting: Vec<Part>,
    /// While it learns.
    pub learning: Vec<Part>,
    /// In the machine's memory, where the device is a GPU.
    pub host: Vec<Part>,
    /// For keys and values.
    pub cache_bytes: u64,
    /// For features of pictures.
    pub feature_bytes: u64,
    /// Between the forward and the backward pass.
    pub activation_bytes: u64,
    /// Rows of logits that exist at a time.
    pub logit_rows: i64,
    /// Where the optimiser's moments are.
    pub moments: Moments,
    /// Episodes under way at once.
    pub running: usize,
    /// Tokens of the longest sequence that is trained, and of a whole episode in the cache.
    pub longest_tokens: usize,
}

impl MemoryPlan {
    /// The plan for a model and a configuration, with screens of this size.
    pub fn new(model: &ModelConfig, config: &Config, screen: Size, place: Place, work: Work) -> Self {
        let with = |moments| Self::with_moments(model, config, screen, place, work, moments);
        match config.optimiser.moments {
            Moments::Auto => {
                let near = with(Moments::Device);
                let far = matches!(place, Place::Gpu(_)) && near.problem().is_some();
                if far { with(Moments::Host) } else { near }
            }
            given => with(given),
        }
    }

    fn with_moments(
        model: &ModelConfig,
        config: &Config,
        screen: Size,
        place: Place,
        work: Work,
        moments: Moments,
    ) -> Self {
        let (gpu, available) = match place {
            Place::Gpu(bytes) => (true, Some(bytes)),
            Place::Cpu(bytes) => (false, bytes),
        };
        let sizes = Sizes::new(model, config, screen, if gpu { 2 } else { 4 });
        let limit = (config.model.memory_gib * GIB) as u64;
        let available =
            if limit > 0 { Some(available.map_or(limit, |bytes| bytes.min(limit))) } else { available };
        let overlapped = config.collect.mode == CollectMode::Overlapped;
        let host = gpu && moments == Moments::Host;

        let trains = work == Work::Training;
        let mut kept = vec![Part { name: "weights", bytes: sizes.weights }];
        if trains {
            kept.push(Part { name: "gradients", bytes: sizes.gradients });
        }
        if trains && !host {
            kept.push(Part { name: "moments", bytes: sizes.moments });
        }
        if trains && overlapped {
            // one the player samples with, one on its way
            kept.push(Part { name: "sampler's weights", bytes: 2 * sizes.weights });
        }
        if trains && config.loss.kl_coefficient > 0.0 {
            kept.push(Part { name: "reference model", bytes: sizes.weights });
        }
        if gpu {
            kept.push(Part { name: "CUDA and its libraries", bytes: RESERVED_BYTES });
        }

        let shown = sizes.pictures * (sizes.micro_batch / sizes.slice.max(1)).max(1);
        let pixels = (shown * sizes.patches) as u64 * model.vision.patch_numbers() as u64 * 4;
        let working = working_bytes(model, sizes.micro_batch as u64, sizes.number_bytes);
        let row_bytes = model.text.vocabulary as u64 * LOGIT_BYTES;
        let mut learning = kept.clone();
        learning.push(Part { name: "pictures", bytes: 2 * pixels });
        // moments come back one parameter at a time, when nothing of the passes is left
        let moved = if host { 2 * sizes.largest_parameter } else { 0 };
        learning.push(Part { name: "working memory", bytes: working.max(moved) });
        let logits = LOGITS.max(16 * row_bytes).min(MOST_LOGIT_ROWS * row_bytes);
        learning.push(Part { name: "logits", bytes: logits });

        let mut collecting = kept;
        let reading = working_bytes(model, PROMPT_TOKENS.max(sizes.slice) as u64, sizes.number_bytes) / 2;
        collecting.push(Part { name: "working memory", bytes: reading });

        let least_activations = kept_of_inputs(model, sizes.micro_batch as u64, sizes.number_bytes);
        let most_activations =
            Plan::everything(model, sizes.micro_batch as u64, sizes.number_bytes).max(least_activations);
        let longest_request = (sizes.slice + config.agent.max_tokens) as u64 * sizes.token_bytes;
        let episode_bytes = sizes.slice as u64 * sizes.token_bytes;
        // the learner has the cache's memory while it learns, unless episodes are played meanwhile
        let apart = gpu && !overlapped;
        let left = |parts: &[Part]| available.map_or(0, |bytes| bytes.saturating_sub(total(parts)));

        let given_cache = (config.model.cache_gib * GIB) as u64;
        let cache_bytes = if given_cache > 0 {
            given_cache
        } else if !gpu {
            CPU_CACHE
        } else {
            // where both phases are at once, half of what learning leaves
            let free = if apart { left(&collecting) } else { left(&learning) / 2 };
            let most = (config.collect.desktops as u64 + 1) * episode_bytes;
            let shared = free / (FEATURE_SHARE + 1) * FEATURE_SHARE;
            shared.clamp(longest_request, most.max(longest_request))
        };
        let feature_bytes = cache_bytes / FEATURE_SHARE;
        collecting.push(Part { name: "cache", bytes: cache_bytes });
        collecting.push(Part { name: "features", bytes: feature_bytes });
        if !apart {
            learning.push(Part { name: "cache", bytes: cache_bytes });
        }
        if !apart || config.model.freeze_vision {
            // a tower that is not trained makes the same of a picture again, so its features are kept
            learning.push(Part { name: "features", bytes: feature_bytes });
        }
        let given_activations = (config.model.activation_gib * GIB) as u64;
        let activation_bytes = if given_activations > 0 {
            given_activations
        } else if !gpu {
            CPU_ACTIVATIONS
        } else {
            left(&learning).clamp(least_activations, most_activations)
        };
        learning.push(Part { name: "activations", bytes: activation_bytes.min(most_activations) });
        if !trains {
            learning.clear();
        }
        let holds = (cache_bytes / episode_bytes.max(1)).max(1) as usize;
        Self {
            available,
            collecting,
            learning,
            host: if trains && host { vec![Part { name: "moments", bytes: sizes.moments }] } else { vec![] },
            cache_bytes,
            feature_bytes,
            activation_bytes,
            logit_rows: (logits / row_bytes).clamp(16, MOST_LOGIT_ROWS) as i64,
            moments: if host { Moments::Host } else { Moments::Device },
            running: match config.collect.running {
                0 => holds.min(config.collect.desktops),
                given => given,
            },
            longest_tokens: sizes.slice,
        }
    }

    /// Why it does not fit, with the numbers; `None` if it does.
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

/// The bytes of parts together.
pub fn total(parts: &[Part]) -> u64 {
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
            for Part { name, bytes } in parts {
                writeln!(f, "    {name:<24} {:>5}", gib(*bytes))?;
            }
        }
        for Part { name, bytes } in &self.host {
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
    use arpo_model::config::{pocket, qwen2_5_vl_7b};

    const SCREEN: Size = Size { width: 1920, height: 1080 };

    fn osworld(sets: &[&str]) -> Config {
        let sets = sets.iter().map(|set| Layer::set(set).unwrap());
        resolve(&std::iter::once(Layer::preset("osworld").unwrap()).chain(sets).collect::<Vec<_>>()).unwrap()
    }

    fn plan(gib: u64, sets: &[&str]) -> MemoryPlan {
        MemoryPlan::new(&qwen2_5_vl_7b(), &osworld(sets), SCREEN, Place::Gpu(gib << 30), Work::Training)
    }

    fn part(parts: &[Part], name: &str) -> f64 {
        parts.iter().filter(|part| part.name == name).map(|part| part.bytes as f64 / GIB).sum()
    }

    /// 8.29e9 parameters in bf16; 28 layers of 2 x 4 x 128 numbers for each token.
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
        // the cache is the learner's while it learns
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
    fn what_does_not_fit_is_refused_with_the_keys_that_would() {
        let refused = |gib: u64, sets: &[&str]| {
            let place = Place::Gpu(gib << 30);
            fitting(&qwen2_5_vl_7b(), &osworld(sets), SCREEN, place, Work::Training).unwrap_err()
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

    /// Episodes that are played while it learns keep their cache.
    #[test]
    fn an_overlapped_run_shares_what_is_left() {
        let overlapped =
            ["collect.mode=\"overlapped\"", "loss.old=\"sampler\"", "optimiser.moments=\"host\""];
        let plan = plan(140, &overlapped);
        assert_eq!(plan.problem(), None, "{plan}");
        assert!(part(&plan.learning, "cache") > 10.0 && part(&plan.learning, "activations") > 10.0, "{plan}");
    }

    #[test]
    fn a_frozen_vision_tower_keeps_its_features() {
        let plan = plan(140, &["model.freeze_vision=true"]);
        assert_eq!(plan.problem(), None);
        assert!(part(&plan.learning, "features") > 1.0 && part(&plan.learning, "cache").abs() < 1e-9);
    }

    /// What is free on a machine changes by the minute; what is planned for it does not.
    #[test]
    fn a_cpu_without_numbers_has_fixed_ones() {
        let config =
            resolve(&["model.cache_gib=0", "model.activation_gib=0"].map(|set| Layer::set(set).unwrap()));
        let screen = Size { width: 168, height: 140 };
        let plans = [5, 50].map(|gib: u64| {
            let place = Place::Cpu(Some(gib << 30));
            MemoryPlan::new(&pocket(), config.as_ref().unwrap(), screen, place, Work::Training)
        });
        assert_eq!(plans[0].cache_bytes, plans[1].cache_bytes);
        assert_eq!(
            (plans[0].activation_bytes, plans[0].running),
            (plans[1].activation_bytes, plans[1].running)
        );
    }

    /// What is needed follows the longest slice, not the episode.
    #[test]
    fn a_hundred_turns_need_what_their_window_needs() {
        let long = plan(140, &["collect.max_steps=100"]);
        let short = plan(140, &[]);
        let words = 85.0 * 212.0;
        let more = long.longest_tokens as f64 - short.longest_tokens as f64;
        assert!((more - words).abs() < 1.0, "{more}");
    }

    /// The default needs three of a small machine's gigabytes, and all its desktops at once.
    #[test]
    fn the_quick_preset_runs_all_its_desktops() {
        let config = resolve(&[Layer::preset("quick").unwrap()]).unwrap();
        let screen = Size { width: 168, height: 140 };
        let place = Place::Cpu(Some(4 << 30));
        let plan = MemoryPlan::new(&pocket(), &config, screen, place, Work::Training);
        assert_eq!((plan.problem(), plan.running), (None, 64));
        assert_eq!((plan.cache_bytes, plan.activation_bytes), (1 << 29, 2 << 30));
    }

    #[test]
    fn sampling_alone_needs_no_gradients() {
        let place = Place::Gpu(32 << 30);
        let config = osworld(&[]);
        let plan = MemoryPlan::new(&qwen2_5_vl_7b(), &config, SCREEN, place, Work::Sampling);
        assert!(plan.problem().is_none() && plan.learning.is_empty(), "{plan}");
        assert!((part(&plan.collecting, "gradients")).abs() < 1e-9);
    }
}
