//! The mathematics of ARPO (Agentic Replay Policy Optimization), pure.
//!
//! Nothing here touches a tensor, a file, a clock or a global random generator: every function is decided by
//! its arguments, so every number can be tested against the reference by hand. Tensors are the business of
//! the learner, which asks [`loss`] for one coefficient per token and back-propagates `sum(coef * logp)`.
//!
//! | to change | look in |
//! |---|---|
//! | what an episode is made of | [`task`], [`action`], [`trajectory`] |
//! | how a score becomes a reward, a reward an advantage | [`reward`], [`advantage`] |
//! | what is minimised, online and offline | [`loss`] |
//! | which stored successes are trained on again | [`replay`] |
//! | which tasks are trained on, how often, with how much effort | [`selection`], [`sampler`], [`endless`], [`effort`] |
//! | how success is stated | [`statistics`] |
//! | where randomness comes from | [`random`] |
//! | every option of a run | [`config`] |

pub mod action;
pub mod advantage;
pub mod config;
pub mod effort;
pub mod endless;
pub mod loss;
pub mod random;
pub mod replay;
pub mod reward;
pub mod sampler;
pub mod selection;
pub mod statistics;
pub mod task;
mod token_runs;
pub mod trajectory;
