//! What the engine answers.

use crate::episode::{Played, Script, answer};
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Ended, EngineError, EngineOptions, Request};
use arpo_model::model::Model;
use arpo_tokenizer::TokenizerError;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tch::no_grad;

fn assert_same(one: &[Played], other: &[Played]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert_eq!(one.tokens, other.tokens);
        for (a, b) in one.logp.iter().zip(&other.logp) {
            assert!((a - b).abs() < 1e-4, "{a} and {b}");
        }
    }
}

/// Transformers' own greedy continuation, now with a cache.
#[test]
fn golden_greedy_continuation() {
    for script in Script::all() {
        let folder = &script.golden().folder;
        let generate: Value =
            serde_json::from_slice(&std::fs::read(folder.join("generate.json")).unwrap()).unwrap();
        let ids = |name: &str| -> Vec<u32> { serde_json::from_value(generate[name].clone()).unwrap() };
        let expected = ids("greedy_ids");
        let mut engine = script.engine(EngineOptions { forbidden: vec![], ..script.options() });
        let mut request = script.request(&ids("prompt_ids"), 0, 0);
        request.sampling.temperature = 0.0;
        request.sampling.max_tokens = expected.len();
        let completion = answer(&mut engine, vec![request]).remove(0);
        assert_eq!(completion.tokens, expected);
        assert_eq!((completion.ended, completion.version), (Ended::Length, PolicyVersion(0)));
    }
}

/// Whole episodes over a cache kept from turn to turn have the log-probabilities that the learner finds without one.
#[test]
fn the_learner_agrees() {
    for script in Script::all() {
        let (mut engine, learner) = (script.engine(script.options()), script.learner());
        let played = script.play(&mut engine, &[1, 2, 3]);
        let differences: Vec<f32> = played
            .iter()
            .flat_map(|episode| {
                let scored = script.scored(&learner, episode);
                assert_eq!(scored.len(), episode.logp.len());
                scored.into_iter().zip(&episode.logp).map(|(a, b)| (a - b).abs()).collect::<Vec<f32>>()
            })
            .collect();
        let mean = differences.iter().sum::<f32>() / differences.len() as f32;
        assert!(mean < 1e-4, "the mismatch is {mean}");
        assert!(differences.iter().all(|difference| *difference < 1e-3), "{differences:?}");
    }
}

#[test]
fn only_what_is_new_is_computed() {
    for script in Script::all() {
        let mut engine = script.engine(script.options());
        let played = script.play(&mut engine, &[1]).remove(0);
        // every token once, but the last, behind which nothing was asked
        assert_eq!(engine.counts().computed, played.tokens.len() as u64 - 1);

        // a group of rollouts computes its common beginning once, up to the last page begun
        let requests: Vec<Request> =
            (0..4).map(|seed| script.request(&played.tokens[..40], seed, 0)).collect();
        let mut engine = script.engine(script.options());
        let drawn: u64 = answer(&mut engine, requests).iter().map(|one| one.tokens.len() as u64).sum();
        assert_eq!(engine.counts().computed, 40 + 3 * 8 + drawn - 4);
    }
}

#[test]
fn company_changes_nothing() {
    for script in Script::all() {
        let seeds = [1, 2, 3, 4, 5];
        let together = script.play(&mut script.engine(script.options()), &seeds);
        let alone: Vec<Played> = seeds
            .iter()
            .map(|&seed| script.play(&mut script.engine(script.options()), &[seed]).remove(0))
            .collect();
        assert_same(&together, &alone);
        assert_ne!(alone[0].tokens, alone[1].tokens, "seeds differ");
    }
}

#[test]
fn want_of_memory_changes_nothing() {
    for script in Script::all() {
        let seeds = [1, 2, 3, 4];
        let mut engine = script.engine(script.options());
        let plenty = script.play(&mut engine, &seeds);
        let enough = engine.counts().computed;
        // room for one whole episode and a little more
        let text = script.golden().checkpoint().config.text;
        let token_bytes = 2 * text.layers as i64 * text.key_value_heads * text.head_width() * 4;
        let longest = plenty.iter().map(|played| played.tokens.len()).max().unwrap() + 40;
        let options = EngineOptions {
            cache_bytes: longest as u64 * token_bytes as u64,
            feature_bytes: 0,
            ..script.options()
        };
        let mut engine = script.engine(options);
        assert_same(&script.play(&mut engine, &seeds), &plenty);
        assert!(engine.counts().computed > enough, "something was forgotten and computed again");
        assert!(engine.counts().lost > 0, "and that was counted");
    }
}

/// The cache is given back and taken again: nothing is found any more, and nothing else is different.
#[test]
fn an_engine_that_has_rested_answers_as_before() {
    for script in Script::all() {
        let mut engine = script.engine(script.options());
        let before = script.play(&mut engine, &[1, 2]);
        let counts = engine.counts();
        let (computed, found, lost) = (counts.computed, counts.found, counts.lost);
        engine.rest().unwrap();
        assert_same(&script.play(&mut engine, &[1, 2]), &before);
        let after = engine.counts();
        assert_eq!((after.computed - computed, after.found - found), (computed, found));
        assert_eq!((lost, after.lost), (0, 0), "what was given back is not lost");
        engine.submit(script.request(&script.golden().tokens()[..40], 1, 0)).unwrap();
        assert!(matches!(engine.rest(), Err(EngineError::Busy(1))));
    }
}

#[test]
fn a_stop_token_ends_a_response_and_belongs_to_it() {
    let script = Script::all().remove(0);
    let prompt = script.golden().tokens()[..30].to_vec();
    let free = answer(&mut script.engine(script.options()), vec![script.request(&prompt, 3, 0)]).remove(0);
    let mut request = script.request(&prompt, 3, 0);
    request.sampling.stop = vec![free.tokens[2]];
    let stopped = answer(&mut script.engine(script.options()), vec![request]).remove(0);
    let first = free.tokens.iter().position(|token| *token == free.tokens[2]).unwrap();
    assert_eq!((stopped.tokens.as_slice(), stopped.ended), (&free.tokens[..=first], Ended::Stop));
}

/// What is dictated is said and scored as if it had been drawn.
#[test]
fn dictation_takes_the_place_of_drawing() {
    let script = Script::all().remove(0);
    let prompt = script.golden().tokens()[..30].to_vec();
    let drawn = answer(&mut script.engine(script.options()), vec![script.request(&prompt, 3, 0)]).remove(0);
    let mut request = script.request(&prompt, 4, 0);
    let other = answer(&mut script.engine(script.options()), vec![script.request(&prompt, 4, 0)]).remove(0);
    assert_ne!(other.tokens, drawn.tokens, "another seed says something else");
    request.dictated.clone_from(&drawn.tokens);
    request.sampling.max_tokens = drawn.tokens.len();
    let dictated = answer(&mut script.engine(script.options()), vec![request]).remove(0);
    assert_eq!(dictated.tokens, drawn.tokens);
    for (one, two) in dictated.logp.iter().zip(&drawn.logp) {
        assert!((one - two).abs() < 1e-5, "{one} {two}");
    }
}

/// Hot enough that every token is about as likely, thousands of draws.
#[test]
fn forbidden_tokens_are_never_sampled() {
    for script in Script::all() {
        let mut engine = script.engine(script.options());
        let forbidden = script.forbidden();
        let requests = (0..40).map(|seed| {
            let mut request = script.request(&script.golden().tokens()[..20], seed, 0);
            request.sampling.temperature = 50.0;
            request.sampling.max_tokens = 100;
            request
        });
        let mut distinct = std::collections::BTreeSet::new();
        for completion in answer(&mut engine, requests.collect()) {
            assert!(completion.tokens.iter().all(|token| !forbidden.contains(token)));
            distinct.extend(completion.tokens);
        }
        let vocabulary = engine.model().config().text.vocabulary as usize;
        assert!(distinct.len() > vocabulary / 2, "{} of {vocabulary}", distinct.len());
    }
}

#[test]
fn new_weights_come_between_requests() {
    for script in Script::all() {
        let prompt = script.golden().tokens()[..40].to_vec();
        let changed = || {
            let model = Model::from_checkpoint(script.golden().checkpoint());
            for (_, tensor) in model.weights().iter() {
                let _ = no_grad(|| tensor.shallow_clone().g_mul_scalar_(0.9));
            }
            model
        };
        let mut engine = script.engine(script.options());
        let old = answer(&mut engine, vec![script.request(&prompt, 1, 0)]).remove(0);
        engine.submit(script.request(&prompt, 1, 0)).unwrap();
        let busy = engine.update(changed().weights(), PolicyVersion(1));
        assert!(matches!(busy, Err(EngineError::Busy(1))));
        while engine.unanswered() > 0 {
            engine.pass().unwrap();
        }
        engine.update(changed().weights(), PolicyVersion(1)).unwrap();
        let new = answer(&mut engine, vec![script.request(&prompt, 1, 0)]).remove(0);
        assert_eq!((old.version, new.version, new.found), (PolicyVersion(0), PolicyVersion(1), 0));

        // as an engine that never knew the old ones
        let mut fresh = script.engine(script.options());
        fresh.update(changed().weights(), PolicyVersion(1)).unwrap();
        let expected = answer(&mut fresh, vec![script.request(&prompt, 1, 0)]).remove(0);
        assert_eq!(new.tokens, expected.tokens);
        assert_ne!(new.logp, old.logp);
    }
}

#[test]
fn weights_that_are_no_numbers_end_a_pass_with_an_error() {
    let script = Script::all().remove(0);
    let broken = Model::from_checkpoint(script.golden().checkpoint());
    for (_, tensor) in broken.weights().iter() {
        let _ = no_grad(|| tensor.shallow_clone().fill_(f64::NAN));
    }
    for temperature in [0.0, 1.0] {
        let mut engine = script.engine(script.options());
        engine.update(broken.weights(), PolicyVersion(1)).unwrap();
        let mut request = script.request(&script.golden().tokens()[..20], 0, 0);
        request.sampling.temperature = temperature;
        engine.submit(request).unwrap();
        assert!(matches!(engine.pass(), Err(EngineError::NoNumbers)));
        engine.abandon();
        assert_eq!(engine.unanswered(), 0);
    }
}

/// What fails while responses are completed costs no pages: others go on, and after all of it the cache is as large as
/// before.
#[test]
fn a_response_that_cannot_be_completed_gives_its_pages_back() {
    const FAILURES: u32 = 12;
    for script in Script::all() {
        let prompt = script.golden().tokens();
        let requests = || (0..3).map(|seed| script.request(&prompt, seed, 0)).collect::<Vec<_>>();
        // room for the three and a little more: what leaked would soon be missed
        let text = script.golden().checkpoint().config.text;
        let token_bytes = 2 * text.layers as u64 * (text.key_value_heads * text.head_width()) as u64 * 4;
        let tokens = prompt.len() as u64 + 6 * requests()[0].sampling.max_tokens as u64 + 64;
        let options = || EngineOptions { cache_bytes: tokens * token_bytes, ..script.options() };
        let expected = answer(&mut script.engine(options()), requests());
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let fails = move |_: &[u32]| match counted.fetch_add(1, Ordering::Relaxed) {
            0..FAILURES => Err(TokenizerError::Input("no text".into())),
            _ => Ok("text".into()),
        };
        let mut engine = script.engine(options()).with_text(fails);
        while asked.load(Ordering::Relaxed) < FAILURES {
            if engine.unanswered() == 0 {
                for request in requests() {
                    engine.submit(request).unwrap();
                }
            }
            let failed = engine.pass().is_err();
            // now and then the others go on
            if failed && asked.load(Ordering::Relaxed).is_multiple_of(2) {
                engine.abandon();
            }
        }
        engine.abandon();
        let put_back = engine.counts().put_back;
        let answered = answer(&mut engine, requests());
        for (one, other) in answered.iter().zip(&expected) {
            assert_eq!((one.tokens.clone(), one.text.as_str()), (other.tokens.clone(), "text"));
        }
        assert_eq!(engine.counts().put_back, put_back);
    }
}

#[test]
fn requests_that_cannot_be_answered_say_why() {
    let script = Script::all().remove(0);
    let mut engine = script.engine(EngineOptions { cache_bytes: 1 << 20, ..script.options() });
    let prompt = script.golden().tokens();
    let whole = || script.request(&prompt, 0, 0);
    let mut wrong = |change: fn(&mut Request)| {
        let mut request = whole();
        change(&mut request);
        engine.submit(request).unwrap_err().to_string()
    };
    for (change, says) in [
        ((|request| drop(request.screenshots.pop())) as fn(&mut Request), "features"),
        (|request| request.tokens.clear(), "features"),
        (
            |request| {
                request.tokens.clear();
                request.screenshots.clear();
            },
            "empty prompt",
        ),
        (|request| request.tokens[0] = 4_000_000, "token 4000000"),
        (|request| request.dictated = vec![1, 4_000_001], "token 4000001"),
        (|request| request.sampling.temperature = f64::NAN, "temperature is NaN"),
        (|request| request.sampling.top_p = Some(0.0), "top_p"),
        (|request| request.sampling.top_k = Some(0), "top_k"),
        (|request| request.sampling.max_tokens = 0, "max_tokens"),
        (|request| request.sampling.max_tokens = 1_000_000, "pages of the cache"),
    ] {
        let message = wrong(change);
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(engine.unanswered(), 0);
}
