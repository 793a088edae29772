//! The vision tower: from the patches of images to features for the language model.
//!
//! Patches attend within windows, and in a few blocks within their whole image. Windows are made contiguous once,
//! before the first block ([`windows`]), and the order is undone after the merger.

mod pixels;
pub mod windows;

use crate::checkpoint::Weights;
use crate::config::VisionConfig;
use crate::layers::attention::{Order, PackedSequences};
use crate::layers::block::{Block, BlockContext, Keep, Saved};
use crate::layers::linear::{Linear, Parameter};
use crate::layers::norm::RmsNorm;
use crate::layers::rotary::{self, Rotary};
use crate::positions::Grid;
use tch::{Device, Kind, Tensor};
use windows::WindowPlan;

pub use pixels::{pixels, pixels_of};

/// Epsilon of the vision tower's norms, independent of the language model's in the file.
const NORM_EPSILON: f64 = 1e-6;

/// Base of the rotary frequencies.
const ROPE_THETA: f64 = 10_000.0;

/// The tower.
#[derive(Debug)]
pub struct VisionTower {
    config: VisionConfig,
    patch: Parameter, // [hidden, channels * frames * patch * patch]
    blocks: Vec<Block>,
    merger_norm: RmsNorm,
    merger_in: Linear,
    merger_out: Linear,
}

/// Patch positions, and what attends to what.
struct VisionLayout {
    rotary: Rotary,
    windows: PackedSequences,
    images: PackedSequences,
    /// The order that makes windows contiguous.
    order: Order,
}

/// Activations saved for the backward pass.
pub(crate) struct SavedVision {
    layout: VisionLayout,
    pixels: Tensor,
    blocks: Vec<Saved>,
    last: Tensor,
    merged: Tensor,
    inner: Tensor,
}

impl VisionTower {
    pub(crate) fn new(config: &VisionConfig, weights: &Weights) -> Self {
        let linear = |name: &str| Linear {
            weight: weights.handle(&format!("{name}.weight")),
            bias: Some(weights.handle(&format!("{name}.bias"))),
        };
        let norm = |name: &str| RmsNorm { weight: weights.handle(name), epsilon: NORM_EPSILON };
        let block = |index: usize| {
            let name = format!("vision.{index}");
            Block {
                norm1: norm(&format!("{name}.norm1")),
                qkv: linear(&format!("{name}.qkv")),
                out: linear(&format!("{name}.proj")),
                norm2: norm(&format!("{name}.norm2")),
                gate_up: linear(&format!("{name}.gate_up")),
                down: linear(&format!("{name}.down")),
                heads: config.heads,
                kv_heads: config.heads,
            }
        };
        Self {
            patch: weights.handle("vision.patch"),
            blocks: (0..config.blocks).map(block).collect(),
            merger_norm: norm("vision.merger.norm"),
            merger_in: linear("vision.merger.0"),
            merger_out: linear("vision.merger.2"),
            config: config.clone(),
        }
    }

    /// Concatenated features of images: `[features, output]`. `pixels` is `[patches, channels * patch * patch]`, in the
    /// image processor's order, with the patches of a feature together.
    pub fn forward(&self, pixels: &Tensor, grids: &[Grid]) -> Tensor {
        let layout = self.layout(grids, pixels.device());
        let mut x = layout.order.apply(&self.embed(pixels));
        for (index, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, self.context(index, &layout));
        }
        let merged = self.merge(&self.merger_norm.forward(&x));
        let features = self.merger_out.forward(&self.merger_in.forward(&merged).gelu("none"));
        features.index_select(0, &layout.order.inverse)
    }

    /// The same, saving activations for the backward pass.
    pub(crate) fn forward_saving(
        &self,
        pixels: &Tensor,
        grids: &[Grid],
        keep: impl Fn(usize) -> Keep,
    ) -> (Tensor, SavedVision) {
        let layout = self.layout(grids, pixels.device());
        let mut x = layout.order.apply(&self.embed(pixels));
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.iter().enumerate() {
            let (y, saved) = block.forward_saving(&x, self.context(index, &layout), keep(index));
            blocks.push(saved);
            x = y;
        }
        let merged = self.merge(&self.merger_norm.forward(&x));
        let inner = self.merger_in.forward(&merged);
        let features = self.merger_out.forward(&inner.gelu("none"));
        let features = features.index_select(0, &layout.order.inverse);
        (features, SavedVision { layout, pixels: pixels.shallow_clone(), blocks, last: x, merged, inner })
    }

    /// Accumulates the parameters' gradients, from dL/d(features).
    pub(crate) fn backward(&self, saved: SavedVision, gradient: &Tensor) {
        let SavedVision { layout, pixels, blocks, last, merged, inner } = saved;
        let gradient = gradient.index_select(0, &layout.order.indices);
        let d_inner = inner.gelu_backward(&self.merger_out.backward(&inner.gelu("none"), &gradient), "none");
        let d_merged = self.merger_in.backward(&merged, &d_inner);
        let d_normed = d_merged.view([-1, self.config.hidden]);
        let mut gradient = self.merger_norm.backward(&last, &d_normed, None);
        for (index, (block, saved)) in self.blocks.iter().zip(blocks).enumerate().rev() {
            gradient = block.backward(saved, &gradient, self.context(index, &layout));
        }
        self.embed_backward(&pixels, &layout.order.undo(&gradient));
    }

    /// All frames of a patch are the same image, so the frames' weights can be added first.
    fn embed(&self, pixels: &Tensor) -> Tensor {
        let weight = self.frames(&self.patch.value).sum_dim_intlist([2i64].as_slice(), false, None::<Kind>);
        let weight = weight.view([self.config.hidden, -1]);
        pixels.to_kind(self.patch.value.kind()).linear(&weight, None::<&Tensor>)
    }

    /// Both frames get the gradient of their sum.
    fn embed_backward(&self, pixels: &Tensor, gradient: &Tensor) {
        let Some(buffer) = &self.patch.gradient else { return };
        let sum = gradient.tr().matmul(&pixels.to_kind(gradient.kind()));
        let VisionConfig { hidden, channels, patch, .. } = self.config;
        let _ = self.frames(buffer).g_add_(&sum.view([hidden, channels, 1, patch * patch]));
    }

    /// The patch weights by frame: `[hidden, channels, frames, pixels]`.
    fn frames(&self, weight: &Tensor) -> Tensor {
        let VisionConfig { hidden, channels, temporal_patch, patch, .. } = self.config;
        weight.view([hidden, channels, temporal_patch, patch * patch])
    }

    /// Concatenates the patches of a feature.
    fn merge(&self, x: &Tensor) -> Tensor {
        x.view([-1, self.unit() * self.config.hidden])
    }

    /// Patches in a feature.
    fn unit(&self) -> i64 {
        self.config.merge * self.config.merge
    }

    fn context<'a>(&self, block: usize, layout: &'a VisionLayout) -> BlockContext<'a> {
        let whole = self.config.full_attention.contains(&block);
        BlockContext {
            rotary: &layout.rotary,
            sequences: if whole { &layout.images } else { &layout.windows },
        }
    }

    fn layout(&self, grids: &[Grid], device: Device) -> VisionLayout {
        let plan = WindowPlan::new(grids, self.config.merge as usize, self.config.window_features() as usize);
        let order = Order::new(self.unit(), &plan.order, device);
        let sequences = |lengths: Vec<i64>, order: Option<Order>| PackedSequences {
            lengths,
            causal: false,
            order,
            shared_prefix: None,
        };
        let windows = plan.windows.iter().map(|&features| features as i64 * self.unit()).collect();
        let images = grids.iter().map(|grid| grid.patches() as i64).collect();
        let by_image = (grids.len() > 1).then(|| Order::new(self.unit(), &plan.by_image, device));
        VisionLayout {
            rotary: Rotary::new(&order.apply(&self.angles(grids, device))),
            windows: sequences(windows, None),
            images: sequences(images, by_image),
            order,
        }
    }

    /// Rotary angles of every patch by its row and its column: `[patches, head_width / 2]`.
    fn angles(&self, grids: &[Grid], device: Device) -> Tensor {
        let half = self.config.head_width() / 2;
        let frequencies = Tensor::from_slice(&rotary::frequencies(ROPE_THETA, half)).to_device(device);
        let (rows, columns) = patch_coordinates(grids, self.config.merge as usize);
        let angle = |coordinates: Vec<f32>| {
            Tensor::from_slice(&coordinates).to_device(device).unsqueeze(1) * frequencies.unsqueeze(0)
        };
        Tensor::cat(&[angle(rows), angle(columns)], 1)
    }
}

/// Row and column of every patch, in the order of the image processor: features row by row, and within each feature its
/// patches likewise.
fn patch_coordinates(grids: &[Grid], merge: usize) -> (Vec<f32>, Vec<f32>) {
    let mut coordinates = (Vec::new(), Vec::new());
    for grid in grids {
        for feature_row in 0..grid.height / merge {
            for feature_column in 0..grid.width / merge {
                for row in 0..merge {
                    for column in 0..merge {
                        coordinates.0.push((feature_row * merge + row) as f32);
                        coordinates.1.push((feature_column * merge + column) as f32);
                    }
                }
            }
        }
    }
    coordinates
}
