//! How the memory of a device is divided: what the needs of a phase leave is for the cache while episodes are collected, and for
//! activations while it learns.

use super::needs::Needs;
use super::sizes::Sizes;
use super::{Allocation, DeviceMemory, GIB, MemoryPlan, Work, total};
use arpo_agent::geometry::Size;
use arpo_core::config::{Config, Moments};
use arpo_model::config::ModelConfig;
use arpo_model::training::plan::{Plan, input_activation_bytes};

/// Defaults for a CPU: fixed, so that a run does not depend on what else the machine does.
const CPU_CACHE: u64 = 1 << 29;
const CPU_ACTIVATIONS: u64 = 2 << 30;

/// The cache of image features gets one eighth of the size of the KV cache: so the features of the 7B take as much as its
/// keys and values. With DeepStack, what keys and values are to features, if that is less.
const FEATURE_SHARE: u64 = 8;

impl MemoryPlan {
    /// The plan with the optimiser's moments on the device or on the host.
    pub(super) fn with_moments(
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
        let limit = (config.model.memory_gib * GIB) as u64;
        let available =
            if limit > 0 { Some(available.map_or(limit, |bytes| bytes.min(limit))) } else { available };
        let sizes = Sizes::new(model, config, screen, if gpu { 2 } else { 4 });
        let (trains, host) = (work == Work::Training, gpu && moments == Moments::Host);
        let needs = Needs { model, config, sizes: &sizes, gpu, trains, host };
        let (mut collecting, mut learning) = (needs.collecting(), needs.learning());

        let least_activations = input_activation_bytes(model, sizes.micro_batch as u64, sizes.value_bytes);
        let trained_patches = if config.model.freeze_vision { 0 } else { needs.shown_patches() };
        let most_activations =
            Plan::full_activation_bytes(model, sizes.micro_batch as u64, trained_patches, sizes.value_bytes)
                .max(least_activations);
        let longest_request = (sizes.slice + config.agent.max_tokens) as u64 * sizes.token_bytes;
        let episode_bytes = sizes.slice as u64 * sizes.token_bytes;
        let sampled_elsewhere = needs.sampled_elsewhere();
        // the learner uses the cache's memory, unless episodes are collected at the same time on the same device
        let alternating = gpu && !(needs.overlapped() && trains);
        let left = |parts: &[Allocation]| available.map_or(0, |bytes| bytes.saturating_sub(total(parts)));
        let feature_share = feature_share(model, &sizes);

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
            logit_rows: needs.logit_rows(),
            moments: if host { Moments::Host } else { Moments::Device },
            running: match config.collect.running {
                0 => fitting_episodes.min(config.collect.desktops),
                given => given,
            },
            longest_tokens: sizes.slice,
        }
    }
}

/// How many times the cache of image features fits into the KV cache.
fn feature_share(model: &ModelConfig, sizes: &Sizes) -> u64 {
    let levels = model.vision.levels() as u64;
    if levels == 1 {
        return FEATURE_SHARE;
    }
    let of_feature = levels * model.text.hidden as u64 * sizes.value_bytes;
    (sizes.token_bytes / of_feature).clamp(1, FEATURE_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_plan::tests::{SCREEN, osworld, part, plan};
    use arpo_core::config::{Layer, resolve};
    use arpo_model::config::{pocket, qwen3_vl_8b};
    use arpo_model::training::plan::vision_working_bytes;

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

    /// Episodes that are collected during an update keep their cache.
    #[test]
    fn an_overlapped_run_divides_the_rest_between_both_phases() {
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
}
