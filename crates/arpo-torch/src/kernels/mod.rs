//! CUDA kernels of our own, compiled at run time with NVRTC and launched on libtorch's stream.
//!
//! They fuse what libtorch does in many passes over memory: [`fused`] is for training and prefill, [`paged`], [`row`]
//! and [`sample`] are for decoding. Where they are unavailable (no GPU, no NVRTC, another type than bf16) callers use
//! their plain versions, which are also the reference in tests (`arpo-model/tests/gpu`).

mod compiler;
pub mod fused;
mod module;
mod norm;
pub mod paged;
mod rotary;
pub mod row;
pub mod sample;

pub(crate) use compiler::{check, find};
pub use rotary::HeadNorms;

use fused::Fused;
use module::Module;
use paged::Paged;
use row::Row;
use sample::Sampling;
use std::sync::{Arc, OnceLock};
use tch::{Device, Kind, Tensor};

/// The kernels of a device. Clones share what is compiled. The default has none, and so has every device without them.
#[derive(Debug, Clone, Default)]
pub struct Kernels(Option<Arc<Families>>);

/// Each family is compiled when it is first needed.
#[derive(Debug, Default)]
struct Families {
    /// The number of the GPU.
    device: usize,
    fused: OnceLock<Result<Module, String>>,
    paged: OnceLock<Result<Module, String>>,
    row: OnceLock<Result<Module, String>>,
    sample: OnceLock<Result<Module, String>>,
}

/// Kernels that are compiled together.
#[derive(Debug)]
struct Family {
    file: &'static str,
    purpose: &'static str,
    /// Concatenated in this order.
    sources: &'static [&'static str],
    /// Constants that the source and its launches share.
    constants: &'static [(&'static str, u32)],
}

impl Kernels {
    /// No kernels: the plain versions are used.
    pub fn none() -> Self {
        Self::default()
    }

    /// The kernels of a GPU; none of another device.
    pub fn of(device: Device) -> Self {
        let Device::Cuda(number) = device else { return Self::none() };
        Self(Some(Arc::new(Families { device: number, ..Families::default() })))
    }

    /// One line that says which kernels cannot be compiled or loaded on this GPU, and why; `None` if all are available,
    /// and on a device for which there are none. Compiles those that have not been needed yet.
    pub fn missing(&self) -> Option<String> {
        let families = self.0.as_ref()?;
        let all = [
            (&families.fused, &fused::FAMILY),
            (&families.paged, &paged::FAMILY),
            (&families.row, &row::FAMILY),
            (&families.sample, &sample::FAMILY),
        ];
        let mut missing = Vec::new();
        for (module, family) in all {
            if let Err(why) = module.get_or_init(|| Module::load(family, families.device)) {
                missing.push((family.purpose, why));
            }
        }
        let (_, why) = missing.first()?;
        let purposes: Vec<&str> = missing.iter().map(|(purpose, _)| *purpose).collect();
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(format!("slower than necessary: no CUDA kernels for {}: {why}", purposes.join(", ")))
    }

    /// The fused kernels, if they support rows as wide as this tensor's.
    pub fn fused(&self, tensor: &Tensor) -> Option<Fused<'_>> {
        self.fused_in_groups(tensor, 16)
    }

    /// The fused kernels, if they support RoPE on heads `[tokens, heads, width]`.
    pub fn fused_rotary(&self, by_head: &Tensor) -> Option<Fused<'_>> {
        self.fused_in_groups(by_head, 8)
    }

    fn fused_in_groups(&self, tensor: &Tensor, group: i64) -> Option<Fused<'_>> {
        let whole_groups = tensor.size().last().is_some_and(|width| width % group == 0);
        self.module(|families| &families.fused, &fused::FAMILY)
            .filter(|_| whole_groups && self.supports(tensor))
            .map(|module| Fused { module })
    }

    /// The kernels of the paged kv cache, if they support this tensor.
    pub fn paged(&self, tensor: &Tensor) -> Option<Paged<'_>> {
        self.module(|families| &families.paged, &paged::FAMILY)
            .filter(|_| self.supports(tensor))
            .map(|module| Paged { module })
    }

    /// The matrix-vector kernels, if they support this tensor.
    pub fn row(&self, tensor: &Tensor) -> Option<Row<'_>> {
        self.module(|families| &families.row, &row::FAMILY)
            .filter(|_| self.supports(tensor))
            .map(|module| Row { module })
    }

    /// The sampling kernels.
    pub fn sampling(&self) -> Option<Sampling<'_>> {
        self.module(|families| &families.sample, &sample::FAMILY).map(|module| Sampling { module })
    }

    /// Whether they are for tensors of this type on this device.
    fn supports(&self, tensor: &Tensor) -> bool {
        let own = self.0.as_ref().map(|families| Device::Cuda(families.device));
        tensor.kind() == Kind::BFloat16 && Some(tensor.device()) == own
    }

    fn module(
        &self,
        cell: impl Fn(&Families) -> &OnceLock<Result<Module, String>>,
        family: &Family,
    ) -> Option<&Module> {
        let families = self.0.as_ref()?;
        cell(families).get_or_init(|| Module::load(family, families.device)).as_ref().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_no_kernels_and_misses_none() {
        let x = Tensor::zeros([2, 16], (Kind::BFloat16, Device::Cpu));
        for kernels in [Kernels::none(), Kernels::of(Device::Cpu)] {
            assert!(kernels.fused(&x).is_none() && kernels.fused_rotary(&x).is_none());
            assert!(kernels.paged(&x).is_none());
            assert!(kernels.row(&x).is_none() && kernels.sampling().is_none());
            assert_eq!(kernels.missing(), None);
        }
    }
}
