//! Policies without a model: a function's responses, after a set number of steps of a set time. Tokens are the bytes of the
//! text.

use super::{GenerationRequest, Policy, RequestId, Response, transcript_in_bytes};
use crate::TrainError;
use crate::demonstrations::deadline;
use crate::episode::{History, TranscriptSlice};
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::action::Action;
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::look::ScreenOptions;
use arpo_env::policies::Scripted;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// The next response in an episode.
pub type Script = Box<dyn FnMut(&History) -> Result<String, TrainError> + Send>;

/// A policy that follows a script. Every step takes the same time, however many requests it completes.
pub struct ScriptedPolicy {
    script: Script,
    step_time: Duration,
    steps: usize,
    /// Each with the steps it still takes.
    pending: Vec<(GenerationRequest, usize)>,
}

impl ScriptedPolicy {
    /// A script whose steps take this long.
    pub fn new(
        script: impl FnMut(&History) -> Result<String, TrainError> + Send + 'static,
        step_time: Duration,
    ) -> Self {
        Self { script: Box::new(script), step_time, steps: 1, pending: vec![] }
    }

    /// With responses that take this many steps, as those of an engine take one for each token.
    #[must_use]
    pub fn with_steps(self, steps: usize) -> Self {
        Self { steps: steps.max(1), ..self }
    }

    /// The oracle of embedded desktops with this screen.
    pub fn oracle(screen: ScreenOptions, step_time: Duration) -> Self {
        Self::following(screen, step_time, |_| Scripted::oracle())
    }

    /// A scripted actor on embedded desktops, made for each episode from its sampling seed.
    pub fn following(
        screen: ScreenOptions,
        step_time: Duration,
        make: impl Fn(u64) -> Scripted + Send + 'static,
    ) -> Self {
        let seen = Size { width: screen.width, height: screen.height };
        let format = ActionFormat::UITARS;
        let respond = move |_: &History, action: Action| format.grammar.render(None, &[action]);
        Self::new(following(screen, seen, format, make, respond), step_time)
    }
}

/// The script of a scripted actor on embedded desktops, made for each episode from its sampling seed. Each episode is
/// mirrored on a desktop of its own, because the actor needs more than pixels. `respond` renders an action as a response in
/// this format, with coordinates as an agent would write them that sees the screen at the `seen` size; it may choose another
/// action.
pub fn following(
    screen: ScreenOptions,
    seen: Size,
    format: ActionFormat,
    make: impl Fn(u64) -> Scripted + Send + 'static,
    respond: impl Fn(&History, Action) -> String + Send + 'static,
) -> Script {
    let whole = Size { width: screen.width, height: screen.height };
    let mut mirrored: HashMap<EpisodeId, (EmbeddedDesktop, Scripted)> = HashMap::new();
    Box::new(move |history: &History| {
        let plan = &history.plan;
        if history.responses.is_empty() {
            let mut desktop = EmbeddedDesktop::new(screen.clone())?;
            desktop.reset(&plan.task, plan.world_seed, deadline())?;
            mirrored.insert(plan.id.clone(), (desktop, make(plan.sampling_seed)));
        }
        let (desktop, actor) = mirrored
            .get_mut(&plan.id)
            .ok_or_else(|| TrainError::Internal(format!("{}: an episode without a beginning", plan.id)))?;
        let ActionFormat { grammar, coordinates } = format;
        let response = respond(history, coordinates.of_screen(&actor.next_action(desktop), seen, whole));
        // as the response will be parsed: rendering rounds coordinates
        let actions =
            grammar.parse(&response).map_err(|error| TrainError::Internal(error.to_string()))?.actions;
        let mut ended = history.responses.len() + 1 >= plan.max_steps;
        for action in &actions {
            ended |= desktop.step(&coordinates.on_screen(action, seen, whole), deadline())?.terminated;
        }
        if ended {
            mirrored.remove(&plan.id);
        }
        Ok(response)
    })
}

impl fmt::Debug for ScriptedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedPolicy").field("step_time", &self.step_time).finish_non_exhaustive()
    }
}

impl Policy for ScriptedPolicy {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        self.pending.push((request, self.steps));
        Ok(())
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        std::thread::sleep(self.step_time);
        let mut responses = Vec::new();
        for (request, steps) in std::mem::take(&mut self.pending) {
            if steps > 1 {
                self.pending.push((request, steps - 1));
                continue;
            }
            let GenerationRequest { id, history } = request;
            let text = (self.script)(&history)?;
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            let logp = vec![0.0; tokens.len()];
            responses.push((id, Response { text, tokens, logp, complete: true, version: self.version() }));
        }
        Ok(responses)
    }

    fn cancel_all(&mut self) {
        self.pending.clear();
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        Ok(transcript_in_bytes(history))
    }
}
