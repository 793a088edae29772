//! What each of our CUDA kernels saves in an update: its time, and that of the libtorch calls it replaces, at a model's shapes.

use crate::config::{BlockWidths, MlpKind, ModelConfig, NormKind};
use crate::layers::layer_norm::LayerNorm;
use crate::layers::linear::Parameter;
use crate::layers::norm::{Norm, RmsNorm};
use crate::layers::qk_norm::QkNorm;
use crate::layers::rotary::Rotary;
use crate::layers::{gelu, swiglu};
use arpo_torch::kernels::Kernels;
use tch::{Device, Kind, Tensor, no_grad};

const EPSILON: f64 = 1e-6;

/// Times an operation of a name that an update computes so often.
type Timer<'a> = dyn FnMut(&'static str, usize, &mut dyn FnMut()) + 'a;

/// An operation with one of our kernels.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// The part of the model.
    pub part: &'static str,
    /// The operation.
    pub operation: &'static str,
    /// How often an update computes it if of every block, of the vision tower too, input and result of attention are kept
    /// ([`Keep::AttentionResult`](crate::Keep::AttentionResult)): norms and RoPE are then computed again in the backward pass, the
    /// MLP's activation is not. A block of which only the input is kept computes more, and one whose projections are kept
    /// computes RoPE once, unless its heads are normed.
    pub calls: usize,
    /// Seconds of one call with our kernel.
    pub fused: f64,
    /// Seconds of one call with plain libtorch.
    pub plain: f64,
}

impl KernelTime {
    /// Seconds that the kernel saves in an update.
    pub fn saved(&self) -> f64 {
        self.calls as f64 * (self.plain - self.fused)
    }
}

/// Times the operations of an update from this many tokens and patches. `time` returns the seconds of a call.
pub fn kernel_times(
    config: &ModelConfig,
    tokens: i64,
    patches: i64,
    device: Device,
    mut time: impl FnMut(&mut dyn FnMut()) -> f64,
) -> Vec<KernelTime> {
    let kernels = Kernels::of(device);
    no_grad(|| {
        let mut times = vec![];
        for part in [Part::text(config, tokens), Part::vision(config, patches)] {
            let fused = part.times(&kernels, device, &mut time);
            let plain = part.times(&Kernels::none(), device, &mut time);
            times.extend(fused.into_iter().zip(plain).map(|(fused, plain)| KernelTime {
                part: part.name,
                operation: fused.operation,
                calls: fused.calls,
                fused: fused.seconds,
                plain: plain.seconds,
            }));
        }
        times
    })
}

/// The blocks of the language model or of the vision tower.
struct Part {
    name: &'static str,
    blocks: usize,
    tokens: i64,
    widths: BlockWidths,
    head_width: i64,
    norm: NormKind,
    mlp: MlpKind,
    /// The MLP's inner projection has a bias.
    inner_bias: bool,
}

/// One operation with the same kernels.
struct Timed {
    operation: &'static str,
    calls: usize,
    seconds: f64,
}

impl Part {
    fn text(config: &ModelConfig, tokens: i64) -> Self {
        let text = &config.text;
        Self {
            name: "language model",
            blocks: text.layers,
            tokens,
            widths: text.block_widths(),
            head_width: text.head_width,
            norm: NormKind::Rms,
            mlp: MlpKind::SwiGlu,
            inner_bias: false,
        }
    }

    fn vision(config: &ModelConfig, patches: i64) -> Self {
        let vision = &config.vision;
        Self {
            name: "vision tower",
            blocks: vision.blocks,
            tokens: patches,
            widths: vision.block_widths(),
            head_width: vision.head_width(),
            norm: vision.norm,
            mlp: vision.mlp,
            inner_bias: true,
        }
    }

    fn times(
        &self,
        kernels: &Kernels,
        device: Device,
        time: &mut dyn FnMut(&mut dyn FnMut()) -> f64,
    ) -> Vec<Timed> {
        let BlockWidths { hidden, inner, .. } = self.widths;
        let random =
            |width: i64| Tensor::randn([self.tokens, width], (Kind::Float, device)).to_kind(Kind::BFloat16);
        let mut times = vec![];
        let mut add = |operation: &'static str, calls: usize, work: &mut dyn FnMut()| {
            times.push(Timed { operation, calls: calls * self.blocks, seconds: time(work) });
        };

        let (norm, x, dy) = (self.norm(kernels, device), random(hidden), random(hidden));
        let mut norm_backward = || drop(norm.backward(&x, &dy, Some(&dy)));
        match self.norm {
            NormKind::Rms => {
                // in the forward pass, and again in the backward pass
                add("RMSNorm", 4, &mut || drop(norm.forward(&x)));
                add("RMSNorm, backward", 2, &mut norm_backward);
            }
            // its forward pass is libtorch's
            NormKind::Layer => add("LayerNorm, backward", 2, &mut norm_backward),
        }
        drop((x, dy));

        self.rotary_times(kernels, device, &mut add);

        let activated_width = if self.mlp == MlpKind::SwiGlu { inner / 2 } else { inner };
        let (x, dh) = (random(inner), random(activated_width));
        let bias = self.inner_bias.then(|| Tensor::zeros([inner], (Kind::BFloat16, device)));
        let bias = bias.as_ref();
        match self.mlp {
            MlpKind::SwiGlu => {
                add("SwiGLU", 1, &mut || drop(swiglu::forward(kernels, &x, bias)));
                add("SwiGLU, backward", 1, &mut || drop(swiglu::backward(kernels, &x, bias, &dh)));
            }
            MlpKind::GeluTanh => {
                add("GELU", 1, &mut || drop(gelu::forward(kernels, &x, bias)));
                add("GELU, backward", 1, &mut || drop(gelu::backward(kernels, &x, bias, &dh)));
            }
        }
        times
    }

    fn rotary_times(&self, kernels: &Kernels, device: Device, add: &mut Timer<'_>) {
        let BlockWidths { queries, keys, qk_norm, .. } = self.widths;
        let (heads, kv_heads) = (queries / self.head_width, keys / self.head_width);
        let angles = Tensor::randn([self.tokens, self.head_width / 2], (Kind::Float, device));
        let rotary = Rotary::new(&angles, kernels);
        let head_norm = || RmsNorm {
            weight: parameter(Tensor::ones([self.head_width], (Kind::BFloat16, device)), kernels),
            epsilon: EPSILON,
        };
        let norm = qk_norm.then(|| QkNorm { q: head_norm(), k: head_norm(), widths: [queries, keys, keys] });
        let size = [self.tokens, queries + 2 * keys];
        let qkv = Tensor::randn(size, (Kind::Float, device)).to_kind(Kind::BFloat16);
        let split = rotary.split(&qkv, heads, kv_heads, norm.as_ref());
        let [forward, backward] = if qk_norm {
            ["norms of heads and RoPE", "norms of heads and RoPE, backward"]
        } else {
            ["RoPE", "RoPE, backward"]
        };
        // in the forward pass, and again in the backward pass: projections are not kept
        add(forward, 2, &mut || drop(rotary.split(&qkv, heads, kv_heads, norm.as_ref())));
        add(backward, 1, &mut || drop(rotary.join(&split, norm.as_ref().map(|norm| (norm, &qkv)))));
    }

    fn norm(&self, kernels: &Kernels, device: Device) -> Norm {
        let filled = |value: f64| {
            let size = [self.widths.hidden];
            parameter(Tensor::full(size, value, (Kind::BFloat16, device)), kernels)
        };
        let (weight, epsilon) = (filled(1.0), EPSILON);
        match self.norm {
            NormKind::Rms => Norm::Rms(RmsNorm { weight, epsilon }),
            NormKind::Layer => Norm::Layer(LayerNorm { weight, bias: filled(0.0), epsilon }),
        }
    }
}

/// A parameter that is trained; its gradient is summed in f32, as those of vectors are.
fn parameter(value: Tensor, kernels: &Kernels) -> Parameter {
    Parameter { gradient: Some(value.zeros_like().to_kind(Kind::Float)), value, kernels: kernels.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{pocket, pocket_qwen3};

    /// On a CPU there are no kernels, so both times are of the plain versions: every operation runs, in both architectures.
    #[test]
    fn all_operations_of_both_architectures_are_timed() {
        let swiglu = [("SwiGLU", 1usize), ("SwiGLU, backward", 1)];
        let gelu = [("GELU", 1usize), ("GELU, backward", 1)];
        let rms = [("RMSNorm", 4usize), ("RMSNorm, backward", 2)];
        let rotary = [("RoPE", 2usize), ("RoPE, backward", 1)];
        let normed = [("norms of heads and RoPE", 2usize), ("norms of heads and RoPE, backward", 1)];
        let layer = [("LayerNorm, backward", 2usize)];
        // of a block of the language model, and of one of the tower
        let qwen2_5 = [[rms, rotary, swiglu].concat(), [rms, rotary, swiglu].concat()];
        let qwen3 = [[rms, normed, swiglu].concat(), [&layer[..], &rotary, &gelu].concat()];
        for (config, [text, vision]) in [(pocket(), qwen2_5), (pocket_qwen3(), qwen3)] {
            let mut calls = 0u16;
            let time = |work: &mut dyn FnMut()| {
                work();
                calls += 1;
                f64::from(calls)
            };
            let times = kernel_times(&config, 6, 10, Device::Cpu, time);
            assert_eq!(usize::from(calls), 2 * times.len());
            let (layers, blocks) = (config.text.layers, config.vision.blocks);
            for (name, expected, blocks) in
                [("language model", text, layers), ("vision tower", vision, blocks)]
            {
                let part: Vec<&KernelTime> = times.iter().filter(|time| time.part == name).collect();
                let found: Vec<(&str, usize)> =
                    part.iter().map(|time| (time.operation, time.calls / blocks)).collect();
                assert_eq!(found, expected, "{name}");
                for time in &part {
                    assert_eq!(time.calls % blocks, 0, "{time:?}");
                    // timed one after the other: first all with kernels, then all without
                    let apart = time.plain - time.fused - part.len() as f64;
                    assert!(apart.abs() < 1e-9, "{time:?}");
                }
            }
        }
    }
}
