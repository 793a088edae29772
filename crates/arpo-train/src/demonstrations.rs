//! Demonstrations for supervised training: whole episodes of the oracle, and grounding questions about single screens.
//! Generated on the fly, each from its number, so that the result does not depend on the number of threads.

use crate::TrainError;
use crate::agent::Agent;
use crate::dialogue::{Assembled, assemble};
use arpo_agent::conversation::{Content, Message, Role, Turn, conversation};
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::action::Action;
use arpo_core::random::{Purpose, stream};
use arpo_core::task::Task;
use arpo_core::trajectory::ImageRef;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::{Environment, Screen, ends_episode};
use arpo_env::grounding::{self, Asking, GroundingAnswer, GroundingQuestion, questions, texts_to_type};
use arpo_env::layout::Widget;
use arpo_env::oracle::Oracle;
use arpo_env::tasks::Suite;
use image::RgbImage;
use rand::{Rng, RngExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most screens of one episode that questions are asked about: drawing an episode costs more than asking.
pub(crate) const SCREENS_OF_AN_EPISODE: usize = 4;

/// Most questions about one screen.
pub(crate) const MAX_QUESTIONS: usize = 8;

/// Texts to type beside the questions about a screen, where names are read letter by letter; and as many of an instruction before it.
const TEXTS_TO_TYPE: usize = 2;

/// Asks for the next text of an instruction.
const NEXT: &str = "next";

/// Most actions of a demonstrated episode. The oracle needs fewer for nearly every task.
const LONGEST_EPISODE: usize = 16;

/// Which questions are asked about a task's screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Questions {
    /// Most oracle actions before the one screen that they are about; without a limit, they are about several screens of the
    /// oracle's episode, each of which is equally likely.
    pub steps_before: Option<usize>,
    /// They ask in several ways.
    pub reworded: bool,
    /// They are about the names in lists first, and texts to type are among them, some of them given in an instruction before.
    pub names_first: bool,
    /// The suite whose texts those to type are built like.
    pub suite: Suite,
}

/// A conversation to train on.
#[derive(Debug, Clone)]
pub struct Demonstration {
    /// Its tokens, and which of them are the agent's.
    pub assembled: Assembled,
    /// Its screenshots, in order.
    pub screens: Vec<Arc<RgbImage>>,
}

/// A generous deadline for a call of the embedded desktop, which takes milliseconds.
pub(crate) fn deadline() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

/// The response text for an action of the oracle, on a screen that the agent sees at its own size.
pub fn response_text(format: ActionFormat, action: &Action, screen: Size) -> String {
    let action = format.coordinates.of_screen(action, screen, screen);
    format.grammar.render(None, std::slice::from_ref(&action))
}

/// The tokens of a complete response, with its end token.
pub fn response_tokens(agent: &Agent, text: &str) -> Result<Vec<u32>, TrainError> {
    let mut tokens = agent.tokenizer.encode(text)?;
    tokens.push(agent.end_token);
    Ok(tokens)
}

/// An episode of the oracle.
#[derive(Debug, Clone)]
pub struct OracleEpisode {
    /// The task's instruction.
    pub instruction: String,
    /// The screen before each action.
    pub screens: Vec<Arc<RgbImage>>,
    /// In order.
    pub actions: Vec<Action>,
}

impl OracleEpisode {
    /// Whether it is shown to its end, and not cut after the longest that is demonstrated.
    fn is_whole(&self) -> bool {
        self.actions.last().is_some_and(ends_episode)
    }
}

/// The oracle's episode on a task, in the world of this number; its beginning if it is very long.
pub(crate) fn oracle_episode_of(
    desktop: &mut EmbeddedDesktop,
    task: &Task,
    number: u64,
) -> Result<OracleEpisode, TrainError> {
    let mut oracle = Oracle::new();
    let mut screen = desktop.reset(task, number, deadline())?;
    let (mut screens, mut actions) = (vec![], vec![]);
    while actions.len() < LONGEST_EPISODE {
        let action = oracle.next_action(desktop);
        let stepped = desktop.step(&action, deadline())?;
        screens.push(screen.image()?);
        actions.push(action);
        screen = stepped.screen;
        if stepped.terminated || stepped.truncated {
            break;
        }
    }
    Ok(OracleEpisode { instruction: task.instruction.clone(), screens, actions })
}

/// A whole episode of the oracle. None if it is longer than demonstrations are: cut, it would teach not to finish.
pub fn episode(
    agent: &Agent,
    desktop: &mut EmbeddedDesktop,
    task: &Task,
    number: u64,
) -> Result<Option<Demonstration>, TrainError> {
    let shown = oracle_episode_of(desktop, task, number)?;
    if !shown.is_whole() {
        return Ok(None);
    }
    let OracleEpisode { instruction, screens, actions } = shown;
    let turns: Vec<Turn> = actions
        .iter()
        .zip(&screens)
        .map(|(action, screen)| Turn {
            screenshot: reference(screen),
            response: response_text(agent.style.format, action, size(screen)),
        })
        .collect();
    let messages = conversation(&instruction, &turns, None, &agent.style);
    demonstration(agent, &messages, screens).map(Some)
}

/// Questions about screens on the oracle's way, a conversation for each screen.
pub fn grounding(
    agent: &Agent,
    desktop: &mut EmbeddedDesktop,
    task: &Task,
    number: u64,
    asked: Questions,
) -> Result<Vec<Demonstration>, TrainError> {
    let mut rng = stream(number, Purpose::Environment, 4, 0);
    let widgets = EmbeddedDesktop::widgets;
    let screens = screens_on_the_way(desktop, task, number, asked.steps_before, &mut rng, widgets)?;
    let Questions { reworded, names_first, suite, .. } = asked;
    let asking = Asking { count: MAX_QUESTIONS, reworded, names_first };
    let ask = |(screen, widgets): (Screen, Vec<Widget>)| {
        let mut asked = questions(&widgets, asking, &mut rng);
        if !names_first {
            return answered(agent, screen.image()?, None, asked);
        }
        for text in texts_to_type(suite, TEXTS_TO_TYPE, &mut rng) {
            asked.insert(rng.random_range(0..=asked.len()), text);
        }
        let instruction = insert_instructed(&mut asked, suite, &mut rng);
        answered(agent, screen.image()?, Some(&instruction), asked)
    };
    screens.into_iter().map(ask).collect()
}

/// The screen on the oracle's way, of a few, that has the most names in lists: all are found, all are read out, and all are typed;
/// `None` if no screen shows any.
pub(crate) fn questions_about_names(
    agent: &Agent,
    desktop: &mut EmbeddedDesktop,
    task: &Task,
    number: u64,
) -> Result<Option<[Demonstration; 3]>, TrainError> {
    let mut rng = stream(number, Purpose::Environment, 4, 0);
    let screens = screens_on_the_way(desktop, task, number, None, &mut rng, EmbeddedDesktop::widgets)?;
    let names =
        screens.into_iter().map(|(screen, widgets)| (screen, grounding::questions_about_names(&widgets)));
    let most = names.max_by_key(|(_, names)| names.len()).filter(|(_, names)| !names.is_empty());
    let Some((screen, names)) = most else { return Ok(None) };
    let image = screen.image()?;
    let kind = |at: usize| {
        let asked = names.iter().map(|questions| questions[at].clone()).collect();
        answered(agent, Arc::clone(&image), None, asked)
    };
    Ok(Some([kind(0)?, kind(1)?, kind(2)?]))
}

/// Returns an instruction to type some texts, and inserts questions for them, in their order: in an episode, too, a text stands
/// before the first screenshot and is typed after several.
fn insert_instructed(asked: &mut Vec<GroundingQuestion>, suite: Suite, rng: &mut impl Rng) -> String {
    let texts = texts_to_type(suite, TEXTS_TO_TYPE, rng);
    let instruction: Vec<&str> = texts.iter().map(|one| one.text.as_str()).collect();
    let instruction = instruction.join(" and ");
    let mut after = 0;
    for GroundingQuestion { answer, .. } in texts {
        let place = rng.random_range(after..=asked.len());
        asked.insert(place, GroundingQuestion { text: NEXT.into(), answer });
        after = place + 1;
    }
    instruction
}

/// A conversation of questions about a screen, after an instruction if there is one.
fn answered(
    agent: &Agent,
    pixels: Arc<RgbImage>,
    instruction: Option<&str>,
    questions: Vec<GroundingQuestion>,
) -> Result<Demonstration, TrainError> {
    let image = reference(&pixels);
    let mut messages = if let Some(instruction) = instruction {
        conversation(instruction, &[], Some(&image), &agent.style)
    } else {
        let system = Message::text(Role::System, agent.style.system.clone());
        vec![system, Message::image(Role::User, image)]
    };
    for question in questions {
        messages.push(Message::text(Role::User, question.text));
        let answer = match question.answer {
            GroundingAnswer::Act(action) => response_text(agent.style.format, &action, size(&pixels)),
            GroundingAnswer::Label(label) => label,
        };
        messages.push(Message::text(Role::Assistant, answer));
    }
    demonstration(agent, &messages, vec![pixels])
}

/// Random screens of the oracle's episode with what is wanted of their desktop, each with the same chance; with a limit, the one
/// that some actions lead to.
pub(crate) fn screens_on_the_way<T>(
    desktop: &mut EmbeddedDesktop,
    task: &Task,
    number: u64,
    steps_before: Option<usize>,
    rng: &mut impl Rng,
    wanted: impl Fn(&EmbeddedDesktop) -> T,
) -> Result<Vec<(Screen, T)>, TrainError> {
    let mut oracle = Oracle::new();
    let screen = desktop.reset(task, number, deadline())?;
    let mut chosen = vec![(screen, wanted(desktop))];
    let steps = steps_before.map_or(LONGEST_EPISODE, |most| rng.random_range(0..=most));
    for step in 1..=steps {
        let action = oracle.next_action(desktop);
        if ends_episode(&action) {
            break;
        }
        let screen = desktop.step(&action, deadline())?.screen;
        // a place among the chosen ones, or none
        let place = match steps_before {
            Some(_) => 0,
            None if chosen.len() < SCREENS_OF_AN_EPISODE => chosen.len(),
            None => rng.random_range(0..=step),
        };
        if place < SCREENS_OF_AN_EPISODE {
            let new = (screen, wanted(desktop));
            if place < chosen.len() {
                chosen[place] = new;
            } else {
                chosen.push(new);
            }
        }
    }
    Ok(chosen)
}

fn demonstration(
    agent: &Agent,
    messages: &[Message],
    screens: Vec<Arc<RgbImage>>,
) -> Result<Demonstration, TrainError> {
    let responses = messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .map(|message| match message.content.as_slice() {
            [Content::Text(text)] => response_tokens(agent, text),
            _ => Err(TrainError::Internal("a response that is not one text".into())),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let grids = screens
        .iter()
        .map(|screen| agent.processor.grid(screen.width(), screen.height()))
        .collect::<Result<Vec<_>, _>>()?;
    let assembled = assemble(agent, messages, &responses, &grids, false)?;
    Ok(Demonstration { assembled, screens })
}

fn size(screen: &RgbImage) -> Size {
    Size { width: screen.width(), height: screen.height() }
}

/// Stands for a screen in a conversation. Screens are matched by their order, so no digest is needed.
pub(crate) fn reference(screen: &RgbImage) -> ImageRef {
    ImageRef { digest: String::new(), width: screen.width(), height: screen.height() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base_model;
    use crate::supervised::Family;
    use arpo_core::task::TaskId;
    use arpo_env::tasks::Suite;
    use serde_json::{Value, json};
    use std::path::Path;
    use tch::{Device, Kind};

    #[test]
    fn an_episode_that_is_cut_is_not_whole() {
        let with_folders = |count: usize| {
            let condition = |number: usize| {
                let name = format!("new{number}");
                json!({"type": "equals", "path": format!("/folders/{name}"), "value": name})
            };
            let conditions: Vec<Value> = (0..count).map(condition).collect();
            let task = Task {
                id: TaskId::new("folders"),
                instruction: format!("make {count} folders"),
                application: "files".into(),
                setup: json!([]),
                evaluator: json!({"conditions": conditions}),
            };
            let mut desktop = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
            oracle_episode_of(&mut desktop, &task, 0).unwrap()
        };
        let (short, long) = (with_folders(1), with_folders(9));
        assert!(short.is_whole() && short.actions.len() < LONGEST_EPISODE, "{:?}", short.actions);
        assert!(!long.is_whole() && long.actions.len() == LONGEST_EPISODE, "{:?}", long.actions);
    }

    /// Ways of delivery are only on the last page of an order.
    #[test]
    fn questions_reach_the_last_page_of_an_order_unless_limited() {
        let reached = |steps_before: Option<usize>| {
            let mut desktop = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
            let is_last_page = |number: &u64| {
                let task = Suite::Pocket.further_task_of("shop-order", *number).unwrap();
                let mut rng = stream(*number, Purpose::Environment, 4, 0);
                let widgets = EmbeddedDesktop::widgets;
                let chosen =
                    screens_on_the_way(&mut desktop, &task, *number, steps_before, &mut rng, widgets)
                        .unwrap();
                assert_eq!(chosen.len() == 1, steps_before.is_some(), "an order takes more than one step");
                assert!(chosen.len() <= SCREENS_OF_AN_EPISODE);
                chosen.iter().any(|(_, widgets)| widgets.iter().any(|widget| widget.label == "Bike"))
            };
            (0..120).filter(is_last_page).count()
        };
        assert_eq!(reached(Some(3)), 0);
        let any = reached(None);
        assert!((20..110).contains(&any), "{any} of 120");
    }

    /// With a screenshot between, and often other questions, as in an episode.
    #[test]
    fn texts_of_an_instruction_are_typed_in_its_order() {
        let pocket = base_model::load("pocket", Kind::Float, Device::Cpu).unwrap();
        let style = Family::Qwen25Vl.style();
        let agent = Agent::new(&pocket.config, &pocket.side_files, Path::new("pocket"), style).unwrap();
        let asked =
            Questions { steps_before: None, reworded: false, names_first: true, suite: Suite::Pocket };
        let task = Suite::Pocket.further_task_of("files-move", 3).unwrap();
        let mut desktop = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
        let conversations = grounding(&agent, &mut desktop, &task, 3, asked).unwrap();
        assert!(conversations.len() > 1);
        for Demonstration { assembled, .. } in conversations {
            let all = agent.tokenizer.decode(&assembled.tokens, false).unwrap();
            let mut said = all.split("<|im_start|>").map(|one| one.trim_end().trim_end_matches("<|im_end|>"));
            let instruction = said.find_map(|one| one.strip_prefix("user\n")).unwrap();
            assert!(said.next().unwrap().contains("<|vision_start|>"), "{all}");
            let mut answers = vec![];
            while let Some(asked) = said.next() {
                let answer = said.next().unwrap_or_default();
                if asked == "user\nnext" {
                    answers.push(answer.strip_prefix("assistant\n").unwrap());
                }
            }
            let wanted = |one: &str| {
                let action = Action::Type { content: one.strip_prefix("type ").unwrap().to_owned() };
                response_text(agent.style.format, &action, Size { width: 1, height: 1 })
            };
            assert_eq!(answers, instruction.split(" and ").map(wanted).collect::<Vec<_>>(), "{all}");
            assert_eq!(answers.len(), TEXTS_TO_TYPE);
        }
    }
}
