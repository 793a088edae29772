//! `arpo bench kernels`: the learner's step with our own CUDA kernels and with their plain versions must agree as
//! well as bf16 lets them, and be faster; so must what only the rollout engine uses, with the same in f32.

use super::episode::MadeEpisode;
use super::timed;
use crate::Failure;
use crate::device::DeviceName;
use arpo_core::config::OptimiserConfig;
use arpo_model::checkpoint::Weights;
use arpo_model::config;
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::{Learner, LearnerOptions, MicroBatch};
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_torch::kernels::{self, row};
use arpo_torch::shim::causal_from_the_end;
use clap::Args;
use std::io::Write;
use tch::{Device, Kind, Tensor};

/// Two ways of rounding to bf16 in several places may differ by this much, relative to a gradient's norm.
const TOLERANCE: f64 = 0.03;

/// One rounding to bf16 and a few inside, relative to the norm of the same in f32.
const ROUNDING: f64 = 0.006;

/// What `arpo bench kernels` takes.
#[derive(Args)]
pub(crate) struct KernelsArguments {
    /// Screenshots in the episode
    #[arg(long, default_value_t = 2)]
    pictures: usize,
}

pub(crate) fn run(arguments: &KernelsArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = DeviceName::Cuda.device()?;
    if let Some(problem) = kernels::problem().or_else(row::problem) {
        return Err(Failure::failed(format!("no CUDA kernels of our own: {problem}")));
    }
    for (what, error) in rollout_errors(device) {
        writeln!(out, "  {what:<28} {error:9.5}")?;
        if error.is_nan() || error > ROUNDING {
            return Err(Failure::failed(format!("{what}: {error:.5} of its norm beside the same in f32")));
        }
    }
    // the 7B's widths, a few of its layers, windows and whole images
    let mut config = config::qwen2_5_vl_7b();
    config.text.layers = 2;
    config.vision.blocks = 3;
    config.vision.full_attention = vec![1];
    let made = MadeEpisode::new(&config, Grid { height: 78, width: 138 }, arguments.pictures, device);
    let weights = Weights::random(&config, Kind::BFloat16, device).with_gradients(|_| true);
    let options = LearnerOptions {
        temperature: 1.0,
        forbidden: vec![],
        activation_bytes: 16 << 30,
        logit_rows: 512,
        length_step: 1,
        share_beginnings: false,
    };
    let learner = Learner::new(Model::new(config, weights), options);
    let episodes = [made.episode()];
    let batch = MicroBatch { episodes: &episodes, pictures: &made.pictures };
    let pass = |plain: bool| -> Result<(Vec<Tensor>, f64), Failure> {
        kernels::use_plain_versions(plain);
        let mut seconds = 0.0;
        // once to warm up
        for _ in 0..2 {
            learner.model().weights().zero_gradients();
            let (done, took) = timed(device, || {
                learner.forward(batch).and_then(|forward| forward.backward(&made.coefficients()))
            });
            done.map_err(Failure::failed)?;
            seconds = took;
        }
        let gradients = learner.model().weights().trained().map(|(_, _, gradient)| gradient.copy()).collect();
        Ok((gradients, seconds))
    };
    let (plain, plain_seconds) = pass(true)?;
    let (fused, fused_seconds) = pass(false)?;
    let mut worst = (0.0, "");
    for ((layout, _, _), (plain, fused)) in learner.model().weights().trained().zip(plain.iter().zip(&fused))
    {
        let error = relative_error(fused, plain);
        writeln!(out, "  {:<28} {error:9.5}", layout.name)?;
        if error > worst.0 || error.is_nan() {
            worst = (error, &layout.name);
        }
    }
    let mut optimiser = AdamW::new(learner.model().weights(), OptimiserConfig::default());
    let (_, optimiser_seconds) = timed(device, || optimiser.update(learner.model().weights(), 1e-6));
    writeln!(out, "largest difference of a gradient: {:.5} of its norm, {}", worst.0, worst.1)?;
    writeln!(out, "both passes: {plain_seconds:.4} s plainly, {fused_seconds:.4} s with our kernels")?;
    writeln!(out, "optimiser with our kernels: {optimiser_seconds:.4} s")?;
    if worst.0 <= TOLERANCE {
        Ok(())
    } else {
        Err(Failure::failed(format!("the kernels differ by {:.5} in {}", worst.0, worst.1)))
    }
}

/// The products of one row, and attention over older and newer keys, beside the same in f32. Sizes are no multiples of
/// what the kernels work on at a time.
fn rollout_errors(device: Device) -> Vec<(&'static str, f64)> {
    let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, device)).to_kind(Kind::BFloat16);
    let wide = |tensor: &Tensor| tensor.to_kind(Kind::Float);
    let mut errors = vec![];

    let (x, weight, more) = (random(&[1, 3592]), random(&[2002, 3592]) * 0.02, random(&[1, 2002]));
    let exact = wide(&x).matmul(&wide(&weight).tr());
    let product = row::product(&x, &weight, Some(&more)).expect("the kernels are there");
    errors.push(("product of a row", relative_error(&product, &(&exact + wide(&more)))));
    let gated = row::gated(&x, &weight).expect("the kernels are there");
    let halves = exact.chunk(2, -1);
    errors.push(("gated product of a row", relative_error(&gated, &(halves[0].silu() * &halves[1]))));

    let (older, newer, new, heads, shared) = (4096, 400, 300, 28, 4);
    let q = random(&[1, heads, new, 128]);
    let [k, v] = [(); 2].map(|()| random(&[1, shared, older + newer, 128]));
    let apart = [&k, &v].map(|x| x.narrow(2, 0, older).contiguous());
    let [newer_k, newer_v] = [&k, &v].map(|x| x.narrow(2, older, newer));
    let attended = causal_from_the_end(&q, Some(&apart), [&newer_k, &newer_v]);
    let last = Tensor::arange_start(older + newer - new, older + newer, (Kind::Int64, device)).unsqueeze(1);
    let seen = Tensor::arange(older + newer, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last);
    let [k, v] = [k, v].map(|x| wide(&x).repeat_interleave_self_int(heads / shared, 1, None));
    let exact = Tensor::scaled_dot_product_attention(&wide(&q), &k, &v, Some(&seen), 0.0, false, None, false);
    errors.push(("attention, older keys apart", relative_error(&attended, &exact)));
    errors
}

fn relative_error(one: &Tensor, other: &Tensor) -> f64 {
    let norm = |tensor: &Tensor| tensor.to_kind(Kind::Float).norm().double_value(&[]);
    norm(&(one.to_kind(Kind::Float) - other.to_kind(Kind::Float))) / norm(other).max(1e-12)
}
