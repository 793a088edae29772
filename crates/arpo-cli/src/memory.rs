//! The memory plan of a configuration as text, for `arpo train --dry-run` and `arpo doctor --preset`.

use arpo_core::config::{Config, DeviceChoice};
use arpo_model::config;
use arpo_train::base_model;
use arpo_train::memory_plan::{DeviceMemory, MemoryPlan, Work, fitting};
use arpo_train::trainer::setup;
use tch::Device;

/// The GPU memory assumed on a machine without a GPU: that of an H200, on which the presets were tested.
const ASSUMED_GPU_BYTES: u64 = 140 << 30;

/// The plan, and whether it fits.
pub(crate) struct Memory {
    /// What had to be assumed.
    pub(crate) notes: Vec<String>,
    pub(crate) plan: MemoryPlan,
    /// That of a rank that only samples, if there are such.
    pub(crate) sampling: Option<MemoryPlan>,
    /// Why it does not fit.
    pub(crate) problem: Option<String>,
}

pub(crate) fn of(config: &Config) -> Memory {
    let mut notes = vec![];
    let model = base_model::dimensions(&config.model.base).unwrap_or_else(|_| {
        let base = &config.model.base;
        notes.push(format!("model {base:?} not found: planned for Qwen2.5-VL-7B"));
        config::qwen2_5_vl_7b()
    });
    let device = setup::dtype_and_device(config).ok().map(|(_, device)| device);
    let large = config.model.base != base_model::POCKET;
    let memory = match device {
        Some(device @ Device::Cuda(_)) => setup::device_memory(device),
        // a model of billions of parameters is planned for a GPU unless the configuration says CPU
        _ if (large && config.model.device == DeviceChoice::Auto)
            || config.model.device == DeviceChoice::Cuda =>
        {
            let limit = (config.model.memory_gib * f64::from(1 << 30)) as u64;
            if limit == 0 {
                notes.push(
                    "no GPU found: planned for one of 140 GiB (`model.memory_gib` sets another size)".into(),
                );
            }
            DeviceMemory::Gpu(if limit > 0 { limit } else { ASSUMED_GPU_BYTES })
        }
        _ => setup::device_memory(Device::Cpu),
    };
    let screen = arpo_suite::screen_size(config);
    let plan = |work| MemoryPlan::new(&model, config, screen, memory, work);
    let problem = |work| fitting(&model, config, screen, memory, work).err();
    let sampling = config.learn.is_split().then(|| plan(Work::Sampling));
    let of_sampling = || sampling.as_ref().and_then(|_| problem(Work::Sampling));
    let problem = problem(Work::Training).or_else(of_sampling);
    Memory { notes, plan: plan(Work::Training), sampling, problem }
}

/// The report as text.
pub(crate) fn report(config: &Config) -> String {
    let Memory { mut notes, plan, sampling, problem } = of(config);
    match sampling {
        None => notes.push(plan.to_string()),
        Some(sampling) => {
            notes.push(format!("a rank that learns\n{plan}"));
            notes.push(format!("a rank that only samples\n{sampling}"));
        }
    }
    notes.push(problem.map_or_else(|| "it fits".into(), |problem| format!("it does not fit: {problem}")));
    notes.join("\n")
}
