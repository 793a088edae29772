//! The page allocator of the kv cache, with prefix caching. Pure: page numbers, no tensors.
//!
//! A page holds the keys and values of a fixed number of tokens. A full page is found by the hash of its tokens AND all
//! tokens before it, so the next turn of an episode finds all of its past, and episodes with the same prefix share its
//! pages: the first prompt of a group of rollouts is computed once. An unused page stays until it is needed; the least
//! recently used one is evicted first.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most hashes remembered to count what was computed again: an engine that serves for days sees ever new pages.
const REMEMBERED_PAGES: usize = 1 << 21;

/// A page's number.
pub(crate) type PageId = usize;

/// The identity of one token of a sequence, as far as keys and values depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey(u64);

impl TokenKey {
    /// A text token.
    pub(crate) fn token(token: u32) -> Self {
        Self(u64::from(token))
    }

    /// The features of an image, an endless iterator counted from 63 bits of its digest: pages hash them anyway.
    pub(crate) fn features(digest: &str) -> impl Iterator<Item = Self> {
        let mut hasher = DefaultHasher::new();
        digest.hash(&mut hasher);
        let base = hasher.finish();
        (0..).map(move |index: u64| Self(base.wrapping_add(index) | 1 << 63))
    }
}

/// The hash of a page's tokens and all tokens before it: 128 bits (and 63 for an image), so that collisions do not
/// happen in practice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PrefixHash(u64, u64);

impl PrefixHash {
    const START: Self = Self(0, 0);

    fn extend(self, keys: &[TokenKey]) -> Self {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, self, keys).hash(&mut hasher);
            hasher.finish()
        };
        Self(half(1), half(2))
    }
}

/// The pages of one sequence while it is computed.
#[derive(Debug)]
pub(crate) struct Lease {
    pages: Vec<PageId>,
    tokens: usize,
    /// The hash of the full pages.
    prefix: PrefixHash,
}

impl Lease {
    /// Its pages, in the order of tokens.
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Tokens that have a slot in them.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }
}

#[derive(Debug, Default)]
struct Page {
    ref_count: usize,
    released_at: u64,
    content: Content,
}

#[derive(Debug, Default)]
enum Content {
    /// Not in the prefix cache: empty, being written, or a duplicate of a cached one.
    #[default]
    Uncached,
    Full(PrefixHash),
    /// The last, partly filled page of a released sequence.
    Partial {
        after: PrefixHash,
        keys: Vec<TokenKey>,
    },
}

/// All pages.
#[derive(Debug)]
pub(crate) struct PageAllocator {
    page_tokens: usize,
    pages: Vec<Page>,
    /// Free pages.
    free: Vec<PageId>,
    /// Cached pages that no sequence uses, least recently used first.
    unused: BTreeSet<(u64, PageId)>,
    cached: HashMap<PrefixHash, PageId>,
    /// Hashes of full pages since the weights last changed, evicted or not; the evicted are forgotten when there are too
    /// many.
    ever_cached: HashSet<PrefixHash>,
    /// Tokens recomputed because their pages were evicted.
    recomputed: u64,
    partial: HashMap<PrefixHash, Vec<PageId>>,
    clock: u64,
}

impl PageAllocator {
    pub(crate) fn new(pages: usize, page_tokens: usize) -> Self {
        Self {
            page_tokens,
            pages: std::iter::repeat_with(Page::default).take(pages).collect(),
            free: (0..pages).rev().collect(),
            unused: BTreeSet::new(),
            cached: HashMap::new(),
            ever_cached: HashSet::new(),
            recomputed: 0,
            partial: HashMap::new(),
            clock: 0,
        }
    }

    /// Number of pages for `tokens`.
    pub(crate) fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens)
    }

    /// Tokens recomputed because their pages were evicted.
    pub(crate) fn recomputed(&self) -> u64 {
        self.recomputed
    }

    /// Pages of sequences that are being computed.
    pub(crate) fn leased_count(&self) -> usize {
        self.pages.len() - self.free.len() - self.unused.len()
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Leases the longest cached prefix of a sequence. The last token is always left out: it must be computed to
    /// predict the next one.
    pub(crate) fn lease(&mut self, keys: &[TokenKey]) -> Lease {
        let wanted = &keys[..keys.len().saturating_sub(1)];
        let mut lease = Lease { pages: vec![], tokens: 0, prefix: PrefixHash::START };
        let mut chunks = wanted.chunks_exact(self.page_tokens);
        for chunk in chunks.by_ref() {
            let prefix = lease.prefix.extend(chunk);
            let Some(&page) = self.cached.get(&prefix) else { break };
            self.acquire(page);
            lease.pages.push(page);
            lease.tokens += self.page_tokens;
            lease.prefix = prefix;
        }
        if let Some((page, tokens)) = self.longest_partial(lease.prefix, &wanted[lease.tokens..]) {
            self.uncache(page);
            self.acquire(page);
            lease.pages.push(page);
            lease.tokens += tokens;
        }
        lease
    }

    /// Extends a lease to all of `keys`, of which it holds a prefix. Returns false, and changes nothing, if there are
    /// not enough pages.
    pub(crate) fn extend(&mut self, lease: &mut Lease, keys: &[TokenKey]) -> bool {
        let new_pages = self.pages_for(keys.len()).saturating_sub(lease.pages.len());
        if new_pages > self.free.len() + self.unused.len() {
            return false;
        }
        for _ in 0..new_pages {
            let page = self.allocate();
            self.pages[page].ref_count = 1;
            lease.pages.push(page);
        }
        let full_before = lease.tokens / self.page_tokens;
        for (index, chunk) in keys.chunks_exact(self.page_tokens).enumerate().skip(full_before) {
            lease.prefix = lease.prefix.extend(chunk);
            // cached now, computed in the next pass: sequences that share it read it after it is written
            let page = lease.pages[index];
            if let Entry::Vacant(slot) = self.cached.entry(lease.prefix) {
                slot.insert(page);
                self.pages[page].content = Content::Full(lease.prefix);
                if !self.ever_cached.insert(lease.prefix) {
                    self.recomputed += self.page_tokens as u64;
                }
            }
        }
        lease.tokens = keys.len();
        if self.ever_cached.len() > REMEMBERED_PAGES.max(2 * self.pages.len()) {
            self.ever_cached = self.cached.keys().copied().collect();
        }
        true
    }

    /// Releases the pages; they stay in the prefix cache until they are evicted. `keys` are those of all their tokens.
    pub(crate) fn release(&mut self, lease: Lease, keys: &[TokenKey]) {
        debug_assert_eq!(lease.tokens, keys.len());
        let cached = keys.len() / self.page_tokens;
        if let Some(&page) = lease.pages.get(cached)
            && cached * self.page_tokens < keys.len()
        {
            let keys = keys[cached * self.page_tokens..].to_vec();
            self.partial.entry(lease.prefix).or_default().push(page);
            self.pages[page].content = Content::Partial { after: lease.prefix, keys };
        }
        // the end of a sequence is useless without its prefix, so it is evicted first
        for page in lease.pages.into_iter().rev() {
            let entry = &mut self.pages[page];
            entry.ref_count -= 1;
            if entry.ref_count > 0 {
                continue;
            }
            if matches!(entry.content, Content::Uncached) {
                self.free.push(page);
            } else {
                self.clock += 1;
                entry.released_at = self.clock;
                self.unused.insert((self.clock, page));
            }
        }
    }

    /// Evicts all unused pages: the weights have changed.
    pub(crate) fn evict_unused(&mut self) {
        while let Some((_, page)) = self.unused.pop_first() {
            self.uncache(page);
            self.free.push(page);
        }
        self.ever_cached.clear();
        // the initial order: page numbers break ties, and results must not depend on earlier requests
        self.free.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn longest_partial(&self, after: PrefixHash, keys: &[TokenKey]) -> Option<(PageId, usize)> {
        let shared = |page: PageId| match &self.pages[page].content {
            Content::Partial { keys: held, .. } => held.iter().zip(keys).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let candidates = self.partial.get(&after)?.iter().map(|&page| (page, shared(page)));
        candidates.filter(|&(_, tokens)| tokens > 0).max_by_key(|&(page, tokens)| (tokens, page))
    }

    fn acquire(&mut self, page: PageId) {
        let entry = &mut self.pages[page];
        if entry.ref_count == 0 {
            self.unused.remove(&(entry.released_at, page));
        }
        entry.ref_count += 1;
    }

    /// A free page, evicting one if necessary; the caller has checked that there is one.
    fn allocate(&mut self) -> PageId {
        if let Some(page) = self.free.pop() {
            return page;
        }
        let (_, page) = self.unused.pop_first().expect("the caller has checked");
        self.uncache(page);
        page
    }

    fn uncache(&mut self, page: PageId) {
        match std::mem::take(&mut self.pages[page].content) {
            Content::Uncached => {}
            Content::Full(prefix) => {
                self.cached.remove(&prefix);
            }
            Content::Partial { after, .. } => {
                if let Some(pages) = self.partial.get_mut(&after) {
                    pages.retain(|&other| other != page);
                    if pages.is_empty() {
                        self.partial.remove(&after);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(tokens: &[u32]) -> Vec<TokenKey> {
        tokens.iter().copied().map(TokenKey::token).collect()
    }

    fn range(from: u32, to: u32) -> Vec<TokenKey> {
        keys(&(from..to).collect::<Vec<_>>())
    }

    fn compute(allocator: &mut PageAllocator, keys: &[TokenKey]) -> usize {
        let mut lease = allocator.lease(keys);
        let cache_hits = lease.tokens();
        assert!(allocator.extend(&mut lease, keys));
        allocator.release(lease, keys);
        cache_hits
    }

    #[test]
    fn image_features_have_unique_keys() {
        let features = |digest: &str| TokenKey::features(digest).take(3000).collect::<Vec<_>>();
        let all = [features("one"), features("other"), range(0, 3000)].concat();
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 9000);
        assert_eq!(features("one"), features("one"));
    }

    #[test]
    fn the_next_turn_finds_the_past() {
        let mut allocator = PageAllocator::new(8, 4);
        assert_eq!(compute(&mut allocator, &range(0, 10)), 0);
        assert_eq!(compute(&mut allocator, &range(0, 15)), 10, "two full pages and a partial one");
        assert_eq!(compute(&mut allocator, &range(0, 15)), 14, "the last token is always computed");
        assert_eq!(compute(&mut allocator, &range(1, 15)), 0);
    }

    #[test]
    fn a_prefix_is_shared_while_it_is_computed() {
        let mut allocator = PageAllocator::new(8, 4);
        let [one, two] = [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 7]].map(|tokens| keys(&tokens));
        let mut first = allocator.lease(&one);
        assert!(allocator.extend(&mut first, &one));
        let mut second = allocator.lease(&two);
        assert_eq!(second.tokens(), 4);
        assert!(allocator.extend(&mut second, &two));
        assert_eq!(first.pages()[0], second.pages()[0]);
        assert_ne!(first.pages()[1], second.pages()[1]);
        allocator.release(first, &one);
        allocator.release(second, &two);
        assert_eq!(compute(&mut allocator, &two), 6);
    }

    #[test]
    fn least_recently_used_pages_are_evicted_and_used_pages_stay() {
        let mut allocator = PageAllocator::new(4, 4);
        assert_eq!(compute(&mut allocator, &range(0, 8)), 0);
        assert_eq!(compute(&mut allocator, &range(100, 108)), 0);
        let in_use = range(100, 108);
        let lease = allocator.lease(&in_use);
        assert_eq!(lease.tokens(), 4);
        let mut new = allocator.lease(&range(200, 213));
        assert!(!allocator.extend(&mut new, &range(200, 213)), "four pages with one in use");
        assert!(allocator.extend(&mut new, &range(200, 212)));
        assert_eq!(allocator.lease(&range(0, 8)).tokens(), 0, "evicted");
        assert_eq!(allocator.recomputed(), 0);
        allocator.release(lease, &in_use[..4]);
        allocator.release(new, &range(200, 212));
    }

    #[test]
    fn recomputed_tokens_are_counted() {
        let mut allocator = PageAllocator::new(3, 4);
        compute(&mut allocator, &range(0, 9));
        compute(&mut allocator, &range(100, 112));
        assert_eq!(allocator.recomputed(), 0, "other tokens");
        compute(&mut allocator, &range(0, 9));
        assert_eq!(allocator.recomputed(), 8, "two full pages");
        allocator.evict_unused();
        compute(&mut allocator, &range(0, 9));
        assert_eq!(allocator.recomputed(), 8, "other weights");
    }

    #[test]
    fn new_weights_evict() {
        let mut allocator = PageAllocator::new(4, 4);
        compute(&mut allocator, &range(0, 10));
        allocator.evict_unused();
        assert_eq!(compute(&mut allocator, &range(0, 10)), 0);
    }

    proptest! {
        /// No page is shared by two sequences unless they agree up to its end, and all pages are free or cached at the
        /// end.
        #[test]
        fn pages_are_never_mixed_up(
            steps in prop::collection::vec((0usize..4, 1usize..20, any::<bool>()), 1..60)
        ) {
            let mut allocator = PageAllocator::new(12, 3);
            let mut live: Vec<(Lease, Vec<TokenKey>)> = vec![];
            let mut written: HashMap<(PageId, usize), (Vec<TokenKey>, TokenKey)> = HashMap::new();
            for (family, length, end) in steps {
                let tokens: Vec<u32> = (0..length).map(|at| if at < 7 { at as u32 } else { (family * 100 + at) as u32 }).collect();
                let keys = keys(&tokens);
                let mut lease = allocator.lease(&keys);
                let cache_hits = lease.tokens();
                prop_assert!(cache_hits < keys.len());
                let slot = |pages: &[PageId], at: usize| (pages[at / 3], at % 3);
                for at in 0..cache_hits {
                    prop_assert_eq!(&written[&slot(lease.pages(), at)], &(keys[..at].to_vec(), keys[at]));
                }
                if allocator.extend(&mut lease, &keys) {
                    for at in cache_hits..keys.len() {
                        written.insert(slot(lease.pages(), at), (keys[..at].to_vec(), keys[at]));
                    }
                    live.push((lease, keys));
                } else {
                    allocator.release(lease, &keys[..cache_hits]);
                }
                for (lease, keys) in &live {
                    for at in 0..keys.len() {
                        prop_assert_eq!(&written[&slot(lease.pages(), at)], &(keys[..at].to_vec(), keys[at]));
                    }
                }
                if end && !live.is_empty() {
                    let (lease, keys) = live.remove(family % live.len());
                    allocator.release(lease, &keys);
                }
            }
            for (lease, keys) in live {
                allocator.release(lease, &keys);
            }
            prop_assert_eq!(allocator.free.len() + allocator.unused.len(), 12);
        }
    }
}
