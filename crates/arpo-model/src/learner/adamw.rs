//! AdamW, with gradient clipping and a step that is skipped rather than poisoned.
//!
//! Parameters in f32 have state in f32. Parameters in bf16 have state in bf16, and everything is rounded back
//! stochastically: a change smaller than bf16's spacing is made now and then instead of never, so that in the mean
//! none is lost, however small the learning rate.

use super::rounding::{Draw, noise, rounded};
use crate::checkpoint::Weights;
use arpo_core::config::{Moments, OptimiserConfig};
use arpo_torch::kernels::{AdamwNumbers, fused_for};
use arpo_torch::shim::pinned;
use tch::{Device, Kind, Tensor, no_grad};

/// Numbers of a parameter that are updated at a time in f32, so that temporaries stay small.
const CHUNK: i64 = 1 << 26;

/// The optimiser's state.
#[derive(Debug)]
pub struct AdamW {
    config: OptimiserConfig,
    /// Mean and mean square of each trained parameter's gradient, in the order of [`Weights::trained`]; where they lie is
    /// the configuration's business.
    pub(super) moments: Vec<[Tensor; 2]>,
    /// Updates made.
    pub(super) updates: u64,
}

/// How an update went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Update {
    /// Weights have moved.
    Made {
        /// The gradient's norm before clipping.
        gradient_norm: f64,
    },
    /// The gradient was no number: nothing was touched.
    Skipped {
        /// What the norm came to.
        gradient_norm: f64,
    },
}

impl AdamW {
    /// An optimiser at its beginning.
    pub fn new(weights: &Weights, config: OptimiserConfig) -> Self {
        let values: Vec<&Tensor> = weights.trained().map(|(_, value, _)| value).collect();
        let on_a_gpu = values.iter().any(|value| value.device() != Device::Cpu);
        let moments = if on_a_gpu && config.moments == Moments::Host {
            // where the system does not allow so much it is slower
            on_host(&values, SLAB_BYTES, |slab| pinned(&slab).unwrap_or(slab))
        } else {
            values.iter().map(|value| [value.zeros_like(), value.zeros_like()]).collect()
        };
        Self { config, moments, updates: 0 }
    }

    /// Updates made so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// One update from the weights' gradients, at a learning rate; the gradients are forgotten after it.
    pub fn update(&mut self, weights: &Weights, learning_rate: f64) -> Update {
        no_grad(|| {
            let gradient_norm = gradient_norm(weights);
            let made = gradient_norm.is_finite();
            if made {
                self.updates += 1;
                let clip = self.clip(gradient_norm);
                let step = Step::new(&self.config, self.updates, learning_rate, clip);
                for (number, ((_, value, gradient), moments)) in
                    weights.trained().zip(&self.moments).enumerate()
                {
                    step.update(number, value, gradient, moments);
                }
            } else {
                weights.zero_gradients();
            }
            if made { Update::Made { gradient_norm } } else { Update::Skipped { gradient_norm } }
        })
    }

    /// What gradients are multiplied by.
    fn clip(&self, gradient_norm: f64) -> f64 {
        let limit = self.config.max_grad_norm;
        if limit > 0.0 && gradient_norm > limit { limit / gradient_norm } else { 1.0 }
    }
}

/// The norm of all gradients together.
pub fn gradient_norm(weights: &Weights) -> f64 {
    let squares: Vec<Tensor> = weights
        .trained()
        .map(|(_, _, gradient)| gradient.norm_scalaropt_dtype(2, Kind::Float).square())
        .collect();
    match squares.as_slice() {
        [] => 0.0,
        squares => Tensor::stack(squares, 0).sum(Kind::Double).sqrt().double_value(&[]),
    }
}

/// Bytes that moments on the host are taken in: the allocator of memory that stays where it is rounds up to powers of two,
/// which for each parameter by itself would nearly double them.
const SLAB_BYTES: usize = 4 << 30;

/// Two tensors of zeros on the host for each value, carved from large slabs that `take` may put elsewhere.
fn on_host(values: &[&Tensor], slab_bytes: usize, take: impl Fn(Tensor) -> Tensor) -> Vec<[Tensor; 2]> {
    let mut left: usize = values.iter().map(|value| 2 * value.numel()).sum();
    let mut slab = Tensor::new();
    let (mut used, mut size) = (0, 0);
    let mut carve = |value: &Tensor| {
        let numbers = value.numel();
        if used + numbers > size {
            size = (slab_bytes / value.kind().elt_size_in_bytes()).min(left).max(numbers);
            slab = take(Tensor::zeros([size as i64], (value.kind(), Device::Cpu)));
            used = 0;
        }
        let part = slab.narrow(0, used as i64, numbers as i64).view(value.size().as_slice());
        used += numbers;
        left -= numbers;
        part
    };
    values.iter().map(|value| [carve(value), carve(value)]).collect()
}

/// One update: its numbers, and the name of its random stream for rounding.
struct Step {
    numbers: AdamwNumbers,
    seed: u64,
}

impl Step {
    fn new(config: &OptimiserConfig, updates: u64, learning_rate: f64, clip: f64) -> Self {
        let OptimiserConfig { beta1, beta2, epsilon, weight_decay, .. } = *config;
        let correction = |beta: f64| 1.0 - beta.powf(updates as f64);
        let numbers = AdamwNumbers {
            clip,
            beta1,
            beta2,
            epsilon,
            step_size: learning_rate / correction(beta1),
            root: correction(beta2).sqrt(),
            decay: 1.0 - learning_rate * weight_decay,
        };
        Self { numbers, seed: updates }
    }

    /// Updates one parameter, the `number`-th, and forgets its gradient.
    fn update(&self, number: usize, value: &Tensor, gradient: &Tensor, moments: &[Tensor; 2]) {
        if moments[0].device() != value.device() {
            let here = moments.each_ref().map(|moment| moment.to_device(value.device()));
            self.update(number, value, gradient, &here);
            for (kept, moment) in moments.iter().zip(&here) {
                kept.shallow_clone().copy_(moment);
            }
            return;
        }
        // parameters are rounded by streams of their own
        let stream = self.seed << 20 | number as u64;
        if let Some(fused) = fused_for(value).filter(|_| value.numel().is_multiple_of(8)) {
            return fused.adamw(value, gradient, moments, &self.numbers, stream);
        }
        self.update_plainly(stream, value, gradient, moments);
        let _ = gradient.shallow_clone().zero_();
    }

    fn update_plainly(&self, stream: u64, value: &Tensor, gradient: &Tensor, moments: &[Tensor; 2]) {
        let flat = |tensor: &Tensor| tensor.view([-1]);
        let (value, gradient, mean, square) =
            (flat(value), flat(gradient), flat(&moments[0]), flat(&moments[1]));
        let total = value.size()[0];
        for start in (0..total).step_by(CHUNK as usize) {
            let part = |tensor: &Tensor| tensor.narrow(0, start, CHUNK.min(total - start));
            let random = (value.kind() == Kind::BFloat16).then(|| noise(stream, start, &part(&value)));
            self.update_part([part(&value), part(&mean), part(&square)], &part(&gradient), random.as_ref());
        }
    }

    /// Value, mean and mean square after the update; rounded by random bits where they have less than f32.
    fn update_part(
        &self,
        [mut value, mut mean, mut square]: [Tensor; 3],
        gradient: &Tensor,
        random: Option<&Tensor>,
    ) {
        let AdamwNumbers { clip, beta1, beta2, epsilon, step_size, root, decay } = self.numbers;
        let wide = |tensor: &Tensor| tensor.to_kind(Kind::Float);
        let gradient = wide(gradient) * clip;
        let new_mean = wide(&mean) * beta1 + &gradient * (1.0 - beta1);
        let new_square = wide(&square) * beta2 + gradient.square() * (1.0 - beta2);
        let denominator = new_square.sqrt() / root + epsilon;
        let new_value = wide(&value) * decay - &new_mean / denominator * step_size;
        let changed = [
            (&mut value, new_value, Draw::Value),
            (&mut mean, new_mean, Draw::Mean),
            (&mut square, new_square, Draw::Square),
        ];
        for (old, new, draw) in changed {
            old.copy_(&random.map_or_else(|| new.shallow_clone(), |random| rounded(&new, random, draw)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments on the host lie in few slabs, and none in another's place.
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
        assert_eq!(slabs.get(), 3, "92 numbers, 40 to a slab");
        for (number, moment) in moments.iter().flatten().enumerate() {
            let _ = moment.shallow_clone().fill_(number as f64);
        }
        for (number, moment) in moments.iter().flatten().enumerate() {
            assert_eq!(moment.size(), values[number / 2].size());
            assert!(moment.eq(number as f64).all().int64_value(&[]) == 1, "{number}");
        }
    }

    /// A thousand updates, each far smaller than the spacing of bf16 at the weight, move it as they move f32.
    #[test]
    fn tiny_updates_are_not_lost_in_bf16() {
        let config = OptimiserConfig { weight_decay: 0.0, ..OptimiserConfig::default() };
        let moved = |kind: Kind| {
            let value = Tensor::ones([4096], (kind, tch::Device::Cpu));
            let gradient = Tensor::ones([4096], (kind, tch::Device::Cpu));
            let moments = [value.zeros_like(), value.zeros_like()];
            for update in 1..=1000 {
                Step::new(&config, update, 1e-6, 1.0).update_plainly(update, &value, &gradient, &moments);
            }
            1.0 - value.mean(Kind::Double).double_value(&[])
        };
        let (exact, rounded) = (moved(Kind::Float), moved(Kind::BFloat16));
        assert!((exact - 1e-3).abs() < 3e-5, "{exact}");
        assert!((rounded - exact).abs() < 0.1 * exact, "{rounded} instead of {exact}");
    }
}
