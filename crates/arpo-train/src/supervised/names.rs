//! Whether a model reads: the probability with which it spells invented names that it has never met, on screens of its suite.

use super::SupervisedOptions;
use super::desktops::on_desktops;
use crate::TrainError;
use crate::agent::Agent;
use crate::demonstrations::{Demonstration, names_to_read};
use crate::images::BatchImages;
use arpo_env::tasks::Variation;
use arpo_env::tasks::invented::{DICTIONARIES, TRAINING_DICTIONARIES};
use arpo_model::training::{MicroBatch, SequenceInput, TrainableModel};
use image::RgbImage;
use std::sync::Arc;

/// Screens that names are read from.
const SCREENS: u64 = 64;

/// The first of the tasks that are looked through for these, far from those of demonstrations and evaluations.
const FIRST: u64 = 1 << 30;

/// Screens with names, each as a conversation that asks for every name on it.
#[derive(Debug)]
pub(super) struct NamesToRead(Vec<Demonstration>);

impl NamesToRead {
    /// The first screens of tasks whose worlds have invented names.
    pub(super) fn new(agent: &Agent, options: &SupervisedOptions) -> Result<Self, TrainError> {
        let suite = options.suite;
        let templates = suite.templates();
        let found = on_desktops(suite, FIRST..FIRST + 2 * SCREENS, |desktop, number| {
            let template = &templates[(number % templates.len() as u64) as usize];
            let dictionary = TRAINING_DICTIONARIES + number as u16 % (DICTIONARIES - TRAINING_DICTIONARIES);
            let variation = Variation { dictionary: Some(dictionary), reworded: false };
            let task = suite.varied_task_of(template, number, variation);
            task.map_or(Ok(None), |task| names_to_read(agent, desktop, &task, number))
        })?;
        let screens = found.into_iter().flatten().take(SCREENS as usize).collect();
        Ok(Self(screens))
    }

    /// The mean probability of spelling a whole name right, its end included; none if there is nothing to read.
    pub(super) fn read(&self, agent: &Agent, trainable: &TrainableModel) -> Result<Option<f64>, TrainError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let screens: Vec<&[Arc<RgbImage>]> = self.0.iter().map(|one| one.screens.as_slice()).collect();
        let images = BatchImages::new(&agent.processor, &screens)?;
        let trained: Vec<Vec<bool>> = self.0.iter().map(|one| one.assembled.trained()).collect();
        let sequence = |at: usize| SequenceInput {
            tokens: &self.0[at].assembled.tokens,
            images: images.shown(at),
            trained: &trained[at],
        };
        let sequences: Vec<SequenceInput> = (0..self.0.len()).map(sequence).collect();
        let pixels = images.on(trainable.model().device());
        let scores = trainable.scores(&MicroBatch { sequences: &sequences, images: &pixels })?;
        let mut probabilities = vec![];
        for (one, logp) in self.0.iter().zip(&scores.logp) {
            let mut rest = logp.as_slice();
            for span in &one.assembled.spans {
                let (answer, others) = rest.split_at(span.end - span.start);
                rest = others;
                probabilities.push(answer.iter().map(|&logp| f64::from(logp)).sum::<f64>().exp());
            }
        }
        Ok(Some(crate::batch::mean(probabilities.into_iter())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervised::{Family, Reading, fresh, test_options};
    use arpo_model::checkpoint::Weights;
    use arpo_model::model::Model;
    use arpo_model::training::PassOptions;
    use std::path::Path;
    use tch::{Device, Kind};

    #[test]
    fn every_letter_of_a_name_is_read_and_an_untrained_model_reads_none() {
        let options = test_options(Reading::default());
        let (config, side_files) = fresh::model(&options).unwrap();
        let agent = Agent::new(&config, &side_files, Path::new("made"), Family::Qwen25Vl.style()).unwrap();
        let names = NamesToRead::new(&agent, &options).unwrap();
        assert_eq!(names.0.len(), SCREENS as usize);
        for one in &names.0 {
            for span in &one.assembled.spans {
                let answer = &one.assembled.tokens[span.start..span.end - 1];
                let name = agent.tokenizer.decode(answer, false).unwrap();
                let letters = name.chars().filter(|letter| letter.is_alphabetic()).count();
                assert!(letters > 0 && answer.len() == name.chars().count(), "{name}: {answer:?}");
            }
        }
        tch::manual_seed(1);
        let weights = Weights::from_scratch(&config, Kind::Float, Device::Cpu).with_gradients(|_| true);
        let pass_options = PassOptions {
            temperature: 1.0,
            forbidden: agent.forbidden.clone(),
            activation_bytes: 1 << 30,
            logit_rows: 1 << 14,
            pad_to_multiple: 1,
            share_prefixes: false,
        };
        let trainable = TrainableModel::new(Model::new(config, weights), pass_options);
        let read = names.read(&agent, &trainable).unwrap().unwrap();
        assert!(read > 0.0 && read < 1e-3, "{read}");
        assert_eq!(NamesToRead(vec![]).read(&agent, &trainable).unwrap(), None);
    }
}
