//! Stochastic rounding from f32 to bf16. The noise of a value depends only on the stream's seed and the value's index
//! in its parameter, as in the fused kernel, so that a repeated update, for instance after a resume, is the same to the
//! bit.

use tch::{Kind, Tensor};

/// Which 16 bits of an index's noise: value, mean and mean square use different ones.
#[derive(Debug, Clone, Copy)]
pub(super) enum NoiseBits {
    Value,
    Mean,
    Square,
}

/// 64 random bits for each of the indices `start..start + count` of a parameter.
pub(super) fn noise(stream: u64, start: i64, like: &Tensor) -> Tensor {
    let indices = Tensor::arange_start(start, start + like.numel() as i64, (Kind::Int64, like.device()));
    splitmix64(splitmix64(indices).bitwise_xor(stream as i64))
}

/// Adds random bits to the mantissa bits that bf16 drops, then truncates.
pub(super) fn stochastic_round(x: &Tensor, noise: &Tensor, bits: NoiseBits) -> Tensor {
    let dropped = shifted_right(noise, 16 * bits as i64).bitwise_and(0xffff).to_kind(Kind::Int);
    let kept = (x.view_dtype(Kind::Int) + dropped).bitwise_and(-(1i64 << 16));
    kept.view_dtype(Kind::Float).to_kind(Kind::BFloat16)
}

/// The mixing function of `SplitMix64`, with wrapping arithmetic.
fn splitmix64(x: Tensor) -> Tensor {
    let x = x + 0x9e37_79b9_7f4a_7c15_u64 as i64;
    let x = x.bitwise_xor_tensor(&shifted_right(&x, 30)) * 0xbf58_476d_1ce4_e5b9_u64 as i64;
    let x = x.bitwise_xor_tensor(&shifted_right(&x, 27)) * 0x94d0_49bb_1331_11eb_u64 as i64;
    x.bitwise_xor_tensor(&shifted_right(&x, 31))
}

/// A logical shift: zeros come in from the left.
fn shifted_right(x: &Tensor, bits: i64) -> Tensor {
    if bits == 0 {
        return x.shallow_clone();
    }
    x.bitwise_right_shift_tensor_scalar(bits).bitwise_and((1i64 << (64 - bits)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    #[test]
    fn rounding_is_unbiased_and_exact_for_bf16_values() {
        let third = Tensor::full([1 << 16], 1.0 / 3.0, (Kind::Float, Device::Cpu));
        let noise_of = |tensor: &Tensor| noise(7, 0, tensor);
        for bits in [NoiseBits::Value, NoiseBits::Mean, NoiseBits::Square] {
            let mean = stochastic_round(&third, &noise_of(&third), bits).mean(Kind::Double).double_value(&[]);
            assert!((mean - 1.0 / 3.0).abs() < 1e-5, "{bits:?}: {mean}");
        }
        let exact =
            Tensor::from_slice(&[0.0f32, 1.0, -2.5, 1e-30]).to_kind(Kind::BFloat16).to_kind(Kind::Float);
        assert!(
            stochastic_round(&exact, &noise_of(&exact), NoiseBits::Value).to_kind(Kind::Float).equal(&exact)
        );
    }

    /// Compared with the same function in plain wrapping arithmetic.
    #[test]
    fn noise_matches_the_kernel() {
        let plain = |mut x: u64| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        let stream = 5 << 20 | 3;
        let actual = noise(stream, 1000, &Tensor::zeros([64], (Kind::Float, Device::Cpu)));
        let expected: Vec<i64> =
            (1000..1064).map(|index| plain(stream ^ plain(index)).cast_signed()).collect();
        assert_eq!(Vec::<i64>::try_from(actual).unwrap(), expected);
    }
}
