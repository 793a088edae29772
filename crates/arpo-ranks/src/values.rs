//! Values in host memory, and the parts of them that ranks own. Pure.

use std::ops::Range;

/// A buffer of values in host memory.
#[derive(Debug, Clone, PartialEq)]
pub enum HostValues {
    /// Single precision.
    F32(Vec<f32>),
    /// The upper halves of single precision numbers. Sums are rounded to nearest, ties to even, after every addition.
    Bf16(Vec<u16>),
}

impl HostValues {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one value.
    pub fn width(&self) -> usize {
        match self {
            Self::F32(_) => 4,
            Self::Bf16(_) => 2,
        }
    }

    /// Appends the little-endian bytes of a range.
    pub(crate) fn write(&self, range: Range<usize>, out: &mut Vec<u8>) {
        match self {
            Self::F32(values) => out.extend(values[range].iter().flat_map(|value| value.to_le_bytes())),
            Self::Bf16(values) => out.extend(values[range].iter().flat_map(|value| value.to_le_bytes())),
        }
    }

    /// Replaces a range by the values of these bytes, which are as many.
    pub(crate) fn replace(&mut self, range: Range<usize>, bytes: &[u8]) {
        match self {
            Self::F32(values) => {
                for (value, bytes) in values[range].iter_mut().zip(bytes.chunks_exact(4)) {
                    *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
            Self::Bf16(values) => {
                for (value, bytes) in values[range].iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = u16::from_le_bytes([bytes[0], bytes[1]]);
                }
            }
        }
    }

    /// Adds a range to the values of these bytes, which came first.
    pub(crate) fn add(&mut self, range: Range<usize>, bytes: &[u8]) {
        match self {
            Self::F32(values) => {
                for (value, bytes) in values[range].iter_mut().zip(bytes.chunks_exact(4)) {
                    *value += f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
            }
            Self::Bf16(values) => {
                for (value, bytes) in values[range].iter_mut().zip(bytes.chunks_exact(2)) {
                    let other = u16::from_le_bytes([bytes[0], bytes[1]]);
                    *value = bf16_of(of_bf16(*value) + of_bf16(other));
                }
            }
        }
    }
}

/// The number that a bf16 stands for.
pub fn of_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The nearest bf16, ties to even.
pub fn bf16_of(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // the rounding below could turn a NaN into an infinity
        return (bits >> 16) as u16 | 0x40;
    }
    let even = (bits >> 16) & 1;
    // cannot overflow: the largest pattern that is not a NaN is that of infinity
    ((bits + 0x7fff + even) >> 16) as u16
}

/// Consecutive parts of a buffer, one for each rank; parts may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    ends: Vec<usize>,
}

impl Parts {
    /// Parts of these sizes.
    pub fn of_sizes(sizes: &[usize]) -> Self {
        let ends = sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    /// Parts that are as equal as can be if every boundary but the last is a multiple of `multiple`.
    pub fn even(total: usize, ranks: usize, multiple: usize) -> Self {
        let units = total.div_ceil(multiple);
        let end = |rank: usize| (units * (rank + 1) / ranks * multiple).min(total);
        Self { ends: (0..ranks).map(end).collect() }
    }

    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Values of all parts together.
    pub fn total(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The part of a rank.
    pub fn of(&self, rank: usize) -> Range<usize> {
        let start = if rank == 0 { 0 } else { self.ends[rank - 1] };
        start..self.ends[rank]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        for (total, ranks, multiple) in
            [(0, 3, 8), (7, 3, 8), (64, 3, 8), (65, 4, 8), (1000, 7, 1), (5, 8, 1)]
        {
            let parts = Parts::even(total, ranks, multiple);
            let all: Vec<usize> = (0..ranks).flat_map(|rank| parts.of(rank)).collect();
            assert_eq!(all, (0..total).collect::<Vec<_>>());
            let longest = (0..ranks).map(|rank| parts.of(rank).len()).max().unwrap();
            assert!(longest <= total.div_ceil(multiple).div_ceil(ranks) * multiple, "{parts:?}");
            assert!((1..ranks).all(|rank| {
                let start = parts.of(rank).start;
                start == total || start.is_multiple_of(multiple)
            }));
        }
        let parts = Parts::of_sizes(&[2, 0, 3]);
        assert_eq!([parts.of(0), parts.of(1), parts.of(2)], [0..2, 2..2, 2..5]);
    }

    #[test]
    fn bf16_is_rounded_to_nearest_even() {
        assert_eq!(bf16_of(1.0), 0x3f80);
        assert_eq!(of_bf16(0x3f80).to_bits(), 1f32.to_bits());
        // halfway between 1 and the next bf16: to the even one, which is 1
        assert_eq!(bf16_of(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(bf16_of(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(bf16_of(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(of_bf16(bf16_of(f32::INFINITY)).to_bits(), f32::INFINITY.to_bits());
        assert_eq!(of_bf16(bf16_of(f32::MAX)).to_bits(), f32::INFINITY.to_bits());
        for nan in [f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)] {
            assert!(of_bf16(bf16_of(nan)).is_nan());
        }
    }
}
