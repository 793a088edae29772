//! Bytes between four others: what enlarging spends its time on.
//!
//! Four products are added up for each byte. Where the processor multiplies pairs of 16-bit numbers and adds each two
//! products in one step, 64 bytes at a time are brought into the order which that needs; elsewhere it is a loop that the
//! compiler turns into whatever vectors there are. Whole numbers have one sum, so both give the same bytes.

#![expect(
    clippy::inline_always,
    reason = "it becomes a part of `patches`, compiled for the processor's vectors"
)]

/// Given pixels that an enlarged one lies between.
pub(crate) const TAPS: usize = 4;

/// Bytes of a block, and the numbers of 16 bits in as much memory.
pub(crate) const BLOCK: usize = 64;
const PAIRED: usize = BLOCK / 2;

/// The shares of a whole block: four quarters of its bytes, those of the first two taps and those of the last two.
pub(crate) type PairedShares = [[[i16; PAIRED]; 2]; 4];

/// The parts that the four given bytes have in each new one, as fixed-point numbers.
pub(crate) trait Shares {
    /// A tap's, for each of so many bytes.
    fn of(&self, tap: usize, bytes: usize) -> impl Fn(usize) -> i16;

    /// For the block that begins at `block * BLOCK`, or is the last.
    fn paired(&self, block: usize) -> PairedShares;
}

/// A block's shares in the order in which they are multiplied: bytes are interleaved within sixteen of them.
pub(crate) fn paired(share: impl Fn(usize, usize) -> i16) -> PairedShares {
    let mut paired = [[[0; PAIRED]; 2]; 4];
    for (quarter, pairs) in paired.iter_mut().enumerate() {
        for (pair, shares) in pairs.iter_mut().enumerate() {
            for (at, place) in shares.iter_mut().enumerate() {
                *place = share(pair * 2 + at % 2, at / 8 * 16 + quarter * 4 + at % 8 / 2);
            }
        }
    }
    paired
}

/// The same shares for every byte of a row.
pub(crate) struct Even {
    shares: [i16; TAPS],
    pairs: [[i16; PAIRED]; 2],
}

impl Even {
    #[inline(always)]
    pub(crate) fn new(shares: [i16; TAPS]) -> Self {
        let [a, b, c, d] = shares;
        let repeated = |pair: [i16; 2]| {
            let mut shares = [0; PAIRED];
            shares.as_chunks_mut().0.fill(pair);
            shares
        };
        Self { shares, pairs: [repeated([a, b]), repeated([c, d])] }
    }
}

impl Shares for Even {
    #[inline(always)]
    fn of(&self, tap: usize, _: usize) -> impl Fn(usize) -> i16 {
        let share = self.shares[tap];
        move |_| share
    }

    #[inline(always)]
    fn paired(&self, _: usize) -> PairedShares {
        [self.pairs; 4]
    }
}

/// Where the blocks of so many bytes begin. The last overlaps the one before it, so that all of them are whole.
pub(crate) fn block_starts(bytes: usize) -> impl Iterator<Item = usize> {
    (0..bytes.div_ceil(BLOCK)).map(move |block| (block * BLOCK).min(bytes - BLOCK))
}

/// A block's bytes. Called by name for each tap, because what an array maps by is not compiled for vectors.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn block_at(bytes: &[u8], start: usize) -> std::arch::x86_64::__m512i {
    pulp::cast(*bytes[start..].first_chunk::<BLOCK>().expect("blocks are whole"))
}

/// A way to compute it.
pub(crate) trait Blend: Copy {
    /// Bytes between four others each. All slices are of one length.
    fn blend(self, row: &mut [u8], given: [&[u8]; TAPS], shares: &impl Shares, precision: u32);
}

/// Byte by byte, as written; the compiler makes vectors of it.
#[derive(Clone, Copy)]
pub(crate) struct ByteByByte;

impl Blend for ByteByByte {
    #[inline(always)]
    fn blend(self, row: &mut [u8], given: [&[u8]; TAPS], shares: &impl Shares, precision: u32) {
        let half = 1i32 << (precision - 1);
        let given = given.map(|bytes| &bytes[..row.len()]);
        let shares: [_; TAPS] = std::array::from_fn(|tap| shares.of(tap, row.len()));
        for at in 0..row.len() {
            // wrapping only so that nothing is checked: shares of one and bytes cannot overflow
            let sum = (0..TAPS).fold(half, |sum, tap| {
                sum.wrapping_add(i32::from(shares[tap](at)).wrapping_mul(i32::from(given[tap][at])))
            });
            row[at] = (sum >> precision).clamp(0, 255) as u8;
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Blend for pulp::x86::V4 {
    #[inline(always)]
    fn blend(self, row: &mut [u8], given: [&[u8]; TAPS], shares: &impl Shares, precision: u32) {
        if row.len() < BLOCK {
            return ByteByByte.blend(row, given, shares, precision);
        }
        let (words, bytes) = (self.avx512f, self.avx512bw);
        let zero = words._mm512_setzero_si512();
        let half = words._mm512_set1_epi32(1 << (precision - 1));
        let shift = words._mm512_set1_epi32(precision as i32);
        for (block, start) in block_starts(row.len()).enumerate() {
            let shares = shares.paired(block);
            let [a, b, c, d] = [
                block_at(given[0], start),
                block_at(given[1], start),
                block_at(given[2], start),
                block_at(given[3], start),
            ];
            let quarter = |ab, cd, [ab_shares, cd_shares]: [[i16; PAIRED]; 2]| {
                let ab = bytes._mm512_madd_epi16(ab, pulp::cast(ab_shares));
                let cd = bytes._mm512_madd_epi16(cd, pulp::cast(cd_shares));
                let sum = words._mm512_add_epi32(words._mm512_add_epi32(ab, cd), half);
                words._mm512_srav_epi32(sum, shift)
            };
            let low = |one, other| bytes._mm512_unpacklo_epi8(one, other);
            let high = |one, other| bytes._mm512_unpackhi_epi8(one, other);
            let (ab, cd) = (low(a, b), low(c, d));
            let first = bytes._mm512_packs_epi32(
                quarter(low(ab, zero), low(cd, zero), shares[0]),
                quarter(high(ab, zero), high(cd, zero), shares[1]),
            );
            let (ab, cd) = (high(a, b), high(c, d));
            let second = bytes._mm512_packs_epi32(
                quarter(low(ab, zero), low(cd, zero), shares[2]),
                quarter(high(ab, zero), high(cd, zero), shares[3]),
            );
            // packing cuts off what is below 0 and above 255
            let blended: [u8; BLOCK] = pulp::cast(bytes._mm512_packus_epi16(first, second));
            row[start..][..BLOCK].copy_from_slice(&blended);
        }
    }
}
