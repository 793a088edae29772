//! The score of an episode: the steps before evaluation, the rule for giving up, the checks and how they combine.

use crate::error::{GetterError, MetricError, SetupError};
use crate::getters::{self, Context};
use crate::metrics::{self, Settings};
use crate::setup::{self, Preparation};
use crate::state::State;
use crate::task::{Check, Conjunction, TaskFile};

/// Why an episode has no score.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The steps before the evaluation failed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A state could not be read.
    #[error("{0}")]
    Getter(GetterError),
    /// A metric gave no score.
    #[error("{func}: {error}")]
    Metric {
        /// The metric.
        func: String,
        /// Why.
        error: MetricError,
    },
}

impl EvaluateError {
    /// Whether OSWorld's own evaluator raises here, which ARPO counts as a score of 0. Anything else is a fault of
    /// the desktop or of this program, and not a score of the agent.
    pub fn counts_as_zero(&self) -> bool {
        matches!(
            self,
            Self::Metric { error: MetricError::Raises(_), .. }
                | Self::Getter(GetterError::Raises(_) | GetterError::NotFound(_))
        )
    }
}

/// Scores the end of an episode. `gave_up` is whether the agent's last action declared the task infeasible.
pub fn evaluate(
    task: &TaskFile,
    gave_up: bool,
    preparation: &Preparation<'_>,
    context: &Context<'_>,
    settings: &Settings<'_>,
) -> Result<f64, EvaluateError> {
    setup::run(preparation, &task.evaluator.postconfig)?;
    score_checks(task, gave_up, settings, |getter| getters::get(context, getter))
}

/// The score of the checks, given a source of states.
pub fn score_checks(
    task: &TaskFile,
    gave_up: bool,
    settings: &Settings<'_>,
    mut get: impl FnMut(&crate::task::Getter) -> Result<State, GetterError>,
) -> Result<f64, EvaluateError> {
    let evaluator = &task.evaluator;
    if evaluator.is_infeasible() || gave_up {
        return Ok(if evaluator.is_infeasible() && gave_up { 1.0 } else { 0.0 });
    }
    let mut scores = Vec::with_capacity(evaluator.checks.len());
    // With "or", a result whose file is missing leaves the result of the check before it in place.
    let mut last_result = State::Null;
    for check in &evaluator.checks {
        match result_of(check, &mut get) {
            Ok(result) => last_result = result,
            Err(GetterError::NotFound(_))
                if !evaluator.several || evaluator.conjunction == Conjunction::And =>
            {
                return Ok(0.0);
            }
            Err(GetterError::NotFound(_)) => {}
            Err(error) => return Err(EvaluateError::Getter(error)),
        }
        let expected = check.expected.as_ref().map(&mut get).transpose().map_err(EvaluateError::Getter)?;
        let score = metrics::score(&check.func, &last_result, expected.as_ref(), &check.options, settings)
            .map_err(|error| EvaluateError::Metric { func: check.func.clone(), error })?;
        match evaluator.conjunction {
            _ if !evaluator.several => return Ok(score),
            Conjunction::And if score.total_cmp(&0.0).is_eq() => return Ok(0.0),
            Conjunction::Or if score.total_cmp(&1.0).is_eq() => return Ok(1.0),
            _ => scores.push(score),
        }
    }
    Ok(match evaluator.conjunction {
        Conjunction::And => scores.iter().sum::<f64>() / scores.len() as f64,
        Conjunction::Or => scores.into_iter().fold(f64::NEG_INFINITY, f64::max),
    })
}

fn result_of(
    check: &Check,
    get: &mut impl FnMut(&crate::task::Getter) -> Result<State, GetterError>,
) -> Result<State, GetterError> {
    check.result.as_ref().map_or(Ok(State::Null), get)
}
