//! Inference servers as the rollout policy, against a conformance server.

use crate::conformance::{Behaviour, Conformance};
use crate::run_folder::Temporary;
use arpo_core::config::{Config, Layer, resolve};
use arpo_core::task::{Task, TaskId};
use arpo_core::trajectory::{EpisodeId, PolicyVersion};
use arpo_train::TrainError;
use arpo_train::episode::{EpisodePlan, EpisodeScreen, History};
use arpo_train::policy::served::ServedModel;
use arpo_train::policy::{
    GenerationRequest, Policy, RequestId, Response, RolloutPolicy, ServedPolicy, WeightUpdate,
};
use arpo_train::run::notices::Notices;
use arpo_train::run::stop::StopSwitch;
use arpo_train::trainer::setup;
use image::{Rgb, RgbImage};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TEXT: &str = "Action: finished()";

pub(crate) fn config(servers: &[&Conformance], more: &[&str]) -> Config {
    let addresses: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    let mut layers = vec![Layer::preset("quick").unwrap()];
    let servers = format!("rollout.servers={addresses:?}");
    let start = more.iter().any(|setting| setting.starts_with("rollout.start="));
    let settings = ["rollout.engine=\"vllm\"", "rollout.wait_seconds=20"];
    let settings =
        settings.into_iter().chain((!start).then_some(servers.as_str())).chain(more.iter().copied());
    layers.extend(settings.map(|setting| Layer::set(setting).unwrap()));
    resolve(&layers).unwrap()
}

/// The response that servers give.
fn response(config: &Config) -> Vec<u32> {
    let agent = setup::load(config).unwrap().agent;
    let mut tokens = agent.tokenizer.encode(TEXT).unwrap();
    tokens.push(agent.end_token);
    tokens
}

/// A server that responds as the others do.
fn server() -> Conformance {
    let server = Conformance::start(Behaviour::default());
    let tokens = response(&config(&[&server], &[]));
    server.set(|behaviour| behaviour.response = tokens);
    server
}

pub(crate) fn policy(config: &Config, folder: &Temporary) -> ServedPolicy {
    policy_saying(config, folder, &Notices::default())
}

fn policy_saying(config: &Config, folder: &Temporary, notices: &Notices) -> ServedPolicy {
    let setup::Loaded { config: dimensions, weights, side_files, agent } = setup::load(config).unwrap();
    let model = ServedModel { config: dimensions, weights, side_files, agent, version: PolicyVersion(0) };
    setup::served(config, model, &folder.run(), notices).unwrap()
}

/// A policy whose servers have version 0.
fn published(config: &Config, folder: &Temporary) -> ServedPolicy {
    let mut policy = policy(config, folder);
    policy.publish(WeightUpdate::InPlace, PolicyVersion(0)).unwrap();
    policy
}

fn request(episode: usize) -> GenerationRequest {
    let task = Task {
        id: TaskId::new("t"),
        instruction: "Open the mail.".into(),
        application: String::new(),
        setup: Value::Null,
        evaluator: Value::Null,
    };
    let plan = EpisodePlan {
        id: EpisodeId::new(0, &task.id, episode),
        task: Arc::new(task),
        world_seed: 0,
        sampling_seed: 3,
        max_steps: 12,
        hint: None,
    };
    let image = Arc::new(RgbImage::from_pixel(56, 28, Rgb([episode as u8, 2, 3])));
    let screens = vec![EpisodeScreen::new(image, None)];
    let history = History { plan: Arc::new(plan), screens, responses: vec![] };
    GenerationRequest { id: RequestId(episode as u64), history }
}

/// Responses, and requests that were given up.
type Answers = (Vec<(RequestId, Response)>, Vec<(RequestId, String)>);

/// Steps until this many requests are completed or lost.
fn complete(policy: &mut ServedPolicy, count: usize) -> Result<Answers, TrainError> {
    let (mut responses, mut lost, began) = (vec![], vec![], Instant::now());
    while responses.len() + lost.len() < count {
        assert!(began.elapsed() < Duration::from_mins(2), "no answer");
        responses.extend(policy.step()?);
        lost.extend(policy.take_lost());
    }
    assert_eq!(policy.pending(), 0);
    responses.sort_by_key(|(id, _)| *id);
    Ok((responses, lost))
}

/// Asks for the responses of some episodes, all at once.
fn ask(policy: &mut ServedPolicy, episodes: std::ops::Range<usize>) -> Result<Vec<Response>, TrainError> {
    let count = episodes.len();
    for episode in episodes {
        policy.submit(request(episode))?;
    }
    let (responses, lost) = complete(policy, count)?;
    assert_eq!(lost, []);
    Ok(responses.into_iter().map(|(_, response)| response).collect())
}

#[test]
fn tokens_go_out_and_tokens_come_back() {
    let (server, folder) = (server(), Temporary::new("served-tokens"));
    let config = config(&[&server], &[]);
    let mut policy = published(&config, &folder);
    assert_eq!((policy.version(), server.is_paused()), (PolicyVersion(0), false));
    let given = ask(&mut policy, 0..1).unwrap().remove(0);
    assert_eq!((given.text.as_str(), given.complete, given.version), (TEXT, true, PolicyVersion(0)));
    assert_eq!((given.tokens.clone(), given.logp[0]), (response(&config), -0.5));
    let asked = server.take_asked().remove(0);
    let tokens: Vec<u64> =
        asked["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(tokens.iter().filter(|&&token| token == 5).count(), 1, "one placeholder for an image");
    assert_eq!(asked["content_parts"][0]["uuid"], **request(0).history.screens[0].digest());
    let sampling = &asked["sampling_params"];
    // the placeholder of images, and the beginning of a message
    for forbidden in ["5", "1"] {
        assert_eq!(sampling["logit_bias"][forbidden], json!(-1e30));
    }
    assert_eq!(sampling["logit_bias"].get("2"), None, "the end of a message is allowed");
    let unrestricted = [("top_p", json!(1.0)), ("top_k", json!(0)), ("repetition_penalty", json!(1.0))];
    for (name, value) in unrestricted.into_iter().chain([("ignore_eos", json!(true)), ("logprobs", json!(0))])
    {
        assert_eq!(sampling[name], value, "{name}");
    }
    // the learner reads the same, with a placeholder for each feature
    let mut history = request(0).history;
    history.responses.push(Arc::new(given));
    let mut read = policy.transcript(&history).unwrap().remove(0).assembled.tokens;
    assert_eq!(read.iter().filter(|&&token| token == 5).count(), 2);
    read.dedup_by(|one, other| (*one, *other) == (5, 5));
    let expected: Vec<u32> = tokens.iter().map(|&token| token as u32).chain(response(&config)).collect();
    assert_eq!(read[..expected.len()], expected);
}

#[test]
fn an_image_is_sent_once_and_again_when_the_server_has_dropped_it() {
    let (server, folder) = (server(), Temporary::new("served-images"));
    let mut policy = published(&config(&[&server], &[]), &folder);
    let sent = |policy: &mut ServedPolicy| -> Vec<bool> {
        ask(policy, 0..1).unwrap();
        server.take_asked().iter().map(|asked| asked["content_parts"][0]["url"].is_string()).collect()
    };
    assert_eq!((sent(&mut policy), sent(&mut policy)), (vec![true], vec![false]));
    server.forget_images();
    assert_eq!((sent(&mut policy), sent(&mut policy)), (vec![false, true], vec![false]));
    // an update empties the server's cache
    policy.publish(WeightUpdate::InPlace, PolicyVersion(1)).unwrap();
    assert_eq!(sent(&mut policy), [true]);
}

#[test]
fn every_server_gets_an_update_in_order_and_old_weights_are_removed() {
    let (one, two, folder) = (server(), server(), Temporary::new("served-update"));
    let mut policy = published(&config(&[&one, &two], &[]), &folder);
    one.take_calls();
    policy.publish(WeightUpdate::InPlace, PolicyVersion(1)).unwrap();
    let update: Vec<String> = one.take_calls().into_iter().filter(|path| path != "/server_info").collect();
    let expected = [
        "/inference/v1/generate",
        "/weight_info",
        "/pause",
        "/update_weight_version",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/reset_mm_cache",
        "/reset_encoder_cache",
        "/update_weight_version",
        "/resume",
        "/weight_info",
    ];
    assert_eq!(update, expected);
    assert_eq!(one.label(), two.label());
    assert!(one.label().ends_with("-1"), "{}", one.label());
    let versions = || {
        let entries = std::fs::read_dir(folder.run()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    assert_eq!(versions(), 1);
    assert!(ask(&mut policy, 0..4).unwrap().iter().all(|response| response.version == PolicyVersion(1)));
    // nothing new: nothing is sent
    policy.publish(WeightUpdate::InPlace, PolicyVersion(1)).unwrap();
    assert!(one.take_calls().iter().all(|path| path.ends_with("/generate")));
    drop(policy);
    assert_eq!(versions(), 0);
}

#[test]
fn a_dead_server_costs_nothing_and_gets_questions_when_it_is_back() {
    let (one, two, folder) = (server(), server(), Temporary::new("served-dead"));
    let mut policy = published(&config(&[&one, &two], &[]), &folder);
    // neither answers before the last question
    let answer_after =
        |wait: Duration| [&one, &two].iter().for_each(|server| server.set(|behaviour| behaviour.slow = wait));
    answer_after(Duration::from_millis(500));
    assert_eq!(ask(&mut policy, 0..8).unwrap().len(), 8);
    answer_after(Duration::ZERO);
    let before = [one.take_asked().len(), two.take_asked().len()];
    assert_eq!(before, [4, 4]);
    two.set(|behaviour| behaviour.dead = true);
    assert_eq!(ask(&mut policy, 0..8).unwrap().len(), 8);
    assert_eq!(one.take_asked().len(), 8);
    // it comes back with the weights it was started with, and is given the current ones
    two.restart();
    two.set(|behaviour| behaviour.dead = false);
    let began = Instant::now();
    while two.label() != one.label() || two.is_paused() {
        assert!(began.elapsed() < Duration::from_mins(1));
        std::thread::sleep(Duration::from_millis(5));
    }
    // until the answer to its update has been read
    while two.take_asked().is_empty() {
        assert!(began.elapsed() < Duration::from_mins(1));
        assert_eq!(ask(&mut policy, 8..16).unwrap().len(), 8);
        policy.cancel_all();
    }
}

#[test]
fn a_server_that_does_not_answer_is_named_at_once_and_again_when_it_is_back() {
    let (server, folder, said) = (server(), Temporary::new("served-notices"), Arc::new(Mutex::new(vec![])));
    let seen = Arc::clone(&said);
    let notices = Notices::shown_by(move |line| seen.lock().unwrap().push(line.to_owned()));
    server.set(|behaviour| behaviour.dead = true);
    let mut policy = policy_saying(&config(&[&server], &[]), &folder, &notices);
    let began = Instant::now();
    let wait_for = |part: &str| {
        let expected = format!("server {}: {part}", server.address);
        while !said.lock().unwrap().last().is_some_and(|line: &String| line.starts_with(&expected)) {
            assert!(began.elapsed() < Duration::from_mins(1), "{expected}: {said:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("gets no questions: ");
            server.set(|behaviour| behaviour.dead = false);
        });
        // waits for the server
        policy.publish(WeightUpdate::InPlace, PolicyVersion(0)).unwrap();
    });
    wait_for("has the weights of version 0");
}

#[test]
fn an_answer_of_other_weights_is_not_used() {
    let (server, folder) = (server(), Temporary::new("served-version"));
    let mut policy = published(&config(&[&server], &[]), &folder);
    server.set(|behaviour| behaviour.other_label = Some((1, "default")));
    server.take_calls();
    assert_eq!(ask(&mut policy, 0..1).unwrap().len(), 1);
    assert_eq!(server.take_asked().len(), 2);
    assert!(
        server.take_calls().contains(&"/collective_rpc".to_owned()),
        "it was not given the weights again"
    );
}

/// Loading the weights again would abort the requests of all other episodes.
#[test]
fn a_failed_request_is_repeated_and_the_server_keeps_its_weights() {
    let (server, folder) = (server(), Temporary::new("served-failed"));
    let mut policy = published(&config(&[&server], &[]), &folder);
    server.set(|behaviour| behaviour.fails = 1);
    server.take_calls();
    assert_eq!(ask(&mut policy, 0..1).unwrap().len(), 1);
    assert_eq!(server.take_asked().len(), 2);
    let calls = server.take_calls();
    assert!(!calls.iter().any(|path| path == "/pause" || path == "/collective_rpc"), "{calls:?}");
}

#[test]
fn a_half_updated_server_is_not_asked() {
    let (one, two, folder) = (server(), server(), Temporary::new("served-half"));
    let mut policy = published(&config(&[&one, &two], &[]), &folder);
    two.set(|behaviour| behaviour.keeps_cache = true);
    policy.publish(WeightUpdate::InPlace, PolicyVersion(1)).unwrap();
    assert_eq!(ask(&mut policy, 0..6).unwrap().len(), 6);
    assert_eq!((one.take_asked().len(), two.take_asked().len()), (6, 0));
    assert_eq!(two.label(), "updating");
    // the next update finds it healthy
    two.set(|behaviour| behaviour.keeps_cache = false);
    policy.publish(WeightUpdate::InPlace, PolicyVersion(2)).unwrap();
    ask(&mut policy, 0..6).unwrap();
    assert_eq!((one.take_asked().len(), two.take_asked().len()), (3, 3));
}

#[test]
fn another_prompt_or_place_of_images_is_an_error_that_shows_both() {
    for misreads in [true, false] {
        let (server, folder) = (server(), Temporary::new(&format!("served-ids-{misreads}")));
        let mut policy = published(&config(&[&server], &[]), &folder);
        server.set(|behaviour| (behaviour.misreads, behaviour.misplaces) = (misreads, !misreads));
        let problem = ask(&mut policy, 0..1).unwrap_err().to_string();
        let expected = if misreads { "they differ from token 3 on: ours [" } else { "ours [" };
        assert!(problem.contains(expected) && problem.contains("the server's ["), "{problem}");
        assert_eq!(server.take_asked().len(), 1, "asked again");
    }
}

#[test]
fn a_busy_server_is_asked_again_and_a_slow_one_is_left() {
    let (one, two, folder) = (server(), server(), Temporary::new("served-slow"));
    let mut policy = published(&config(&[&one, &two], &["rollout.limit_seconds=5"]), &folder);
    one.set(|behaviour| behaviour.busy = 3);
    assert_eq!(ask(&mut policy, 0..2).unwrap().len(), 2);
    one.take_asked();
    two.take_asked();
    two.set(|behaviour| behaviour.slow = Duration::from_mins(2));
    assert_eq!(ask(&mut policy, 0..2).unwrap().len(), 2);
    assert!(one.take_asked().len() >= 2 && !two.take_asked().is_empty());
}

#[test]
fn a_server_has_no_more_requests_than_it_may() {
    let (server, folder) = (server(), Temporary::new("served-places"));
    let mut policy = published(&config(&[&server], &["rollout.requests=1"]), &folder);
    server.set(|behaviour| behaviour.slow = Duration::from_millis(30));
    (0..3).for_each(|episode| policy.submit(request(episode)).unwrap());
    assert_eq!(complete(&mut policy, 3).unwrap().0.len(), 3);
    assert_eq!(server.most_at_once(), 1);
}

#[test]
fn servers_that_cannot_be_trained_with_are_refused_at_once() {
    let refusal = |behaviour: Behaviour, settings: &[&str]| {
        let (server, folder) = (Conformance::start(behaviour), Temporary::new("served-refused"));
        let settings = [&["rollout.wait_seconds=600"][..], settings].concat();
        let mut policy = policy(&config(&[&server], &settings), &folder);
        let began = Instant::now();
        let problem = policy.publish(WeightUpdate::InPlace, PolicyVersion(0)).unwrap_err().to_string();
        assert!(began.elapsed() < Duration::from_mins(1) && problem.contains(&server.address), "{problem}");
        problem
    };
    let raw = || Behaviour { logprobs_mode: "raw_logprobs", ..Behaviour::default() };
    let problem = refusal(raw(), &["collect.temperature=0.7"]);
    assert!(problem.contains("--logprobs-mode processed_logprobs"), "{problem}");
    let problem = refusal(Behaviour { dev_mode: false, ..Behaviour::default() }, &[]);
    assert!(problem.contains("VLLM_SERVER_DEV_MODE=1"), "{problem}");
    // at temperature 1 they are the same
    let (server, folder) = (Conformance::start(raw()), Temporary::new("served-raw"));
    published(&config(&[&server], &[]), &folder);
}

#[test]
fn a_request_that_the_server_refuses_costs_its_episode() {
    let (server, folder) = (server(), Temporary::new("served-refuses"));
    let mut policy = published(&config(&[&server], &[]), &folder);
    server
        .set(|behaviour| behaviour.refuses = Some((400, "This model's maximum context length is 9 tokens.")));
    policy.submit(request(0)).unwrap();
    let (responses, lost) = complete(&mut policy, 1).unwrap();
    assert!(responses.is_empty() && lost[0].1.ends_with("maximum context length is 9 tokens."), "{lost:?}");
    // a server that fails at one request after the other is a reason to stop
    for episode in 1..7 {
        policy.submit(request(episode)).unwrap();
        complete(&mut policy, 1).unwrap();
    }
    policy.submit(request(7)).unwrap();
    let problem = complete(&mut policy, 1).unwrap_err().to_string();
    assert!(problem.starts_with("8 requests in a row failed: http"), "{problem}");
}

/// A server that has an image is told its name: the image is not even encoded.
#[test]
fn an_image_that_the_server_has_is_not_encoded_again() {
    let (server, folder) = (server(), Temporary::new("served-image-names"));
    let mut policy = published(&config(&[&server], &[]), &folder);
    let encoded: Vec<bool> = (0..2)
        .map(|_| {
            let request = request(0);
            let screen = request.history.screens[0].clone();
            policy.submit(request).unwrap();
            assert_eq!(complete(&mut policy, 1).unwrap().0.len(), 1);
            screen.bytes() > 56 * 28 * 3
        })
        .collect();
    assert_eq!(encoded, [true, false]);
    let asked = server.take_asked();
    assert!(asked[0]["content_parts"][0]["url"].is_string() && asked[1]["content_parts"][0]["url"].is_null());
}

/// It is told at once, and not only when the wait for a server is over.
#[test]
fn a_server_that_wants_a_key_is_said_to() {
    let (server, folder) = (server(), Temporary::new("served-key"));
    server.set(|behaviour| behaviour.wants_key = true);
    let mut policy = policy(&config(&[&server], &["rollout.wait_seconds=600"]), &folder);
    let problem = policy.publish(WeightUpdate::InPlace, PolicyVersion(0)).unwrap_err().to_string();
    assert!(
        problem.contains("it wants a key: expected it in the environment variable VLLM_API_KEY"),
        "{problem}"
    );
}

#[test]
fn without_tokens_in_and_out_a_retokenised_prompt_costs_its_episode() {
    let (server, folder) = (server(), Temporary::new("served-chat"));
    server.set(|behaviour| behaviour.scale_out = false);
    let mut policy = published(&config(&[&server], &[]), &folder);
    policy.submit(request(0)).unwrap();
    // the conformance server has no template, so its prompt is empty
    let (_, lost) = complete(&mut policy, 1).unwrap();
    assert!(lost[0].1.contains("it read another prompt than the learner will: ours has"), "{lost:?}");
    let asked = server.take_asked().remove(0);
    assert_eq!((&asked["model"], &asked["return_token_ids"]), (&json!("pocket"), &json!(true)));
    let mut parts = asked["messages"].as_array().unwrap().iter().map(|message| &message["content"][0]);
    let image = parts.rfind(|part| part["type"] == "image_url").unwrap();
    assert_eq!(image["uuid"], **request(0).history.screens[0].digest());
}

#[test]
fn cancelled_requests_have_no_answers_and_a_stop_ends_the_waits() {
    let (server, folder) = (server(), Temporary::new("served-cancel"));
    let mut policy = published(&config(&[&server], &["rollout.wait_seconds=600"]), &folder);
    server.set(|behaviour| behaviour.slow = Duration::from_millis(200));
    policy.submit(request(0)).unwrap();
    policy.cancel_all();
    assert_eq!(policy.pending(), 0);
    std::thread::sleep(Duration::from_millis(400));
    assert!(policy.step().unwrap().is_empty());
    // no server is left, and the run is stopped
    server.set(|behaviour| behaviour.dead = true);
    let stop = StopSwitch::default();
    policy.stopped_by(stop.clone());
    let stopping = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.request();
    });
    let result = policy.publish(WeightUpdate::InPlace, PolicyVersion(1));
    assert!(matches!(result, Err(TrainError::Interrupted)), "{result:?}");
    stopping.join().unwrap();
}
