//! A token in a single kernel beside the same in several, and beside itself, for `arpo bench kernels`.

use crate::Failure;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::{Engine, EngineOptions, Request, Sampling};
use arpo_image::ImageProcessor;
use arpo_model::checkpoint::Weights;
use arpo_model::config::ModelConfig;
use arpo_model::model::Model;
use arpo_torch::kernels;
use std::io::Write;
use tch::{Device, Kind, Tensor};

/// Two ways of rounding inside a short model may change a log-probability by this much in the mean; what is not the same
/// model changes it by about 1.
const TOLERANCE: f64 = 0.03;

/// Tokens that a model is made to say.
const SAID: usize = 100;

/// Makes a model say something behind a prompt. An error, if a single kernel gives other log-probabilities than several, or
/// others when it says it again: all that computes is repeatable, so something was read too early or too late.
pub(super) fn compare(
    config: &ModelConfig,
    page_tokens: usize,
    prompt: usize,
    device: Device,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let weights = Weights::random(config, Kind::BFloat16, device);
    let text = &config.text;
    let page = [1, text.key_value_heads, page_tokens as i64, text.head_width()];
    let [keys, values] = [(); 2].map(|()| Tensor::zeros(page, (Kind::BFloat16, device)));
    let model = Model::new(config.clone(), weights.share());
    if let Err(why) = model.text().whole_token(|_| [&keys, &values]) {
        writeln!(out, "  no single kernel for a token here: {why}")?;
        return Ok(());
    }
    let plain = said_by(config, &weights, page_tokens, prompt, true)?;
    let single = said_by(config, &weights, page_tokens, prompt, false)?;
    let again = said_by(config, &weights, page_tokens, prompt, false)?;
    let differences = plain.iter().zip(&single).map(|(a, b)| f64::from((a - b).abs()));
    let difference = differences.sum::<f64>() / plain.len() as f64;
    let others_again = single.iter().zip(&again).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    writeln!(
        out,
        "  a token in a single kernel, {prompt} behind: {difference:.5} mean difference of log-probabilities; \
         again: {others_again} of {SAID} others"
    )?;
    if difference.is_nan() || difference > TOLERANCE {
        return Err(Failure::failed("a token in a single kernel is not what several make of it"));
    }
    if others_again > 0 {
        return Err(Failure::failed("a token in a single kernel is not the same twice"));
    }
    Ok(())
}

/// Log-probabilities of what a model is made to say, by plain versions or by a single kernel for each token.
fn said_by(
    config: &ModelConfig,
    weights: &Weights,
    page_tokens: usize,
    prompt: usize,
    plain: bool,
) -> Result<Vec<f32>, Failure> {
    kernels::use_plain_versions(plain);
    let words =
        |count: usize, step: u32| (0..count as u32).map(|at| 100 + at * step % 5000).collect::<Vec<_>>();
    let options = EngineOptions {
        cache_bytes: 1 << 30,
        feature_bytes: 0,
        fixed_vision: false,
        page_tokens,
        most_running: 1,
        prompt_tokens: prompt,
        forbidden: vec![],
    };
    let model = Model::new(config.clone(), weights.share());
    let mut engine = Engine::new(model, ImageProcessor::published(), options, PolicyVersion(0));
    let sampling = Sampling {
        temperature: 1.0,
        top_k: None,
        top_p: None,
        max_tokens: SAID,
        stop: vec![],
        seed: 0,
        turn: 0,
    };
    let request =
        Request { tokens: words(prompt, 7), screenshots: vec![], sampling, dictated: words(SAID, 11) };
    engine.submit(request).map_err(Failure::failed)?;
    let mut answers = vec![];
    while engine.unanswered() > 0 {
        answers.extend(engine.pass().map_err(Failure::failed)?);
    }
    let single = engine.counts().single;
    if single != if plain { 0 } else { SAID as u64 - 1 } {
        return Err(Failure::failed(format!("{single} of {SAID} tokens were computed by a single kernel")));
    }
    Ok(answers.remove(0).1.logp)
}
