//! Long episodes are trained in the context they were sampled in: 40 turns with 5 screenshots.

use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::action::{Action, ModelBox};
use arpo_core::config::{Config, Layer, StyleChoice, resolve};
use arpo_core::trajectory::{PolicyVersion, Trajectory};
use arpo_env::tasks::{Split, Suite};
use arpo_model::checkpoint::Weights;
use arpo_model::config::pocket_qwen3;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::step::Updater;
use arpo_train::collect::{GroupSize, Planner, Worlds};
use arpo_train::episode::{CompletedEpisode, History};
use arpo_train::learner::{Learner, LocalLearner, Scorer};
use arpo_train::policy::scripted::Script;
use arpo_train::run::stop::StopSwitch;
use arpo_train::screens::Screens;
use arpo_train::trainer::setup::{self, Loaded};
use std::sync::Arc;
use tch::{Device, Kind};

fn config(max_screenshots: usize) -> Config {
    config_of("quick", max_screenshots)
}

fn config_of(preset: &str, max_screenshots: usize) -> Config {
    let layers = [
        Layer::preset(preset).unwrap(),
        Layer::set("agent.max_tokens=40").unwrap(),
        Layer::set("collect.desktops=3").unwrap(),
        Layer::set(&format!("agent.max_screenshots={max_screenshots}")).unwrap(),
    ];
    resolve(&layers).unwrap()
}

/// The same in the `computer_use` style, whose responses are longer.
fn computer_use(max_screenshots: usize) -> Config {
    let mut config = config(max_screenshots);
    config.agent.style = StyleChoice::ComputerUse;
    config.agent.max_tokens = 160;
    config
}

/// A small Qwen3-VL that was not trained, with the built-in model's tokenizer.
fn loaded_qwen3(config: &Config) -> Loaded {
    let side_files = setup::load(config).unwrap().side_files;
    let dimensions = pocket_qwen3();
    tch::manual_seed(5);
    let weights = Weights::random(&dimensions, Kind::Float, Device::Cpu);
    let agent = Arc::new(setup::agent(config, &dimensions, &side_files).unwrap());
    Loaded { config: dimensions, weights, side_files, agent }
}

/// A script that clicks around, determined by the seed: responses and screens change at most turns.
fn wanderer(format: ActionFormat) -> Script {
    Box::new(move |history: &History| {
        let at = history.responses.len() as u64 * 37 + history.plan.sampling_seed % 1000;
        let screen = Size { width: 168, height: 140 };
        let start_box = ModelBox::point((at * 13 % 168) as f64, (at * 29 % 140) as f64);
        let click = format.coordinates.of_screen(&Action::Click { start_box }, screen, screen);
        Ok(format.grammar.render(None, &[click]))
    })
}

/// Episodes of this many turns, as the engine computes them.
fn collected(config: &Config, turns: usize, count: usize, loaded: &Loaded) -> Vec<CompletedEpisode> {
    let Loaded { config: dimensions, weights, agent, .. } = loaded;
    let policy = setup::policy(config, dimensions, weights, agent, PolicyVersion(0));
    let mut policy = policy.with_forced_responses(wanderer(agent.style.format));
    let planner = Planner { seed: 1, step: 0, worlds: Worlds::Own, faulty: false };
    let task = Arc::new(Suite::Pocket.tasks(Split::Train)[0].clone());
    let mut collector = setup::collector(config, None, &Arc::default(), &StopSwitch::default()).unwrap();
    let plans = vec![planner.group(&task, 0, GroupSize::new(count, 0, turns))];
    let collected = collector.collect(&mut policy, plans, &mut |_| {}).unwrap();
    collected.groups.into_iter().flat_map(|group| group.episodes).collect()
}

fn scores(config: &Config, loaded: Loaded, episodes: &[CompletedEpisode]) -> Vec<Vec<f32>> {
    let mut screens = Screens::default();
    for one in episodes {
        screens.add(&one.trajectory, &one.screens);
    }
    let agent = Arc::clone(&loaded.agent);
    let optimiser = AdamW::new(&loaded.weights, config.optimiser.clone());
    let model = setup::trainable_model(config, &loaded.config, loaded.weights, &agent);
    let updater = Updater::new(model, optimiser, None);
    let mut learner = LocalLearner::new(updater, agent.processor.clone(), config.model.micro_batch_tokens);
    let trajectories: Vec<&Trajectory> = episodes.iter().map(|one| &one.trajectory).collect();
    learner.log_probs(Scorer::Policy, &trajectories, &screens).unwrap()
}

#[test]
fn every_token_of_a_long_episode_is_scored_as_it_was_sampled() {
    let (uitars, tools) = (config(5), computer_use(5));
    scored_as_sampled(&uitars, setup::load(&uitars).unwrap(), 40);
    scored_as_sampled(&tools, setup::load(&tools).unwrap(), 12);
    scored_as_sampled(&tools, loaded_qwen3(&tools), 12);
}

fn scored_as_sampled(config: &Config, loaded: Loaded, turns: usize) {
    let episodes = collected(config, turns, 2, &loaded);
    // five, then two more at a time
    let expected: Vec<(usize, usize)> =
        (0..=(turns - 5).div_ceil(2)).map(|slice| (2 * slice, (5 + 2 * slice).min(turns))).collect();
    let image_token = loaded.agent.image_token;
    let again = scores(config, loaded, &episodes);
    for (one, again) in episodes.iter().zip(&again) {
        let trajectory = &one.trajectory;
        assert_eq!((trajectory.steps.len(), trajectory.check()), (turns, Ok(())));
        let cuts: Vec<(usize, usize)> =
            trajectory.slices.iter().map(|slice| (slice.first_live, slice.end)).collect();
        assert_eq!(cuts, expected);
        // every generated token is trained exactly once
        let trained: usize = trajectory
            .views()
            .map(|slice| trajectory.action_mask(&slice).into_iter().filter(|trained| *trained).count())
            .sum();
        assert_eq!((trained, again.len()), (trajectory.sampler_logp.len(), trained));
        for slice in trajectory.views() {
            let runs = slice.tokens.chunk_by(|a, b| a == b).filter(|run| run[0].0 == image_token).count();
            assert!(runs == slice.live.len() && runs <= 5);
        }
        let differences: Vec<f32> =
            again.iter().zip(&trajectory.sampler_logp).map(|(a, b)| (a - b).abs()).collect();
        let mean = differences.iter().sum::<f32>() / differences.len() as f32;
        let largest = differences.iter().copied().fold(0.0, f32::max);
        assert!(mean < 1e-5 && largest < 1e-3, "{mean} {largest}");
        assert!(trajectory.sampler_logp.iter().any(|&logp| logp < -1.0), "some tokens are unlikely");
    }
    assert_ne!(episodes[0].trajectory.slices, episodes[1].trajectory.slices);
}

/// A window that holds the whole episode does not change it by a bit; a hundred turns work with any window.
#[test]
fn an_episode_that_fits_is_one_slice_and_long_ones_fit_any_window() {
    let whole: Vec<Vec<CompletedEpisode>> = [8, 9, 32]
        .map(|most| {
            let config = config(most);
            collected(&config, 8, 2, &setup::load(&config).unwrap())
        })
        .into();
    for other in &whole[1..] {
        for (one, other) in whole[0].iter().zip(other) {
            assert_eq!(one.trajectory, other.trajectory);
            assert_eq!((one.trajectory.slices.len(), one.trajectory.slices[0].first_live), (1, 0));
        }
    }
    for (most, turns, slices) in [(1, 12, 12), (20, 100, 9)] {
        let config = config(most);
        let loaded = setup::load(&config).unwrap();
        let episodes = collected(&config, turns, 1, &loaded);
        let trajectory = &episodes[0].trajectory;
        assert_eq!((trajectory.steps.len(), trajectory.slices.len()), (turns, slices));
        let again = scores(&config, loaded, &episodes).remove(0);
        assert!(again.iter().zip(&trajectory.sampler_logp).all(|(a, b)| (a - b).abs() < 1e-3));
    }
}

/// A summary replaces the turns whose screenshot is gone: a slice begins with the first live turn and tells of the others.
#[test]
fn a_slice_of_tool_calls_holds_a_summary_of_what_came_before() {
    let config = computer_use(3);
    let loaded = setup::load(&config).unwrap();
    let episode = collected(&config, 7, 1, &loaded).remove(0);
    let trajectory = &episode.trajectory;
    // three, then one more at a time: half of three
    assert_eq!(trajectory.slices.len(), 5);
    for slice in trajectory.views() {
        let tokens: Vec<u32> = slice.tokens.iter().map(|token| token.0).collect();
        let text = loaded.agent.tokenizer.decode(&tokens, false).unwrap();
        let told = text.matches("\nStep ").count();
        assert_eq!(
            (told, text.matches("<tool_call>").count()),
            (slice.live.start, slice.live.len()),
            "{text}"
        );
        assert_eq!(text.contains("\nNone"), slice.live.start == 0, "{text}");
        for step in &trajectory.steps[slice.steps.clone()] {
            let span: Vec<u32> = tokens[step.span.start..step.span.end].to_vec();
            assert_eq!(loaded.agent.tokenizer.decode(&span, true).unwrap(), step.response);
        }
    }
}

/// In every preset that runs on a CPU, with a window that advances and with one that does not.
#[test]
fn sampler_and_learner_agree_in_every_preset() {
    for preset in ["quick", "paper", "released"] {
        for most in [2, 15] {
            let config = config_of(preset, most);
            let loaded = setup::load(&config).unwrap();
            let episodes = collected(&config, 5, 1, &loaded);
            let again = scores(&config, loaded, &episodes).remove(0);
            let sampled = &episodes[0].trajectory.sampler_logp;
            let sum: f32 = again.iter().zip(sampled).map(|(a, b)| (a - b).abs()).sum();
            let mean = sum / sampled.len() as f32;
            assert!(sampled.len() > 40 && mean < 1e-4, "{preset}, {most} screenshots: {mean}");
        }
    }
}
