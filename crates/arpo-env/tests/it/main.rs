//! Tests of the public interface: the contract, rendering, tasks with their evaluators, and the scripted policies.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod auxiliary;
mod documented_scores;
mod drawing;
mod embedded_contract;
mod generated;
mod input;
mod oracle_solves;
mod saved_state;
mod task_files;
mod wrong_endings;

use arpo_core::action::{Action, ModelBox};
use arpo_core::task::{Task, TaskId};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, Screen};
use arpo_env::layout::Widget;
use arpo_env::look::ScreenOptions;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn later() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

/// A task with a set-up, to act in freely.
fn scene(setup: Value) -> Task {
    Task {
        id: TaskId::new("scene"),
        instruction: "look around".into(),
        application: String::new(),
        setup,
        evaluator: json!({"infeasible": true}),
    }
}

fn started(options: ScreenOptions, setup: Value) -> EmbeddedDesktop {
    let mut environment = EmbeddedDesktop::new(options).unwrap();
    environment.reset(&scene(setup), 3, later()).unwrap();
    environment
}

#[expect(clippy::needless_pass_by_value, reason = "actions are created at the call")]
fn act(environment: &mut EmbeddedDesktop, action: Action) -> Screen {
    environment.step(&action, later()).unwrap().screen
}

fn widget(environment: &EmbeddedDesktop, id: &str) -> Widget {
    let widgets = environment.widgets();
    widgets.iter().find(|widget| widget.id == id).unwrap_or_else(|| panic!("no {id} in {widgets:#?}")).clone()
}

fn centre_box(environment: &EmbeddedDesktop, id: &str) -> ModelBox {
    let (x, y) = widget(environment, id).centre();
    ModelBox::point(x, y)
}

fn click(environment: &mut EmbeddedDesktop, id: &str) -> Screen {
    let start_box = centre_box(environment, id);
    act(environment, Action::Click { start_box })
}

fn write(environment: &mut EmbeddedDesktop, text: &str) {
    act(environment, Action::Type { content: text.into() });
}

fn keys(environment: &mut EmbeddedDesktop, keys: &[&str]) {
    act(environment, Action::Hotkey { keys: keys.iter().map(|key| (*key).to_owned()).collect() });
}

/// The world as JSON, at a pointer.
fn world(environment: &EmbeddedDesktop, pointer: &str) -> Option<Value> {
    serde_json::to_value(&environment.desktop().unwrap().world).unwrap().pointer(pointer).cloned()
}

fn screens() -> [ScreenOptions; 2] {
    [ScreenOptions::pocket(), ScreenOptions::desktop(640, 480)]
}
