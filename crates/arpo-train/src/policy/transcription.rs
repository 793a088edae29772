//! From an episode's history to the tokens that a policy with a tokenizer reads: the same for the built-in engine and for
//! inference servers, so that what a server was asked is what the learner trains on.

use crate::TrainError;
use crate::agent::Agent;
use crate::dialogue::{Assembled, assemble};
use crate::episode::{EpisodeScreen, History, TranscriptSlice};
use arpo_agent::conversation::conversation;
use arpo_agent::window::WindowSlice;

/// A part of a history in tokens.
#[derive(Debug)]
pub(super) struct Transcribed {
    /// The tokens, and the spans of the responses in them.
    pub(super) assembled: Assembled,
    /// The first screen that is live in them.
    pub(super) first_live: usize,
    /// The first turn whose response is in them; the style summarises those before it.
    first_response: usize,
}

impl Transcribed {
    /// The screens whose pixels the tokens refer to, in order.
    pub(super) fn live<'h>(&self, history: &'h History) -> &'h [EpisodeScreen] {
        &history.screens[self.first_live..]
    }
}

/// The first `seen` screens of a history and their responses in tokens, with the next turn opened if the last of these
/// screens has no response yet. As the agent reads it while it acts: with its hint, if it has one.
pub(super) fn transcribe(agent: &Agent, history: &History, seen: usize) -> Result<Transcribed, TrainError> {
    transcribe_after(&history.plan.prompt(), agent, history, seen)
}

/// The same after this instruction.
fn transcribe_after(
    instruction: &str,
    agent: &Agent,
    history: &History,
    seen: usize,
) -> Result<Transcribed, TrainError> {
    let screens = &history.screens[..seen];
    let responses = &history.responses[..seen.min(history.responses.len())];
    let past = history.turns(seen);
    let current = screens.get(responses.len()).map(EpisodeScreen::reference);
    let style = &agent.style;
    let messages = conversation(instruction, &past, current.as_ref(), style);
    let first_live = style.window.first_live(seen);
    let grids = screens[first_live..]
        .iter()
        .map(|screen| {
            let (width, height) = screen.size();
            agent.processor.grid(width, height)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let first_response = style.first_response(first_live);
    let shown = &responses[first_response.min(responses.len())..];
    let responses: Vec<&[u32]> = shown.iter().map(|response| response.tokens.as_slice()).collect();
    let assembled = assemble(agent, &messages, &responses, &grids, current.is_some())?;
    Ok(Transcribed { assembled, first_live, first_response })
}

/// A completed episode, in the sequences that its responses were sampled in, but without a hint.
pub(super) fn transcript(agent: &Agent, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
    let slices = agent.style.window.slices(history.responses.len()).into_iter();
    slices
        .map(|WindowSlice { turns, .. }| {
            let Transcribed { assembled, first_live, first_response } =
                transcribe_after(&history.plan.task.instruction, agent, history, turns.end)?;
            Ok(TranscriptSlice { assembled, turns, first_live, first_response })
        })
        .collect()
}
