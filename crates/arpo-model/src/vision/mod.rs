//! The vision tower: from the patches of screenshots to features the language model reads.
//!
//! Patches attend within windows, in a few blocks within their whole image. Windows are made contiguous once, before
//! the first block ([`windows`]), and the order is undone after the merger.

pub mod windows;

use crate::checkpoint::Weights;
use crate::checkpoint::layout::padded;
use crate::config::VisionConfig;
use crate::layers::{Linear, Rotary, attention, rms_norm, rotary_frequencies, swiglu};
use crate::positions::Grid;
use tch::{Device, Kind, Tensor};
use windows::WindowPlan;

/// Norms of the vision tower have this, whatever the file says of the language model's.
const NORM_EPSILON: f64 = 1e-6;

/// Base of the rotary frequencies.
const ROPE_THETA: f64 = 10_000.0;

/// The tower.
#[derive(Debug)]
pub struct VisionTower {
    config: VisionConfig,
    patch: Tensor, // [hidden, channels * frames * patch * patch]
    blocks: Vec<Block>,
    merger_norm: Tensor,
    merger_in: Linear,
    merger_out: Linear,
}

#[derive(Debug)]
struct Block {
    norm1: Tensor,
    qkv: Linear,
    proj: Linear,
    norm2: Tensor,
    gate_up: Linear,
    down: Linear,
    sees_whole_image: bool,
}

impl VisionTower {
    pub(crate) fn new(config: &VisionConfig, weights: &Weights) -> Self {
        let linear = |name: &str| Linear {
            weight: weights.handle(&format!("{name}.weight")),
            bias: Some(weights.handle(&format!("{name}.bias"))),
        };
        let block = |number: usize| {
            let name = format!("vision.{number}");
            Block {
                norm1: weights.handle(&format!("{name}.norm1")),
                qkv: linear(&format!("{name}.qkv")),
                proj: linear(&format!("{name}.proj")),
                norm2: weights.handle(&format!("{name}.norm2")),
                gate_up: linear(&format!("{name}.gate_up")),
                down: linear(&format!("{name}.down")),
                sees_whole_image: config.full_attention.contains(&number),
            }
        };
        Self {
            patch: weights.handle("vision.patch"),
            blocks: (0..config.blocks).map(block).collect(),
            merger_norm: weights.handle("vision.merger.norm"),
            merger_in: linear("vision.merger.0"),
            merger_out: linear("vision.merger.2"),
            config: config.clone(),
        }
    }

    /// Features of images, one behind the other: `[features, output]`. `pixels` is `[patches, channels * patch * patch]`,
    /// patches of a feature together, as the image processor makes them.
    pub fn forward(&self, pixels: &Tensor, grids: &[Grid]) -> Tensor {
        let config = &self.config;
        let unit = config.merge * config.merge;
        let device = pixels.device();
        let plan = WindowPlan::new(grids, config.merge as usize, config.window_features() as usize);
        let order = Tensor::from_slice(&plan.order).to_device(device);
        let regroup = |x: Tensor| {
            let width = x.size()[1];
            x.view([-1, unit * width]).index_select(0, &order).view([-1, width])
        };

        let mut x = regroup(self.embed(pixels)); // [patches, hidden]
        let rotary = Rotary::new(&regroup(self.angles(grids, device)));
        let windows: Vec<i64> = plan.windows.iter().map(|&features| features as i64 * unit).collect();
        let images: Vec<i64> = grids.iter().map(|grid| grid.patches() as i64).collect();
        for block in &self.blocks {
            let lengths = if block.sees_whole_image { &images } else { &windows };
            x = self.block(block, &x, &rotary, lengths);
        }
        let merged = rms_norm(&x, &self.merger_norm, NORM_EPSILON).view([-1, unit * config.hidden]);
        let features = self.merger_out.forward(&self.merger_in.forward(&merged).gelu("none"));
        features.index_select(0, &order.argsort(0, false)) // [features, output]
    }

    /// Every frame of a patch is the same picture, so the frames' weights can be added first.
    fn embed(&self, pixels: &Tensor) -> Tensor {
        let VisionConfig { hidden, channels, temporal_patch, patch, .. } = self.config;
        let weight = self.patch.view([hidden, channels, temporal_patch, patch * patch]);
        let weight = weight.sum_dim_intlist([2i64].as_slice(), false, None::<Kind>).view([hidden, -1]);
        pixels.to_kind(self.patch.kind()).linear(&weight, None::<&Tensor>)
    }

    fn block(&self, block: &Block, x: &Tensor, rotary: &Rotary, lengths: &[i64]) -> Tensor {
        let (heads, width) = (self.config.heads, self.config.head_width());
        let qkv = block.qkv.forward(&rms_norm(x, &block.norm1, NORM_EPSILON));
        let qkv = qkv.view([-1, 3, heads, width]);
        let (q, k, v) = (qkv.select(1, 0), qkv.select(1, 1), qkv.select(1, 2)); // [patches, heads, width]
        let attended = attention(&rotary.turn(&q), &rotary.turn(&k), &v.contiguous(), lengths, false);
        let x = x + block.proj.forward(&attended);
        let gate_up = block.gate_up.forward(&rms_norm(&x, &block.norm2, NORM_EPSILON));
        debug_assert_eq!(gate_up.size()[1], 2 * padded(self.config.intermediate));
        &x + block.down.forward(&swiglu(&gate_up))
    }

    /// Rotary angles of every patch by its row and its column: `[patches, head_width / 2]`.
    fn angles(&self, grids: &[Grid], device: Device) -> Tensor {
        let quarter = self.config.head_width() / 2;
        let frequencies = Tensor::from_slice(&rotary_frequencies(ROPE_THETA, quarter)).to_device(device);
        let (rows, columns) = patch_places(grids, self.config.merge as usize);
        let angle = |places: Vec<f32>| {
            Tensor::from_slice(&places).to_device(device).unsqueeze(1) * frequencies.unsqueeze(0)
        };
        Tensor::cat(&[angle(rows), angle(columns)], 1)
    }
}

/// Row and column of every patch, in the order of the image processor: features from left to right and top to
/// bottom, and within each its own patches likewise.
fn patch_places(grids: &[Grid], merge: usize) -> (Vec<f32>, Vec<f32>) {
    let mut places = (Vec::new(), Vec::new());
    for grid in grids {
        for feature_row in 0..grid.height / merge {
            for feature_column in 0..grid.width / merge {
                for row in 0..merge {
                    for column in 0..merge {
                        places.0.push((feature_row * merge + row) as f32);
                        places.1.push((feature_column * merge + column) as f32);
                    }
                }
            }
        }
    }
    places
}
