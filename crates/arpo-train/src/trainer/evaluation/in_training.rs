//! Evaluations during a run: before training, and every `evaluation.every` iterations.

use super::files::{self, EvaluatedSet, EvaluationFile};
use super::{EvaluationPlan, overall};
use crate::TrainError;
use crate::collect::CollectEvent;
use crate::run::about::unix_time;
use crate::run::episodes::budget::EpisodeFile;
use crate::run::events::{Evaluation, IterationDone, RunEvent};
use crate::run::recording::status::Phase;
use crate::trainer::Trainer;
use crate::trainer::collecting::report_failure;
use crate::trainer::metrics_line::evaluation_metrics;

impl Trainer<'_> {
    /// Evaluates the agent before training, unless that was done already.
    pub(in crate::trainer) fn evaluate_before_training(&mut self) -> Result<(), TrainError> {
        if self.config.evaluation.every == 0 || self.state.evaluations.count > 0 {
            return Ok(());
        }
        let evaluation = self.evaluate(0, true)?;
        let mut line = serde_json::Map::new();
        line.insert("iteration".into(), 0.into());
        for (fault, count) in self.new_faults() {
            line.insert(format!("faults/{}", fault.key()), count.into());
        }
        line.extend(evaluation_metrics(&evaluation));
        line.insert("time/wall".into(), unix_time().into());
        self.metrics.append(&line)?;
        self.save(true)?;
        let of = self.config.iterations;
        (self.observer)(RunEvent::IterationDone(IterationDone {
            of,
            evaluation: Some(evaluation),
            ..IterationDone::default()
        }));
        Ok(())
    }

    /// Evaluates the agent as it is after this many iterations.
    pub(in crate::trainer) fn evaluate(
        &mut self,
        iteration: u64,
        at_an_end: bool,
    ) -> Result<Evaluation, TrainError> {
        let config = self.config;
        let (mut suites, mut evaluated, mut lost) = (Vec::new(), Vec::new(), 0);
        for (set, tasks) in self.tasks.evaluated(at_an_end) {
            let number = set.evaluation_number(iteration);
            let plan = EvaluationPlan::of(config, number, config.evaluation.samples);
            self.recorder.phase(Phase::Evaluate, iteration, tasks.len() * plan.samples);
            let Self { observer, worker, unplayable, recorder, .. } = self;
            let temperature = config.evaluation.temperature;
            let (mut finished, mut successes) = (0, 0);
            let result = worker.evaluate(tasks, plan, temperature, &mut |event| match event {
                CollectEvent::Failed(failure) => {
                    report_failure(failure, iteration, unplayable, recorder, observer);
                }
                CollectEvent::Ended { score, .. } => {
                    finished += usize::from(score.is_some());
                    successes += usize::from(score.is_some_and(|score| config.reward.is_success(score)));
                    recorder.progress(finished, successes);
                }
            })?;
            self.hand_over_evaluated(iteration, set, result.episodes);
            let (name, success) = (set.key().to_owned(), overall(&result.tasks));
            suites.push((name.clone(), success));
            evaluated.push(EvaluatedSet { name, success, tasks: result.tasks });
            lost += result.report.lost;
        }
        self.recorder.complete(EpisodeFile::evaluation(iteration));
        files::write(self.folder, &EvaluationFile { iteration, sets: evaluated })?;
        let best = self.state.evaluations.record(iteration, &suites);
        Ok(Evaluation { suites, best, lost })
    }
}
