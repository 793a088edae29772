//! Kernels of decoding: matrix-vector products, the paged kv cache, sampling.

use crate::{assert_close, gpu, in_f32, random};
use arpo_model::distribution::Forbidden;
use arpo_torch::kernels::HeadNorms;
use arpo_torch::kernels::paged::{PageSlots, PagedSequences};
use arpo_torch::kernels::sample::RowSample;
use arpo_torch::shim::causal_bottom_right;
use tch::{Device, Kind, Tensor};

#[test]
fn matrix_vector_products() {
    let Some((device, kernels)) = gpu() else { return };
    for (rows, width) in [(2, 8), (30, 264), (2002, 3592), (1281, 152)] {
        let (x, addend) = (random(&[1, width], device), random(&[1, rows], device));
        let weight = random(&[rows, width], device) * (1.0 / (width as f64).sqrt());
        let row = kernels.row(&x).expect("the kernels are available");
        let exact = in_f32(&x).matmul(&in_f32(&weight).tr());
        assert_close("row_matmul", &row.matmul(&x, &weight, None).expect("supported"), &exact, 1.0);
        let added = row.matmul(&x, &weight, Some(&addend)).expect("supported");
        assert_close("row_matmul with an addend", &added, &(&exact + in_f32(&addend)), 1.0);
        if rows % 2 == 0 {
            let halves = exact.chunk(2, -1);
            let gated = row.swiglu(&x, &weight).expect("supported");
            assert_close("row_swiglu", &gated, &(halves[0].silu() * &halves[1]), 8.0);
        }
    }
    let two_rows = random(&[2, 16], device);
    let row = kernels.row(&two_rows).expect("the kernels are available");
    assert!(row.matmul(&two_rows, &random(&[8, 16], device), None).is_none(), "only single rows");
}

/// Keys and values of one sequence in pages in reverse order.
fn pages(x: &Tensor, kv_heads: i64, page_tokens: i64) -> Tensor {
    x.view([kv_heads, -1, page_tokens, 128]).transpose(0, 1).flip([0]).contiguous()
}

#[test]
fn paged_attention_of_unequal_sequences() {
    let Some((device, kernels)) = gpu() else { return };
    for (heads, kv_heads, tokens, page_tokens) in [(28, 4, 4592, 16), (32, 8, 640, 64), (5, 1, 96, 32)] {
        let [k, v] = [(); 2].map(|()| random(&[kv_heads, tokens, 128], device));
        let paged_kv = [&k, &v].map(|x| pages(x, kv_heads, page_tokens));
        let count = tokens / page_tokens;
        let lengths = [tokens - 5, 1, 77].map(|length| length as i32);
        let table = Tensor::arange_start_step(count - 1, -1, -1, (Kind::Int, device)).repeat([3, 1]);
        let lengths_tensor = Tensor::from_slice(&lengths).to_device(device);
        let sequences = PagedSequences::new(&table, &lengths_tensor, (tokens - 5) as usize);
        let q = random(&[3, heads, 128], device);
        let paged = kernels.paged(&q).expect("the kernels are available");
        let attended = paged.attention(&q, &paged_kv[0], &paged_kv[1], &sequences).expect("supported");
        let [k, v] = [&k, &v].map(|x| {
            in_f32(x)
                .repeat_interleave_self_int(heads / kv_heads, 0, None)
                .unsqueeze(0)
                .expand([3, -1, -1, -1], false)
        });
        let seen = Tensor::arange(tokens, (Kind::Int, device)).lt_tensor(&lengths_tensor.view([3, 1, 1, 1]));
        let q = in_f32(&q).unsqueeze(2);
        let exact = Tensor::scaled_dot_product_attention(&q, &k, &v, Some(&seen), 0.0, false, None, false);
        assert_close("paged_attention", &attended, &exact.view([3, -1]), 4.0);

        let wanted = Tensor::arange(count, (Kind::Int64, device)).flip([0]);
        let gathered = paged.gather(&paged_kv[0], &paged_kv[1], &wanted).expect("supported");
        for (gathered, pool) in gathered.iter().zip(&paged_kv) {
            assert!(pages(&gathered.squeeze_dim(0), kv_heads, page_tokens).equal(pool), "gather_pages");
        }
    }
}

#[test]
fn new_keys_and_values_go_into_their_pages() {
    let Some((device, kernels)) = gpu() else { return };
    let (tokens, heads, kv_heads, page_tokens) = (9, 6, 2, 16);
    for (width, is_normed) in [(48, false), (128, true)] {
        let qkv = random(&[tokens, (heads + 2 * kv_heads) * width], device);
        let angles = Tensor::randn([tokens, width / 2], (Kind::Float, device));
        let (cosine, sine) = (angles.cos(), angles.sin());
        let weights = [(); 2].map(|()| random(&[width], device) * 0.1 + 1.0);
        let norms = HeadNorms { q: &weights[0], k: &weights[1], epsilon: 1e-6 };
        let [keys, values] =
            [(); 2].map(|()| Tensor::zeros([5, kv_heads, page_tokens, width], (Kind::BFloat16, device)));
        let page: Vec<i64> = (0..tokens).map(|token| (token * 3) % 5).collect();
        let offset: Vec<i64> = (0..tokens).map(|token| (token * 7) % page_tokens).collect();
        let [page_of, offset_of] = [&page, &offset].map(|one| Tensor::from_slice(one).to_device(device));
        let slots = PageSlots { keys: &keys, values: &values, pages: &page_of, offsets: &offset_of };
        let paged = kernels.paged(&qkv).expect("the kernels are available");
        let given = is_normed.then_some(norms);
        let q = paged.rotary_into_pages(&qkv, &cosine, &sine, heads, given, slots).expect("supported");
        let fused = kernels.fused(&qkv).expect("the kernels are available");
        let [expected_q, k, v] = if is_normed {
            fused.rotary_norm_split(&qkv, &cosine, &sine, heads, kv_heads, norms).expect("supported")
        } else {
            fused.rotary_split(&qkv, &cosine, &sine, heads, kv_heads)
        };
        // a norm's sums are in another order, which may round a value differently before it is rotated
        let assert_same = |what: &str, found: &Tensor, expected: &Tensor| {
            if is_normed {
                assert_close(what, found, expected, 8.0);
            } else {
                assert!(found.equal(expected), "{what}");
            }
        };
        assert_same("queries", &q, &expected_q);
        for (pool, expected) in [(&keys, &k), (&values, &v)] {
            let written = pool.transpose(1, 2).index(&[Some(&page_of), Some(&offset_of)]);
            assert_same("keys or values", &written, expected);
            assert_eq!(
                pool.count_nonzero(None::<i64>).int64_value(&[]),
                expected.count_nonzero(None::<i64>).int64_value(&[])
            );
        }
    }
}

#[test]
fn attention_over_a_cached_prefix() {
    let Some((device, kernels)) = gpu() else { return };
    let (older, newer, heads, kv_heads) = (4096, 496, 28, 4);
    let [k, v] = [(); 2].map(|()| random(&[1, kv_heads, older + newer, 128], device));
    let prefix = [&k, &v].map(|x| x.narrow(2, 0, older).contiguous());
    let [newer_k, newer_v] = [&k, &v].map(|x| x.narrow(2, older, newer));
    let [k, v] = [&k, &v].map(|x| in_f32(x).repeat_interleave_self_int(heads / kv_heads, 1, None));
    for new in [1, 100, 300, newer] {
        let q = random(&[1, heads, new, 128], device);
        let attended = causal_bottom_right(&kernels, &q, Some(&prefix), [&newer_k, &newer_v]);
        let last =
            Tensor::arange_start(older + newer - new, older + newer, (Kind::Int64, device)).unsqueeze(1);
        let seen = Tensor::arange(older + newer, (Kind::Int64, device)).unsqueeze(0).le_tensor(&last);
        let exact =
            Tensor::scaled_dot_product_attention(&in_f32(&q), &k, &v, Some(&seen), 0.0, false, None, false);
        assert_close(&format!("{new} new tokens"), &attended, &exact, 6.0);
    }
}

/// More rows than one launch takes, forced tokens among them.
#[test]
fn sampled_tokens_and_their_log_probabilities() {
    const ROWS: usize = 70;
    let Some((device, kernels)) = gpu() else { return };
    let vocabulary = 152_064;
    let logits =
        (Tensor::randn([ROWS as i64, vocabulary], (Kind::Float, device)) * 3.0).to_kind(Kind::BFloat16);
    // two tokens, and the end of the vocabulary
    let tokens: Vec<u32> = [5, 77].into_iter().chain(151_000..vocabulary as u32).collect();
    let forbidden = Forbidden::new(&tokens, device, &kernels);
    let row = |row: usize| RowSample {
        temperature: 0.5 + row as f64 / ROWS as f64,
        uniform: row as f64 / ROWS as f64,
        forced: (row % 9 == 4).then_some(row as u32 * 1000),
    };
    let rows: Vec<RowSample> = (0..ROWS).map(row).collect();
    let column = |of: fn(&RowSample) -> f64| {
        Tensor::from_slice(&rows.iter().map(of).collect::<Vec<_>>()).to_device(device).unsqueeze(1)
    };
    let sampled = forbidden.sample(&logits, &rows).expect("the kernels are available").to_device(Device::Cpu);
    let logp = forbidden.log_distribution(&logits, &column(|row| row.temperature).to_kind(Kind::Float));
    let sums = logp.exp().to_kind(Kind::Double).cumsum(-1, Kind::Double);
    let wanted = column(|row| row.uniform) * sums.narrow(1, -1, 1);
    let plain = Tensor::searchsorted(&wanted, &sums, false, true, "right", None::<&Tensor>);
    let forced = column(|row| row.forced.map_or(-1.0, f64::from)).to_kind(Kind::Int64);
    let plain = forced.where_self(&forced.ge(0), &plain);
    let expected_logp = logp.gather(1, &plain, false);
    let mut others = 0;
    for row in 0..ROWS as i64 {
        let (token, score) = (sampled.double_value(&[row, 0]), sampled.double_value(&[row, 1]));
        if token as i64 == plain.int64_value(&[row, 0]) {
            let expected = expected_logp.double_value(&[row, 0]);
            assert!((score - expected).abs() < 1e-4, "row {row}: {score} instead of {expected}");
        } else {
            assert!(rows[row as usize].forced.is_none(), "row {row}: a forced token was not taken");
            assert!(!tokens.contains(&(token as u32)), "row {row}: a forbidden token");
            others += 1;
        }
    }
    // a sum in another order may end on a neighbour
    assert!(others <= 3, "{others} of {ROWS} tokens differ");
}
