//! The embedded desktop as an environment: it sets up tasks, carries out actions and evaluates, all in process.

use crate::desktop::Desktop;
use crate::draw::display::Display;
use crate::environment::{Environment, EnvironmentError, Screen, StepResult, check_deadline, ends_episode};
use crate::evaluator::{Ending, Evaluator};
use crate::interact;
use crate::layout::{self, Scene, Widget};
use crate::letters::{HALVES, Written};
use crate::look::ScreenOptions;
use crate::setup;
use crate::world::World;
use arpo_core::action::Action;
use arpo_core::task::Task;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// An episode as plain data: what [`EmbeddedDesktop::save`] returns and [`EmbeddedDesktop::restore`] takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Episode {
    /// The task.
    pub task: Task,
    /// The state now.
    pub desktop: Desktop,
    /// The world as it was set up.
    pub start: World,
    /// How it ended, if it did.
    pub ending: Option<Ending>,
}

/// A desktop in this process.
#[derive(Debug)]
pub struct EmbeddedDesktop {
    options: ScreenOptions,
    display: Option<Display>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    episode: Episode,
    evaluator: Evaluator,
    scene: Scene,
}

impl EmbeddedDesktop {
    /// A desktop with a screen; an error says what is wrong with the size.
    pub fn new(options: ScreenOptions) -> Result<Self, EnvironmentError> {
        options.check().map_err(|reason| EnvironmentError::Broken { reason })?;
        Ok(Self { options, display: None, running: None })
    }

    /// The screen it was made with.
    pub fn options(&self) -> &ScreenOptions {
        &self.options
    }

    /// The state of the episode.
    pub fn desktop(&self) -> Option<&Desktop> {
        self.running.as_ref().map(|running| &running.episode.desktop)
    }

    /// The whole episode, to be saved.
    pub fn save(&self) -> Option<Episode> {
        self.running.as_ref().map(|running| running.episode.clone())
    }

    /// Continues a saved episode.
    pub fn restore(&mut self, episode: Episode) -> Result<Screen, EnvironmentError> {
        let evaluator = Evaluator::of(&episode.task)?;
        // a new display: nothing of another episode may remain
        self.display = None;
        Ok(self.start(episode, evaluator))
    }

    /// The screen as it is.
    pub fn screen(&self) -> Option<Screen> {
        self.running.as_ref()?;
        self.display.as_ref().map(|display| Screen::new(display.last_image()))
    }

    /// The visible widgets.
    pub fn widgets(&self) -> Vec<Widget> {
        let tree = |running: &Running| running.scene.tree(&running.episode.desktop);
        self.running.as_ref().map(tree).unwrap_or_default()
    }

    /// What is written in the squares of a grid over the screen, row by row.
    pub fn written(&self, grid: [usize; 2]) -> Vec<[Written; HALVES]> {
        let size = [self.options.width, self.options.height];
        self.running.as_ref().map(|running| running.scene.written(size, grid)).unwrap_or_default()
    }

    /// What the oracle plans with.
    pub(crate) fn planning(&self) -> Option<(&Episode, &Evaluator, &Scene)> {
        self.running.as_ref().map(|running| (&running.episode, &running.evaluator, &running.scene))
    }

    fn start(&mut self, mut episode: Episode, evaluator: Evaluator) -> Screen {
        let look = &episode.desktop.look;
        if self.display.as_ref().is_none_or(|display| display.look() != look) {
            self.display = Some(Display::new(look));
        }
        let display = self.display.get_or_insert_with(|| Display::new(look));
        let scene = layout::scene(&episode.desktop);
        display.reset(&episode.desktop, &scene);
        let (image, focus) = display.render(&episode.desktop, &scene);
        episode.desktop.session.focus = focus;
        self.running = Some(Running { episode, evaluator, scene });
        Screen::new(image)
    }
}

impl Environment for EmbeddedDesktop {
    fn reset(&mut self, task: &Task, seed: u64, deadline: Instant) -> Result<Screen, EnvironmentError> {
        check_deadline(deadline, "reset")?;
        self.running = None;
        let evaluator = Evaluator::of(task)?;
        let desktop = setup::prepare(task, self.options.look(seed), seed)?;
        let start = desktop.world.clone();
        Ok(self.start(Episode { task: task.clone(), desktop, start, ending: None }, evaluator))
    }

    fn step(&mut self, action: &Action, deadline: Instant) -> Result<StepResult, EnvironmentError> {
        check_deadline(deadline, "step")?;
        let (Some(running), Some(display)) = (&mut self.running, &mut self.display) else {
            return Err(EnvironmentError::NoEpisode);
        };
        let episode = &mut running.episode;
        if episode.ending.is_some() {
            return Err(EnvironmentError::NoEpisode);
        }
        if ends_episode(action) {
            let gave_up = !matches!(action, Action::Finished { .. });
            episode.ending = Some(if gave_up { Ending::GaveUp } else { Ending::Finished });
            return Ok(StepResult {
                screen: Screen::new(display.last_image()),
                terminated: true,
                truncated: false,
            });
        }
        interact::act(&mut episode.desktop, display, &mut running.scene, action);
        let (image, focus) = display.render(&episode.desktop, &running.scene);
        episode.desktop.session.focus = focus;
        Ok(StepResult { screen: Screen::new(image), terminated: false, truncated: false })
    }

    fn evaluate(&mut self, deadline: Instant) -> Result<f64, EnvironmentError> {
        check_deadline(deadline, "evaluate")?;
        let running = self.running.as_ref().ok_or(EnvironmentError::NoEpisode)?;
        let Episode { start, desktop, ending, .. } = &running.episode;
        Ok(running.evaluator.score(start, desktop, *ending))
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn screen_size(&self) -> Option<(u32, u32)> {
        Some((self.options.width, self.options.height))
    }
}
