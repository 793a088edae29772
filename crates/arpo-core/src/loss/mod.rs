//! Losses, and their gradients with respect to every token's log-probability.
//!
//! Every loss of this project depends on the model only through the log-probabilities of the sampled tokens.
//! So a loss is a pure function that returns its value and dL/dlogp per token; the learner back-propagates
//! `sum(coefficient * logp)` and gets the exact gradient whatever the loss.
//! An entropy bonus would need the whole distribution and does not fit this scheme.
//!
//! [`policy`] is the loss of GRPO, ARPO, GSPO and SAPO: an [`objective`] of a probability [`ratio`], with [`kl`] as an
//! optional penalty and [`normaliser`] for the weight of a token in the batch. [`offline`] has the methods that need no
//! fresh rollouts.

pub mod kl;
pub mod normaliser;
pub mod objective;
pub mod offline;
pub mod policy;
pub mod ratio;

pub use kl::KlKind;
pub use normaliser::{Normaliser, token_scales};
pub use objective::Objective;
pub use policy::{LossConfig, LossStatistics, OldLogp, PolicyLoss, PolicySample, policy_loss, sample_loss};
pub use ratio::RatioLevel;

/// Sums in f64, so that the order of millions of small terms does not matter.
fn sum(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value)).sum()
}

/// 1 / (1 + exp(-x)), without overflow at either end.
fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// log(sigmoid(x)), without overflow at either end.
fn log_sigmoid(x: f64) -> f64 {
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}
