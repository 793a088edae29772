//! From logits to tokens.
//!
//! Every request draws from its own stream, one number per token, so what is sampled does not depend on what else is
//! in the batch (up to floating point). Log-probabilities are those of the whole distribution at the request's
//! temperature, as the learner computes them: what top-k and top-p cut off is not taken out of them.

use arpo_core::random::{Purpose, stream};
use arpo_model::distribution::Forbidden;
use arpo_torch::kernels::draw::{self, RowDraw};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

/// How one response is sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 takes the most likely token, with log-probabilities as at 1.
    pub temperature: f64,
    /// Only so many of the most likely tokens.
    pub top_k: Option<usize>,
    /// Only the most likely tokens that together have this probability.
    pub top_p: Option<f64>,
    /// A response is at most so long.
    pub max_tokens: usize,
    /// Tokens that end a response and belong to it.
    pub stop: Vec<u32>,
    /// The episode's seed.
    pub seed: u64,
    /// The turn within the episode.
    pub turn: u64,
}

impl Sampling {
    /// What is wrong with it, if anything.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { temperature, top_k, top_p, max_tokens, .. } = self;
        if !(temperature.is_finite() && *temperature >= 0.0) {
            return Some(format!("temperature is {temperature}, expected a number from 0"));
        }
        if *top_k == Some(0) {
            return Some("top_k is 0, expected at least 1".into());
        }
        if top_p.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Some(format!("top_p is {top_p:?}, expected a number above 0 and at most 1"));
        }
        (*max_tokens == 0).then(|| "max_tokens is 0, expected at least 1".into())
    }

    /// The stream its tokens are drawn from.
    pub(crate) fn draws(&self) -> Draws {
        Draws(stream(self.seed, Purpose::Sampling, self.turn, 0))
    }

    /// What logits are divided by.
    fn divisor(&self) -> f64 {
        if self.temperature > 0.0 { self.temperature } else { 1.0 }
    }

    fn is_free(&self) -> bool {
        self.temperature > 0.0 && !self.is_restricted()
    }

    fn is_restricted(&self) -> bool {
        self.temperature > 0.0 && (self.top_k.is_some() || self.top_p.is_some_and(|share| share < 1.0))
    }
}

/// A request's numbers.
#[derive(Debug, Clone)]
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    /// The next, from 0 to below 1: of 52 bits, so that its product with a sum stays below the sum.
    fn next(&mut self) -> f64 {
        let bits: u64 = self.0.random();
        (bits >> 12) as f64 / (1u64 << 52) as f64
    }
}

/// A token and its log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) token: u32,
    pub(crate) logp: f32,
}

/// How one row's token comes about.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) sampling: &'a Sampling,
    pub(crate) draws: &'a mut Draws,
    /// Taken in any case.
    pub(crate) dictated: Option<u32>,
}

/// How the rows of a pass are drawn.
#[derive(Debug)]
pub(crate) enum Draft {
    /// All of them from the whole distribution, by a kernel.
    Kernel(Vec<RowDraw>),
    /// By libtorch.
    Plain(PlainDraft),
}

/// It is made before the pass: what is sent to a device later waits for the pass to end, and the device then for it.
#[derive(Debug)]
pub(crate) struct PlainDraft {
    temperatures: Tensor, // [rows, 1]
    parts: Vec<Part>,
    /// Rows whose tokens are taken in any case.
    dictated: Vec<(i64, u32)>,
}

/// Rows that are drawn in the same way.
#[derive(Debug)]
struct Part {
    /// Which ones, if not all.
    rows: Option<Tensor>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// The most likely token.
    Greedy,
    /// From the whole distribution, by these numbers.
    Free { draws: Tensor },
    /// After top-k and top-p.
    Restricted { draws: Tensor, most: Tensor, share: Tensor },
}

impl Draft {
    pub(crate) fn new(rows: &mut [Choice], device: Device) -> Self {
        let draws: Vec<f64> = rows.iter_mut().map(|row| row.draws.next()).collect();
        let freely = |row: &Choice| row.dictated.is_some() || row.sampling.is_free();
        if draw::is_there(device) && rows.iter().all(freely) {
            let row = |(row, draw): (&Choice, f64)| RowDraw {
                temperature: row.sampling.divisor(),
                draw,
                dictated: row.dictated,
            };
            return Self::Kernel(rows.iter().zip(draws).map(row).collect());
        }
        Self::Plain(PlainDraft::new(rows, &draws, device))
    }

    /// One token for each row of logits `[rows, vocabulary]`.
    pub(crate) fn sample(&self, logits: &Tensor, forbidden: &Forbidden) -> Vec<Drawn> {
        match self {
            Self::Kernel(rows) => match forbidden.draw(logits, rows) {
                Some(drawn) => read(&drawn),
                None => PlainDraft::free(rows, logits.device()).sample(logits, forbidden),
            },
            Self::Plain(plain) => plain.sample(logits, forbidden),
        }
    }
}

/// Tokens and log-probabilities `[rows, 2]`, read at once, because each reading waits for the device.
fn read(drawn: &Tensor) -> Vec<Drawn> {
    let both: Vec<f64> = drawn.flatten(0, 1).try_into().expect("two numbers for each row");
    both.chunks_exact(2).map(|both| Drawn { token: both[0] as u32, logp: both[1] as f32 }).collect()
}

impl PlainDraft {
    fn new(rows: &[Choice], draws: &[f64], device: Device) -> Self {
        let column = |numbers: Vec<f64>| Tensor::from_slice(&numbers).to_device(device).unsqueeze(1);
        let temperatures = rows.iter().map(|row| row.sampling.divisor()).collect();
        let part = |wanted: fn(&Sampling) -> bool, way: &dyn Fn(&[usize]) -> Way| {
            let places: Vec<usize> = (0..rows.len()).filter(|&row| wanted(rows[row].sampling)).collect();
            let numbers = || places.iter().map(|&place| place as i64).collect::<Vec<_>>();
            let some = places.len() < rows.len();
            (!places.is_empty()).then(|| Part {
                rows: some.then(|| Tensor::from_slice(&numbers()).to_device(device)),
                way: way(&places),
            })
        };
        let drawn = |places: &[usize]| column(places.iter().map(|&row| draws[row]).collect());
        let limits = |places: &[usize], limit: fn(&Sampling) -> f64| {
            column(places.iter().map(|&row| limit(rows[row].sampling)).collect())
        };
        let greedy = part(|one| one.temperature <= 0.0, &|_| Way::Greedy);
        let free = part(Sampling::is_free, &|places| Way::Free { draws: drawn(places) });
        let restricted = part(Sampling::is_restricted, &|places| Way::Restricted {
            draws: drawn(places),
            most: limits(places, |one| one.top_k.map_or(f64::INFINITY, |k| k as f64)),
            share: limits(places, |one| one.top_p.unwrap_or(1.0)),
        });
        Self {
            temperatures: column(temperatures).to_kind(Kind::Float),
            parts: [greedy, free, restricted].into_iter().flatten().collect(),
            dictated: (0..).zip(rows.iter()).filter_map(|(row, one)| Some((row, one.dictated?))).collect(),
        }
    }

    /// All from the whole distribution: for logits that turn out not to be what the kernel takes.
    fn free(rows: &[RowDraw], device: Device) -> Self {
        let column = |numbers: Vec<f64>| Tensor::from_slice(&numbers).to_device(device).unsqueeze(1);
        let draws = column(rows.iter().map(|row| row.draw).collect());
        Self {
            temperatures: column(rows.iter().map(|row| row.temperature).collect()).to_kind(Kind::Float),
            parts: vec![Part { rows: None, way: Way::Free { draws } }],
            dictated: (0..).zip(rows).filter_map(|(row, one)| Some((row, one.dictated?))).collect(),
        }
    }

    fn sample(&self, logits: &Tensor, forbidden: &Forbidden) -> Vec<Drawn> {
        let logp = forbidden.log_distribution(logits, &self.temperatures);
        let tokens = Tensor::zeros([logits.size()[0]], (Kind::Int64, logits.device()));
        for Part { rows, way } in &self.parts {
            match rows {
                None => tokens.shallow_clone().copy_(&way.choose(&logp)),
                Some(rows) => {
                    let chosen = way.choose(&logp.index_select(0, rows));
                    let _ = tokens.shallow_clone().index_copy_(0, rows, &chosen);
                }
            }
        }
        for &(row, token) in &self.dictated {
            let _ = tokens.get(row).fill_(i64::from(token));
        }
        let logp = logp.gather(1, &tokens.unsqueeze(1), false).squeeze_dim(1);
        let tokens: Vec<i64> = tokens.try_into().expect("one token for each row");
        let logp: Vec<f32> = logp.try_into().expect("one number for each row");
        tokens.into_iter().zip(logp).map(|(token, logp)| Drawn { token: token as u32, logp }).collect()
    }
}

impl Way {
    /// A token for each row.
    fn choose(&self, logp: &Tensor) -> Tensor {
        match self {
            Self::Greedy => logp.argmax(-1, false),
            Self::Free { draws } => draw(&logp.exp().to_kind(Kind::Double), draws),
            Self::Restricted { draws, most, share } => draw_restricted(logp, draws, most, share),
        }
    }
}

/// For each row the first place where the running sum of probabilities passes the draw's share of the whole.
fn draw(probabilities: &Tensor, draws: &Tensor) -> Tensor {
    let sums = probabilities.cumsum(-1, Kind::Double);
    let whole = sums.narrow(1, -1, 1);
    let place = Tensor::searchsorted(&(draws * whole), &sums, false, true, "right", None::<&Tensor>);
    // sums that are no numbers are passed nowhere; the token's logarithm will say so
    place.squeeze_dim(1).clamp_max(probabilities.size()[1] - 1)
}

/// The same after top-k, then top-p.
fn draw_restricted(logp: &Tensor, draws: &Tensor, most: &Tensor, share: &Tensor) -> Tensor {
    let (sorted, tokens) = logp.exp().to_kind(Kind::Double).sort(-1, true);
    let rank = Tensor::arange(logp.size()[1], (Kind::Double, logp.device())).unsqueeze(0);
    let sorted = sorted * rank.lt_tensor(most).to_kind(Kind::Double);
    let sorted = &sorted / sorted.sum_dim_intlist([1i64].as_slice(), true, None::<Kind>);
    // a token stays while those before it have not reached the share; the first always does
    let before = sorted.cumsum(-1, Kind::Double) - &sorted;
    let kept = &sorted * before.lt_tensor(share).to_kind(Kind::Double);
    let place = draw(&kept, draws);
    tokens.gather(1, &place.unsqueeze(1), false).squeeze_dim(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(seed: u64) -> Sampling {
        Sampling { temperature: 1.0, top_k: None, top_p: None, max_tokens: 1, stop: vec![], seed, turn: 0 }
    }

    fn choice<'a>((sampling, draws): (&'a Sampling, &'a mut Draws)) -> Choice<'a> {
        Choice { sampling, draws, dictated: None }
    }

    /// How often each token comes in many draws from the same logits.
    fn shares(logits: &[f32], change: impl Fn(&mut Sampling), forbidden: &[u32]) -> Vec<f64> {
        let forbidden = Forbidden::new(forbidden, Device::Cpu);
        let count = 4000;
        let samplings: Vec<Sampling> = (0..count)
            .map(|seed| {
                let mut one = sampling(seed);
                change(&mut one);
                one
            })
            .collect();
        let mut draws: Vec<Draws> = samplings.iter().map(Sampling::draws).collect();
        let mut rows: Vec<Choice> = samplings.iter().zip(&mut draws).map(choice).collect();
        let logits = Tensor::from_slice(logits).unsqueeze(0).repeat([count as i64, 1]);
        let mut shares = vec![0.0; logits.size()[1] as usize];
        for drawn in Draft::new(&mut rows, Device::Cpu).sample(&logits, &forbidden) {
            shares[drawn.token as usize] += 1.0 / count as f64;
        }
        shares
    }

    fn near(shares: &[f64], expected: &[f64]) {
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 0.03, "{shares:?}");
            assert!(*expected > 0.0 || *share == 0.0, "{shares:?}");
        }
    }

    #[test]
    fn tokens_come_as_often_as_their_probability_says() {
        let logits = [0.5f32, 0.3, 0.2, 0.0].map(|share: f32| share.max(1e-20).ln());
        near(&shares(&logits, |_| {}, &[]), &[0.5, 0.3, 0.2, 0.0]);
        near(&shares(&logits, |one| one.temperature = 0.5, &[]), &[0.658, 0.237, 0.105, 0.0]);
        near(&shares(&logits, |_| {}, &[0]), &[0.0, 0.6, 0.4, 0.0]);
        near(&shares(&logits, |one| one.top_k = Some(2), &[]), &[0.625, 0.375, 0.0, 0.0]);
        near(&shares(&logits, |one| one.top_p = Some(0.75), &[]), &[0.625, 0.375, 0.0, 0.0]);
        near(&shares(&logits, |one| one.top_p = Some(1e-9), &[]), &[1.0, 0.0, 0.0, 0.0]);
        near(&shares(&logits, |one| one.temperature = 0.0, &[]), &[1.0, 0.0, 0.0, 0.0]);
        near(&shares(&logits, |one| one.temperature = 0.0, &[0]), &[0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_row_does_not_depend_on_the_others() {
        let logits = Tensor::randn([3, 50], (Kind::Float, Device::Cpu));
        let forbidden = Forbidden::new(&[7], Device::Cpu);
        let mut samplings = [sampling(1), sampling(2), sampling(3)];
        samplings[0].top_k = Some(5);
        samplings[2].temperature = 0.7;
        let mut draws: Vec<Draws> = samplings.iter().map(Sampling::draws).collect();
        let mut rows: Vec<Choice> = samplings.iter().zip(&mut draws).map(choice).collect();
        let together = Draft::new(&mut rows, Device::Cpu).sample(&logits, &forbidden);
        for row in 0..3 {
            let mut draws = samplings[row].draws();
            let draft = Draft::new(&mut [choice((&samplings[row], &mut draws))], Device::Cpu);
            let alone = draft.sample(&logits.narrow(0, row as i64, 1), &forbidden);
            assert_eq!(alone[0].token, together[row].token);
            assert!((alone[0].logp - together[row].logp).abs() < 1e-6);
        }
    }
}
