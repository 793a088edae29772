//! The mathematics of ARPO (Agentic Replay Policy Optimization), pure.
//!
//! Nothing here uses a tensor, a file, a clock or a global random generator: every result depends on the arguments alone,
//! so every value can be tested against the reference. Tensors belong to the learner, which takes one coefficient per
//! token from [`loss`] and back-propagates `sum(coef * logp)`.
//!
//! | to change | look in |
//! |---|---|
//! | the data of an episode | [`task`], [`action`], [`trajectory`] |
//! | rewards and advantages | [`reward`], [`advantage`], [`step_advantage`] |
//! | the losses, online and offline | [`loss`] |
//! | the replay buffer | [`replay`] |
//! | which tasks are trained on, how often, with how many rollouts and turns | [`selection`], [`task_sampler`], [`template_history`], [`endless`], [`effort`] |
//! | success rates and their intervals | [`statistics`] |
//! | random streams | [`random`] |
//! | the options of a run | [`config`] |
//! | OSWorld's generations | [`generation`] |

pub mod action;
pub mod advantage;
pub mod config;
pub mod effort;
pub mod endless;
pub mod generation;
pub mod loss;
pub mod random;
pub mod replay;
pub mod reward;
pub mod selection;
pub mod statistics;
pub mod step_advantage;
pub mod task;
pub mod task_sampler;
pub mod template_history;
mod token_runs;
pub mod trajectory;
