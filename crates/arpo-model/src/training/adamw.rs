//! AdamW with gradient clipping; an update with a non-finite gradient is skipped.
//!
//! Parameters in f32 have f32 moments. Parameters in bf16 have bf16 moments, and both are rounded stochastically: a
//! change smaller than bf16's spacing is applied with a proportional probability instead of never, so that none is lost
//! on average, however small the learning rate.

use super::rounding::{NoiseBits, noise, stochastic_round};
use super::shard::Shard;
use crate::checkpoint::Weights;
use arpo_core::config::{Moments, OptimiserConfig};
use arpo_torch::kernels::Kernels;
use arpo_torch::kernels::fused::AdamwScalars;
use arpo_torch::shim::pinned;
use tch::{Device, Kind, Tensor, no_grad};

/// Values of a parameter that are updated at a time in f32, so that temporaries stay small.
const CHUNK: i64 = 1 << 26;

/// The optimiser's state.
#[derive(Debug)]
pub struct AdamW {
    config: OptimiserConfig,
    /// Mean and mean square of each trained parameter's gradient, in the order of [`Weights::trained`], in the parameter's
    /// shape, or flat for a shard of it; the configuration decides on which device.
    pub(super) moments: Vec<[Tensor; 2]>,
    /// Updates made.
    pub(super) updates: u64,
    /// The part of every parameter that it updates.
    pub(super) shard: Shard,
    kernels: Kernels,
    /// The vision tower's weights neither change nor decay.
    frozen_vision: bool,
}

/// How an update went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Update {
    /// The weights have changed.
    Applied {
        /// The gradient's norm before clipping.
        gradient_norm: f64,
    },
    /// The gradient was NaN or infinite: the weights and moments are unchanged.
    Skipped {
        /// Its norm.
        gradient_norm: f64,
    },
}

impl AdamW {
    /// An optimiser before its first update.
    pub fn new(weights: &Weights, config: OptimiserConfig) -> Self {
        Self::of_shard(weights, config, Shard::WHOLE)
    }

    /// The same for one rank's part of every parameter.
    pub fn of_shard(weights: &Weights, config: OptimiserConfig, shard: Shard) -> Self {
        let values: Vec<Tensor> = weights.trained().map(|(_, value, _)| shard.of(value)).collect();
        let values: Vec<&Tensor> = values.iter().collect();
        let on_a_gpu = values.iter().any(|value| value.device() != Device::Cpu);
        let moments = if on_a_gpu && config.moments == Moments::Host {
            // pageable memory, where the system does not allow as much pinned memory, is slower
            on_host(&values, SLAB_BYTES, |slab| pinned(&slab).unwrap_or(slab))
        } else {
            values.iter().map(|value| [value.zeros_like(), value.zeros_like()]).collect()
        };
        Self { config, moments, updates: 0, shard, kernels: weights.kernels().clone(), frozen_vision: false }
    }

    /// The same optimiser with other moments, those of whole parameters, as a file has them.
    pub(super) fn with_whole_moments(&self, moments: Vec<[Tensor; 2]>) -> Self {
        let (config, kernels) = (self.config.clone(), self.kernels.clone());
        Self {
            config,
            moments,
            updates: self.updates,
            shard: Shard::WHOLE,
            kernels,
            frozen_vision: self.frozen_vision,
        }
    }

    /// Updates made so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Whether further updates leave the vision tower as it is.
    pub(super) fn set_vision_frozen(&mut self, frozen: bool) {
        self.frozen_vision = frozen;
    }

    /// One update from the weights' gradients, at a learning rate; the gradients are zeroed after it.
    pub fn update(&mut self, weights: &Weights, learning_rate: f64) -> Update {
        no_grad(|| {
            let gradient_norm = gradient_norm(weights);
            let applied = gradient_norm.is_finite();
            if applied {
                let gradients: Vec<Tensor> =
                    weights.trained().map(|(_, _, own)| self.shard.of(own)).collect();
                self.apply(weights, &gradients, learning_rate, gradient_norm);
            } else {
                weights.zero_gradients();
            }
            if applied { Update::Applied { gradient_norm } } else { Update::Skipped { gradient_norm } }
        })
    }

    /// Updates this shard of the weights with its gradients, whose norm, over all shards, is finite; they are zeroed.
    pub(super) fn apply(
        &mut self,
        weights: &Weights,
        gradients: &[Tensor],
        learning_rate: f64,
        gradient_norm: f64,
    ) {
        self.updates += 1;
        let clip = self.clip(gradient_norm);
        let step = Step::new(&self.config, self.updates, learning_rate, clip, self.kernels.clone());
        let parameters = weights.trained().zip(gradients).zip(&self.moments);
        for (index, (((layout, value, _), gradient), moments)) in parameters.enumerate() {
            if self.frozen_vision && layout.is_vision() {
                let _ = gradient.shallow_clone().zero_();
                continue;
            }
            let first = self.shard.part(value).start as i64;
            step.update((index, first), &self.shard.of(value), gradient, moments);
        }
    }

    /// The factor of gradient clipping.
    fn clip(&self, gradient_norm: f64) -> f64 {
        let limit = self.config.max_grad_norm;
        if limit > 0.0 && gradient_norm > limit { limit / gradient_norm } else { 1.0 }
    }
}

/// The norm of all gradients together.
pub fn gradient_norm(weights: &Weights) -> f64 {
    sum_of_squares(weights.trained().map(|(_, _, gradient)| gradient)).sqrt()
}

/// The sum of the squares of all values of tensors.
pub(super) fn sum_of_squares<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> f64 {
    sum(&tensors.map(|tensor| tensor.norm_scalaropt_dtype(2, Kind::Float).square()).collect::<Vec<_>>())
}

/// The sum of single values.
pub(super) fn sum(values: &[Tensor]) -> f64 {
    match values {
        [] => 0.0,
        values => Tensor::stack(values, 0).sum(Kind::Double).double_value(&[]),
    }
}

/// Moments on the host are allocated in slabs of this many bytes: the pinned allocator rounds up to powers of two,
/// which would nearly double them if each parameter had its own allocation.
const SLAB_BYTES: usize = 4 << 30;

/// Two zero tensors on the host for each value, carved from large slabs that `take` may move to pinned memory.
fn on_host(values: &[&Tensor], slab_bytes: usize, take: impl Fn(Tensor) -> Tensor) -> Vec<[Tensor; 2]> {
    let mut left: usize = values.iter().map(|value| 2 * value.numel()).sum();
    let mut slab = Tensor::new();
    let (mut used, mut size) = (0, 0);
    let mut carve = |value: &Tensor| {
        let count = value.numel();
        if used + count > size {
            size = (slab_bytes / value.kind().elt_size_in_bytes()).min(left).max(count);
            slab = take(Tensor::zeros([size as i64], (value.kind(), Device::Cpu)));
            used = 0;
        }
        let part = slab.narrow(0, used as i64, count as i64).view(value.size().as_slice());
        used += count;
        left -= count;
        part
    };
    values.iter().map(|value| [carve(value), carve(value)]).collect()
}

/// One update: its scalars, and the seed of its stochastic rounding.
struct Step {
    scalars: AdamwScalars,
    seed: u64,
    kernels: Kernels,
}

impl Step {
    fn new(config: &OptimiserConfig, updates: u64, learning_rate: f64, clip: f64, kernels: Kernels) -> Self {
        let OptimiserConfig { beta1, beta2, epsilon, weight_decay, .. } = *config;
        let correction = |beta: f64| 1.0 - beta.powf(updates as f64);
        let scalars = AdamwScalars {
            clip,
            beta1,
            beta2,
            epsilon,
            step_size: learning_rate / correction(beta1),
            bias_correction2_sqrt: correction(beta2).sqrt(),
            decay: 1.0 - learning_rate * weight_decay,
        };
        Self { scalars, seed: updates, kernels }
    }

    /// Updates a parameter, or a part of it, and zeroes its gradient. `place` is the parameter's index, and that of the first
    /// value in it.
    fn update(&self, place: (usize, i64), value: &Tensor, gradient: &Tensor, moments: &[Tensor; 2]) {
        if value.numel() == 0 {
            return;
        }
        if moments[0].device() != value.device() {
            let here = moments.each_ref().map(|moment| moment.to_device(value.device()));
            self.update(place, value, gradient, &here);
            for (kept, moment) in moments.iter().zip(&here) {
                kept.shallow_clone().copy_(moment);
            }
            return;
        }
        // every parameter has its own noise stream
        let (index, first) = place;
        let stream = self.seed << 20 | index as u64;
        if let Some(fused) = self.kernels.fused(value).filter(|_| value.numel().is_multiple_of(8)) {
            return fused.adamw(value, gradient, moments, &self.scalars, stream, first);
        }
        self.update_plain((stream, first), value, gradient, moments);
        let _ = gradient.shallow_clone().zero_();
    }

    fn update_plain(
        &self,
        (stream, first): (u64, i64),
        value: &Tensor,
        gradient: &Tensor,
        moments: &[Tensor; 2],
    ) {
        let flat = |tensor: &Tensor| tensor.view([-1]);
        let (value, gradient, mean, square) =
            (flat(value), flat(gradient), flat(&moments[0]), flat(&moments[1]));
        let total = value.size()[0];
        for start in (0..total).step_by(CHUNK as usize) {
            let part = |tensor: &Tensor| tensor.narrow(0, start, CHUNK.min(total - start));
            let random =
                (value.kind() == Kind::BFloat16).then(|| noise(stream, first + start, &part(&value)));
            self.update_part([part(&value), part(&mean), part(&square)], &part(&gradient), random.as_ref());
        }
    }

    /// Value, mean and mean square after the update; rounded stochastically in bf16.
    fn update_part(
        &self,
        [mut value, mut mean, mut square]: [Tensor; 3],
        gradient: &Tensor,
        random: Option<&Tensor>,
    ) {
        let AdamwScalars { clip, beta1, beta2, epsilon, step_size, bias_correction2_sqrt, decay } =
            self.scalars;
        let to_f32 = |tensor: &Tensor| tensor.to_kind(Kind::Float);
        let gradient = to_f32(gradient) * clip;
        let new_mean = to_f32(&mean) * beta1 + &gradient * (1.0 - beta1);
        let new_square = to_f32(&square) * beta2 + gradient.square() * (1.0 - beta2);
        let denominator = new_square.sqrt() / bias_correction2_sqrt + epsilon;
        let new_value = to_f32(&value) * decay - &new_mean / denominator * step_size;
        let changed = [
            (&mut value, new_value, NoiseBits::Value),
            (&mut mean, new_mean, NoiseBits::Mean),
            (&mut square, new_square, NoiseBits::Square),
        ];
        for (old, new, bits) in changed {
            old.copy_(
                &random.map_or_else(|| new.shallow_clone(), |random| stochastic_round(&new, random, bits)),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments on the host share few slabs without overlapping.
    #[test]
    fn moments_on_the_host_are_carved_from_slabs() {
        let sizes = [vec![3, 4], vec![5], vec![20], vec![2, 2, 2], vec![1]];
        let values: Vec<Tensor> =
            sizes.iter().map(|size| Tensor::zeros(size.as_slice(), (Kind::Float, Device::Cpu))).collect();
        let values: Vec<&Tensor> = values.iter().collect();
        let slabs = std::cell::Cell::new(0);
        let moments = on_host(&values, 40 * 4, |slab| {
            slabs.set(slabs.get() + 1);
            slab
        });
        assert_eq!(slabs.get(), 3, "92 values, 40 to a slab");
        for (index, moment) in moments.iter().flatten().enumerate() {
            let _ = moment.shallow_clone().fill_(index as f64);
        }
        for (index, moment) in moments.iter().flatten().enumerate() {
            assert_eq!(moment.size(), values[index / 2].size());
            assert!(moment.eq(index as f64).all().int64_value(&[]) == 1, "{index}");
        }
    }

    /// A thousand updates, each far smaller than bf16's spacing at the weight, change it as they change f32.
    #[test]
    fn tiny_updates_are_not_lost_in_bf16() {
        let config = OptimiserConfig { weight_decay: 0.0, ..OptimiserConfig::default() };
        let moved = |kind: Kind| {
            let value = Tensor::ones([4096], (kind, tch::Device::Cpu));
            let gradient = Tensor::ones([4096], (kind, tch::Device::Cpu));
            let moments = [value.zeros_like(), value.zeros_like()];
            for update in 1..=1000 {
                Step::new(&config, update, 1e-6, 1.0, Kernels::none()).update_plain(
                    (update, 0),
                    &value,
                    &gradient,
                    &moments,
                );
            }
            1.0 - value.mean(Kind::Double).double_value(&[])
        };
        let (exact, rounded) = (moved(Kind::Float), moved(Kind::BFloat16));
        assert!((exact - 1e-3).abs() < 3e-5, "{exact}");
        assert!((rounded - exact).abs() < 0.1 * exact, "{rounded} instead of {exact}");
    }
}
