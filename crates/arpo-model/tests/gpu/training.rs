//! Kernels of training and prefill.

use crate::{assert_close, gpu, in_f32, random};
use arpo_core::config::OptimiserConfig;
use arpo_model::checkpoint::Weights;
use arpo_model::config;
use arpo_model::training::adamw::AdamW;
use arpo_torch::kernels::{HeadNorms, Kernels};
use tch::{Device, Kind, Tensor};

const EPSILON: f64 = 1e-6;

#[test]
fn rms_norm_forward_and_backward() {
    let Some((device, kernels)) = gpu() else { return };
    for (rows, width) in [(1, 16), (7, 48), (3, 128), (133, 1280), (529, 3584), (5, 16_384)] {
        let what = format!("norm of {rows} x {width}");
        let (x, dy, residual) = ([(); 3]).map(|()| random(&[rows, width], device)).into();
        let weight = random(&[width], device);
        let fused = kernels.fused(&x).expect("the kernels are available");

        let inputs = [&x, &weight].map(|one| in_f32(one).set_requires_grad(true));
        let scale = (inputs[0].square().mean_dim(-1, true, Kind::Float) + EPSILON).rsqrt();
        let expected = &inputs[0] * scale * &inputs[1];
        let y = fused.rms_norm(&x, &weight, EPSILON).expect("not too wide");
        assert_close(&what, &y, &expected, 2.0);

        let gradients =
            Tensor::run_backward(&[(&expected * in_f32(&dy)).sum(Kind::Float)], &inputs, false, false);
        let residual: Tensor = residual;
        for residual in [None, Some(&residual)] {
            let (dx, dw) =
                fused.rms_norm_backward(&x, &weight, &dy, residual, EPSILON).expect("not too wide");
            let expected = residual.map_or_else(|| gradients[0].copy(), |more| &gradients[0] + in_f32(more));
            assert_close(&format!("{what}, dx"), &dx, &expected, 4.0);
            assert_close(&format!("{what}, dw"), &dw, &gradients[1], 0.5);
        }
    }
    let wide = random(&[2, 16_400], device);
    let fused = kernels.fused(&wide).expect("the kernels are available");
    assert!(fused.rms_norm(&wide, &random(&[16_400], device), EPSILON).is_none(), "too wide");
}

/// dy is correlated with x, whose mean is not 0, so that no mean in the formula is small.
#[test]
fn layer_norm_backward() {
    let Some((device, kernels)) = gpu() else { return };
    for (rows, width) in [(1, 16), (7, 48), (1533, 1152), (61, 4608), (5, 6144)] {
        let what = format!("layer norm of {rows} x {width}");
        let [x, dy, residual] = [(); 3].map(|()| random(&[rows, width], device));
        let (x, weight) = (x * 2.0 + 5.0, random(&[width], device) + 1.0);
        let dy = dy + &x * 0.3;
        let fused = kernels.fused(&x).expect("the kernels are available");

        let bias = Tensor::zeros([width], (Kind::Float, device));
        let inputs = [in_f32(&x), in_f32(&weight), bias].map(|one| one.set_requires_grad(true));
        let y = inputs[0].layer_norm([width], Some(&inputs[1]), Some(&inputs[2]), EPSILON, false);
        let total = (y * in_f32(&dy)).sum(Kind::Float);
        let gradients = Tensor::run_backward(&[total], &inputs, false, false);
        for residual in [None, Some(&residual)] {
            let (dx, [dw, db]) =
                fused.layer_norm_backward(&x, &weight, &dy, residual, EPSILON).expect("not too wide");
            let expected = residual.map_or_else(|| gradients[0].copy(), |more| &gradients[0] + in_f32(more));
            assert_close(&format!("{what}, dx"), &dx, &expected, 4.0);
            assert_close(&format!("{what}, dw"), &dw, &gradients[1], 0.5);
            assert_close(&format!("{what}, db"), &db, &gradients[2], 0.5);
        }
    }
    let wide = random(&[2, 6160], device);
    let fused = kernels.fused(&wide).expect("the kernels are available");
    let weight = random(&[6160], device);
    assert!(fused.layer_norm_backward(&wide, &weight, &wide, None, EPSILON).is_none(), "too wide");
}

/// Cosines and sines of random angles.
fn random_angles(tokens: i64, width: i64, device: Device) -> [Tensor; 2] {
    let angles = Tensor::randn([tokens, width / 2], (Kind::Float, device)) * 3.0;
    [angles.cos(), angles.sin()]
}

/// RoPE on heads `[tokens, heads, width]` in f32.
fn rotated(x: &Tensor, [cosine, sine]: &[Tensor; 2]) -> Tensor {
    let halves = x.chunk(2, -1);
    let (c, s) = (cosine.unsqueeze(1), sine.unsqueeze(1));
    Tensor::cat(&[&halves[0] * &c - &halves[1] * &s, &halves[1] * &c + &halves[0] * &s], -1)
}

/// The halves of some heads are multiples of eight, of others of four.
#[test]
fn rope_is_applied_and_undone() {
    let Some((device, kernels)) = gpu() else { return };
    for (tokens, heads, kv_heads, width) in
        [(1, 28, 4, 128), (77, 16, 16, 80), (131, 4, 2, 32), (33, 32, 8, 128), (77, 16, 16, 72), (9, 3, 1, 8)]
    {
        let qkv = random(&[tokens, (heads + 2 * kv_heads) * width], device);
        let angles = random_angles(tokens, width, device);
        let [cosine, sine] = &angles;
        let by_head = qkv.view([tokens, heads + 2 * kv_heads, width]);
        let fused = kernels.fused_rotary(&by_head).expect("the kernels are available");
        let split = fused.rotary_split(&qkv, cosine, sine, heads, kv_heads);
        let (by_head, rotates) = (in_f32(&by_head), heads + kv_heads);
        let expected = Tensor::cat(
            &[rotated(&by_head.narrow(1, 0, rotates), &angles), by_head.narrow(1, rotates, kv_heads)],
            1,
        );
        assert_close("rotary_split", &Tensor::cat(&split, 1), &expected, 1.0);
        let joined = fused.rotary_join(&split, cosine, sine);
        assert_close("rotary_join", &joined, &qkv, 4.0);
    }
    let narrow = random(&[2, 3, 28], device);
    assert!(kernels.fused_rotary(&narrow).is_none(), "halves of 14");
}

/// More tokens than the backward pass has slots among them, and heads that do not fill a warp.
#[test]
fn heads_are_normed_before_rope() {
    let Some((device, kernels)) = gpu() else { return };
    for (tokens, heads, kv_heads, width) in
        [(1, 32, 8, 128), (1100, 32, 8, 128), (77, 5, 1, 64), (530, 3, 1, 16), (33, 64, 32, 256)]
    {
        let what = format!("{tokens} tokens, {heads} and {kv_heads} heads of {width}");
        let (all, rotates) = (heads + 2 * kv_heads, heads + kv_heads);
        let qkv = random(&[tokens, all * width], device);
        let weights = [(); 2].map(|()| random(&[width], device) * 0.1 + 1.0);
        let norms = HeadNorms { q: &weights[0], k: &weights[1], epsilon: EPSILON };
        let angles = random_angles(tokens, width, device);
        let [cosine, sine] = &angles;

        let inputs = [&qkv, &weights[0], &weights[1]].map(|one| in_f32(one).set_requires_grad(true));
        let by_head = inputs[0].view([tokens, all, width]);
        let normed = |first: i64, heads: i64, weight: &Tensor| {
            let x = by_head.narrow(1, first, heads);
            let scale = (x.square().mean_dim(-1, true, Kind::Float) + EPSILON).rsqrt();
            rotated(&(x * scale * weight), &angles)
        };
        let [q, k] = [normed(0, heads, &inputs[1]), normed(heads, kv_heads, &inputs[2])];
        let expected = Tensor::cat(&[q, k, by_head.narrow(1, rotates, kv_heads)], 1);
        let fused = kernels.fused(&qkv).expect("the kernels are available");
        let split = fused.rotary_norm_split(&qkv, cosine, sine, heads, kv_heads, norms).expect("supported");
        // bf16 before the rotation, where a value may be several times as large as after it
        assert_close(&what, &Tensor::cat(&split, 1), &expected, 8.0);

        let gradient = random(&[tokens, all, width], device);
        let total = (&expected * in_f32(&gradient)).sum(Kind::Float);
        let expected = Tensor::run_backward(&[total], &inputs, false, false);
        let gradients: [Tensor; 3] =
            gradient.split_with_sizes([heads, kv_heads, kv_heads], 1).try_into().unwrap();
        let (joined, dw) = fused.rotary_norm_join(&gradients, cosine, sine, &qkv, norms).expect("supported");
        assert_close(&format!("{what}, gradient"), &joined, &expected[0], 8.0);
        assert_close(&format!("{what}, queries' weight"), &dw[0], &expected[1], 4.0);
        assert_close(&format!("{what}, keys' weight"), &dw[1], &expected[2], 4.0);
    }
    let qkv = random(&[2, 3 * 48], device);
    let [cosine, sine] = random_angles(2, 48, device);
    let weight = random(&[48], device);
    let norms = HeadNorms { q: &weight, k: &weight, epsilon: EPSILON };
    let fused = kernels.fused(&qkv).expect("the kernels are available");
    assert!(fused.rotary_norm_split(&qkv, &cosine, &sine, 1, 1, norms).is_none(), "three threads a head");
}

#[test]
fn swiglu_forward_and_backward() {
    let Some((device, kernels)) = gpu() else { return };
    for (rows, width) in [(1, 8), (37, 56), (129, 3424), (300, 18_944)] {
        let (gate_up, dh) = (random(&[rows, 2 * width], device), random(&[rows, width], device));
        let bias = random(&[2 * width], device);
        let fused = kernels.fused(&gate_up).expect("the kernels are available");
        for bias in [None, Some(&bias)] {
            let biased = bias.map_or_else(|| in_f32(&gate_up), |bias| in_f32(&(&gate_up + bias)));
            let biased = biased.set_requires_grad(true);
            let halves = biased.chunk(2, -1);
            let expected = halves[0].silu() * &halves[1];
            assert_close("swiglu", &fused.swiglu(&gate_up, bias), &expected, 2.0);
            let total = (&expected * in_f32(&dh)).sum(Kind::Float);
            let gradient = Tensor::run_backward(&[total], &[&biased], false, false).remove(0);
            let (h, d_gate_up) = fused.swiglu_backward(&gate_up, bias, &dh);
            assert_close("swiglu, recomputed", &h, &expected, 2.0);
            assert_close("swiglu, gradient", &d_gate_up, &gradient, 2.0);
        }
    }
}

#[test]
fn gelu_forward_and_backward() {
    let Some((device, kernels)) = gpu() else { return };
    for (rows, width) in [(1, 16), (37, 4304), (3001, 48)] {
        let (x, dh) = (random(&[rows, width], device) * 3.0, random(&[rows, width], device));
        let bias = random(&[width], device);
        let fused = kernels.fused(&x).expect("the kernels are available");
        for bias in [None, Some(&bias)] {
            let biased = bias.map_or_else(|| in_f32(&x), |bias| in_f32(&(&x + bias)));
            let biased = biased.set_requires_grad(true);
            let expected = biased.gelu("tanh");
            assert_close("gelu", &fused.gelu(&x, bias), &expected, 2.0);
            let total = (&expected * in_f32(&dh)).sum(Kind::Float);
            let gradient = Tensor::run_backward(&[total], &[&biased], false, false).remove(0);
            let (h, dx) = fused.gelu_backward(&x, bias, &dh);
            assert_close("gelu, recomputed", &h, &expected, 2.0);
            assert_close("gelu, gradient", &dx, &gradient, 2.0);
        }
    }
}

/// Three updates of a whole model, whose gradients are f32 in some parameters and bf16 in others.
#[test]
fn adamw_is_the_plain_version_to_the_bit() {
    let Some((device, kernels)) = gpu() else { return };
    for max_grad_norm in [0.0, 1.0] {
        let weights = Weights::random(&config::desktop(), Kind::BFloat16, device).with_gradients(|_| true);
        let copy = |kernels: &Kernels| {
            weights.to_kind(Kind::BFloat16).with_kernels(kernels.clone()).with_gradients(|_| true)
        };
        let both = [copy(&kernels), copy(&Kernels::none())];
        let config = OptimiserConfig { weight_decay: 0.1, max_grad_norm, ..OptimiserConfig::default() };
        let mut optimisers = both.each_ref().map(|weights| AdamW::new(weights, config.clone()));
        for _ in 0..3 {
            for ((_, _, one), (_, _, other)) in both[0].trained().zip(both[1].trained()) {
                let _ = one.shallow_clone().normal_(0.0, 1e-3);
                other.shallow_clone().copy_(one);
            }
            for (optimiser, weights) in optimisers.iter_mut().zip(&both) {
                optimiser.update(weights, 1e-4);
            }
            for ((layout, one), (_, other)) in both[0].iter().zip(both[1].iter()) {
                let unequal = one.ne_tensor(other).sum(Kind::Int64).int64_value(&[]);
                assert_eq!(unequal, 0, "of {} values of {}", one.numel(), layout.name);
            }
        }
        for ((layout, one), (_, before)) in both[0].iter().zip(weights.iter()) {
            assert!(!one.equal(before), "{} has not changed", layout.name);
        }
    }
}
