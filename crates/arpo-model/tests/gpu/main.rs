//! Our CUDA kernels against plain libtorch, element by element, at sizes that are not multiples of their tiles. Without a
//! GPU they are skipped with a message; `./x test --gpu` requires one.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod attention;
mod decoding;
mod ranks;
mod trainable_model;
mod training;

use arpo_torch::kernels::Kernels;
use arpo_torch::runtime;
use tch::{Device, Kind, Tensor};

/// The first GPU and its kernels, all of them; `None`, with a message, without a GPU.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn gpu() -> Option<(Device, Kernels)> {
    runtime::start().unwrap_or_else(|error| panic!("{error}"));
    if runtime::usable_cuda_devices() == 0 {
        assert!(std::env::var_os("ARPO_TEST_GPU").is_none(), "no GPU that libtorch can use");
        println!("skipped: no GPU");
        return None;
    }
    tch::manual_seed(7);
    let kernels = Kernels::of(Device::Cuda(0));
    assert_eq!(kernels.missing(), None);
    Some((Device::Cuda(0), kernels))
}

/// Standard normal values in bf16.
fn random(size: &[i64], device: Device) -> Tensor {
    Tensor::randn(size, (Kind::Float, device)).to_kind(Kind::BFloat16)
}

fn in_f32(tensor: &Tensor) -> Tensor {
    tensor.to_kind(Kind::Float)
}

/// Every element within `ulps` of bf16's spacing at its size, or at the root mean square of all: sums may cancel.
fn assert_close(what: &str, actual: &Tensor, expected: &Tensor, ulps: f64) {
    assert_eq!(actual.size(), expected.size(), "{what}");
    let (actual, expected) = (in_f32(actual), in_f32(expected));
    let typical = expected.square().mean(Kind::Float).sqrt().double_value(&[]);
    let allowed = expected.abs().clamp_min(typical) * (ulps / 256.0);
    let worst = ((actual - expected).abs() / allowed).max().double_value(&[]);
    assert!(worst <= 1.0, "{what}: {worst} times the allowed difference");
}
