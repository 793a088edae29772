//! Episodes played by the engine on embedded desktops, all in step: every round each living episode looks, answers and
//! acts. Batches depend on the order of the episodes only, so a seed names the result.

use crate::TrainError;
use crate::agent::Agent;
use crate::demonstrations::{deadline, reference};
use crate::dialogue::{Assembled, assemble};
use arpo_agent::conversation::{Turn, conversation};
use arpo_agent::parse::parse;
use arpo_core::task::Task;
use arpo_core::trajectory::{Outcome, TokenSpan};
use arpo_engine::{Ended, Engine, Request, Sampling, Screenshot};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::look::ScreenOptions;
use image::RgbImage;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// One episode to play.
#[derive(Debug, Clone)]
pub struct Job {
    /// The task.
    pub task: Task,
    /// Of the desktop: distractors, places, looks.
    pub world_seed: u64,
    /// Of the agent's words.
    pub sampling_seed: u64,
}

/// How episodes are played.
#[derive(Debug, Clone)]
pub struct RolloutOptions {
    /// The screens.
    pub screen: ScreenOptions,
    /// Actions at most.
    pub max_steps: usize,
    /// Tokens of a response at most.
    pub max_tokens: usize,
    /// Of sampling.
    pub temperature: f64,
}

/// An episode that was played.
#[derive(Debug)]
pub struct PlayedEpisode {
    /// The whole sequence.
    pub tokens: Vec<u32>,
    /// The agent's tokens in it.
    pub spans: Vec<TokenSpan>,
    /// Their log-probabilities.
    pub logp: Vec<f32>,
    /// What the agent saw.
    pub screens: Vec<Arc<RgbImage>>,
    /// What it said.
    pub responses: Vec<String>,
    /// The evaluator's verdict.
    pub score: f64,
    /// How it ended.
    pub outcome: Outcome,
}

struct Living {
    desktop: EmbeddedDesktop,
    screens: Vec<Screenshot>,
    responses: Vec<Vec<u32>>,
    words: Vec<String>,
    logp: Vec<f32>,
    outcome: Option<Outcome>,
}

/// Plays episodes to their ends.
pub fn play_together(
    engine: &mut Engine,
    agent: &Agent,
    jobs: &[Job],
    options: &RolloutOptions,
) -> Result<Vec<PlayedEpisode>, TrainError> {
    let mut episodes = Vec::with_capacity(jobs.len());
    for job in jobs {
        let mut desktop = EmbeddedDesktop::new(options.screen.clone())?;
        let screen = desktop.reset(&job.task, job.world_seed, deadline())?;
        let screens = vec![screenshot(screen.image)];
        episodes.push(Living {
            desktop,
            screens,
            responses: vec![],
            words: vec![],
            logp: vec![],
            outcome: None,
        });
    }
    for turn in 0..options.max_steps {
        let mut asked = BTreeMap::new();
        for (number, (episode, job)) in episodes.iter().zip(jobs).enumerate() {
            if episode.outcome.is_none() {
                let request = request(agent, episode, job, turn, options)?;
                asked.insert(engine.submit(request)?, number);
            }
        }
        if asked.is_empty() {
            break;
        }
        while engine.unanswered() > 0 {
            for (id, completion) in engine.pass()? {
                let episode = &mut episodes[asked[&id]];
                let text = agent.tokenizer.decode(&completion.tokens, true)?;
                let ended = completion.ended == Ended::Stop;
                episode.logp.extend(completion.logp);
                episode.responses.push(completion.tokens);
                episode.words.push(text);
                episode.outcome = (!ended).then(|| Outcome::Unparsable { reason: "too long".into() });
            }
        }
        for episode in episodes.iter_mut().filter(|one| one.outcome.is_none()) {
            act(episode)?;
        }
    }
    episodes.into_iter().zip(jobs).map(|(episode, job)| finish(agent, episode, job)).collect()
}

fn request(
    agent: &Agent,
    episode: &Living,
    job: &Job,
    turn: usize,
    options: &RolloutOptions,
) -> Result<Request, TrainError> {
    let assembled = tokens(agent, episode, job, true)?;
    let sampling = Sampling {
        temperature: options.temperature,
        top_k: None,
        top_p: None,
        max_tokens: options.max_tokens,
        stop: vec![agent.end_token],
        seed: job.sampling_seed,
        turn: turn as u64,
    };
    Ok(Request { tokens: assembled.tokens, screenshots: episode.screens.clone(), sampling })
}

fn tokens(agent: &Agent, episode: &Living, job: &Job, open: bool) -> Result<Assembled, TrainError> {
    let turn = |(screen, words): (&Screenshot, &String)| Turn {
        screenshot: reference(&screen.image),
        response: words.clone(),
    };
    let past: Vec<Turn> = episode.screens.iter().zip(&episode.words).map(turn).collect();
    let current = open.then(|| reference(&episode.screens[past.len()].image));
    let messages = conversation(&job.task.instruction, &past, current.as_ref(), &agent.style);
    let grids = episode
        .screens
        .iter()
        .map(|screen| agent.processor.grid(screen.image.width(), screen.image.height()))
        .collect::<Result<Vec<_>, _>>()?;
    assemble(agent, &messages, &episode.responses, &grids, open)
}

/// Does what the last response says.
fn act(episode: &mut Living) -> Result<(), TrainError> {
    let words = episode.words.last().map_or("", String::as_str);
    let response = match parse(words) {
        Ok(response) => response,
        Err(error) => {
            episode.outcome = Some(Outcome::Unparsable { reason: error.to_string() });
            return Ok(());
        }
    };
    let mut last = None;
    for action in &response.actions {
        let stepped = episode.desktop.step(action, deadline())?;
        if stepped.terminated {
            episode.outcome = Some(Outcome::Finished {});
            return Ok(());
        }
        last = Some(stepped.screen.image);
    }
    episode.screens.extend(last.map(screenshot));
    Ok(())
}

fn finish(agent: &Agent, mut episode: Living, job: &Job) -> Result<PlayedEpisode, TrainError> {
    let outcome = episode.outcome.take().unwrap_or(Outcome::StepLimit {});
    let score = match outcome {
        Outcome::Unparsable { .. } => 0.0,
        _ => episode.desktop.evaluate(deadline())?,
    };
    // the last look was never answered
    episode.screens.truncate(episode.responses.len());
    let assembled = tokens(agent, &episode, job, false)?;
    Ok(PlayedEpisode {
        tokens: assembled.tokens,
        spans: assembled.spans,
        logp: episode.logp,
        screens: episode.screens.into_iter().map(|screen| screen.image).collect(),
        responses: episode.words,
        score,
        outcome,
    })
}

/// A screenshot named by its pixels.
fn screenshot(image: Arc<RgbImage>) -> Screenshot {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, image.dimensions(), image.as_raw()).hash(&mut hasher);
        hasher.finish()
    };
    Screenshot { digest: format!("{:016x}{:016x}", half(0), half(1)).into(), image }
}
