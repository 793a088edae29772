//! What would make a run fit that does not: each remedy is tried by planning again with it.

use super::{MemoryPlan, Place, Work};
use arpo_agent::geometry::Size;
use arpo_core::config::{Config, Moments};
use arpo_model::config::ModelConfig;

/// A change of keys, and the keys in words.
type Remedy = (&'static str, fn(&mut Config));

/// The cheapest first.
const REMEDIES: [Remedy; 5] = [
    ("`model.activation_gib` = 0 and `model.cache_gib` = 0", whatever_is_left),
    ("`optimiser.moments` = \"host\"", moments_on_the_host),
    ("`model.freeze_vision` = true", frozen_vision),
    ("`agent.max_screenshots` = 5 and `model.micro_batch_tokens` = 16384", few_screenshots),
    (
        "all of `model.activation_gib` = 0, `model.cache_gib` = 0, `optimiser.moments` = \"host\", \
         `model.freeze_vision` = true, `agent.max_screenshots` = 5, `model.micro_batch_tokens` = 16384",
        |config| {
            whatever_is_left(config);
            moments_on_the_host(config);
            frozen_vision(config);
            few_screenshots(config);
        },
    ),
];

fn whatever_is_left(config: &mut Config) {
    (config.model.activation_gib, config.model.cache_gib) = (0.0, 0.0);
}

fn moments_on_the_host(config: &mut Config) {
    config.optimiser.moments = Moments::Host;
}

fn frozen_vision(config: &mut Config) {
    config.model.freeze_vision = true;
}

/// A short window: sequences, and what a pass needs, are a third as long.
fn few_screenshots(config: &mut Config) {
    config.agent.max_screenshots = config.agent.max_screenshots.min(5);
    config.agent.window_advance = 0;
    config.model.micro_batch_tokens = config.model.micro_batch_tokens.min(1 << 14);
}

/// A plan that fits, or one line that says why there is none and what would make one.
pub fn fitting(
    model: &ModelConfig,
    config: &Config,
    screen: Size,
    place: Place,
    work: Work,
) -> Result<MemoryPlan, String> {
    let plan = MemoryPlan::new(model, config, screen, place, work);
    let Some(problem) = plan.problem() else { return Ok(plan) };
    let fits = |change: fn(&mut Config)| {
        let mut changed = config.clone();
        change(&mut changed);
        changed != *config && MemoryPlan::new(model, &changed, screen, place, work).problem().is_none()
    };
    let mut keys: Vec<&str> =
        REMEDIES.iter().filter(|(_, change)| fits(*change)).map(|(keys, _)| *keys).collect();
    // everything together only where nothing alone does it
    if keys.len() > 1 {
        keys.pop();
    }
    Err(match keys.as_slice() {
        [] => format!("{problem}; expected a larger device or a smaller model"),
        keys => format!("{problem}; it would fit with {}", keys.join(", or ")),
    })
}
