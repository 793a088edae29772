//! A rank that only samples, played by a thread: how long it is waited for, and what its responses must be.

use super::*;
use crate::episode::{EpisodePlan, EpisodeScreen};
use crate::trainer::setup::{self, Loaded};
use arpo_core::config::{Layer, resolve};
use arpo_core::task::{Task, TaskId};
use arpo_model::training::ranks::HostTensors;
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Group, GroupOptions};
use image::RgbImage;
use serde_json::Value;
use std::thread::{JoinHandle, sleep};

const DEADLINE: Duration = Duration::from_secs(3);

/// A policy whose one rank does this.
fn policy_with(rank: impl FnOnce(Group) + Send + 'static) -> (RankedPolicy, JoinHandle<()>) {
    let config = resolve(&[Layer::preset("quick").unwrap()]).unwrap();
    let Loaded { weights, agent, .. } = setup::load(&config).unwrap();
    let rendezvous = Rendezvous::listen("test", "127.0.0.1:0".parse().unwrap(), "").unwrap();
    let address = rendezvous.address().to_string();
    let limit = Duration::from_mins(1);
    let other = std::thread::spawn(move || rank(join(&address, "", limit, &mut || Ok(())).unwrap()));
    let options = GroupOptions { deadline: DEADLINE, ..GroupOptions::default() };
    let group = rendezvous.gather(2, options, limit, &mut |_| {}, &mut || Ok(())).unwrap();
    let ranks = SharedRanks::new(Box::new(HostTensors::new(group)), 0, Box::new(()));
    let (trained, options) = ((weights, PolicyVersion(0)), setup::response_options(&config));
    (RankedPolicy::sampling_elsewhere(trained, agent, options, 1, ranks), other)
}

fn request(number: u64) -> GenerationRequest {
    let task = Task {
        id: TaskId::new("t"),
        instruction: "Open the mail.".into(),
        application: String::new(),
        setup: Value::Null,
        evaluator: Value::Null,
    };
    let plan = EpisodePlan {
        id: EpisodeId::new(0, &task.id, 0),
        task: Arc::new(task),
        world_seed: 0,
        sampling_seed: 0,
        max_steps: 4,
        hint: None,
    };
    let screen = EpisodeScreen::new(Arc::new(RgbImage::new(168, 140)), None);
    let history = History { plan: Arc::new(plan), screens: vec![screen], responses: vec![] };
    GenerationRequest { id: RequestId(number), history }
}

/// The number of the next request that the rank is to begin.
fn requested(group: &Group) -> u64 {
    let mut found = 0;
    loop {
        match group.receive(0, None).unwrap().fields().unwrap() {
            Command::Request { number, .. } => found = number,
            Command::Generate {} => return found,
            _ => {}
        }
    }
}

fn respond(group: &Group, number: u64, version: PolicyVersion) {
    let (text, cache) = ("Action: wait()".to_owned(), CacheUse::default());
    let answer = Answer::Response { number, text, complete: true, version, cache };
    group.send(0, &answer, vec![]).unwrap();
}

/// Steps until there is a response, or an error.
fn respond_to(policy: &mut RankedPolicy, number: u64) -> Result<RequestId, TrainError> {
    policy.submit(request(number)).unwrap();
    loop {
        if let Some((id, _)) = policy.step()?.first() {
            return Ok(*id);
        }
    }
}

#[test]
fn a_rank_has_the_deadline_for_each_pass_of_sampling() {
    let (mut policy, rank) = policy_with(|group| {
        let number = requested(&group);
        // together much longer than the deadline
        for _ in 0..6 {
            sleep(2 * DEADLINE / 5);
            group.progress();
        }
        respond(&group, number, PolicyVersion(0));
        // the second request is never answered, and nothing is done for it
        requested(&group);
        while group.check().is_ok() {
            sleep(Duration::from_millis(10));
        }
    });
    let began = Instant::now();
    assert_eq!(respond_to(&mut policy, 1).unwrap(), RequestId(1));
    assert!(began.elapsed() > 2 * DEADLINE, "{:?}", began.elapsed());
    let lost = respond_to(&mut policy, 2).unwrap_err().to_string();
    assert_eq!(lost, "rank 1 hangs: neither a response nor progress within 3 s");
    drop(policy);
    rank.join().unwrap();
}

#[test]
fn a_response_with_other_weights_is_an_error() {
    let (mut policy, rank) = policy_with(|group| {
        respond(&group, requested(&group), PolicyVersion(7));
        // until the run is over
        let _ = group.receive(0, None);
    });
    let problem = respond_to(&mut policy, 1).unwrap_err().to_string();
    assert!(problem.contains("rank 1 sampled with weights of version 7, not 0"), "{problem}");
    drop(policy);
    rank.join().unwrap();
}
