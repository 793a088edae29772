//! The engine's responses.

use crate::episode::{SampledEpisode, Script, complete};
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{EngineError, EngineOptions, FinishReason, Request};
use arpo_model::model::Model;
use arpo_tokenizer::TokenizerError;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tch::no_grad;

fn assert_same(one: &[SampledEpisode], other: &[SampledEpisode]) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert_eq!(one.tokens, other.tokens);
        for (a, b) in one.logp.iter().zip(&other.logp) {
            assert!((a - b).abs() < 1e-4, "{a} and {b}");
        }
    }
}

/// Transformers' own greedy continuation, with a kv cache.
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
        let completion = complete(&mut engine, vec![request]).remove(0);
        assert_eq!(completion.tokens, expected);
        assert_eq!((completion.finish_reason, completion.version), (FinishReason::Length, PolicyVersion(0)));
    }
}

/// The log-probabilities of whole episodes, sampled with a cache kept across turns, match those of the model
/// that is trained, which has none.
#[test]
fn log_probabilities_match_the_trainable_model() {
    for script in Script::all() {
        let (mut engine, trainable) = (script.engine(script.options()), script.trainable_model());
        let episodes = script.play(&mut engine, &[1, 2, 3]);
        let differences: Vec<f32> = episodes
            .iter()
            .flat_map(|episode| {
                let scored = script.scored(&trainable, episode);
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
fn only_new_tokens_are_computed() {
    for script in Script::all() {
        let mut engine = script.engine(script.options());
        let episode = script.play(&mut engine, &[1]).remove(0);
        // every token once, except the last, after which nothing was requested
        assert_eq!(engine.counts().computed, episode.tokens.len() as u64 - 1);

        // a group of rollouts computes its shared prefix once, up to the last full page
        let requests: Vec<Request> =
            (0..4).map(|seed| script.request(&episode.tokens[..40], seed, 0)).collect();
        let mut engine = script.engine(script.options());
        let sampled: u64 = complete(&mut engine, requests).iter().map(|one| one.tokens.len() as u64).sum();
        assert_eq!(engine.counts().computed, 40 + 3 * 8 + sampled - 4);
    }
}

#[test]
fn batching_changes_nothing() {
    for script in Script::all() {
        let seeds = [1, 2, 3, 4, 5];
        let together = script.play(&mut script.engine(script.options()), &seeds);
        let alone: Vec<SampledEpisode> = seeds
            .iter()
            .map(|&seed| script.play(&mut script.engine(script.options()), &[seed]).remove(0))
            .collect();
        assert_same(&together, &alone);
        assert_ne!(alone[0].tokens, alone[1].tokens, "seeds differ");
    }
}

#[test]
fn eviction_and_preemption_change_nothing() {
    for script in Script::all() {
        let seeds = [1, 2, 3, 4];
        let mut engine = script.engine(script.options());
        let plenty = script.play(&mut engine, &seeds);
        let unlimited = engine.counts().computed;
        // memory for one whole episode and a little more
        let text = script.golden().checkpoint().config.text;
        let token_bytes = 2 * text.layers as i64 * text.kv_heads * text.head_width * 4;
        let longest = plenty.iter().map(|episode| episode.tokens.len()).max().unwrap() + 40;
        let options = EngineOptions {
            cache_bytes: longest as u64 * token_bytes as u64,
            feature_bytes: 0,
            ..script.options()
        };
        let mut engine = script.engine(options);
        assert_same(&script.play(&mut engine, &seeds), &plenty);
        assert!(engine.counts().computed > unlimited, "something was evicted and recomputed");
        assert!(engine.counts().recomputed > 0, "and counted");
    }
}

/// The cache is freed and allocated again: there are no cache hits, and nothing else changes.
#[test]
fn releasing_the_cache_changes_nothing() {
    for script in Script::all() {
        let mut engine = script.engine(script.options());
        let before = script.play(&mut engine, &[1, 2]);
        let counts = engine.counts();
        let (computed, cache_hits, recomputed) = (counts.computed, counts.cache_hits, counts.recomputed);
        engine.release_cache().unwrap();
        assert_same(&script.play(&mut engine, &[1, 2]), &before);
        let after = engine.counts();
        assert_eq!((after.computed - computed, after.cache_hits - cache_hits), (computed, cache_hits));
        assert_eq!((recomputed, after.recomputed), (0, 0), "released pages do not count as recomputed");
        engine.submit(script.request(&script.golden().tokens()[..40], 1, 0)).unwrap();
        assert!(matches!(engine.release_cache(), Err(EngineError::Busy(1))));
    }
}

#[test]
fn a_stop_token_ends_a_response_and_belongs_to_it() {
    let script = Script::all().remove(0);
    let prompt = script.golden().tokens()[..30].to_vec();
    let free = complete(&mut script.engine(script.options()), vec![script.request(&prompt, 3, 0)]).remove(0);
    let mut request = script.request(&prompt, 3, 0);
    request.sampling.stop = vec![free.tokens[2]];
    let stopped = complete(&mut script.engine(script.options()), vec![request]).remove(0);
    let first = free.tokens.iter().position(|token| *token == free.tokens[2]).unwrap();
    assert_eq!(
        (stopped.tokens.as_slice(), stopped.finish_reason),
        (&free.tokens[..=first], FinishReason::Stop)
    );
}

/// Forced tokens are scored as if they had been sampled.
#[test]
fn forced_tokens_replace_sampling() {
    let script = Script::all().remove(0);
    let prompt = script.golden().tokens()[..30].to_vec();
    let sampled =
        complete(&mut script.engine(script.options()), vec![script.request(&prompt, 3, 0)]).remove(0);
    let mut request = script.request(&prompt, 4, 0);
    let other = complete(&mut script.engine(script.options()), vec![script.request(&prompt, 4, 0)]).remove(0);
    assert_ne!(other.tokens, sampled.tokens, "another seed samples something else");
    request.forced.clone_from(&sampled.tokens);
    request.sampling.max_tokens = sampled.tokens.len();
    let forced = complete(&mut script.engine(script.options()), vec![request]).remove(0);
    assert_eq!(forced.tokens, sampled.tokens);
    for (one, two) in forced.logp.iter().zip(&sampled.logp) {
        assert!((one - two).abs() < 1e-5, "{one} {two}");
    }
}

/// At a temperature that makes every token about equally likely, over thousands of samples.
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
        for completion in complete(&mut engine, requests.collect()) {
            assert!(completion.tokens.iter().all(|token| !forbidden.contains(token)));
            distinct.extend(completion.tokens);
        }
        let vocabulary = engine.model().config().text.vocabulary as usize;
        assert!(distinct.len() > vocabulary / 2, "{} of {vocabulary}", distinct.len());
    }
}

#[test]
fn weights_change_only_between_requests() {
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
        let old = complete(&mut engine, vec![script.request(&prompt, 1, 0)]).remove(0);
        engine.submit(script.request(&prompt, 1, 0)).unwrap();
        let busy = engine.update(changed().weights(), PolicyVersion(1));
        assert!(matches!(busy, Err(EngineError::Busy(1))));
        while engine.pending() > 0 {
            engine.pass().unwrap();
        }
        engine.update(changed().weights(), PolicyVersion(1)).unwrap();
        let new = complete(&mut engine, vec![script.request(&prompt, 1, 0)]).remove(0);
        assert_eq!((old.version, new.version, new.cache_hits), (PolicyVersion(0), PolicyVersion(1), 0));

        // the same as an engine that never had the old weights
        let mut fresh = script.engine(script.options());
        fresh.update(changed().weights(), PolicyVersion(1)).unwrap();
        let expected = complete(&mut fresh, vec![script.request(&prompt, 1, 0)]).remove(0);
        assert_eq!(new.tokens, expected.tokens);
        assert_ne!(new.logp, old.logp);
    }
}

#[test]
fn nan_weights_are_an_error() {
    let script = Script::all().remove(0);
    let nan_model = Model::from_checkpoint(script.golden().checkpoint());
    for (_, tensor) in nan_model.weights().iter() {
        let _ = no_grad(|| tensor.shallow_clone().fill_(f64::NAN));
    }
    for temperature in [0.0, 1.0] {
        let mut engine = script.engine(script.options());
        engine.update(nan_model.weights(), PolicyVersion(1)).unwrap();
        let mut request = script.request(&script.golden().tokens()[..20], 0, 0);
        request.sampling.temperature = temperature;
        engine.submit(request).unwrap();
        assert!(matches!(engine.pass(), Err(EngineError::NonFinite)));
        engine.cancel_all();
        assert_eq!(engine.pending(), 0);
    }
}

/// A failure while a response is completed leaks no pages: other requests continue, and afterwards the whole cache is
/// usable.
#[test]
fn a_failed_response_releases_its_pages() {
    const FAILURES: u32 = 12;
    for script in Script::all() {
        let prompt = script.golden().tokens();
        let requests = || (0..3).map(|seed| script.request(&prompt, seed, 0)).collect::<Vec<_>>();
        // memory for the three requests and a little more: leaked pages would soon be missed
        let text = script.golden().checkpoint().config.text;
        let token_bytes = 2 * text.layers as u64 * (text.kv_heads * text.head_width) as u64 * 4;
        let tokens = prompt.len() as u64 + 6 * requests()[0].sampling.max_tokens as u64 + 64;
        let options = || EngineOptions { cache_bytes: tokens * token_bytes, ..script.options() };
        let expected = complete(&mut script.engine(options()), requests());
        let attempts = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&attempts);
        let fails = move |_: &[u32]| match counter.fetch_add(1, Ordering::Relaxed) {
            0..FAILURES => Err(TokenizerError::Input("no text".into())),
            _ => Ok("text".into()),
        };
        let mut engine = script.engine(options()).with_detokenizer(fails);
        while attempts.load(Ordering::Relaxed) < FAILURES {
            if engine.pending() == 0 {
                for request in requests() {
                    engine.submit(request).unwrap();
                }
            }
            let failed = engine.pass().is_err();
            // in every other case the remaining requests continue
            if failed && attempts.load(Ordering::Relaxed).is_multiple_of(2) {
                engine.cancel_all();
            }
        }
        engine.cancel_all();
        let preempted = engine.counts().preempted;
        let completed = complete(&mut engine, requests());
        for (one, other) in completed.iter().zip(&expected) {
            assert_eq!((one.tokens.clone(), one.text.as_str()), (other.tokens.clone(), "text"));
        }
        assert_eq!(engine.counts().preempted, preempted);
    }
}

#[test]
fn invalid_requests_are_rejected_with_a_reason() {
    let script = Script::all().remove(0);
    let mut engine = script.engine(EngineOptions { cache_bytes: 1 << 20, ..script.options() });
    let prompt = script.golden().tokens();
    let whole = || script.request(&prompt, 0, 0);
    let mut wrong = |change: fn(&mut Request)| {
        let mut request = whole();
        change(&mut request);
        engine.submit(request).unwrap_err().to_string()
    };
    for (change, expected) in [
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
        (|request| request.forced = vec![1, 4_000_001], "token 4000001"),
        (|request| request.sampling.temperature = f64::NAN, "temperature is NaN"),
        (|request| request.sampling.top_p = Some(0.0), "top_p"),
        (|request| request.sampling.top_k = Some(0), "top_k"),
        (|request| request.sampling.max_tokens = 0, "max_tokens"),
        (|request| request.sampling.max_tokens = 1_000_000, "pages of the cache"),
    ] {
        let message = wrong(change);
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(engine.pending(), 0);
}

/// A cancelled request gives its place and its pages back, and the others go on as if it had not been there.
#[test]
fn cancelled_requests_free_their_pages() {
    for script in Script::all() {
        let prompt = script.play(&mut script.engine(script.options()), &[1]).remove(0).tokens[..40].to_vec();
        let expected =
            complete(&mut script.engine(script.options()), vec![script.request(&prompt, 2, 0)]).remove(0);
        let mut engine = script.engine(EngineOptions { max_running: 2, ..script.options() });
        let ids: Vec<_> =
            (1..5).map(|seed| engine.submit(script.request(&prompt, seed, 0)).unwrap()).collect();
        assert_eq!(engine.pass().unwrap(), vec![]);
        let load = engine.load();
        assert_eq!((load.running, load.waiting), (2, 2));
        // one that runs, one that waits, one twice
        for id in [ids[0], ids[3], ids[3]] {
            engine.cancel(id);
        }
        assert!(engine.load().leased_pages < load.leased_pages);
        let mut completed = Vec::new();
        while engine.pending() > 0 {
            completed.extend(engine.pass().unwrap());
        }
        assert_eq!(completed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ids[1], ids[2]]);
        assert_eq!(completed[0].1.tokens, expected.tokens);
        assert_eq!(engine.load().leased_pages, 0);
    }
}

/// Tokens are seen as they are sampled, with the most likely ones beside them.
#[test]
fn sampled_tokens_are_observed() {
    let script = Script::all().remove(0);
    let prompt = script.play(&mut script.engine(script.options()), &[1]).remove(0).tokens[..40].to_vec();
    let mut engine = script.engine(script.options());
    let mut plain = script.request(&prompt, 1, 0);
    plain.sampling.temperature = 0.0;
    let mut with_alternatives = plain.clone();
    with_alternatives.sampling.alternatives = 3;
    let ids = [plain, with_alternatives].map(|request| engine.submit(request).unwrap());
    let (mut seen, mut completed) = (Vec::new(), Vec::new());
    while engine.pending() > 0 {
        completed.extend(engine.pass_observed(|id, sampled, _| seen.push((id, sampled))).unwrap());
    }
    for (id, completion) in completed {
        let own: Vec<_> = seen.iter().filter(|(other, _)| *other == id).map(|(_, sampled)| sampled).collect();
        assert_eq!(own.iter().map(|sampled| sampled.token).collect::<Vec<_>>(), completion.tokens);
        assert_eq!(own.iter().map(|sampled| sampled.logp).collect::<Vec<_>>(), completion.logp);
        for sampled in own {
            let expected = if id == ids[0] { 0 } else { 3 };
            assert_eq!(sampled.alternatives.len(), expected);
            // greedy: the first is the sampled one
            assert!(expected == 0 || sampled.alternatives[0] == (sampled.token, sampled.logp));
            assert!(sampled.alternatives.is_sorted_by(|(_, one), (_, other)| one >= other));
        }
    }
}
