//! Attention that is saved by its result, against the same in autograd.

use crate::{gpu, random};
use arpo_torch::shim;
use tch::{Kind, Tensor, no_grad};

/// Of a gradient's norm: the sums of the backward pass are in no fixed order.
const TOLERANCE: f64 = 0.01;

/// Images, windows and an episode with grouped heads, at the widths of the published models.
#[test]
fn gradients_from_a_result_are_those_of_autograd() {
    let Some((device, _)) = gpu() else { return };
    for (sequences, tokens, heads, kv_heads, width, causal) in [
        (2, 1020, 16, 16, 72, false),
        (2, 391, 16, 16, 80, false),
        (40, 64, 16, 16, 80, false),
        (1, 1531, 32, 8, 128, true),
        (1, 700, 28, 4, 128, true),
    ] {
        let what = format!("{sequences} x {tokens} tokens, {heads} and {kv_heads} heads of {width}");
        // a token's heads are contiguous, as the model has them
        let by_head = |heads: i64| random(&[sequences, tokens, heads, width], device).transpose(1, 2);
        let inputs = [heads, kv_heads, kv_heads].map(by_head);
        let gradient = by_head(heads);

        let trained = inputs.each_ref().map(|x| x.detach().set_requires_grad(true));
        let [q, k, v] = &trained;
        let (no_mask, grouped) = (None::<&Tensor>, heads != kv_heads);
        let expected = Tensor::scaled_dot_product_attention(q, k, v, no_mask, 0.0, causal, None, grouped);
        let expected_gradients = shim::gradients(&expected, &trained, &gradient);

        let (result, gradients) = no_grad(|| {
            let (result, statistics) = shim::attention(inputs.each_ref(), causal).expect("supported");
            let gradients = statistics.backward(inputs.each_ref(), &result, &gradient);
            (result, gradients)
        });
        assert!(result.equal(&expected.detach()), "{what}");
        for (name, actual, expected) in [
            ("queries", &gradients[0], &expected_gradients[0]),
            ("keys", &gradients[1], &expected_gradients[1]),
            ("values", &gradients[2], &expected_gradients[2]),
        ] {
            assert_eq!(actual.size(), expected.size(), "{what}, {name}");
            let [difference, size] =
                [&(actual - expected), expected].map(|x| x.to_kind(Kind::Float).norm().double_value(&[]));
            assert!(difference <= TOLERANCE * size, "{what}, {name}: {difference} of {size}");
        }
    }
}

/// In f32, libtorch's kernel on a GPU is another one.
#[test]
fn attention_in_f32_is_not_saved_by_its_result() {
    let Some((device, _)) = gpu() else { return };
    let x = Tensor::randn([1, 2, 33, 64], (Kind::Float, device));
    assert!(no_grad(|| shim::attention([&x; 3], false)).is_none());
}
