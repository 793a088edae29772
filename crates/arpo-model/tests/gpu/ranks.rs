//! A learner of several ranks on a GPU: NCCL with one rank, and ranks that share the GPU through the host's memory.

use crate::gpu;
use arpo_core::config::OptimiserConfig;
use arpo_model::ModelError;
use arpo_model::checkpoint::{GradientBuffer, Weights};
use arpo_model::config::pocket;
use arpo_model::model::Model;
use arpo_model::training::adamw::AdamW;
use arpo_model::training::nccl::{Connected, NcclTensors};
use arpo_model::training::ranks::HostTensors;
use arpo_model::training::shard::{Shard, broadcast};
use arpo_model::training::step::{LossGradient, Updater};
use arpo_model::training::{MicroBatch, PassOptions, SequenceInput, TrainableModel};
use arpo_ranks::rendezvous::{Rendezvous, join};
use arpo_ranks::{Collectives, Group, GroupOptions, Parts};
use arpo_torch::runtime;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tch::{Device, Kind, Tensor};

/// Drawn once in a test and copied: tests run beside each other and share libtorch's generator, so that a seed promises nothing.
fn initial(device: Device) -> Weights {
    Weights::random(&pocket(), Kind::BFloat16, device)
}

fn updater(initial: &Weights, buffer: GradientBuffer, shard: impl FnOnce(&Weights) -> AdamW) -> Updater {
    let config = pocket();
    let weights = initial.to_kind(Kind::BFloat16).with_gradients(|_| buffer);
    let optimiser = shard(&weights);
    let options = PassOptions {
        temperature: 1.0,
        forbidden: vec![],
        activation_bytes: 1 << 30,
        logit_rows: 512,
        pad_to_multiple: 16,
        share_prefixes: false,
    };
    Updater::new(TrainableModel::new(Model::new(config, weights), options), optimiser, None)
}

fn tokens(episode: usize) -> (Vec<u32>, Vec<bool>) {
    let length = 40 + 24 * episode;
    // the first ones have meanings of their own
    let tokens = (0..length).map(|at| 20 + (at * 31 + episode * 7) as u32 % 200).collect();
    (tokens, (0..length).map(|at| at > 8).collect())
}

/// The weights after some updates, of which this rank computes every `ranks`-th of four episodes.
fn trained<R: Collectives<Tensor>>(updater: &mut Updater, ranks: &mut R) -> (Vec<Tensor>, Vec<f64>) {
    let mut norms = vec![];
    for _ in 0..3 {
        let mut update = updater.begin();
        let (rank, size) = (ranks.rank(), ranks.size());
        for episode in (0..4).filter(|episode| episode % size == rank) {
            if episode + size >= 4 {
                update.begin_last_round();
            }
            let (tokens, trained) = tokens(episode);
            let sequence = [SequenceInput { tokens: &tokens, images: &[], trained: &trained }];
            let batch = MicroBatch { sequences: &sequence, images: &[] };
            let added = update.try_add_with(ranks, batch, |_, scores| {
                let coefficients = scores.logp.iter().map(|logp| vec![-0.01; logp.len()]).collect();
                Ok::<_, ModelError>(LossGradient { value: 1.0, coefficients })
            });
            assert!(added.unwrap());
        }
        norms.push(update.finish_with(1e-3, ranks).unwrap().gradient_norm.unwrap());
    }
    let weights = updater.trainable().model().weights().iter().map(|(_, tensor)| tensor.copy()).collect();
    (weights, norms)
}

fn one_rank(device: Device) -> NcclTensors {
    match NcclTensors::connect(Group::alone(), device).unwrap() {
        Connected::With(tensors) => tensors,
        Connected::Without(_, reason) => panic!("NCCL cannot be used: {reason}"),
    }
}

/// On the first GPU, and on another one where there is one: its context is not the one that is current.
#[test]
fn nccl_with_one_rank_changes_nothing() {
    let Some((first, _)) = gpu() else { return };
    nccl_changes_nothing(first);
    let last = Device::Cuda(runtime::usable_cuda_devices() - 1);
    if last != first {
        nccl_changes_nothing(last);
    }
}

fn nccl_changes_nothing(device: Device) {
    let mut nccl = one_rank(device);
    for kind in [Kind::Float, Kind::BFloat16] {
        let before = Tensor::randn([1000], (Kind::Float, device)).to_kind(kind);
        let mut values = before.copy();
        nccl.broadcast(0, &mut values).unwrap();
        nccl.all_reduce(&mut values).unwrap();
        nccl.reduce_scatter(&mut values, &Parts::even(1000, 1, 16)).unwrap();
        nccl.all_gather(&mut values, &Parts::even(1000, 1, 16)).unwrap();
        nccl.barrier().unwrap();
        assert!(values.equal(&before), "{kind:?}");
        // on the stream beside the computation, which goes on
        let parts = Parts::even(1000, 1, 16);
        for _ in 0..2 {
            values = &values * 2.0;
            nccl.reduce_scatter_async(vec![(values, parts.clone())]).unwrap();
            let meanwhile = &before * 2.0;
            let mut summed = nccl.wait_reduce_scatter(0).unwrap();
            values = summed.pop().unwrap() * 0.5;
            assert!(summed.is_empty() && meanwhile.equal(&(&values * 2.0)), "{kind:?}");
        }
        assert!(values.equal(&before), "{kind:?}");
    }
    let whole = |weights: &Weights| AdamW::new(weights, OptimiserConfig::default());
    let initial = initial(device);
    for buffer in [GradientBuffer::Own, GradientBuffer::Shared] {
        let mut host = HostTensors::new(Group::alone());
        let (expected, norms) = trained(&mut updater(&initial, buffer, whole), &mut host);
        let (found, by_nccl) = trained(&mut updater(&initial, buffer, whole), &mut nccl);
        assert_eq!(norms, by_nccl);
        assert!(found.iter().zip(&expected).all(|(found, expected)| found.equal(expected)));
    }
}

/// The rounding of a value depends on its place in the parameter, not on the rank that rounds it.
#[test]
fn two_ranks_on_one_gpu_train_what_one_trains() {
    let Some((device, _)) = gpu() else { return };
    for buffer in [GradientBuffer::Own, GradientBuffer::Shared] {
        two_ranks_train_what_one_trains(device, buffer);
    }
}

fn two_ranks_train_what_one_trains(device: Device, buffer: GradientBuffer) {
    let whole = |weights: &Weights| AdamW::new(weights, OptimiserConfig::default());
    let initial = initial(device);
    let mut alone = HostTensors::new(Group::alone());
    let (expected, norms) = trained(&mut updater(&initial, GradientBuffer::Own, whole), &mut alone);
    let limit = Duration::from_mins(1);
    let rendezvous = Rendezvous::listen("test", SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), "").unwrap();
    let address = rendezvous.address().to_string();
    let rank = |group: Group, initial: &Weights| {
        let mut ranks = HostTensors::new(group);
        let shard = Shard::of_rank(&ranks);
        let mut own =
            updater(initial, buffer, |weights| AdamW::of_shard(weights, OptimiserConfig::default(), shard));
        broadcast(own.trainable().model().weights(), &mut ranks).unwrap();
        trained(&mut own, &mut ranks)
    };
    let of_the_other = initial.to_kind(Kind::BFloat16);
    let results = std::thread::scope(|scope| {
        let other =
            scope.spawn(move || rank(join(&address, "", limit, &mut || Ok(())).unwrap(), &of_the_other));
        let group =
            rendezvous.gather(2, GroupOptions::default(), limit, &mut |_| {}, &mut || Ok(())).unwrap();
        let own = rank(group, &initial);
        [own, other.join().unwrap()]
    });
    for (one, other) in results[0].0.iter().zip(&results[1].0) {
        assert!(one.equal(other), "ranks with different weights");
    }
    for (found, expected) in results[0].1.iter().zip(&norms) {
        assert!((found - expected).abs() < 0.02 * expected, "{found} {expected}");
    }
    let difference = |(one, other): (&Tensor, &Tensor)| {
        (one - other).to_kind(Kind::Float).abs().mean(Kind::Float).double_value(&[])
    };
    let mean: f64 = results[0].0.iter().zip(&expected).map(difference).sum::<f64>() / expected.len() as f64;
    // three updates of 1e-3 move a weight by up to 3e-3; bf16 gradients are summed in another order
    assert!(mean < 5e-4, "{mean}");
}
