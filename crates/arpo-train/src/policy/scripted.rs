//! Policies without a model: whatever a function says, after a set number of passes of a set time. Tokens are the bytes
//! of the words.

use super::{Answer, Policy, Question, Ticket, transcript_in_bytes};
use crate::TrainError;
use crate::demonstrations::{deadline, words};
use crate::episode::{History, TranscriptSlice, on_screen};
use arpo_agent::geometry::Size;
use arpo_agent::parse::parse;
use arpo_core::action::Action;
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::look::ScreenOptions;
use arpo_env::policies::Scripted;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// Says what to say next in an episode.
pub type Script = Box<dyn FnMut(&History) -> Result<String, TrainError> + Send>;

/// A policy that follows a script. Every pass takes the same time, however many questions it answers.
pub struct ScriptedPolicy {
    script: Script,
    pass: Duration,
    passes: usize,
    /// Each with the passes it still takes.
    asked: Vec<(Question, usize)>,
}

impl ScriptedPolicy {
    /// A script whose passes take this long.
    pub fn new(
        script: impl FnMut(&History) -> Result<String, TrainError> + Send + 'static,
        pass: Duration,
    ) -> Self {
        Self { script: Box::new(script), pass, passes: 1, asked: vec![] }
    }

    /// The same with answers that take so many passes, as those of an engine take one for each token.
    #[must_use]
    pub fn with_passes(self, passes: usize) -> Self {
        Self { passes: passes.max(1), ..self }
    }

    /// The oracle of embedded desktops with this screen.
    pub fn oracle(screen: ScreenOptions, pass: Duration) -> Self {
        Self::following(screen, pass, |_| Scripted::oracle())
    }

    /// One who knows embedded desktops, made for each episode from its sampling seed.
    pub fn following(
        screen: ScreenOptions,
        pass: Duration,
        make: impl Fn(u64) -> Scripted + Send + 'static,
    ) -> Self {
        let seen = Size { width: screen.width, height: screen.height };
        Self::new(following(screen, seen, make, |_, action| words(&action)), pass)
    }
}

/// The script of one who knows embedded desktops, made for each episode from its sampling seed. Each episode is followed
/// on a desktop of its own, because more than pixels is needed. `say` puts an action into words, with places in pixels
/// of the `seen` size; it may choose another action.
pub fn following(
    screen: ScreenOptions,
    seen: Size,
    make: impl Fn(u64) -> Scripted + Send + 'static,
    say: impl Fn(&History, Action) -> String + Send + 'static,
) -> Script {
    let whole = Size { width: screen.width, height: screen.height };
    let mut followed: HashMap<EpisodeId, (EmbeddedDesktop, Scripted)> = HashMap::new();
    Box::new(move |history: &History| {
        let plan = &history.plan;
        if history.answers.is_empty() {
            let mut desktop = EmbeddedDesktop::new(screen.clone())?;
            desktop.reset(&plan.task, plan.world_seed, deadline())?;
            followed.insert(plan.id.clone(), (desktop, make(plan.sampling_seed)));
        }
        let (desktop, actor) = followed
            .get_mut(&plan.id)
            .ok_or_else(|| TrainError::Options(format!("{}: an episode without a beginning", plan.id)))?;
        let said = say(history, on_screen(&actor.next_action(desktop), whole, seen));
        // as it will be read: rendering rounds places
        let actions = parse(&said).map_err(|error| TrainError::Options(error.to_string()))?.actions;
        let mut ended = history.answers.len() + 1 >= plan.max_steps;
        for action in &actions {
            ended |= desktop.step(&on_screen(action, seen, whole), deadline())?.terminated;
        }
        if ended {
            followed.remove(&plan.id);
        }
        Ok(said)
    })
}

impl fmt::Debug for ScriptedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedPolicy").field("pass", &self.pass).finish_non_exhaustive()
    }
}

impl Policy for ScriptedPolicy {
    fn ask(&mut self, question: Question) -> Result<(), TrainError> {
        self.asked.push((question, self.passes));
        Ok(())
    }

    fn unanswered(&self) -> usize {
        self.asked.len()
    }

    fn advance(&mut self) -> Result<Vec<(Ticket, Answer)>, TrainError> {
        std::thread::sleep(self.pass);
        let mut answers = Vec::new();
        for (question, passes) in std::mem::take(&mut self.asked) {
            if passes > 1 {
                self.asked.push((question, passes - 1));
                continue;
            }
            let Question { ticket, history } = question;
            let text = (self.script)(&history)?;
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            let logp = vec![0.0; tokens.len()];
            answers.push((ticket, Answer { text, tokens, logp, complete: true, version: self.version() }));
        }
        Ok(answers)
    }

    fn abandon(&mut self) {
        self.asked.clear();
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        Ok(transcript_in_bytes(history))
    }
}
