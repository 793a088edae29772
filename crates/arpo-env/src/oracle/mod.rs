//! The oracle: picks one next action at a time from the state, not from pixels, and acts through ordinary actions.
//!
//! It compares the world with the one the task's conditions ask for, lets the application with a difference name
//! the widget to use next (an `Intent`), and turns that into a click, a scroll or typed text at the widget's position
//! on the screen. So it works from any state in the middle of an episode, also after mistakes that can be undone.

mod files;
mod mail;
mod office;
mod settings;
mod shop;
mod text;

use crate::desktop::Desktop;
use crate::draw::slider_point;
use crate::embedded::EmbeddedDesktop;
use crate::layout::{Scene, Widget};
use crate::view::{Role, Value};
use crate::world::{App, World};
use arpo_core::action::{Action, Direction, ModelBox};
use arpo_core::random::{Purpose, stream};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// The next thing to do, and with which widget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Intent {
    Click(String),
    Double(String),
    Right(String),
    /// The field is to hold this text.
    Type(String, String),
    /// The slider is to show this level.
    Slide(String, u32),
}

/// A click on a widget.
#[expect(clippy::unnecessary_wraps, reason = "plans return an Option")]
pub(crate) fn click(id: impl Into<String>) -> Option<Intent> {
    Some(Intent::Click(id.into()))
}

/// Solves tasks; with detours it takes a random harmless action now and then, and recovers.
#[derive(Debug)]
pub struct Oracle {
    rng: ChaCha8Rng,
    detours: f64,
    /// How far clicks may miss the centre, as a fraction of the distance to the edge.
    noise: f64,
    /// Entries are used by their context menu, where there is one.
    context_menus: bool,
}

impl Oracle {
    /// An oracle that goes straight to the goal.
    pub fn new() -> Self {
        Self::with_detours(0, 0.0)
    }

    /// An oracle that takes a detour before an action with this probability: it opens another page, selects
    /// something else, moves the pointer or waits. It does nothing that cannot be undone.
    pub fn with_detours(seed: u64, detours: f64) -> Self {
        let mut rng = stream(seed, Purpose::Environment, 1, 0);
        let context_menus = detours > 0.0 && rng.random_bool(0.5);
        Self { rng, detours, noise: 0.0, context_menus }
    }

    /// The same with clicks spread around the centre of their widget: 0 at the centre, 1 up to the edges.
    #[must_use]
    pub fn with_noise(self, noise: f64) -> Self {
        Self { noise: noise.clamp(0.0, 1.0), ..self }
    }

    /// The next action in an episode; a wait without an episode.
    pub fn next_action(&mut self, environment: &EmbeddedDesktop) -> Action {
        if self.detours > 0.0 && self.rng.random_bool(self.detours) {
            return self.detour(environment);
        }
        let Some((episode, evaluator, scene)) = environment.planning() else { return Action::Wait {} };
        if evaluator.infeasible {
            return Action::CallUser {};
        }
        let desktop = &episode.desktop;
        let finished = Action::Finished { content: None };
        let tree = scene.tree(desktop);
        if desktop.session.notice.is_some() {
            return to_action(desktop, scene, &tree, &Intent::Click("notice:ok".into())).unwrap_or(finished);
        }
        let Some(target) = evaluator.target(&episode.start) else { return finished };
        let intent = self.next_intent(desktop, &target, &tree).or_else(|| {
            let app = evaluator.front().filter(|app| desktop.front() != Some(*app))?;
            Some(to_front(desktop, app, &tree))
        });
        let action = intent.and_then(|intent| to_action(desktop, scene, &tree, &intent)).unwrap_or(finished);
        self.with_click_noise(action, &tree)
    }

    /// Moves a click away from the centre of its widget; a click that sets a slider stays.
    fn with_click_noise(&mut self, mut action: Action, tree: &[Widget]) -> Action {
        if self.noise > 0.0
            && let Action::Click { start_box }
            | Action::LeftDouble { start_box }
            | Action::RightSingle { start_box } = &mut action
            && let Some(widget) = tree.iter().rev().find(|widget| centre_box(widget) == *start_box)
            && widget.role != Role::Slider
        {
            let [left, top, right, bottom] = widget.rect.map(f64::from);
            let mut shift = |length: f64| self.rng.random_range(-1.0..=1.0) * self.noise * length / 2.0;
            let (x, y) = (start_box.x1 + shift(right - left), start_box.y1 + shift(bottom - top));
            *start_box = ModelBox::point(x.round(), y.round());
        }
        action
    }

    /// The next widget to use; the front application comes first.
    fn next_intent(&self, desktop: &Desktop, target: &World, tree: &[Widget]) -> Option<Intent> {
        let mut apps = App::ALL.to_vec();
        if let Some(front) = desktop.front() {
            apps.sort_by_key(|app| *app != front);
        }
        // a file is moved or renamed before it is written to
        let plan = |app: App| match app {
            App::Settings => settings::plan(desktop, target),
            App::Files => files::plan(desktop, target, self.context_menus),
            App::Editor if files::plan(desktop, target, false).is_none() => text::plan(desktop, target),
            App::Editor => None,
            App::Sheet => office::plan_sheet(desktop, target),
            App::Mail => mail::plan(desktop, target),
            App::Alarms => office::plan_alarms(desktop, target),
            App::Player => office::plan_player(desktop, target),
            App::Shop => shop::plan(desktop, target),
        };
        let (app, intent) = apps.into_iter().find_map(|app| Some((app, plan(app)?)))?;
        Some(if desktop.front() == Some(app) { intent } else { to_front(desktop, app, tree) })
    }

    /// A harmless action.
    fn detour(&mut self, environment: &EmbeddedDesktop) -> Action {
        let widgets = environment.widgets();
        let harmless = |widget: &&Widget| {
            let passive =
                matches!(widget.role, Role::Label | Role::Tab | Role::Item | Role::Menu | Role::Title);
            passive && widget.enabled || widget.id == "home" || widget.id.starts_with("more:")
        };
        let choices: Vec<&Widget> = widgets.iter().filter(harmless).collect();
        match (choices.choose(&mut self.rng), self.rng.random_range(0..4)) {
            (Some(widget), 0) => Action::Hover { start_box: centre_box(widget) },
            (Some(widget), 1) => {
                Action::Scroll { start_box: Some(centre_box(widget)), direction: Direction::Down }
            }
            (Some(widget), _) => Action::Click { start_box: centre_box(widget) },
            (None, _) => Action::Wait {},
        }
    }
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}

fn centre_box(widget: &Widget) -> ModelBox {
    let (x, y) = widget.centre();
    ModelBox::point(x, y)
}

/// The step towards an application's window: the task bar, or the home screen of a pocket desktop.
fn to_front(desktop: &Desktop, app: App, tree: &[Widget]) -> Intent {
    let bar = format!("bar:{app}");
    if desktop.look.pocket() && !tree.iter().any(|widget| widget.id == bar) {
        return Intent::Click("home".into());
    }
    Intent::Click(bar)
}

/// The action that carries out an intent, or one that first brings the widget within reach.
fn to_action(desktop: &Desktop, scene: &Scene, tree: &[Widget], intent: &Intent) -> Option<Action> {
    let (Intent::Click(id)
    | Intent::Double(id)
    | Intent::Right(id)
    | Intent::Type(id, _)
    | Intent::Slide(id, _)) = intent;
    let Some(widget) = tree.iter().find(|widget| widget.id == *id && widget.enabled) else {
        return reach(desktop, scene, tree, id);
    };
    let start_box = centre_box(widget);
    Some(match intent {
        Intent::Click(_) => Action::Click { start_box },
        Intent::Double(_) => Action::LeftDouble { start_box },
        Intent::Right(_) => Action::RightSingle { start_box },
        Intent::Slide(_, level) => {
            let (x, y) = slider_point(widget, *level, desktop.look.pocket())?;
            Action::Click { start_box: ModelBox::point(x, y) }
        }
        Intent::Type(_, text) => type_into(desktop, widget, text),
    })
}

fn type_into(desktop: &Desktop, widget: &Widget, text: &str) -> Action {
    let start_box = centre_box(widget);
    let Value::Text(old) = &widget.value else { return Action::Click { start_box } };
    let Some(focus) = desktop.session.focus.as_ref().filter(|_| widget.focused) else {
        return Action::Click { start_box };
    };
    let length = old.chars().count();
    let all_selected = focus.anchor.abs_diff(focus.cursor) == length;
    if length > 0 && !all_selected {
        Action::Hotkey { keys: vec!["ctrl".into(), "a".into()] }
    } else if text.is_empty() {
        Action::Press { key: "delete".into() }
    } else {
        Action::Type { content: text.to_owned() }
    }
}

/// Scrolls to a widget that is out of view, or closes what covers it.
fn reach(desktop: &Desktop, scene: &Scene, tree: &[Widget], id: &str) -> Option<Action> {
    if desktop.session.menu.is_some() {
        return Some(Action::Press { key: "escape".into() });
    }
    if let Some(hidden) = scene.hidden.iter().find(|hidden| hidden.id == id) {
        if desktop.look.pocket() {
            let more = format!("more:{}", hidden.app);
            let more = tree.iter().find(|widget| widget.id == more)?;
            return Some(Action::Click { start_box: centre_box(more) });
        }
        let direction = if hidden.below { Direction::Down } else { Direction::Up };
        let title = tree.iter().rev().find(|widget| widget.role == Role::Title)?;
        return Some(Action::Scroll { start_box: Some(centre_box(title)), direction });
    }
    // a dialog that is not needed: the widget with the escape shortcut closes it
    let cancels = scene.widgets().rev().find(|placed| placed.active && placed.node.keys == "escape")?;
    let cancel = tree.iter().find(|widget| widget.id == cancels.node.id && widget.enabled)?;
    Some(Action::Click { start_box: centre_box(cancel) })
}
