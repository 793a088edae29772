//! The engine behind its thread.

use crate::episode::{Script, answer};
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::service;
use arpo_model::model::Model;
use std::sync::mpsc::channel;
use std::time::Duration;

const LONG: Duration = Duration::from_mins(1);

#[test]
fn many_ask_at_once_and_new_weights_wait_their_turn() {
    let script = Script::all().remove(0);
    let prompt = script.golden().tokens()[..40].to_vec();
    let (handle, thread) = service::start(script.engine(script.options()));
    let (answers, inbox) = channel();
    let ask = |seed: u64| {
        let answers = answers.clone();
        handle.ask(script.request(&prompt, seed, 0), move |answer| {
            answers.send((seed, answer.unwrap())).unwrap();
        });
    };
    (0..6).for_each(ask);
    let weights = Model::from_checkpoint(script.golden().checkpoint()).weights().share();
    let (updated, update) = channel();
    handle.update(weights, PolicyVersion(7), move |result| updated.send(result.is_ok()).unwrap());
    (6..12).for_each(ask);

    let mut engine = script.engine(script.options());
    for _ in 0..12 {
        let (seed, completion) = inbox.recv_timeout(LONG).unwrap();
        assert_eq!(completion.version, PolicyVersion(if seed < 6 { 0 } else { 7 }));
        let alone = answer(&mut engine, vec![script.request(&prompt, seed, 0)]).remove(0);
        assert_eq!(completion.tokens, alone.tokens, "seed {seed}");
    }
    assert!(update.recv_timeout(LONG).unwrap());

    // what cannot be answered is told, and the others go on
    let mut bad = script.request(&prompt, 0, 0);
    bad.sampling.max_tokens = 0;
    let (told, reason) = channel();
    handle.ask(bad, move |answer| told.send(answer.unwrap_err().to_string()).unwrap());
    assert!(reason.recv_timeout(LONG).unwrap().contains("max_tokens"));
    drop(handle);
    assert_eq!(thread.join().unwrap().unanswered(), 0);
}
