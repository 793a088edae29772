//! Changes that would make a run fit into memory: each is tried by planning again with it.

use super::{DeviceMemory, MemoryPlan, Work};
use arpo_agent::geometry::Size;
use arpo_core::config::{Config, Moments};
use arpo_model::config::ModelConfig;

/// A description of configuration keys, and the change itself.
type ConfigRemedy = (&'static str, fn(&mut Config));

/// The cheapest first.
const REMEDIES: [ConfigRemedy; 6] = [
    ("`model.activation_gib` = 0 and `model.cache_gib` = 0", automatic_sizes),
    ("`optimiser.moments` = \"host\"", moments_on_the_host),
    ("`learn.zero_stage` = 2", gradients_in_shards),
    ("`model.freeze_vision` = true", frozen_vision),
    ("`agent.max_screenshots` = 5 and `model.micro_batch_tokens` = 16384", few_screenshots),
    (
        "all of `model.activation_gib` = 0, `model.cache_gib` = 0, `optimiser.moments` = \"host\", `learn.zero_stage` = 2, \
         `model.freeze_vision` = true, `agent.max_screenshots` = 5, `model.micro_batch_tokens` = 16384",
        |config| {
            automatic_sizes(config);
            moments_on_the_host(config);
            gradients_in_shards(config);
            frozen_vision(config);
            few_screenshots(config);
        },
    ),
];

fn automatic_sizes(config: &mut Config) {
    (config.model.activation_gib, config.model.cache_gib) = (0.0, 0.0);
}

fn moments_on_the_host(config: &mut Config) {
    config.optimiser.moments = Moments::Host;
}

/// Of no effect in a learner of one process.
fn gradients_in_shards(config: &mut Config) {
    if config.learn.learners() > 1 {
        config.learn.zero_stage = 2;
    }
}

fn frozen_vision(config: &mut Config) {
    config.model.freeze_vision = true;
}

/// A short window: sequences and micro-batches are a third as long.
fn few_screenshots(config: &mut Config) {
    config.agent.max_screenshots = config.agent.max_screenshots.min(5);
    config.agent.window_advance = 0;
    config.model.micro_batch_tokens = config.model.micro_batch_tokens.min(1 << 14);
}

/// A plan that fits, or one line with the reason and the keys that would help.
pub fn fitting(
    model: &ModelConfig,
    config: &Config,
    screen: Size,
    memory: DeviceMemory,
    work: Work,
) -> Result<MemoryPlan, String> {
    let plan = MemoryPlan::new(model, config, screen, memory, work);
    let Some(problem) = plan.problem() else { return Ok(plan) };
    let fits = |change: fn(&mut Config)| {
        let mut changed = config.clone();
        change(&mut changed);
        changed != *config && MemoryPlan::new(model, &changed, screen, memory, work).problem().is_none()
    };
    let mut keys: Vec<&str> =
        REMEDIES.iter().filter(|(_, change)| fits(*change)).map(|(keys, _)| *keys).collect();
    // the combination of all only if no single remedy is enough
    if keys.len() > 1 {
        keys.pop();
    }
    Err(match keys.as_slice() {
        [] => format!("{problem}; expected a larger device or a smaller model"),
        keys => format!("{problem}; it would fit with {}", keys.join(", or ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_plan::tests::{SCREEN, osworld};
    use arpo_model::config::qwen2_5_vl_7b;

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
}
