//! The vision tower: from the patches of images to features for the language model.
//!
//! Patches attend within their whole image, or in most blocks within windows. Windows are made contiguous once, before
//! the first block ([`windows`]), and the order is undone after the merger.

mod merger;
mod pixels;
mod position_table;
pub mod windows;

use crate::checkpoint::Weights;
use crate::config::{MlpKind, NormKind, VisionConfig};
use crate::layers::attention::{Order, PackedSequences};
use crate::layers::block::{Block, BlockContext, Keep, Saved};
use crate::layers::layer_norm::LayerNorm;
use crate::layers::linear::{Linear, Parameter};
use crate::layers::mlp::Mlp;
use crate::layers::norm::{Norm, RmsNorm};
use crate::layers::rotary::{self, Rotary};
use crate::positions::Grid;
use arpo_torch::kernels::Kernels;
use merger::{Merger, SavedMerger};
use position_table::{Neighbours, PositionTable};
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
    patch_bias: Option<Parameter>,
    positions: Option<PositionTable>,
    blocks: Vec<Block>,
    merger: Merger,
    /// One for each block of `config.deepstack`.
    deepstack: Vec<Merger>,
    kernels: Kernels,
}

/// Patch positions, and what attends to what.
struct VisionLayout {
    rotary: Rotary,
    neighbours: Option<Neighbours>,
    images: PackedSequences,
    /// With windowed attention.
    windows: Option<PackedSequences>,
    /// The order that makes windows contiguous.
    order: Option<Order>,
}

/// Activations saved for the backward pass.
pub(crate) struct SavedVision {
    layout: VisionLayout,
    pixels: Tensor,
    blocks: Vec<Saved>,
    merger: SavedMerger,
    deepstack: Vec<SavedMerger>,
}

impl VisionTower {
    pub(crate) fn new(config: &VisionConfig, weights: &Weights) -> Self {
        let linear = |name: &str| Linear {
            weight: weights.handle(&format!("{name}.weight")),
            bias: Some(weights.handle(&format!("{name}.bias"))),
        };
        let norm = |name: &str| {
            let (weight, epsilon) = (weights.handle(name), NORM_EPSILON);
            match config.norm {
                NormKind::Rms => Norm::Rms(RmsNorm { weight, epsilon }),
                NormKind::Layer => {
                    let bias = weights.handle(&format!("{name}.bias"));
                    Norm::Layer(LayerNorm { weight, bias, epsilon })
                }
            }
        };
        let up = match config.mlp {
            MlpKind::SwiGlu => "gate_up",
            MlpKind::GeluTanh => "up",
        };
        let block = |index: usize| {
            let name = format!("vision.{index}");
            Block {
                norm1: norm(&format!("{name}.norm1")),
                qkv: linear(&format!("{name}.qkv")),
                qk_norm: None,
                out: linear(&format!("{name}.proj")),
                norm2: norm(&format!("{name}.norm2")),
                mlp: Mlp {
                    kind: config.mlp,
                    up: linear(&format!("{name}.{up}")),
                    down: linear(&format!("{name}.down")),
                },
                heads: config.heads,
                kv_heads: config.heads,
            }
        };
        let merger = |name: String, norms_features: bool| Merger {
            norm: norm(&format!("{name}.norm")),
            norms_features,
            up: linear(&format!("{name}.0")),
            down: linear(&format!("{name}.2")),
            width: config.hidden * config.merge * config.merge,
        };
        let positions = |side| PositionTable { table: weights.handle("vision.positions"), side };
        let deepstack = 0..config.deepstack.len();
        Self {
            patch: weights.handle("vision.patch"),
            patch_bias: weights.find("vision.patch.bias"),
            positions: config.position_table.map(positions),
            blocks: (0..config.blocks).map(block).collect(),
            merger: merger("vision.merger".into(), false),
            deepstack: deepstack.map(|level| merger(format!("vision.deepstack.{level}"), true)).collect(),
            kernels: weights.kernels().clone(),
            config: config.clone(),
        }
    }

    /// Features of concatenated images, `[features, levels * output]`: those in place of the placeholders and, beside
    /// them, what DeepStack adds after the decoder's first layers. `pixels` is `[patches, channels * patch * patch]`.
    pub fn forward(&self, pixels: &Tensor, grids: &[Grid]) -> Tensor {
        let layout = self.layout(grids, pixels.device());
        let mut x = self.embed(pixels, &layout);
        let mut levels = Vec::with_capacity(self.config.levels());
        for (index, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, self.context(index, &layout));
            levels.extend(self.deepstack_merger(index).map(|merger| merger.forward(&x)));
        }
        levels.insert(0, self.merger.forward(&x));
        side_by_side(&levels, &layout)
    }

    /// The same, saving activations for the backward pass.
    pub(crate) fn forward_saving(
        &self,
        pixels: &Tensor,
        grids: &[Grid],
        keep: impl Fn(usize) -> Keep,
    ) -> (Tensor, SavedVision) {
        let layout = self.layout(grids, pixels.device());
        let mut x = self.embed(pixels, &layout);
        let (mut levels, mut deepstack) = (Vec::with_capacity(self.config.levels()), Vec::new());
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.iter().enumerate() {
            let (y, saved) = block.forward_saving(&x, self.context(index, &layout), keep(index));
            blocks.push(saved);
            x = y;
            if let Some(merger) = self.deepstack_merger(index) {
                let (level, saved) = merger.forward_saving(&x);
                levels.push(level);
                deepstack.push(saved);
            }
        }
        let (features, merger) = self.merger.forward_saving(&x);
        levels.insert(0, features);
        let features = side_by_side(&levels, &layout);
        (features, SavedVision { layout, pixels: pixels.shallow_clone(), blocks, merger, deepstack })
    }

    /// Accumulates the parameters' gradients, from dL/d(features).
    pub(crate) fn backward(&self, saved: SavedVision, gradient: &Tensor) {
        let SavedVision { layout, pixels, blocks, merger, mut deepstack } = saved;
        let gradient = match &layout.order {
            Some(order) => gradient.index_select(0, &order.indices),
            None => gradient.shallow_clone(),
        };
        let mut levels = gradient.chunk(self.config.levels() as i64, 1);
        let mut gradient = self.merger.backward(merger, &levels.remove(0));
        for (index, (block, saved)) in self.blocks.iter().zip(blocks).enumerate().rev() {
            if let Some(merger) = self.deepstack_merger(index) {
                let (saved, level) = (deepstack.pop(), levels.pop());
                let (saved, level) = saved.zip(level).expect("one for each block of DeepStack");
                gradient += merger.backward(saved, &level);
            }
            gradient = block.backward(saved, &gradient, self.context(index, &layout));
        }
        if let Some(order) = &layout.order {
            gradient = order.undo(&gradient);
        }
        self.embed_backward(&pixels, &gradient, &layout);
    }

    /// The merger of a block's output, if it has one.
    fn deepstack_merger(&self, block: usize) -> Option<&Merger> {
        let level = self.config.deepstack.iter().position(|&deep| deep == block)?;
        Some(&self.deepstack[level])
    }

    /// All frames of a patch are the same image, so the frames' weights can be added first.
    fn embed(&self, pixels: &Tensor, layout: &VisionLayout) -> Tensor {
        let weight = self.frames(&self.patch.value).sum_dim_intlist([2i64].as_slice(), false, None::<Kind>);
        let weight = weight.view([self.config.hidden, -1]);
        let bias = self.patch_bias.as_ref().map(|bias| &bias.value);
        let mut x = pixels.to_kind(self.patch.value.kind()).linear(&weight, bias);
        if let (Some(positions), Some(neighbours)) = (&self.positions, &layout.neighbours) {
            x += positions.forward(neighbours);
        }
        layout.order.as_ref().map_or_else(|| x.shallow_clone(), |order| order.apply(&x))
    }

    /// Both frames get the gradient of their sum.
    fn embed_backward(&self, pixels: &Tensor, gradient: &Tensor, layout: &VisionLayout) {
        let Some(buffer) = &self.patch.gradient else { return };
        let sum = gradient.tr().matmul(&pixels.to_kind(gradient.kind()));
        let VisionConfig { hidden, channels, patch, .. } = self.config;
        let _ = self.frames(buffer).g_add_(&sum.view([hidden, channels, 1, patch * patch]));
        if let Some(bias) = &self.patch_bias {
            bias.accumulate(&gradient.sum_dim_intlist([0i64].as_slice(), false, Kind::Float));
        }
        if let (Some(positions), Some(neighbours)) = (&self.positions, &layout.neighbours) {
            positions.backward(neighbours, gradient);
        }
    }

    /// The patch weights by frame: `[hidden, channels, frames, pixels]`.
    fn frames(&self, weight: &Tensor) -> Tensor {
        let VisionConfig { hidden, channels, temporal_patch, patch, .. } = self.config;
        weight.view([hidden, channels, temporal_patch, patch * patch])
    }

    /// Patches in a feature.
    fn unit(&self) -> i64 {
        self.config.merge * self.config.merge
    }

    fn context<'a>(&self, block: usize, layout: &'a VisionLayout) -> BlockContext<'a> {
        let windowed =
            self.config.windows.as_ref().is_some_and(|windows| !windows.full_attention.contains(&block));
        let windows = layout.windows.as_ref().filter(|_| windowed);
        BlockContext { rotary: &layout.rotary, sequences: windows.unwrap_or(&layout.images) }
    }

    fn layout(&self, grids: &[Grid], device: Device) -> VisionLayout {
        let VisionConfig { merge, patch, .. } = self.config;
        let sequences = |lengths: Vec<i64>, order: Option<Order>| PackedSequences {
            lengths,
            causal: false,
            order,
            shared_prefix: None,
        };
        let images = grids.iter().map(|grid| grid.patches() as i64).collect();
        let neighbours =
            self.positions.as_ref().map(|positions| positions.neighbours(grids, merge as usize, device));
        let angles = self.angles(grids, device);
        let Some(windows) = &self.config.windows else {
            let rotary = Rotary::new(&angles, &self.kernels);
            let images = sequences(images, None);
            return VisionLayout { rotary, neighbours, images, windows: None, order: None };
        };
        let plan = WindowPlan::new(grids, merge as usize, (windows.side / merge / patch) as usize);
        let order = Order::new(self.unit(), &plan.order, device);
        let lengths = plan.windows.iter().map(|&features| features as i64 * self.unit()).collect();
        let by_image = (grids.len() > 1).then(|| Order::new(self.unit(), &plan.by_image, device));
        VisionLayout {
            rotary: Rotary::new(&order.apply(&angles), &self.kernels),
            neighbours,
            images: sequences(images, by_image),
            windows: Some(sequences(lengths, None)),
            order: Some(order),
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

/// The levels of every feature in one row, in the order of the image processor.
fn side_by_side(levels: &[Tensor], layout: &VisionLayout) -> Tensor {
    let features = if let [only] = levels { only.shallow_clone() } else { Tensor::cat(levels, 1) };
    match &layout.order {
        Some(order) => features.index_select(0, &order.inverse),
        None => features,
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
