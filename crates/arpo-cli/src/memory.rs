//! What a configuration needs of its device, in words: for `arpo train --dry-run` and `arpo doctor --preset`.

use arpo_core::config::{Config, DeviceChoice};
use arpo_model::config;
use arpo_train::base_model;
use arpo_train::memory_plan::{MemoryPlan, Place, Work, fitting};
use arpo_train::trainer::setup;
use tch::Device;

/// A GPU to plan for where there is none, as large as the one that the presets were tried on.
const ELSEWHERE_BYTES: u64 = 140 << 30;

/// The plan, and whether it fits.
pub(crate) struct Memory {
    /// Where it was planned for, and what had to be assumed.
    pub(crate) notes: Vec<String>,
    pub(crate) plan: MemoryPlan,
    /// Why it does not fit.
    pub(crate) problem: Option<String>,
}

pub(crate) fn of(config: &Config) -> Memory {
    let mut notes = vec![];
    let model = base_model::dimensions(&config.model.base).unwrap_or_else(|_| {
        let base = &config.model.base;
        notes.push(format!("model {base:?} is not here: planned for Qwen2.5-VL-7B"));
        config::qwen2_5_vl_7b()
    });
    let here = setup::place(config).ok().map(|(_, device)| device);
    let large = config.model.base != base_model::POCKET;
    let place = match here {
        Some(device @ Device::Cuda(_)) => setup::memory_place(device),
        // a model of billions is not meant for a CPU, unless somebody says so
        _ if (large && config.model.device == DeviceChoice::Auto)
            || config.model.device == DeviceChoice::Cuda =>
        {
            let limit = (config.model.memory_gib * f64::from(1 << 30)) as u64;
            if limit == 0 {
                notes.push(
                    "no GPU here: planned for one of 140 GiB (`model.memory_gib` plans for another)".into(),
                );
            }
            Place::Gpu(if limit > 0 { limit } else { ELSEWHERE_BYTES })
        }
        _ => setup::memory_place(Device::Cpu),
    };
    let screen = setup::screen_size(config);
    let plan = MemoryPlan::new(&model, config, screen, place, Work::Training);
    let problem = fitting(&model, config, screen, place, Work::Training).err();
    Memory { notes, plan, problem }
}

/// In words.
pub(crate) fn report(config: &Config) -> String {
    let Memory { mut notes, plan, problem } = of(config);
    notes.push(plan.to_string());
    notes.push(problem.map_or_else(|| "it fits".into(), |problem| format!("it does not fit: {problem}")));
    notes.join("\n")
}
