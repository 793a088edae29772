//! Enlarging, row by row: what a screen of 1920 x 1080 needs to become whole patches (1932 x 1092).
//!
//! The same bicubic filter, the same fixed-point numbers and so the same bytes as `reduce` makes, but one row at a time,
//! while its neighbours are still in the processor's cache. Enlarged pixels lie between four given ones. From one pixel
//! to the next these four move on by one, but for a few places in a row, so that stretches of a row are computed with
//! whole vectors of neighbouring bytes.

#![expect(
    clippy::inline_always,
    reason = "it becomes a part of `patches`, compiled for the processor's vectors"
)]

use crate::CHANNELS;
use crate::axis::Axis;
use crate::blend::{BLOCK, Blend, Even, PairedShares, Shares, TAPS, block_starts, paired};
use crate::patches::Rows;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Whether nothing gets smaller, and there are enough pixels to lie between.
pub(crate) fn can(from: (usize, usize), to: (usize, usize)) -> bool {
    let axis = |from: usize, to: usize| (TAPS..=to).contains(&from);
    axis(from.0, to.0) && axis(from.1, to.1)
}

/// Enlarging a row across.
struct Across {
    stretches: Vec<Stretch>,
    precision: u32,
}

/// Enlarged pixels whose given ones move on with them.
struct Stretch {
    /// The bytes of a row that are computed.
    to: Range<usize>,
    /// Where those of the first tap begin.
    from: usize,
    /// By tap and byte.
    shares: [Vec<i16>; TAPS],
    /// The same by block, where it is long enough to have any.
    paired: Vec<PairedShares>,
}

impl Stretch {
    fn new(axis: &Axis, places: Range<usize>, first: usize) -> Self {
        let to = places.start * CHANNELS..places.end * CHANNELS;
        let weights = &axis.weights[places];
        let of_tap = |tap: usize| weights.iter().flat_map(|taps| [taps[tap]; CHANNELS]).collect();
        let shares: [Vec<i16>; TAPS] = std::array::from_fn(of_tap);
        let block = |start: usize| paired(|tap, at| shares[tap][start + at]);
        let paired = if to.len() < BLOCK { vec![] } else { block_starts(to.len()).map(block).collect() };
        Self { to, from: first * CHANNELS, shares, paired }
    }
}

impl Shares for Stretch {
    #[inline(always)]
    fn of(&self, tap: usize, bytes: usize) -> impl Fn(usize) -> i16 {
        let shares = &self.shares[tap][..bytes];
        move |at| shares[at]
    }

    #[inline(always)]
    fn paired(&self, block: usize) -> PairedShares {
        self.paired[block]
    }
}

impl Across {
    fn new(from: usize, to: usize) -> Self {
        let axis = Axis::new(from, to);
        let mut stretches: Vec<(Range<usize>, usize)> = vec![];
        for (place, &first) in axis.first.iter().enumerate() {
            match stretches.last_mut() {
                Some((places, begin)) if first - *begin == place - places.start => places.end = place + 1,
                _ => stretches.push((place..place + 1, first)),
            }
        }
        let stretches =
            stretches.into_iter().map(|(places, first)| Stretch::new(&axis, places, first)).collect();
        Self { stretches, precision: axis.precision }
    }

    #[inline(always)]
    fn enlarge(&self, given: &[u8], row: &mut [u8], way: impl Blend) {
        for stretch in &self.stretches {
            let row = &mut row[stretch.to.clone()];
            let given = std::array::from_fn(|tap| &given[stretch.from + tap * CHANNELS..][..row.len()]);
            way.blend(row, given, stretch, self.precision);
        }
    }
}

/// How images of one size become those of another.
pub(crate) struct Enlarging {
    from: (usize, usize),
    to: (usize, usize),
    across: Across,
    down: Axis,
}

/// The last one. Screens keep their size, and computing it takes a tenth of the time that a screen does.
static LAST: Mutex<Option<Arc<Enlarging>>> = Mutex::new(None);

impl Enlarging {
    pub(crate) fn between(from: (usize, usize), to: (usize, usize)) -> Arc<Self> {
        // whoever panicked while holding it left none
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.take().filter(|known| (known.from, known.to) == (from, to));
        let enlarging = known.unwrap_or_else(|| Arc::new(Self::new(from, to)));
        Arc::clone(last.insert(enlarging))
    }

    fn new(from: (usize, usize), to: (usize, usize)) -> Self {
        Self { from, to, across: Across::new(from.0, to.0), down: Axis::new(from.1, to.1) }
    }
}

/// The enlarged rows of an image, from one of them to the bottom.
pub(crate) struct EnlargedRows<'a> {
    rgb: &'a [u8],
    enlarging: &'a Enlarging,
    /// The last given rows, enlarged across: row `n` at place `n % TAPS`.
    recent: [AlignedRow; TAPS],
    /// The next given row to be enlarged across.
    given: usize,
    /// The next row's number.
    next: usize,
    row: AlignedRow,
}

impl<'a> EnlargedRows<'a> {
    pub(crate) fn starting_at(row: usize, rgb: &'a [u8], enlarging: &'a Enlarging) -> Self {
        let memory = || AlignedRow::new(enlarging.to.0 * CHANNELS);
        Self {
            rgb,
            enlarging,
            recent: std::array::from_fn(|_| memory()),
            given: enlarging.down.first[row],
            next: row,
            row: memory(),
        }
    }
}

/// A row that begins where a line of the processor's cache does: of whole vectors at other places, each is two reads.
struct AlignedRow {
    memory: Vec<u8>,
    bytes: Range<usize>,
}

impl AlignedRow {
    fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { memory, bytes: start..start + bytes }
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.memory[self.bytes.clone()]
    }

    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.bytes.clone()]
    }
}

impl Rows for EnlargedRows<'_> {
    #[inline(always)]
    fn next(&mut self, way: impl Blend) -> &[u8] {
        let Enlarging { from, across, down, .. } = self.enlarging;
        let first = down.first[self.next];
        let given_bytes = from.0 * CHANNELS;
        while self.given < first + TAPS {
            let given = &self.rgb[self.given * given_bytes..][..given_bytes];
            across.enlarge(given, self.recent[self.given % TAPS].bytes_mut(), way);
            self.given += 1;
        }
        let given = std::array::from_fn(|tap| self.recent[(first + tap) % TAPS].bytes());
        way.blend(self.row.bytes_mut(), given, &Even::new(down.weights[self.next]), down.precision);
        self.next += 1;
        self.row.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blend::ByteByByte;
    use crate::reduce;
    use image::RgbImage;

    /// Noise between sharp edges, where rounding and overshoot show.
    fn picture(width: usize, height: usize) -> RgbImage {
        let mut state = 1u32;
        let bytes = (0..width * height * CHANNELS).map(|at| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if at / 3000 % 2 == 0 { (state >> 24) as u8 } else { (at / 90 % 2 * 255) as u8 }
        });
        RgbImage::from_raw(width as u32, height as u32, bytes.collect()).expect("the size fits")
    }

    #[test]
    fn every_byte_is_the_general_resizers() {
        let sizes = [
            ((1920, 1080), (1932, 1092)),
            ((100, 60), (112, 84)),
            ((4, 4), (28, 28)),
            ((5, 29), (140, 56)),
            ((300, 56), (308, 56)),
        ];
        for (from, to) in sizes {
            assert!(can(from, to));
            let image = picture(from.0, from.1);
            let enlarging = Enlarging::new(from, to);
            let compare = |ours: &[u8]| {
                let differing = reduce::resized(&image, to, |rgb| {
                    assert_eq!(rgb.len(), ours.len());
                    rgb.iter().zip(ours).filter(|(a, b)| a != b).count()
                });
                assert_eq!(differing.expect("the sizes are legal"), 0, "{from:?} to {to:?}");
            };
            compare(&all_rows(&image, &enlarging, ByteByByte));
            #[cfg(target_arch = "x86_64")]
            if let Some(way) = pulp::x86::V4::try_new() {
                compare(&all_rows(&image, &enlarging, way));
            }
        }
    }

    fn all_rows(image: &RgbImage, enlarging: &Enlarging, way: impl Blend) -> Vec<u8> {
        let mut rows = EnlargedRows::starting_at(0, image.as_raw(), enlarging);
        (0..enlarging.to.1).flat_map(|_| rows.next(way).to_vec()).collect()
    }

    #[test]
    fn rows_are_the_same_wherever_one_starts() {
        let (from, to) = ((300, 100), (308, 112));
        let (image, enlarging) = (picture(from.0, from.1), Enlarging::new(from, to));
        let all = all_rows(&image, &enlarging, ByteByByte);
        for (start, row) in all.chunks_exact(to.0 * CHANNELS).enumerate() {
            assert!(
                EnlargedRows::starting_at(start, image.as_raw(), &enlarging).next(ByteByByte) == row,
                "{start}"
            );
        }
    }

    #[test]
    fn another_size_is_another_enlarging() {
        for (from, to) in [((300, 56), (308, 56)), ((300, 56), (308, 84)), ((300, 56), (308, 84))] {
            let enlarging = Enlarging::between(from, to);
            assert_eq!((enlarging.from, enlarging.to), (from, to));
            assert_eq!(enlarging.down.first.len(), to.1);
        }
    }

    #[test]
    fn what_gets_smaller_or_has_no_neighbours_is_left_to_the_general_resizer() {
        assert!(!can((1920, 1080), (1932, 1064)));
        assert!(!can((1920, 1080), (1904, 1092)));
        assert!(!can((3, 100), (28, 112)));
    }
}
