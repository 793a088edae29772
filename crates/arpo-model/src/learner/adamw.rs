//! AdamW, with gradient clipping and a step that is skipped rather than poisoned.
//!
//! Parameters in f32 have state in f32. Parameters in bf16 have state in bf16, and everything is rounded back
//! stochastically: a change smaller than bf16's spacing is made now and then instead of never, so that in the mean
//! none is lost, however small the learning rate.

use crate::checkpoint::Weights;
use arpo_core::config::OptimiserConfig;
use arpo_torch::kernels::{AdamwNumbers, fused_for};
use tch::{Kind, Tensor, no_grad};

/// Numbers of a parameter that are updated at a time in f32, so that temporaries stay small.
const CHUNK: i64 = 1 << 26;

/// The optimiser's state.
#[derive(Debug)]
pub struct AdamW {
    config: OptimiserConfig,
    /// Mean and mean square of each trained parameter's gradient, in the order of [`Weights::trained`].
    moments: Vec<[Tensor; 2]>,
    /// Updates made.
    updates: u64,
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
        let moments =
            weights.trained().map(|(_, value, _)| [value.zeros_like(), value.zeros_like()]).collect();
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
        if let Some(fused) = fused_for(value).filter(|_| value.numel().is_multiple_of(8)) {
            // parameters are rounded by streams of their own
            return fused.adamw(value, gradient, moments, &self.numbers, self.seed << 20 | number as u64);
        }
        self.update_plainly(value, gradient, moments);
        let _ = gradient.shallow_clone().zero_();
    }

    fn update_plainly(&self, value: &Tensor, gradient: &Tensor, moments: &[Tensor; 2]) {
        let flat = |tensor: &Tensor| tensor.view([-1]);
        let (value, gradient, mean, square) =
            (flat(value), flat(gradient), flat(&moments[0]), flat(&moments[1]));
        let total = value.size()[0];
        for start in (0..total).step_by(CHUNK as usize) {
            let part = |tensor: &Tensor| tensor.narrow(0, start, CHUNK.min(total - start));
            self.update_part(part(&value), &part(&gradient), part(&mean), part(&square));
        }
    }

    fn update_part(&self, mut value: Tensor, gradient: &Tensor, mut mean: Tensor, mut square: Tensor) {
        let AdamwNumbers { clip, beta1, beta2, epsilon, step_size, root, decay } = self.numbers;
        let wide = |tensor: &Tensor| tensor.to_kind(Kind::Float);
        let gradient = wide(gradient) * clip;
        let new_mean = wide(&mean) * beta1 + &gradient * (1.0 - beta1);
        let new_square = wide(&square) * beta2 + gradient.square() * (1.0 - beta2);
        let denominator = new_square.sqrt() / root + epsilon;
        let new_value = wide(&value) * decay - &new_mean / denominator * step_size;
        for (old, new) in [(&mut value, new_value), (&mut mean, new_mean), (&mut square, new_square)] {
            let rounded = if old.kind() == Kind::BFloat16 { rounded_stochastically(&new) } else { new };
            old.copy_(&rounded);
        }
    }
}

/// f32 to bf16, up or down with the probability of the distance: random bits are added below the ones bf16 keeps, and
/// the rest is cut off.
fn rounded_stochastically(wide: &Tensor) -> Tensor {
    let bits = wide.view_dtype(Kind::Int);
    let noise = Tensor::randint(1 << 16, bits.size(), (Kind::Int, bits.device()));
    let kept = (bits + noise).bitwise_and(-(1i64 << 16));
    kept.view_dtype(Kind::Float).to_kind(Kind::BFloat16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand updates, each far smaller than the spacing of bf16 at the weight, move it as they move f32.
    #[test]
    fn tiny_updates_are_not_lost_in_bf16() {
        tch::manual_seed(1);
        let config = OptimiserConfig { weight_decay: 0.0, ..OptimiserConfig::default() };
        let moved = |kind: Kind| {
            let value = Tensor::ones([4096], (kind, tch::Device::Cpu));
            let gradient = Tensor::ones([4096], (kind, tch::Device::Cpu));
            let moments = [value.zeros_like(), value.zeros_like()];
            for update in 1..=1000 {
                Step::new(&config, update, 1e-6, 1.0).update_plainly(&value, &gradient, &moments);
            }
            1.0 - value.mean(Kind::Double).double_value(&[])
        };
        let (exact, rounded) = (moved(Kind::Float), moved(Kind::BFloat16));
        assert!((exact - 1e-3).abs() < 3e-5, "{exact}");
        assert!((rounded - exact).abs() < 0.1 * exact, "{rounded} instead of {exact}");
    }

    #[test]
    fn rounding_is_right_in_the_mean_and_exact_where_it_can_be() {
        tch::manual_seed(2);
        let third = Tensor::full([1 << 16], 1.0 / 3.0, (Kind::Float, tch::Device::Cpu));
        let mean = rounded_stochastically(&third).mean(Kind::Double).double_value(&[]);
        assert!((mean - 1.0 / 3.0).abs() < 1e-5, "{mean}");
        let exact =
            Tensor::from_slice(&[0.0f32, 1.0, -2.5, 1e-30]).to_kind(Kind::BFloat16).to_kind(Kind::Float);
        assert!(rounded_stochastically(&exact).to_kind(Kind::Float).equal(&exact));
    }
}
