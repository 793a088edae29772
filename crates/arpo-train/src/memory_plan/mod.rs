//! The memory that a run needs, known before anything is loaded. A pure function of the model's dimensions, the
//! configuration and the size of the device.
//!
//! A synchronous run on a GPU alternates between two phases. While episodes are collected, the device holds the weights,
//! what learning keeps between updates, and the KV cache; while it learns, the cache is released and activations take its
//! memory. `arpo bench iteration` compares the plan with the memory actually used. Where some ranks learn and the others sample
//! (`learn.gpus`), the plan for training is that of a rank that learns, which has no cache, and the plan for sampling is that of
//! one that samples.
//!
//! | to change | look in |
//! |---|---|
//! | the sizes of parameters and sequences | `sizes` |
//! | what each phase needs in any case | `needs` |
//! | how the rest is divided between cache and activations | `division` |
//! | what is proposed for a run that does not fit | `remedies` |

mod division;
mod needs;
mod remedies;
mod sizes;

pub use remedies::fitting;

use arpo_agent::geometry::Size;
use arpo_core::config::{Config, Moments};
use arpo_model::config::ModelConfig;
use std::fmt;

const GIB: f64 = (1u64 << 30) as f64;

/// Most new prompt tokens of one pass of the rollout engine.
pub const PROMPT_TOKENS: usize = 1 << 14;

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
    use arpo_model::config::qwen2_5_vl_7b;

    /// The screen of OSWorld.
    pub(super) const SCREEN: Size = Size { width: 1920, height: 1080 };

    /// The preset for OSWorld, with these keys set.
    pub(super) fn osworld(sets: &[&str]) -> Config {
        let sets = sets.iter().map(|set| Layer::set(set).unwrap());
        resolve(&std::iter::once(Layer::preset("osworld").unwrap()).chain(sets).collect::<Vec<_>>()).unwrap()
    }

    /// The plan for training the 7B on a GPU of this many GiB.
    pub(super) fn plan(gib: u64, sets: &[&str]) -> MemoryPlan {
        MemoryPlan::new(
            &qwen2_5_vl_7b(),
            &osworld(sets),
            SCREEN,
            DeviceMemory::Gpu(gib << 30),
            Work::Training,
        )
    }

    /// The GiB of an allocation; 0 if there is none.
    pub(super) fn part(parts: &[Allocation], name: &str) -> f64 {
        parts.iter().filter(|part| part.name == name).map(|part| part.bytes as f64 / GIB).sum()
    }

    #[test]
    fn the_7b_fits_an_80_gb_card_with_its_moments_on_the_host() {
        let plan = plan(78, &[]);
        assert_eq!((plan.problem(), plan.moments), (None, Moments::Host));
        assert!((part(&plan.host, "moments") - 30.9).abs() < 0.1);
        let there = self::plan(78, &["optimiser.moments=\"device\""]).problem().unwrap();
        assert!(there.starts_with("learning needs") && there.contains("of 78.0: weights 15.4"), "{there}");
    }
}
