//! Qwen2.5-VL and Qwen3-VL on libtorch, exactly as transformers has them, in Hugging Face's files in both directions.
//!
//! | to change | look in |
//! |---|---|
//! | which families of models there are, and how they differ | [`architecture`] |
//! | the dimensions of a model | [`config`] |
//! | how checkpoints are read and written | [`checkpoint`] |
//! | token positions (M-RoPE) | [`positions`] |
//! | the computation | [`vision`], [`text`], combined in [`model`] |
//! | the distribution tokens are sampled from | [`distribution`] |
//! | training | [`training`] |
//! | what our CUDA kernels save | [`kernel_times`] |
//!
//! All external input (files, images, token counts) is validated before it reaches a tensor; inside, a shape that does
//! not fit is a bug and panics.

pub mod architecture;
pub mod checkpoint;
pub mod config;
pub mod distribution;
pub mod error;
pub mod kernel_times;
mod layers;
pub mod model;
pub mod positions;
pub mod text;
pub mod training;
pub mod vision;

pub use error::ModelError;
pub use layers::block::{Keep, Projected};
