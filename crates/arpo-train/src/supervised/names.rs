//! Whether a model reads: the probabilities with which it finds, spells and types invented names that it has never met, on screens
//! of its suite.

use super::SupervisedOptions;
use super::desktops::on_desktops;
use crate::TrainError;
use crate::agent::Agent;
use crate::demonstrations::{Demonstration, questions_about_names};
use crate::images::BatchImages;
use arpo_env::tasks::Variation;
use arpo_env::tasks::invented::{DICTIONARIES, TRAINING_DICTIONARIES};
use arpo_model::training::{MicroBatch, SequenceInput, TrainableModel};
use image::RgbImage;
use serde::Serialize;
use std::sync::Arc;

/// Screens that names are read from.
const SCREENS: u64 = 64;

/// The first of the tasks that are looked through for these, far from those of demonstrations and evaluations.
const FIRST: u64 = 1 << 30;

/// Screens with names: conversations that ask where each name is, others that ask what is there, and others that ask to type it.
#[derive(Debug)]
pub(super) struct Names {
    find: Vec<Demonstration>,
    read: Vec<Demonstration>,
    typed: Vec<Demonstration>,
}

/// How well a model knows names that it has never met.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NamesKnown {
    /// The mean probability of clicking on the middle of a name's entry.
    pub found: f64,
    /// The mean probability of spelling a whole name right, its end included.
    pub read: f64,
    /// The mean probability of typing a whole name that the question contains.
    pub typed: f64,
}

impl Names {
    /// The first screens of tasks whose worlds have invented names.
    pub(super) fn new(agent: &Agent, options: &SupervisedOptions) -> Result<Self, TrainError> {
        let suite = options.suite;
        let templates = suite.templates();
        let found = on_desktops(suite, FIRST..FIRST + 2 * SCREENS, |desktop, number| {
            let template = &templates[(number % templates.len() as u64) as usize];
            let dictionary = TRAINING_DICTIONARIES + number as u16 % (DICTIONARIES - TRAINING_DICTIONARIES);
            let variation = Variation { dictionary: Some(dictionary), reworded: false };
            let task = suite.varied_task_of(template, number, variation);
            task.map_or(Ok(None), |task| questions_about_names(agent, desktop, &task, number))
        })?;
        let mut names = Self { find: vec![], read: vec![], typed: vec![] };
        for [find, read, typed] in found.into_iter().flatten().take(SCREENS as usize) {
            names.find.push(find);
            names.read.push(read);
            names.typed.push(typed);
        }
        Ok(names)
    }

    /// How well they are known; none if there are none.
    pub(super) fn known(
        &self,
        agent: &Agent,
        trainable: &TrainableModel,
    ) -> Result<Option<NamesKnown>, TrainError> {
        if self.read.is_empty() {
            return Ok(None);
        }
        let mean = |asked: &[Demonstration]| {
            let logp = answers(asked, agent, trainable)?;
            let probability =
                |answer: &Vec<f32>| answer.iter().map(|&logp| f64::from(logp)).sum::<f64>().exp();
            Ok::<f64, TrainError>(crate::batch::mean(logp.iter().map(probability)))
        };
        Ok(Some(NamesKnown { found: mean(&self.find)?, read: mean(&self.read)?, typed: mean(&self.typed)? }))
    }
}

/// The log-probabilities of every answer's tokens.
fn answers(
    asked: &[Demonstration],
    agent: &Agent,
    trainable: &TrainableModel,
) -> Result<Vec<Vec<f32>>, TrainError> {
    let screens: Vec<&[Arc<RgbImage>]> = asked.iter().map(|one| one.screens.as_slice()).collect();
    let images = BatchImages::new(&agent.processor, &screens)?;
    let trained: Vec<Vec<bool>> = asked.iter().map(|one| one.assembled.trained()).collect();
    let sequence = |at: usize| SequenceInput {
        tokens: &asked[at].assembled.tokens,
        images: images.shown(at),
        trained: &trained[at],
    };
    let sequences: Vec<SequenceInput> = (0..asked.len()).map(sequence).collect();
    let pixels = images.on(trainable.model().device());
    let scores = trainable.scores(&MicroBatch { sequences: &sequences, images: &pixels })?;
    let mut answers = vec![];
    for (one, logp) in asked.iter().zip(&scores.logp) {
        let mut rest = logp.as_slice();
        for span in &one.assembled.spans {
            let (answer, others) = rest.split_at(span.end - span.start);
            rest = others;
            answers.push(answer.to_vec());
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervised::{Family, Reading, fresh, test_options, test_pass_options};
    use arpo_model::checkpoint::Weights;
    use arpo_model::model::Model;
    use std::path::Path;
    use tch::{Device, Kind};

    #[test]
    fn every_letter_of_a_name_is_read_and_an_untrained_model_reads_none() {
        let options = test_options(Reading::default());
        let (config, side_files) = fresh::untrained(&options).unwrap();
        let agent = Agent::new(&config, &side_files, Path::new("made"), Family::Qwen25Vl.style()).unwrap();
        let names = Names::new(&agent, &options).unwrap();
        assert_eq!((names.find.len(), names.read.len()), (SCREENS as usize, SCREENS as usize));
        for one in &names.read {
            for span in &one.assembled.spans {
                let answer = &one.assembled.tokens[span.start..span.end - 1];
                let name = agent.tokenizer.decode(answer, false).unwrap();
                let letters = name.chars().filter(|letter| letter.is_alphabetic()).count();
                assert!(letters > 0 && answer.len() == name.chars().count(), "{name}: {answer:?}");
            }
        }
        tch::manual_seed(1);
        let weights = Weights::from_scratch(&config, Kind::Float, Device::Cpu).with_gradients(|_| true);
        let trainable = TrainableModel::new(Model::new(config, weights), test_pass_options(&agent));
        let NamesKnown { found, read, typed } = names.known(&agent, &trainable).unwrap().unwrap();
        for probability in [found, read, typed] {
            assert!(probability > 0.0 && probability < 1e-3, "{found} {read} {typed}");
        }
        let none = Names { find: vec![], read: vec![], typed: vec![] };
        assert_eq!(none.known(&agent, &trainable).unwrap(), None);
    }
}
