//! Every intermediate result from a conversation to a loss and its gradients, compared with transformers.

use crate::golden::{Golden, assert_close, folder, gradients, tensor};
use crate::trainable_model::trainable_model;
use arpo_model::checkpoint::layout::Piece;
use arpo_model::checkpoint::piece_of;
use arpo_model::config;
use arpo_model::model::{Model, ModelInput};
use arpo_model::training::{MicroBatch, SequenceInput};
use arpo_model::vision::pixels;
use serde_json::Value;
use std::fs;
use tch::{Device, Kind, Tensor, no_grad};

#[test]
fn golden_text_and_tokens() {
    for golden in Golden::all() {
        let tokenizer = golden.tokenizer();
        let rendered = fs::read_to_string(golden.folder.join("rendered.txt")).unwrap();
        assert_eq!(tokenizer.render(&golden.messages(), false).unwrap(), rendered);

        // every image's placeholder is repeated for each of its features
        let image = golden.checkpoint().config.image_token;
        let mut grids = golden.grids().into_iter();
        let expand = |token: u32| {
            let times = if token == image { grids.next().unwrap().features(2) } else { 1 };
            std::iter::repeat_n(token, times)
        };
        let tokens: Vec<u32> = tokenizer.encode(&rendered).unwrap().into_iter().flat_map(expand).collect();
        assert_eq!(tokens, golden.tokens());
    }
}

#[test]
fn golden_pixels() {
    for golden in Golden::all() {
        let processed = golden.processed();
        assert_eq!(processed.iter().map(|patches| patches.grid).collect::<Vec<_>>(), golden.grids());
        let expected = golden.pixels();
        let difference = (Tensor::cat(&pixels(&processed, Device::Cpu), 0) - &expected).abs();
        // one step of a pixel byte, in the channel where it is largest
        let table = &processed[0].normalisation;
        let byte_step = (0..3).map(|channel| table.of(channel, 1) - table.of(channel, 0)).fold(0.0, f32::max);
        let worst = difference.max().double_value(&[]);
        assert!(worst <= f64::from(byte_step) + 1e-4, "{worst} is more than one step of a pixel byte");
        let equal = difference.le(1e-3).to_kind(Kind::Float).mean(Kind::Float).double_value(&[]);
        assert!(equal >= 0.99, "only {equal} of the pixels are equal");
    }
}

#[test]
fn golden_positions() {
    for golden in Golden::all() {
        let model = Model::from_checkpoint(golden.checkpoint());
        let (tokens, grids) = (golden.tokens(), golden.grids());
        let positions = model.positions(&ModelInput { tokens: &tokens, grids: &grids }).unwrap();
        let expected = golden.expected("position_ids");
        for (axis, rows) in positions.axes.iter().enumerate() {
            assert_eq!(rows, &Vec::<i64>::try_from(expected.select(0, axis as i64)).unwrap());
        }
    }
}

#[test]
fn golden_vision_features() {
    for golden in Golden::all() {
        let model = Model::from_checkpoint(golden.checkpoint());
        let features = no_grad(|| model.vision().forward(&golden.pixels(), &golden.grids()));
        let levels = features.chunk(model.config().vision.levels() as i64, 1);
        assert_close(&levels[0], &golden.expected("vision_features"), 1e-4, "vision features");
        for (number, level) in levels[1..].iter().enumerate() {
            let expected = golden.expected(&format!("deepstack_{number}"));
            assert_close(level, &expected, 1e-4, &format!("DeepStack feature {number}"));
        }
    }
}

#[test]
fn golden_hidden_states_and_logits() {
    for golden in Golden::all() {
        let model = Model::from_checkpoint(golden.checkpoint());
        let (tokens, grids) = (golden.tokens(), golden.grids());
        let input = ModelInput { tokens: &tokens, grids: &grids };
        let states = no_grad(|| model.hidden_states(&input, Some(&golden.pixels()))).unwrap();
        for (number, state) in states.iter().enumerate() {
            assert_close(
                state,
                &golden.expected(&format!("hidden_{number}")),
                1e-4,
                &format!("hidden state {number}"),
            );
        }
        let logits = no_grad(|| model.text().logits(&states[states.len() - 1]));
        assert_close(&logits, &golden.expected("logits"), 1e-4, "logits");
        assert_close(
            &log_probabilities(&logits, &tokens),
            &golden.expected("token_logp"),
            1e-4,
            "log-probabilities",
        );
    }
}

#[test]
fn golden_loss_and_every_gradient() {
    for golden in Golden::all() {
        let model = Model::from_checkpoint(golden.checkpoint());
        for (_, parameter) in model.weights().iter() {
            let _ = parameter.set_requires_grad(true);
        }
        let (tokens, grids) = (golden.tokens(), golden.grids());
        let input = ModelInput { tokens: &tokens, grids: &grids };
        let states = model.hidden_states(&input, Some(&golden.pixels())).unwrap();
        let logp = log_probabilities(&model.text().logits(&states[states.len() - 1]), &tokens);
        let mask = golden.expected("action_mask").narrow(0, 1, logp.size()[0]).to_kind(Kind::Float);
        let loss = -(logp * golden.expected("token_weight") * &mask).sum(Kind::Float) / mask.sum(Kind::Float);
        assert_close(&loss.view([1]), &golden.expected("loss"), 1e-4, "loss");
        loss.backward();

        let expected = gradients(&golden.folder);
        for (layout, parameter) in model.weights().iter() {
            check_gradient(&parameter.grad(), &layout.pieces, &expected);
        }
    }
}

/// The same gradients from our own backward pass, whatever it keeps between the passes.
#[test]
fn golden_gradients_of_the_trainable_model() {
    for golden in Golden::all() {
        for activation_bytes in [0, 1 << 20, u64::MAX] {
            let trainable = trainable_model(&golden, activation_bytes, |_| true);
            let (tokens, images) = (golden.tokens(), golden.image_inputs());
            let mask = Vec::<i64>::try_from(golden.expected("action_mask").to_kind(Kind::Int64)).unwrap();
            let trained: Vec<bool> = mask.iter().map(|&flag| flag == 1).collect();
            let shown: Vec<usize> = (0..images.len()).collect();
            let episode = SequenceInput { tokens: &tokens, images: &shown, trained: &trained };
            let batch = MicroBatch { sequences: &[episode], images: &images };
            let pass = trainable.forward(batch).unwrap();

            let count = trained.iter().filter(|&&flag| flag).count();
            let rows = (1..tokens.len()).filter(|&row| trained[row]).map(|row| row - 1);
            let at_trained = |name: &str| -> Vec<f32> {
                let all = Vec::<f32>::try_from(golden.expected(name)).unwrap();
                rows.clone().map(|row| all[row]).collect()
            };
            let expected = Tensor::from_slice(&at_trained("token_logp"));
            assert_close(&Tensor::from_slice(&pass.scores().logp[0]), &expected, 1e-4, "log-probabilities");
            let weights = at_trained("token_weight");
            let coefficients: Vec<f32> = weights.iter().map(|weight| -weight / count as f32).collect();
            pass.backward(&[coefficients]).unwrap();

            let expected = gradients(&golden.folder);
            for (layout, _, gradient) in trainable.model().weights().trained() {
                check_gradient(gradient, &layout.pieces, &expected);
            }
        }
    }
}

fn check_gradient(gradient: &Tensor, pieces: &[Piece], expected: &[u8]) {
    for piece in pieces {
        // by the names of newer versions of transformers, which are the published ones of some families
        let long = piece.name.starts_with("model.visual.") || piece.name.starts_with("model.language_model.");
        let expected = tensor(expected, &if long { piece.name.clone() } else { piece.other_name() });
        let difference = (piece_of(gradient, piece) - &expected).norm().double_value(&[]);
        let size = expected.norm().double_value(&[]);
        assert!(difference <= 1e-3 * size + 1e-7, "{}: {difference} of {size}", piece.name);
    }
}

/// Without any cache: the whole sequence again for every token.
#[test]
fn golden_greedy_continuation() {
    for golden in Golden::all() {
        let model = Model::from_checkpoint(golden.checkpoint());
        let generate: Value =
            serde_json::from_slice(&fs::read(golden.folder.join("generate.json")).unwrap()).unwrap();
        let ids = |name: &str| -> Vec<u32> { serde_json::from_value(generate[name].clone()).unwrap() };
        let mut tokens = ids("prompt_ids");
        let image = model.config().image_token;
        let features = tokens.iter().filter(|&&token| token == image).count();
        // the prompt shows the first images of the conversation
        let mut left = features;
        let grids: Vec<_> = golden
            .grids()
            .into_iter()
            .take_while(|grid| {
                let shown = left > 0;
                left = left.saturating_sub(grid.features(2));
                shown
            })
            .collect();
        let pixels = golden.pixels().narrow(0, 0, 4 * features as i64);
        let expected = ids("greedy_ids");
        let continuation: Vec<u32> = expected
            .iter()
            .map(|_| {
                let input = ModelInput { tokens: &tokens, grids: &grids };
                let states = no_grad(|| model.hidden_states(&input, Some(&pixels))).unwrap();
                let last = states[states.len() - 1].select(0, -1);
                let next = no_grad(|| model.text().logits(&last)).argmax(-1, false).int64_value(&[]) as u32;
                tokens.push(next);
                next
            })
            .collect();
        assert_eq!(continuation, expected);
    }
}

#[test]
fn golden_config_of_the_7b_in_the_older_layout() {
    let text = fs::read_to_string(folder().join("config_7b_v4_layout.json")).unwrap();
    let config = config::parse(serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!((config.text.hidden, config.text.layers, config.text.heads), (3584, 28, 28));
    let axes = [0, 1, 2].map(|axis| config.text.rope_axes.iter().filter(|&&one| one == axis).count());
    assert_eq!((axes, config.text.rope_theta), ([16, 24, 24], 1_000_000.0));
    assert_eq!((config.vision.blocks, config.vision.intermediate, config.vision.output), (32, 3420, 3584));
    assert_eq!(config.vision.windows.as_ref().unwrap().full_attention, [7, 15, 23, 31]);
    let layout = arpo_model::checkpoint::layout::parameters(&config);
    let count: i64 =
        layout.iter().flat_map(|one| &one.pieces).map(|piece| piece.shape.iter().product::<i64>()).sum();
    assert_eq!(count, 8_292_166_656, "parameters of the published 7B");
}

/// Log-probability of each token given the tokens before it: [tokens - 1].
fn log_probabilities(logits: &Tensor, tokens: &[u32]) -> Tensor {
    let next: Vec<i64> = tokens[1..].iter().map(|&token| i64::from(token)).collect();
    let count = next.len() as i64;
    let all = logits.narrow(0, 0, count).log_softmax(-1, Kind::Float);
    all.gather(1, &Tensor::from_slice(&next).view([-1, 1]), false).view([-1])
}
