//! `arpo bench kernels`: checks that the learner's step with our CUDA kernels agrees with the plain versions up to bf16
//! rounding, and measures both; also checks the kernels that only the rollout engine uses against f32, and token sampling
//! against its plain version.

use super::episode::SyntheticEpisode;
use super::timed;
use crate::Failure;
use crate::device::DeviceName;
use arpo_core::config::{Moments, OptimiserConfig};
use arpo_model::checkpoint::Weights;
use arpo_model::config;
use arpo_model::distribution::Forbidden;
use arpo_model::learner::adamw::AdamW;
use arpo_model::learner::{Learner, LearnerOptions, MicroBatch};
use arpo_model::model::Model;
use arpo_model::positions::Grid;
use arpo_torch::kernels::paged::{self, PagedSequences, paged_attention};
use arpo_torch::kernels::sample::{self, RowSample};
use arpo_torch::kernels::{self, row};
use arpo_torch::shim::causal_bottom_right;
use clap::Args;
use std::io::Write;
use tch::{Device, Kind, Tensor};

/// Tolerance for gradients with bf16 rounding in different places, relative to the gradient's norm.
const TOLERANCE: f64 = 0.03;

/// Tolerance for rounding the result and a few intermediates to bf16, relative to the norm of the f32 result.
const ROUNDING: f64 = 0.006;

/// Rows to sample from, more than one launch takes; and the tolerance of a log-probability in f32, because the kernel sums
/// 152 064 exponentials in another order.
const SAMPLED_ROWS: usize = 70;
const LOGP_TOLERANCE: f64 = 1e-5;

/// Share of weights that a plain version may round differently, because it computes in another order.
const OTHER_WEIGHTS: f64 = 0.01;

/// The arguments of `arpo bench kernels`.
#[derive(Args)]
pub(crate) struct KernelsArguments {
    /// Screenshots in the episode
    #[arg(long, default_value_t = 2)]
    pictures: usize,
}

pub(crate) fn run(arguments: &KernelsArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = DeviceName::Cuda.device()?;
    if let Some(problem) =
        kernels::problem().or_else(paged::problem).or_else(row::problem).or_else(sample::problem)
    {
        return Err(Failure::failed(format!("our CUDA kernels are not available: {problem}")));
    }
    for (what, error) in rollout_errors(device) {
        writeln!(out, "  {what:<28} {error:9.5}")?;
        if error.is_nan() || error > ROUNDING {
            return Err(Failure::failed(format!("{what}: relative error {error:.5} against f32")));
        }
    }
    let (others, difference) = sampling_differences(device);
    writeln!(
        out,
        "  sampling: {others} of {SAMPLED_ROWS} tokens differ, {difference:.7} mean difference of log-probabilities"
    )?;
    if others > SAMPLED_ROWS / 20 || difference.is_nan() || difference > LOGP_TOLERANCE {
        return Err(Failure::failed("sampled tokens differ from the plain version"));
    }
    // the 7B's widths, a few of its layers, windowed and full attention
    let mut config = config::qwen2_5_vl_7b();
    config.text.layers = 2;
    config.vision.blocks = 3;
    config.vision.full_attention = vec![1];
    let synthetic =
        SyntheticEpisode::new(&config, Grid { height: 78, width: 138 }, arguments.pictures, device);
    let weights = Weights::random(&config, Kind::BFloat16, device).with_gradients(|_| true);
    let options = LearnerOptions {
        temperature: 1.0,
        forbidden: vec![],
        activation_bytes: 16 << 30,
        logit_rows: 512,
        pad_to_multiple: 1,
        share_prefixes: false,
    };
    let learner = Learner::new(Model::new(config, weights), options);
    let episodes = [synthetic.episode()];
    let batch = MicroBatch { episodes: &episodes, images: &synthetic.images };
    let pass = |plain: bool| -> Result<(Vec<Tensor>, f64), Failure> {
        kernels::use_plain_versions(plain);
        let mut seconds = 0.0;
        // the first is a warm-up
        for _ in 0..2 {
            learner.model().weights().zero_gradients();
            let (done, took) = timed(device, || {
                learner.forward(batch).and_then(|forward| forward.backward(&synthetic.coefficients()))
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
    for (variant, share) in optimiser_differences(learner.model().weights()) {
        writeln!(out, "  update {variant}: {:.4} % of the weights differ", share * 100.0)?;
        if share > OTHER_WEIGHTS {
            return Err(Failure::failed(format!("update {variant}: too many weights differ")));
        }
    }
    let mut optimiser = AdamW::new(learner.model().weights(), OptimiserConfig::default());
    let (_, optimiser_seconds) = timed(device, || optimiser.update(learner.model().weights(), 1e-6));
    writeln!(out, "largest relative error of a gradient: {:.5}, {}", worst.0, worst.1)?;
    writeln!(out, "forward and backward: {plain_seconds:.4} s plain, {fused_seconds:.4} s with our kernels")?;
    writeln!(out, "optimiser with our kernels: {optimiser_seconds:.4} s")?;
    if worst.0 <= TOLERANCE {
        Ok(())
    } else {
        Err(Failure::failed(format!("the kernels have a relative error of {:.5} in {}", worst.0, worst.1)))
    }
}

/// The share of weights that differ after an update, compared with our kernel: with the moments on the host, and with the
/// plain version.
fn optimiser_differences(weights: &Weights) -> Vec<(&'static str, f64)> {
    let after = |moments: Moments, plain: bool| {
        kernels::use_plain_versions(plain);
        let copy = weights.to_kind(weights.kind()).with_gradients(|_| true);
        for ((_, _, to), (_, _, from)) in copy.trained().zip(weights.trained()) {
            to.shallow_clone().copy_(from);
        }
        let config = OptimiserConfig { moments, learning_rate: 1e-3, ..OptimiserConfig::default() };
        let mut optimiser = AdamW::new(&copy, config);
        // twice, so that the moments are copied back
        for _ in 0..2 {
            optimiser.update(&copy, 1e-3);
            for ((_, _, to), (_, _, from)) in copy.trained().zip(weights.trained()) {
                to.shallow_clone().copy_(from);
            }
        }
        kernels::use_plain_versions(false);
        copy
    };
    let ours = after(Moments::Device, false);
    let apart = |other: &Weights| {
        let different = ours
            .iter()
            .zip(other.iter())
            .map(|((_, a), (_, b))| (a.ne_tensor(b).sum(Kind::Int64).int64_value(&[]), a.numel() as i64));
        let (different, all) = different.fold((0, 0), |(x, y), (a, b)| (x + a, y + b));
        different as f64 / all as f64
    };
    vec![
        ("with moments on the host", apart(&after(Moments::Host, false))),
        ("by the plain version", apart(&after(Moments::Device, true))),
    ]
}

/// Errors against f32 of the matrix-vector products, of attention with a cached prefix, and of paged attention. The sizes
/// are not multiples of the kernels' tiles.
fn rollout_errors(device: Device) -> Vec<(&'static str, f64)> {
    let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, device)).to_kind(Kind::BFloat16);
    let to_f32 = |tensor: &Tensor| tensor.to_kind(Kind::Float);
    let mut errors = vec![];

    let (x, weight, more) = (random(&[1, 3592]), random(&[2002, 3592]) * 0.02, random(&[1, 2002]));
    let exact = to_f32(&x).matmul(&to_f32(&weight).tr());
    let product = row::matmul(&x, &weight, Some(&more)).expect("the kernels are there");
    errors.push(("matrix-vector product", relative_error(&product, &(&exact + to_f32(&more)))));
    let gated = row::swiglu(&x, &weight).expect("the kernels are there");
    let halves = exact.chunk(2, -1);
    errors.push(("gated matrix-vector product", relative_error(&gated, &(halves[0].silu() * &halves[1]))));

    let (older, newer, heads, kv_heads) = (4096, 496, 28, 4);
    let [k, v] = [(); 2].map(|()| random(&[1, kv_heads, older + newer, 128]));
    let apart = [&k, &v].map(|x| x.narrow(2, 0, older).contiguous());
    let [newer_k, newer_v] = [&k, &v].map(|x| x.narrow(2, older, newer));
    let parts = [
        ("attention, cached prefix", 300),
        ("attention, few new tokens", 100),
        ("attention, only new tokens", newer),
    ];
    let attended = parts.map(|(what, new)| {
        let q = random(&[1, heads, new, 128]);
        let attended = causal_bottom_right(&q, Some(&apart), [&newer_k, &newer_v]);
        let last =
            Tensor::arange_start(older + newer - new, older + newer, (Kind::Int64, device)).unsqueeze(1);
        let seen = Tensor::arange(older + newer, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last);
        (what, q, attended, seen)
    });
    // two sequences of different length that share pages, which are in reverse order
    let (page_tokens, longest, shorter) = (16, older + newer - 5, 77);
    let pages = (older + newer) / page_tokens;
    let paged =
        [&k, &v].map(|x| x.view([kv_heads, pages, page_tokens, 128]).transpose(0, 1).flip([0]).contiguous());
    let table = Tensor::arange_start_step(pages - 1, -1, -1, (Kind::Int, device)).repeat([2, 1]);
    let lengths = Tensor::from_slice(&[longest as i32, shorter]).to_device(device);
    let sequences = PagedSequences::new(&table, &lengths, longest as usize).expect("this is a GPU");
    let single_q = random(&[2, heads, 128]);
    let over_pages =
        paged_attention(&single_q, &paged[0], &paged[1], &sequences).expect("the kernels are there");
    let [k, v] = [k, v].map(|x| to_f32(&x).repeat_interleave_self_int(heads / kv_heads, 1, None));
    for (what, q, attended, seen) in attended {
        let exact =
            Tensor::scaled_dot_product_attention(&to_f32(&q), &k, &v, Some(&seen), 0.0, false, None, false);
        errors.push((what, relative_error(&attended, &exact)));
    }
    let seen = Tensor::arange(older + newer, (Kind::Int, device)).lt_tensor(&lengths.view([2, 1, 1, 1]));
    let [k, v] = [k, v].map(|x| x.expand([2, heads, older + newer, 128], false));
    let q = to_f32(&single_q).unsqueeze(2);
    let exact = Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&seen), 0.0, false, None, false);
    errors.push(("paged attention", relative_error(&over_pages, &exact.view([2, -1]))));
    errors
}

/// How many tokens differ from the plain version, and the mean difference of the log-probabilities of the others.
fn sampling_differences(device: Device) -> (usize, f64) {
    let vocabulary = 152_064;
    let logits = (Tensor::randn([SAMPLED_ROWS as i64, vocabulary], (Kind::Float, device)) * 3.0)
        .to_kind(Kind::BFloat16);
    // two tokens, and the end of the vocabulary
    let forbidden: Vec<u32> = [5, 77].into_iter().chain(151_000..vocabulary as u32).collect();
    let forbidden = Forbidden::new(&forbidden, device);
    let rows: Vec<RowSample> = (0..SAMPLED_ROWS)
        .map(|row| RowSample {
            temperature: 0.5 + row as f64 / SAMPLED_ROWS as f64,
            uniform: row as f64 / SAMPLED_ROWS as f64,
            forced: (row % 9 == 4).then_some(row as u32 * 1000),
        })
        .collect();
    let column = |of: fn(&RowSample) -> f64| {
        Tensor::from_slice(&rows.iter().map(of).collect::<Vec<_>>()).to_device(device).unsqueeze(1)
    };
    let sampled = forbidden.sample(&logits, &rows).expect("the kernel is there");
    let logp = forbidden.log_distribution(&logits, &column(|row| row.temperature).to_kind(Kind::Float));
    let sums = logp.exp().to_kind(Kind::Double).cumsum(-1, Kind::Double);
    let wanted = column(|row| row.uniform) * sums.narrow(1, -1, 1);
    let plain = Tensor::searchsorted(&wanted, &sums, false, true, "right", None::<&Tensor>);
    let forced = column(|row| row.forced.map_or(-1.0, f64::from)).to_kind(Kind::Int64);
    let plain = forced.where_self(&forced.ge(0), &plain);
    let same = sampled.narrow(1, 0, 1).eq_tensor(&plain.to_kind(Kind::Double)).to_kind(Kind::Double);
    let differences = (sampled.narrow(1, 1, 1) - logp.gather(1, &plain, false)).abs() * &same;
    let alike = same.sum(Kind::Double).double_value(&[]);
    (SAMPLED_ROWS - alike as usize, differences.sum(Kind::Double).double_value(&[]) / alike)
}

fn relative_error(one: &Tensor, other: &Tensor) -> f64 {
    let norm = |tensor: &Tensor| tensor.to_kind(Kind::Float).norm().double_value(&[]);
    norm(&(one.to_kind(Kind::Float) - other.to_kind(Kind::Float))) / norm(other).max(1e-12)
}
