//! `arpo bench kernels`: the learner's step with our own CUDA kernels and with their plain versions must agree as
//! well as bf16 lets them, and be faster; so must what only the rollout engine uses, with the same in f32, and drawing and
//! single tokens with their plain versions.

use super::episode::MadeEpisode;
use super::{single_token, timed};
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
use arpo_torch::kernels::draw::{self, RowDraw};
use arpo_torch::kernels::paged::{self, PagedSequences, paged_attention};
use arpo_torch::kernels::{self, row};
use arpo_torch::shim::causal_from_the_end;
use clap::Args;
use std::io::Write;
use tch::{Device, Kind, Tensor};

/// Two ways of rounding to bf16 in several places may differ by this much, relative to a gradient's norm.
const TOLERANCE: f64 = 0.03;

/// One rounding to bf16 and a few inside, relative to the norm of the same in f32.
const ROUNDING: f64 = 0.006;

/// Rows that are drawn from, more than a launch takes; and what the sum of 152 064 exponentials in another order may
/// change of a log-probability, in f32.
const DRAWS: usize = 70;
const DRAW_TOLERANCE: f64 = 1e-5;

/// Share of weights that may be rounded otherwise by a plain version, which adds and multiplies in another order.
const OTHER_WEIGHTS: f64 = 0.01;

/// What `arpo bench kernels` takes.
#[derive(Args)]
pub(crate) struct KernelsArguments {
    /// Screenshots in the episode
    #[arg(long, default_value_t = 2)]
    pictures: usize,
}

pub(crate) fn run(arguments: &KernelsArguments, out: &mut impl Write) -> Result<(), Failure> {
    let device = DeviceName::Cuda.device()?;
    if let Some(problem) =
        kernels::problem().or_else(paged::problem).or_else(row::problem).or_else(draw::problem)
    {
        return Err(Failure::failed(format!("no CUDA kernels of our own: {problem}")));
    }
    for (what, error) in rollout_errors(device) {
        writeln!(out, "  {what:<28} {error:9.5}")?;
        if error.is_nan() || error > ROUNDING {
            return Err(Failure::failed(format!("{what}: {error:.5} of its norm beside the same in f32")));
        }
    }
    let (others, difference) = draws_differ(device);
    writeln!(
        out,
        "  draws: {others} of {DRAWS} other tokens, {difference:.7} mean difference of log-probabilities"
    )?;
    if others > DRAWS / 20 || difference.is_nan() || difference > DRAW_TOLERANCE {
        return Err(Failure::failed("tokens are not drawn as by the plain version"));
    }
    // the 7B's widths, a few of its layers, windows and whole images
    let mut config = config::qwen2_5_vl_7b();
    config.text.layers = 2;
    for (page_tokens, prompt) in [(64, 1000), (16, 40_000)] {
        single_token::compare(&config, page_tokens, prompt, device, out)?;
    }
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
    for (way, share) in optimisers_apart(learner.model().weights()) {
        writeln!(out, "  an update {way}: {:.4} % of the weights are others", share * 100.0)?;
        if share > OTHER_WEIGHTS {
            return Err(Failure::failed(format!("an update {way} is another one")));
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

/// Weights after an update, as a share of all those that differ from what our kernel makes of them: with the moments on
/// the host, and by the plain version.
fn optimisers_apart(weights: &Weights) -> Vec<(&'static str, f64)> {
    let after = |moments: Moments, plain: bool| {
        kernels::use_plain_versions(plain);
        let copy = weights.to_kind(weights.kind()).with_gradients(|_| true);
        for ((_, _, to), (_, _, from)) in copy.trained().zip(weights.trained()) {
            to.shallow_clone().copy_(from);
        }
        let config = OptimiserConfig { moments, learning_rate: 1e-3, ..OptimiserConfig::default() };
        let mut optimiser = AdamW::new(&copy, config);
        // twice, so that the moments come back
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

/// The products of one row, attention over older and newer keys, and over pages, beside the same in f32. Sizes are no
/// multiples of what the kernels work on at a time.
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

    let (older, newer, heads, shared) = (4096, 496, 28, 4);
    let [k, v] = [(); 2].map(|()| random(&[1, shared, older + newer, 128]));
    let apart = [&k, &v].map(|x| x.narrow(2, 0, older).contiguous());
    let [newer_k, newer_v] = [&k, &v].map(|x| x.narrow(2, older, newer));
    let parts = [
        ("attention, older keys apart", 300),
        ("attention, few new tokens", 100),
        ("attention, only new tokens", newer),
    ];
    let attended = parts.map(|(what, new)| {
        let q = random(&[1, heads, new, 128]);
        let attended = causal_from_the_end(&q, Some(&apart), [&newer_k, &newer_v]);
        let last =
            Tensor::arange_start(older + newer - new, older + newer, (Kind::Int64, device)).unsqueeze(1);
        let seen = Tensor::arange(older + newer, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last);
        (what, q, attended, seen)
    });
    // two sequences of unequal length in the same pages, which lie in the opposite order
    let (page_tokens, longest, shorter) = (16, older + newer - 5, 77);
    let pages = (older + newer) / page_tokens;
    let paged =
        [&k, &v].map(|x| x.view([shared, pages, page_tokens, 128]).transpose(0, 1).flip([0]).contiguous());
    let table = Tensor::arange_start_step(pages - 1, -1, -1, (Kind::Int, device)).repeat([2, 1]);
    let lengths = Tensor::from_slice(&[longest as i32, shorter]).to_device(device);
    let sequences = PagedSequences::new(&table, &lengths, longest as usize).expect("this is a GPU");
    let single_q = random(&[2, heads, 128]);
    let over_pages =
        paged_attention(&single_q, &paged[0], &paged[1], &sequences).expect("the kernels are there");
    let [k, v] = [k, v].map(|x| wide(&x).repeat_interleave_self_int(heads / shared, 1, None));
    for (what, q, attended, seen) in attended {
        let exact =
            Tensor::scaled_dot_product_attention(&wide(&q), &k, &v, Some(&seen), 0.0, false, None, false);
        errors.push((what, relative_error(&attended, &exact)));
    }
    let seen = Tensor::arange(older + newer, (Kind::Int, device)).lt_tensor(&lengths.view([2, 1, 1, 1]));
    let [k, v] = [k, v].map(|x| x.expand([2, heads, older + newer, 128], false));
    let q = wide(&single_q).unsqueeze(2);
    let exact = Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&seen), 0.0, false, None, false);
    errors.push(("attention over pages", relative_error(&over_pages, &exact.view([2, -1]))));
    errors
}

/// How many tokens are others than by the plain version, and the mean difference of the log-probabilities of the rest.
fn draws_differ(device: Device) -> (usize, f64) {
    let vocabulary = 152_064;
    let logits =
        (Tensor::randn([DRAWS as i64, vocabulary], (Kind::Float, device)) * 3.0).to_kind(Kind::BFloat16);
    // two, and the end of the vocabulary
    let forbidden: Vec<u32> = [5, 77].into_iter().chain(151_000..vocabulary as u32).collect();
    let forbidden = Forbidden::new(&forbidden, device);
    let rows: Vec<RowDraw> = (0..DRAWS)
        .map(|row| RowDraw {
            temperature: 0.5 + row as f64 / DRAWS as f64,
            draw: row as f64 / DRAWS as f64,
            dictated: (row % 9 == 4).then_some(row as u32 * 1000),
        })
        .collect();
    let column = |of: fn(&RowDraw) -> f64| {
        Tensor::from_slice(&rows.iter().map(of).collect::<Vec<_>>()).to_device(device).unsqueeze(1)
    };
    let drawn = forbidden.draw(&logits, &rows).expect("the kernel is there");
    let logp = forbidden.log_distribution(&logits, &column(|row| row.temperature).to_kind(Kind::Float));
    let sums = logp.exp().to_kind(Kind::Double).cumsum(-1, Kind::Double);
    let wanted = column(|row| row.draw) * sums.narrow(1, -1, 1);
    let plain = Tensor::searchsorted(&wanted, &sums, false, true, "right", None::<&Tensor>);
    let dictated = column(|row| row.dictated.map_or(-1.0, f64::from)).to_kind(Kind::Int64);
    let plain = dictated.where_self(&dictated.ge(0), &plain);
    let same = drawn.narrow(1, 0, 1).eq_tensor(&plain.to_kind(Kind::Double)).to_kind(Kind::Double);
    let differences = (drawn.narrow(1, 1, 1) - logp.gather(1, &plain, false)).abs() * &same;
    let alike = same.sum(Kind::Double).double_value(&[]);
    (DRAWS - alike as usize, differences.sum(Kind::Double).double_value(&[]) / alike)
}

fn relative_error(one: &Tensor, other: &Tensor) -> f64 {
    let norm = |tensor: &Tensor| tensor.to_kind(Kind::Float).norm().double_value(&[]);
    norm(&(one.to_kind(Kind::Float) - other.to_kind(Kind::Float))) / norm(other).max(1e-12)
}
