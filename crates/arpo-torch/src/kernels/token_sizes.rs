//! Which models and devices the single kernel for a token has room for: the arithmetic of `tile.cu`, `pieces.cu`,
//! `steps.cu` and `token.cu`.

/// As in the sources.
pub(super) const HEAD_WIDTH: i64 = 128;
const WARPS: i64 = 10;
pub(super) const THREADS: i64 = 32 * WARPS;
const STAGES: i64 = 4;
const PIECE_BYTES: i64 = 4096;
const HELD_NUMBERS: i64 = 4 * 8 * THREADS;
const MOST_IN_GROUP: i64 = 8;
pub(super) const PARTIAL: i64 = HEAD_WIDTH + 2;
const PITCH: i64 = HEAD_WIDTH + 1;
const TILE: i64 = 16;

/// What a model and a device have to have, by the numbers the source works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) layers: i64,
    pub(super) hidden: i64,
    pub(super) inner: i64,
    pub(super) heads: i64,
    pub(super) shared_heads: i64,
    pub(super) vocabulary: i64,
    pub(super) page_tokens: i64,
}

impl Sizes {
    pub(super) fn queries(self) -> i64 {
        self.heads * HEAD_WIDTH
    }

    /// What a block's tensors have: norm, queries with keys and values, their bias, out, norm, gate with up, down, keys and
    /// values in so many pages.
    pub(super) fn of_block(self, pages: i64) -> [Vec<i64>; 9] {
        let Self { hidden, inner, shared_heads, page_tokens, .. } = self;
        let all_heads = self.queries() + 2 * shared_heads * HEAD_WIDTH;
        let cache = vec![pages, shared_heads, page_tokens, HEAD_WIDTH];
        [
            vec![hidden],
            vec![all_heads, hidden],
            vec![all_heads],
            vec![hidden, self.queries()],
            vec![hidden],
            vec![2 * inner, hidden],
            vec![hidden, inner],
            cache.clone(),
            cache,
        ]
    }

    /// Whether the kernel can compute with them on so many multiprocessors.
    pub(super) fn fit(self, blocks: i64) -> bool {
        let Self { hidden, inner, heads, shared_heads, page_tokens, .. } = self;
        let widths = [hidden, inner, self.queries()];
        let rows = [hidden, self.queries() + 2 * shared_heads * HEAD_WIDTH];
        widths.iter().all(|width| width % 8 == 0 && width * 2 <= WARPS * PIECE_BYTES)
            && hidden <= HELD_NUMBERS
            && rows.iter().all(|&rows| rows <= blocks * THREADS)
            && shared_heads <= blocks
            && heads % shared_heads == 0
            && heads / shared_heads <= MOST_IN_GROUP
            && page_tokens % TILE == 0
    }

    /// Pieces of a row, as in the source.
    fn pieces(width: i64) -> i64 {
        let fewest = (width * 2 + PIECE_BYTES - 1) / PIECE_BYTES;
        (fewest..WARPS).find(|pieces| WARPS % pieces == 0).unwrap_or(WARPS)
    }

    /// Bytes for a row of the hidden width and sums of a product, or for what warps leave of attention, in whole sixteens.
    pub(super) fn room(self, blocks: i64) -> i64 {
        let left = WARPS * MOST_IN_GROUP * (PITCH + 2) * 4;
        ((self.hidden * 2 + self.sums(blocks) * 4).max(left) + 15) / 16 * 16
    }

    /// A block's sums of its pieces of a product, of which there are most.
    fn sums(self, blocks: i64) -> i64 {
        let of = |rows: i64, width: i64| (rows + blocks - 1) / blocks * Self::pieces(width);
        let products = [
            of(self.queries() + 2 * self.shared_heads * HEAD_WIDTH, self.hidden),
            of(self.hidden, self.queries()),
            2 * of(self.inner, self.hidden),
            of(self.hidden, self.inner),
            of(self.vocabulary, self.hidden),
        ];
        products.into_iter().max().unwrap_or(0)
    }

    /// Shared memory of a block: rings, room for a step, addresses.
    pub(super) fn shared_bytes(self, blocks: i64) -> i64 {
        let (ring, addresses) = (STAGES * PIECE_BYTES, self.layers * 9 * 8);
        WARPS * ring + self.room(blocks) + addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVEN_B: Sizes = Sizes {
        layers: 28,
        hidden: 3584,
        inner: 18_944,
        heads: 28,
        shared_heads: 4,
        vocabulary: 152_064,
        page_tokens: 64,
    };

    #[test]
    fn models_that_fit_are_told_from_those_that_do_not() {
        assert!(SEVEN_B.fit(132));
        assert!(
            Sizes { layers: 36, hidden: 2048, inner: 11_008, heads: 16, shared_heads: 2, ..SEVEN_B }.fit(132)
        );
        assert!(
            !Sizes { layers: 64, hidden: 5120, inner: 27_648, heads: 40, shared_heads: 8, ..SEVEN_B }
                .fit(132)
        );
        assert!(!Sizes { page_tokens: 24, ..SEVEN_B }.fit(132));
        assert!(!Sizes { heads: 36, ..SEVEN_B }.fit(132));
    }

    #[test]
    fn rows_are_cut_so_that_a_warp_has_the_same_piece_of_each() {
        assert_eq!([512, 2048, 3584, 11_008, 18_944].map(Sizes::pieces), [1, 1, 2, 10, 10]);
    }

    #[test]
    fn shared_memory_of_the_7b_is_less_than_a_block_can_have() {
        // 227 KiB on compute capability 9.0, of which chips have 78, 114 or 132 multiprocessors
        for blocks in [78, 114, 132] {
            assert!(SEVEN_B.fit(blocks) && SEVEN_B.shared_bytes(blocks) + 4096 <= 227 << 10, "{blocks}");
        }
    }
}
