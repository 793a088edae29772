//! Guided rollouts: a hint is read while the agent acts, and is in nothing that is stored.

use arpo_core::config::{Config, Layer, resolve};
use arpo_core::trajectory::PolicyVersion;
use arpo_suite::task_lists;
use arpo_train::collect::{GroupPlan, GroupSize, Planner, Worlds};
use arpo_train::episode::{CompletedEpisode, History};
use arpo_train::hints::Hints;
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer::setup::{self, Loaded};
use std::sync::Arc;

fn config() -> Config {
    let layers = ["collect.desktops=2", "collect.max_steps=3", "agent.max_screenshots=2"]
        .map(|setting| Layer::set(setting).unwrap());
    resolve(&[vec![Layer::preset("quick").unwrap()], layers.to_vec()].concat()).unwrap()
}

fn plan(config: &Config) -> GroupPlan {
    let task = task_lists::training_tasks(config).unwrap().swap_remove(0);
    let planner = Planner { seed: 1, step: 0, worlds: Worlds::Shared { of: 1 }, faulty: false };
    planner.group(&task, 0, GroupSize::new(2, 0, 3))
}

/// Episodes in which the engine is forced to give the same responses, whatever it reads.
fn collected(config: &Config, loaded: &Loaded, plan: GroupPlan) -> Vec<CompletedEpisode> {
    let Loaded { config: dimensions, weights, agent, .. } = loaded;
    let policy = setup::policy(config, dimensions, weights, agent, PolicyVersion(0));
    let mut policy = policy.with_forced_responses(Box::new(|history: &History| {
        Ok(format!("Action: click(start_box='({},40)')", 20 + 30 * history.responses.len()))
    }));
    let mut collector = setup::collector(config, None, &Arc::default(), &StopSwitch::default()).unwrap();
    let collected = collector.collect(&mut policy, vec![plan], &mut |_| {}).unwrap();
    collected.groups.into_iter().flat_map(|group| group.episodes).collect()
}

#[test]
fn a_stored_episode_is_as_if_there_had_been_no_hint() {
    let config = config();
    let loaded = setup::load(&config).unwrap();
    let plain = plan(&config);
    let mut guided = plain.clone();
    Hints::oracle(&config).unwrap().give(&loaded.agent, &mut guided).unwrap();
    let hint = guided.episodes[0].hint.clone().unwrap();
    assert!(hint.starts_with("1. ") && hint.contains("finished("), "{hint}");
    assert!(guided.episodes.iter().all(|episode| episode.hint.as_ref() == Some(&hint)), "one world, one way");
    assert!(
        guided.episodes[0].prompt().ends_with(&*hint) && plain.episodes[0].prompt() == plain.task.instruction
    );
    let (plain, guided) = (collected(&config, &loaded, plain), collected(&config, &loaded, guided));
    assert_eq!((plain.len(), guided.len()), (2, 2));
    for (plain, guided) in plain.iter().zip(&guided) {
        let (plain, guided) = (&plain.trajectory, &guided.trajectory);
        assert!(plain.slices.len() > 1, "the hint must not come back in later slices either");
        assert_eq!((&plain.slices, &plain.steps), (&guided.slices, &guided.steps));
        // but the log-probabilities are those with which the tokens were sampled: under the hint
        assert_ne!(plain.sampler_logp, guided.sampler_logp);
        assert_eq!(guided.check(), Ok(()));
    }
}
