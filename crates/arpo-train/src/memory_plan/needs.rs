//! What each phase of a run needs in any case, before the rest of the device is divided.

use super::sizes::Sizes;
use super::{Allocation, PROMPT_TOKENS};
use arpo_core::config::{CollectMode, Config, RolloutEngine};
use arpo_model::config::ModelConfig;
use arpo_model::training::plan::{vision_working_bytes, working_bytes};

/// GPU memory for the driver, the libraries and the allocator's rounding, besides all tensors.
const RESERVED_BYTES: u64 = 3 << 30;

/// Bytes per logit of a chunk: in f32 and in the three forms it takes on the way to a gradient.
const LOGIT_BYTES: u64 = 18;

/// Most rows of logits at a time; more are not faster.
const MOST_LOGIT_ROWS: u64 = 4096;

/// Default memory for logits.
const LOGITS: u64 = 1 << 30;

/// The needs of a run.
pub(super) struct Needs<'a> {
    pub(super) model: &'a ModelConfig,
    pub(super) config: &'a Config,
    pub(super) sizes: &'a Sizes,
    /// It computes on a GPU.
    pub(super) gpu: bool,
    /// Episodes are trained on, not only collected.
    pub(super) trains: bool,
    /// The optimiser's moments are in host memory.
    pub(super) host: bool,
}

impl Needs<'_> {
    /// Whether episodes are collected during updates.
    pub(super) fn overlapped(&self) -> bool {
        self.config.collect.mode == CollectMode::Overlapped
    }

    /// Whether a learner's episodes are sampled by servers or ranks that only sample, which have their own memory.
    pub(super) fn sampled_elsewhere(&self) -> bool {
        let Config { learn, rollout, .. } = self.config;
        self.trains && (learn.is_split() || rollout.engine != RolloutEngine::Builtin)
    }

    /// Patches of all images of a micro-batch.
    pub(super) fn shown_patches(&self) -> u64 {
        let Sizes { micro_batch, slice, images, patches, .. } = self.sizes;
        let shown = images * (micro_batch / (*slice).max(1)).max(1);
        (shown * patches) as u64
    }

    /// Rows of logits that exist at a time.
    pub(super) fn logit_rows(&self) -> i64 {
        (self.logits() / self.logit_row()).clamp(16, MOST_LOGIT_ROWS) as i64
    }

    /// Bytes of the logits that exist at a time.
    fn logits(&self) -> u64 {
        let row = self.logit_row();
        LOGITS.max(16 * row).min(MOST_LOGIT_ROWS * row)
    }

    /// Bytes of a row of logits.
    fn logit_row(&self) -> u64 {
        self.model.text.vocabulary as u64 * LOGIT_BYTES
    }

    /// While it learns: all but activations and caches.
    pub(super) fn learning(&self) -> Vec<Allocation> {
        let Self { model, sizes, .. } = *self;
        let mut parts = self.kept();
        let pixels = self.shown_patches() * model.vision.patch_values() as u64 * 4;
        // the levels of DeepStack, as the tower gives them and as the rows of images have them
        let features = self.shown_patches() / (model.vision.merge * model.vision.merge) as u64;
        let levels = (model.vision.levels() as u64 - 1) * features * model.text.hidden as u64;
        let images = 2 * pixels + 2 * levels * sizes.value_bytes;
        parts.push(Allocation { name: "images", bytes: images });
        let working = working_bytes(model, sizes.micro_batch as u64, sizes.value_bytes);
        // moments are copied back one parameter at a time, when the working memory of the passes is free
        let copied_moments = if self.host { 2 * sizes.largest_parameter } else { 0 };
        parts.push(Allocation { name: "working memory", bytes: working.max(copied_moments) });
        parts.push(Allocation { name: "logits", bytes: self.logits() });
        parts
    }

    /// While episodes are collected: all but caches.
    pub(super) fn collecting(&self) -> Vec<Allocation> {
        let Self { model, sizes, .. } = *self;
        let mut parts = self.kept();
        let prompt = PROMPT_TOKENS.max(sizes.slice) as u64;
        let prefill = working_bytes(model, prompt, sizes.value_bytes) / 2;
        // the images of a prompt are encoded before its layers are computed
        let merged = (model.vision.merge * model.vision.merge) as u64;
        let patches = (prompt * merged).min((sizes.images * sizes.patches) as u64);
        let encoding = vision_working_bytes(model, patches, sizes.value_bytes);
        let working = if self.sampled_elsewhere() { 0 } else { prefill.max(encoding) };
        parts.push(Allocation { name: "working memory", bytes: working });
        parts
    }

    /// In both phases.
    fn kept(&self) -> Vec<Allocation> {
        let Self { config, sizes, trains, .. } = *self;
        let mut kept = vec![Allocation { name: "weights", bytes: sizes.weights }];
        if trains {
            kept.push(Allocation { name: "gradients", bytes: sizes.gradients });
            if sizes.gradient_buffers > 0 {
                kept.push(Allocation { name: "gradient buffers", bytes: sizes.gradient_buffers });
            }
        }
        if trains && !self.host {
            kept.push(Allocation { name: "moments", bytes: sizes.moments });
        }
        if trains && self.overlapped() {
            // one copy that the rollout worker samples with or sends, one published and not yet taken; what has been sent to
            // ranks that only sample is needed here no more
            let copies = if config.learn.is_split() { config.collect.staleness.min(2) } else { 2 };
            kept.push(Allocation { name: "sampler's weights", bytes: copies * sizes.weights });
        }
        if trains && config.loss.kl_coefficient > 0.0 {
            kept.push(Allocation { name: "reference model", bytes: sizes.weights });
        }
        if self.gpu {
            kept.push(Allocation { name: "CUDA and its libraries", bytes: RESERVED_BYTES });
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use crate::memory_plan::tests::{SCREEN, osworld, part, plan};
    use crate::memory_plan::{DeviceMemory, MemoryPlan, Work};
    use arpo_model::config::qwen2_5_vl_7b;

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
    fn sampling_alone_needs_no_gradients() {
        let memory = DeviceMemory::Gpu(32 << 30);
        let config = osworld(&[]);
        let plan = MemoryPlan::new(&qwen2_5_vl_7b(), &config, SCREEN, memory, Work::Sampling);
        assert!(plan.problem().is_none() && plan.learning.is_empty(), "{plan}");
        assert!((part(&plan.collecting, "gradients")).abs() < 1e-9);
    }
}
