//! From logits to tokens.
//!
//! Every request has its own random stream and uses one uniform per token, so its samples do not depend on what else is
//! in the batch (up to floating point). Log-probabilities are those of the full distribution at the request's
//! temperature, as the learner computes them: they are not renormalised after top-k and top-p.

use arpo_core::random::{Purpose, stream};
use arpo_model::distribution::Forbidden;
use arpo_torch::kernels::sample::RowSample;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor};

/// How one response is sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 is greedy, with log-probabilities as at 1.
    pub temperature: f64,
    /// Sample only from this many most likely tokens.
    pub top_k: Option<usize>,
    /// Sample only from the most likely tokens that together have this probability.
    pub top_p: Option<f64>,
    /// Maximum length of a response.
    pub max_tokens: usize,
    /// Tokens that end a response and belong to it.
    pub stop: Vec<u32>,
    /// Subtracted from the logits of tokens that the response already contains.
    pub penalties: Penalties,
    /// How many of the most likely tokens are reported beside each sampled one.
    pub alternatives: usize,
    /// The episode's seed.
    pub seed: u64,
    /// The turn within the episode.
    pub turn: u64,
}

/// Penalties for tokens that the response already contains, as OpenAI defines them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Penalties {
    /// For each time a token occurs.
    pub frequency: f64,
    /// Once for a token that occurs.
    pub presence: f64,
}

impl Penalties {
    fn are_none(self) -> bool {
        self == Self::default()
    }
}

impl Sampling {
    /// What is invalid, if anything.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { temperature, top_k, top_p, max_tokens, penalties, .. } = self;
        if !(temperature.is_finite() && *temperature >= 0.0) {
            return Some(format!("temperature is {temperature}, expected a number from 0"));
        }
        if *top_k == Some(0) {
            return Some("top_k is 0, expected at least 1".into());
        }
        if top_p.is_some_and(|top_p| !(top_p > 0.0 && top_p <= 1.0)) {
            return Some(format!("top_p is {top_p:?}, expected a number above 0 and at most 1"));
        }
        if !(penalties.frequency.is_finite() && penalties.presence.is_finite()) {
            return Some(format!("penalties of {penalties:?}, expected finite numbers"));
        }
        (*max_tokens == 0).then(|| "max_tokens is 0, expected at least 1".into())
    }

    /// Its random stream.
    pub(crate) fn uniforms(&self) -> UniformStream {
        UniformStream(stream(self.seed, Purpose::Sampling, self.turn, 0))
    }

    /// What logits are divided by.
    fn divisor(&self) -> f64 {
        if self.temperature > 0.0 { self.temperature } else { 1.0 }
    }

    fn is_unrestricted(&self) -> bool {
        self.temperature > 0.0 && !self.is_truncated()
    }

    /// Whether nothing but the token of the full distribution is needed, which the kernel samples.
    fn is_plain(&self, forced: bool) -> bool {
        (forced || self.is_unrestricted()) && self.penalties.are_none() && self.alternatives == 0
    }

    fn is_truncated(&self) -> bool {
        self.temperature > 0.0 && (self.top_k.is_some() || self.top_p.is_some_and(|top_p| top_p < 1.0))
    }
}

/// The uniforms of one request.
#[derive(Debug, Clone)]
pub(crate) struct UniformStream(ChaCha8Rng);

impl UniformStream {
    /// The next uniform in `[0, 1)`: 52 bits, so that its product with a sum stays below the sum.
    fn next(&mut self) -> f64 {
        let bits: u64 = self.0.random();
        (bits >> 12) as f64 / (1u64 << 52) as f64
    }
}

/// A token and its log-probability.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The token.
    pub token: u32,
    /// Its log-probability.
    pub logp: f32,
    /// The most likely tokens with theirs, most likely first, as many as [`Sampling::alternatives`] asks for.
    pub alternatives: Vec<(u32, f32)>,
}

/// How one row's token is sampled.
#[derive(Debug)]
pub(crate) struct RowSampler<'a> {
    pub(crate) sampling: &'a Sampling,
    pub(crate) uniforms: &'a mut UniformStream,
    /// Taken instead of sampling.
    pub(crate) forced: Option<u32>,
    /// The response so far.
    pub(crate) response: &'a [u32],
}

/// How the rows of a pass are sampled.
#[derive(Debug)]
pub(crate) enum SamplingBatch {
    /// All of them from the full distribution, by a kernel.
    Kernel(Vec<RowSample>),
    /// By libtorch.
    Plain(PlainSampling),
}

/// Built before the pass: a transfer to the device after it would wait for the pass to end, and stall the device.
#[derive(Debug)]
pub(crate) struct PlainSampling {
    temperatures: Tensor, // [rows, 1]
    groups: Vec<RowGroup>,
    /// Rows with forced tokens.
    forced: Vec<(i64, u32)>,
    /// Subtracted from logits.
    penalties: Option<SparsePenalties>,
    /// How many alternatives each row reports.
    alternatives: Vec<usize>,
}

/// Penalties of single logits.
#[derive(Debug)]
struct SparsePenalties {
    rows: Tensor,
    tokens: Tensor,
    values: Tensor,
}

impl SparsePenalties {
    /// Those of all rows; `None` if there are none.
    fn new(rows: &[RowSampler], device: Device) -> Option<Self> {
        let (mut at, mut tokens, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (row, one) in (0i64..).zip(rows).filter(|(_, one)| !one.sampling.penalties.are_none()) {
            let Penalties { frequency, presence } = one.sampling.penalties;
            let mut counts = BTreeMap::new();
            for &token in one.response {
                *counts.entry(i64::from(token)).or_insert(0u32) += 1;
            }
            for (token, count) in counts {
                at.push(row);
                tokens.push(token);
                values.push((frequency * f64::from(count) + presence) as f32);
            }
        }
        let upload = |numbers: &[i64]| Tensor::from_slice(numbers).to_device(device);
        (!at.is_empty()).then(|| Self {
            rows: upload(&at),
            tokens: upload(&tokens),
            values: Tensor::from_slice(&values).to_device(device),
        })
    }

    /// Logits in f32, less the penalties.
    fn subtracted(&self, logits: &Tensor) -> Tensor {
        let indices = [Some(&self.rows), Some(&self.tokens)];
        logits.to_kind(Kind::Float).index_put(&indices, &self.values.neg(), true)
    }
}

/// Rows with the same sampling method.
#[derive(Debug)]
struct RowGroup {
    /// Their indices, unless all rows are in the group.
    rows: Option<Tensor>,
    method: Method,
}

#[derive(Debug)]
enum Method {
    /// The most likely token.
    Greedy,
    /// From the full distribution, by these uniforms.
    Full { uniforms: Tensor },
    /// After top-k and top-p truncation.
    Truncated { uniforms: Tensor, top_k: Tensor, top_p: Tensor },
}

impl SamplingBatch {
    pub(crate) fn new(rows: &mut [RowSampler], device: Device, forbidden: &Forbidden) -> Self {
        let uniforms: Vec<f64> = rows.iter_mut().map(|row| row.uniforms.next()).collect();
        let plain = |row: &RowSampler| row.sampling.is_plain(row.forced.is_some());
        if forbidden.has_kernels() && rows.iter().all(plain) {
            let row = |(row, uniform): (&RowSampler, f64)| RowSample {
                temperature: row.sampling.divisor(),
                uniform,
                forced: row.forced,
            };
            return Self::Kernel(rows.iter().zip(uniforms).map(row).collect());
        }
        Self::Plain(PlainSampling::new(rows, &uniforms, device))
    }

    /// One token for each row of logits `[rows, vocabulary]`.
    pub(crate) fn sample(&self, logits: &Tensor, forbidden: &Forbidden) -> Vec<SampledToken> {
        match self {
            Self::Kernel(rows) => match forbidden.sample(logits, rows) {
                Some(sampled) => read(&sampled),
                None => PlainSampling::full(rows, logits.device()).sample(logits, forbidden),
            },
            Self::Plain(plain) => plain.sample(logits, forbidden),
        }
    }
}

/// Tokens and log-probabilities from `[rows, 2]`, in one transfer, because each transfer waits for the device.
fn read(sampled: &Tensor) -> Vec<SampledToken> {
    let pairs: Vec<f64> = sampled.flatten(0, 1).try_into().expect("two values for each row");
    let sampled =
        |pair: &[f64]| SampledToken { token: pair[0] as u32, logp: pair[1] as f32, alternatives: vec![] };
    pairs.chunks_exact(2).map(sampled).collect()
}

impl PlainSampling {
    fn new(rows: &[RowSampler], uniforms: &[f64], device: Device) -> Self {
        let column = |values: Vec<f64>| Tensor::from_slice(&values).to_device(device).unsqueeze(1);
        let temperatures = rows.iter().map(|row| row.sampling.divisor()).collect();
        let group = |matches: fn(&Sampling) -> bool, method: &dyn Fn(&[usize]) -> Method| {
            let indices: Vec<usize> = (0..rows.len()).filter(|&row| matches(rows[row].sampling)).collect();
            let row_indices = || indices.iter().map(|&index| index as i64).collect::<Vec<_>>();
            let is_subset = indices.len() < rows.len();
            (!indices.is_empty()).then(|| RowGroup {
                rows: is_subset.then(|| Tensor::from_slice(&row_indices()).to_device(device)),
                method: method(&indices),
            })
        };
        let uniforms_of = |indices: &[usize]| column(indices.iter().map(|&row| uniforms[row]).collect());
        let limits = |indices: &[usize], limit: fn(&Sampling) -> f64| {
            column(indices.iter().map(|&row| limit(rows[row].sampling)).collect())
        };
        let greedy = group(|one| one.temperature <= 0.0, &|_| Method::Greedy);
        let full =
            group(Sampling::is_unrestricted, &|indices| Method::Full { uniforms: uniforms_of(indices) });
        let truncated = group(Sampling::is_truncated, &|indices| Method::Truncated {
            uniforms: uniforms_of(indices),
            top_k: limits(indices, |one| one.top_k.map_or(f64::INFINITY, |k| k as f64)),
            top_p: limits(indices, |one| one.top_p.unwrap_or(1.0)),
        });
        Self {
            temperatures: column(temperatures).to_kind(Kind::Float),
            groups: [greedy, full, truncated].into_iter().flatten().collect(),
            forced: (0..).zip(rows.iter()).filter_map(|(row, one)| Some((row, one.forced?))).collect(),
            penalties: SparsePenalties::new(rows, device),
            alternatives: rows.iter().map(|row| row.sampling.alternatives).collect(),
        }
    }

    /// All from the full distribution: for logits that the kernel does not support.
    fn full(rows: &[RowSample], device: Device) -> Self {
        let column = |values: Vec<f64>| Tensor::from_slice(&values).to_device(device).unsqueeze(1);
        let uniforms = column(rows.iter().map(|row| row.uniform).collect());
        Self {
            temperatures: column(rows.iter().map(|row| row.temperature).collect()).to_kind(Kind::Float),
            groups: vec![RowGroup { rows: None, method: Method::Full { uniforms } }],
            forced: (0..).zip(rows).filter_map(|(row, one)| Some((row, one.forced?))).collect(),
            penalties: None,
            alternatives: vec![0; rows.len()],
        }
    }

    fn sample(&self, logits: &Tensor, forbidden: &Forbidden) -> Vec<SampledToken> {
        let logp = match &self.penalties {
            None => forbidden.log_distribution(logits, &self.temperatures),
            Some(penalties) => forbidden.log_distribution(&penalties.subtracted(logits), &self.temperatures),
        };
        let tokens = Tensor::zeros([logits.size()[0]], (Kind::Int64, logits.device()));
        for RowGroup { rows, method } in &self.groups {
            match rows {
                None => tokens.shallow_clone().copy_(&method.choose(&logp)),
                Some(rows) => {
                    let chosen = method.choose(&logp.index_select(0, rows));
                    let _ = tokens.shallow_clone().index_copy_(0, rows, &chosen);
                }
            }
        }
        for &(row, token) in &self.forced {
            let _ = tokens.get(row).fill_(i64::from(token));
        }
        let alternatives = self.most_likely(&logp);
        let logp = logp.gather(1, &tokens.unsqueeze(1), false).squeeze_dim(1);
        let tokens: Vec<i64> = tokens.try_into().expect("one token for each row");
        let logp: Vec<f32> = logp.try_into().expect("one value for each row");
        let sampled = tokens.into_iter().zip(logp).zip(alternatives);
        sampled
            .map(|((token, logp), alternatives)| SampledToken { token: token as u32, logp, alternatives })
            .collect()
    }

    /// The most likely tokens of each row with their log-probabilities, as many as it asks for.
    fn most_likely(&self, logp: &Tensor) -> Vec<Vec<(u32, f32)>> {
        let most = self.alternatives.iter().copied().max().unwrap_or(0).min(logp.size()[1] as usize);
        if most == 0 {
            return vec![vec![]; self.alternatives.len()];
        }
        let (values, tokens) = logp.topk(most as i64, -1, true, true);
        let values: Vec<f32> = values.flatten(0, 1).try_into().expect("as many for each row");
        let tokens: Vec<i64> = tokens.flatten(0, 1).try_into().expect("as many for each row");
        let pairs: Vec<(u32, f32)> = tokens.into_iter().map(|token| token as u32).zip(values).collect();
        pairs
            .chunks(most)
            .zip(&self.alternatives)
            .map(|(row, &count)| row[..count.min(most)].to_vec())
            .collect()
    }
}

impl Method {
    /// A token for each row.
    fn choose(&self, logp: &Tensor) -> Tensor {
        match self {
            Self::Greedy => logp.argmax(-1, false),
            Self::Full { uniforms } => sample_row(&logp.exp().to_kind(Kind::Double), uniforms),
            Self::Truncated { uniforms, top_k, top_p } => sample_truncated(logp, uniforms, top_k, top_p),
        }
    }
}

/// For each row the first token whose cumulative probability exceeds the uniform, as a share of the total (inverse
/// CDF).
fn sample_row(probabilities: &Tensor, uniforms: &Tensor) -> Tensor {
    let cumulative = probabilities.cumsum(-1, Kind::Double);
    let total = cumulative.narrow(1, -1, 1);
    let index = Tensor::searchsorted(&(uniforms * total), &cumulative, false, true, "right", None::<&Tensor>);
    // NaN sums are never exceeded; the token's log-probability will be NaN
    index.squeeze_dim(1).clamp_max(probabilities.size()[1] - 1)
}

/// The same after top-k, then top-p.
fn sample_truncated(logp: &Tensor, uniforms: &Tensor, top_k: &Tensor, top_p: &Tensor) -> Tensor {
    let (sorted, tokens) = logp.exp().to_kind(Kind::Double).sort(-1, true);
    let rank = Tensor::arange(logp.size()[1], (Kind::Double, logp.device())).unsqueeze(0);
    let sorted = sorted * rank.lt_tensor(top_k).to_kind(Kind::Double);
    let sorted = &sorted / sorted.sum_dim_intlist([1i64].as_slice(), true, None::<Kind>);
    // a token is kept while those before it have not reached top-p; the first always is
    let before = sorted.cumsum(-1, Kind::Double) - &sorted;
    let kept = &sorted * before.lt_tensor(top_p).to_kind(Kind::Double);
    let index = sample_row(&kept, uniforms);
    tokens.gather(1, &index.unsqueeze(1), false).squeeze_dim(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_torch::kernels::Kernels;

    fn sampling(seed: u64) -> Sampling {
        Sampling {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            max_tokens: 1,
            stop: vec![],
            penalties: Penalties::default(),
            alternatives: 0,
            seed,
            turn: 0,
        }
    }

    fn row_sampler<'a>((sampling, uniforms): (&'a Sampling, &'a mut UniformStream)) -> RowSampler<'a> {
        RowSampler { sampling, uniforms, forced: None, response: &[] }
    }

    /// How often each token is sampled from the same logits.
    fn frequencies(logits: &[f32], change: impl Fn(&mut Sampling), forbidden: &[u32]) -> Vec<f64> {
        let forbidden = Forbidden::new(forbidden, Device::Cpu, &Kernels::none());
        let count = 4000;
        let samplings: Vec<Sampling> = (0..count)
            .map(|seed| {
                let mut one = sampling(seed);
                change(&mut one);
                one
            })
            .collect();
        let mut uniforms: Vec<UniformStream> = samplings.iter().map(Sampling::uniforms).collect();
        let mut rows: Vec<RowSampler> = samplings.iter().zip(&mut uniforms).map(row_sampler).collect();
        let logits = Tensor::from_slice(logits).unsqueeze(0).repeat([count as i64, 1]);
        let mut frequencies = vec![0.0; logits.size()[1] as usize];
        for sampled in SamplingBatch::new(&mut rows, Device::Cpu, &forbidden).sample(&logits, &forbidden) {
            frequencies[sampled.token as usize] += 1.0 / count as f64;
        }
        frequencies
    }

    fn assert_close(frequencies: &[f64], expected: &[f64]) {
        for (frequency, expected) in frequencies.iter().zip(expected) {
            assert!((frequency - expected).abs() < 0.03, "{frequencies:?}");
            assert!(*expected > 0.0 || *frequency == 0.0, "{frequencies:?}");
        }
    }

    #[test]
    fn tokens_are_sampled_by_their_probability() {
        let logits = [0.5f32, 0.3, 0.2, 0.0].map(|share: f32| share.max(1e-20).ln());
        assert_close(&frequencies(&logits, |_| {}, &[]), &[0.5, 0.3, 0.2, 0.0]);
        assert_close(&frequencies(&logits, |one| one.temperature = 0.5, &[]), &[0.658, 0.237, 0.105, 0.0]);
        assert_close(&frequencies(&logits, |_| {}, &[0]), &[0.0, 0.6, 0.4, 0.0]);
        assert_close(&frequencies(&logits, |one| one.top_k = Some(2), &[]), &[0.625, 0.375, 0.0, 0.0]);
        assert_close(&frequencies(&logits, |one| one.top_p = Some(0.75), &[]), &[0.625, 0.375, 0.0, 0.0]);
        assert_close(&frequencies(&logits, |one| one.top_p = Some(1e-9), &[]), &[1.0, 0.0, 0.0, 0.0]);
        assert_close(&frequencies(&logits, |one| one.temperature = 0.0, &[]), &[1.0, 0.0, 0.0, 0.0]);
        assert_close(&frequencies(&logits, |one| one.temperature = 0.0, &[0]), &[0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn penalties_are_subtracted_from_the_logits_of_earlier_tokens() {
        let forbidden = Forbidden::new(&[], Device::Cpu, &Kernels::none());
        let logits = [2.0f32, 1.0, 0.5, 0.0];
        let mut one = Sampling { temperature: 0.5, alternatives: 4, ..sampling(0) };
        one.penalties = Penalties { frequency: 0.25, presence: 0.5 };
        let mut uniforms = one.uniforms();
        let response = [0, 3, 0];
        let mut rows =
            [RowSampler { sampling: &one, uniforms: &mut uniforms, forced: None, response: &response }];
        let batch = SamplingBatch::new(&mut rows, Device::Cpu, &forbidden);
        let sampled = batch.sample(&Tensor::from_slice(&logits).unsqueeze(0), &forbidden).remove(0);
        // token 0 twice, token 3 once; then the temperature
        let expected =
            [(2.0 - 1.0) / 0.5, 1.0 / 0.5, 0.5 / 0.5, (0.0 - 0.75) / 0.5].map(|logit: f32| logit.exp());
        let total: f32 = expected.iter().sum();
        for (token, logp) in sampled.alternatives {
            assert!((logp.exp() - expected[token as usize] / total).abs() < 1e-6);
        }
    }

    #[test]
    fn a_row_does_not_depend_on_the_others() {
        let logits = Tensor::randn([3, 50], (Kind::Float, Device::Cpu));
        let forbidden = Forbidden::new(&[7], Device::Cpu, &Kernels::none());
        let mut samplings = [sampling(1), sampling(2), sampling(3)];
        samplings[0].top_k = Some(5);
        samplings[2].temperature = 0.7;
        let mut uniforms: Vec<UniformStream> = samplings.iter().map(Sampling::uniforms).collect();
        let mut rows: Vec<RowSampler> = samplings.iter().zip(&mut uniforms).map(row_sampler).collect();
        let together = SamplingBatch::new(&mut rows, Device::Cpu, &forbidden).sample(&logits, &forbidden);
        for row in 0..3 {
            let mut uniforms = samplings[row].uniforms();
            let mut rows = [row_sampler((&samplings[row], &mut uniforms))];
            let batch = SamplingBatch::new(&mut rows, Device::Cpu, &forbidden);
            let alone = batch.sample(&logits.narrow(0, row as i64, 1), &forbidden);
            assert_eq!(alone[0].token, together[row].token);
            assert!((alone[0].logp - together[row].logp).abs() < 1e-6);
        }
    }
}
