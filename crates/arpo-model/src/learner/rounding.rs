//! f32 to bf16, up or down with the probability of the distance. What is drawn for a number follows from the name of a
//! stream and the number's place in its parameter, as in the fused kernel, so that an update made again, after a
//! resume say, is the same to the bit.

use tch::{Kind, Tensor};

/// Which of a place's draws: value, mean and mean square are rounded by bits of their own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draw {
    Value,
    Mean,
    Square,
}

/// Random bits for the places `start..start + count` of a parameter, 64 each.
pub(super) fn noise(stream: u64, start: i64, like: &Tensor) -> Tensor {
    let places = Tensor::arange_start(start, start + like.numel() as i64, (Kind::Int64, like.device()));
    mixed(mixed(places).bitwise_xor(stream as i64))
}

/// Random bits are added below the ones bf16 keeps, and the rest is cut off.
pub(super) fn rounded(wide: &Tensor, noise: &Tensor, draw: Draw) -> Tensor {
    let below = shifted_right(noise, 16 * draw as i64).bitwise_and(0xffff).to_kind(Kind::Int);
    let kept = (wide.view_dtype(Kind::Int) + below).bitwise_and(-(1i64 << 16));
    kept.view_dtype(Kind::Float).to_kind(Kind::BFloat16)
}

/// The mixing function of `SplitMix64`; products wrap around.
fn mixed(x: Tensor) -> Tensor {
    let x = x + 0x9e37_79b9_7f4a_7c15_u64 as i64;
    let x = x.bitwise_xor_tensor(&shifted_right(&x, 30)) * 0xbf58_476d_1ce4_e5b9_u64 as i64;
    let x = x.bitwise_xor_tensor(&shifted_right(&x, 27)) * 0x94d0_49bb_1331_11eb_u64 as i64;
    x.bitwise_xor_tensor(&shifted_right(&x, 31))
}

/// Zeros come in from the left, whatever the sign.
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
    fn rounding_is_right_in_the_mean_and_exact_where_it_can_be() {
        let third = Tensor::full([1 << 16], 1.0 / 3.0, (Kind::Float, Device::Cpu));
        let noise_of = |tensor: &Tensor| noise(7, 0, tensor);
        for draw in [Draw::Value, Draw::Mean, Draw::Square] {
            let mean = rounded(&third, &noise_of(&third), draw).mean(Kind::Double).double_value(&[]);
            assert!((mean - 1.0 / 3.0).abs() < 1e-5, "{draw:?}: {mean}");
        }
        let exact =
            Tensor::from_slice(&[0.0f32, 1.0, -2.5, 1e-30]).to_kind(Kind::BFloat16).to_kind(Kind::Float);
        assert!(rounded(&exact, &noise_of(&exact), Draw::Value).to_kind(Kind::Float).equal(&exact));
    }

    /// The numbers of the same function in plain wrapping arithmetic.
    #[test]
    fn noise_is_the_kernels() {
        let plain = |mut x: u64| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        let stream = 5 << 20 | 3;
        let drawn = noise(stream, 1000, &Tensor::zeros([64], (Kind::Float, Device::Cpu)));
        let expected: Vec<i64> =
            (1000..1064).map(|place| plain(stream ^ plain(place)).cast_signed()).collect();
        assert_eq!(Vec::<i64>::try_from(drawn).unwrap(), expected);
    }
}
