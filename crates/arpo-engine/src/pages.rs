//! Which page of the cache holds what. Pure: numbers of pages, no tensors.
//!
//! A page holds the keys and values of a fixed number of tokens. A full page is found again by what it holds AND
//! everything before it, so an episode that goes on finds all of its past, and episodes that begin alike share their
//! beginning: the first prompt of a group of rollouts is computed once. A page nobody uses stays until its place is
//! needed; the longest unused goes first.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A page's number.
pub(crate) type PageId = usize;

/// What stands at one place of a sequence, as far as keys and values depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey(u64);

impl TokenKey {
    /// A word.
    pub(crate) fn word(token: u32) -> Self {
        Self(u64::from(token))
    }

    /// The features of a picture, as many as are asked for, counted from 63 bits of its name: pages hash them anyway.
    pub(crate) fn features(digest: &str) -> impl Iterator<Item = Self> {
        let mut hasher = DefaultHasher::new();
        digest.hash(&mut hasher);
        let name = hasher.finish();
        (0..).map(move |index: u64| Self(name.wrapping_add(index) | 1 << 63))
    }
}

/// Names a page's content and everything before it: 128 bits (and 63 for a picture), so that two contents never meet in
/// practice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Chain(u64, u64);

impl Chain {
    const START: Self = Self(0, 0);

    fn then(self, keys: &[TokenKey]) -> Self {
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
    /// What the full pages hold.
    chain: Chain,
}

impl Lease {
    /// Its pages, in the order of tokens.
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Tokens that have a place in them.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }
}

#[derive(Debug, Default)]
struct Page {
    users: usize,
    unused_since: u64,
    content: Content,
}

#[derive(Debug, Default)]
enum Content {
    /// Not to be found: empty, being written, or the same as a listed one.
    #[default]
    Unlisted,
    Full(Chain),
    /// The last page of a sequence that paused.
    Begun {
        after: Chain,
        keys: Vec<TokenKey>,
    },
}

/// All pages.
#[derive(Debug)]
pub(crate) struct PageTable {
    page_tokens: usize,
    pages: Vec<Page>,
    /// Pages that hold nothing.
    empty: Vec<PageId>,
    /// Pages that hold something nobody uses, the longest unused first.
    unused: BTreeSet<(u64, PageId)>,
    full: HashMap<Chain, PageId>,
    /// Everything that was in a full page since the weights last changed, still there or not.
    known: HashSet<Chain>,
    /// Tokens that had to be computed again because their page had made room.
    lost: u64,
    begun: HashMap<Chain, Vec<PageId>>,
    clock: u64,
}

impl PageTable {
    pub(crate) fn new(pages: usize, page_tokens: usize) -> Self {
        Self {
            page_tokens,
            pages: std::iter::repeat_with(Page::default).take(pages).collect(),
            empty: (0..pages).rev().collect(),
            unused: BTreeSet::new(),
            full: HashMap::new(),
            known: HashSet::new(),
            lost: 0,
            begun: HashMap::new(),
            clock: 0,
        }
    }

    /// Pages that hold `tokens`.
    pub(crate) fn pages_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens)
    }

    /// Tokens computed again that a table without limit would have found.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Takes the longest beginning of a sequence that is there, its last token always left out: something must be
    /// computed to say what follows.
    pub(crate) fn lease(&mut self, keys: &[TokenKey]) -> Lease {
        let wanted = &keys[..keys.len().saturating_sub(1)];
        let mut lease = Lease { pages: vec![], tokens: 0, chain: Chain::START };
        let mut chunks = wanted.chunks_exact(self.page_tokens);
        for chunk in chunks.by_ref() {
            let chain = lease.chain.then(chunk);
            let Some(&page) = self.full.get(&chain) else { break };
            self.take(page);
            lease.pages.push(page);
            lease.tokens += self.page_tokens;
            lease.chain = chain;
        }
        if let Some((page, tokens)) = self.longest_begun(lease.chain, &wanted[lease.tokens..]) {
            self.unlist(page);
            self.take(page);
            lease.pages.push(page);
            lease.tokens += tokens;
        }
        lease
    }

    /// Gives a lease places for all of `keys`, which go on where it ends. False, and nothing changed, if there are not
    /// enough pages.
    pub(crate) fn extend(&mut self, lease: &mut Lease, keys: &[TokenKey]) -> bool {
        let more = self.pages_for(keys.len()).saturating_sub(lease.pages.len());
        if more > self.empty.len() + self.unused.len() {
            return false;
        }
        for _ in 0..more {
            let page = self.make_empty();
            self.pages[page].users = 1;
            lease.pages.push(page);
        }
        let full_before = lease.tokens / self.page_tokens;
        for (number, chunk) in keys.chunks_exact(self.page_tokens).enumerate().skip(full_before) {
            lease.chain = lease.chain.then(chunk);
            // listed now, computed in the pass that follows: whoever finds it there reads it behind the writing
            let page = lease.pages[number];
            if let Entry::Vacant(place) = self.full.entry(lease.chain) {
                place.insert(page);
                self.pages[page].content = Content::Full(lease.chain);
                if !self.known.insert(lease.chain) {
                    self.lost += self.page_tokens as u64;
                }
            }
        }
        lease.tokens = keys.len();
        true
    }

    /// Gives the pages back; what they hold can be found until they are needed. `keys` are those of all tokens in them.
    pub(crate) fn release(&mut self, lease: Lease, keys: &[TokenKey]) {
        debug_assert_eq!(lease.tokens, keys.len());
        let full = keys.len() / self.page_tokens;
        if let Some(&page) = lease.pages.get(full)
            && full * self.page_tokens < keys.len()
        {
            let keys = keys[full * self.page_tokens..].to_vec();
            self.begun.entry(lease.chain).or_default().push(page);
            self.pages[page].content = Content::Begun { after: lease.chain, keys };
        }
        // the end of a sequence is of no use without its beginning, so it goes first
        for page in lease.pages.into_iter().rev() {
            let entry = &mut self.pages[page];
            entry.users -= 1;
            if entry.users > 0 {
                continue;
            }
            if matches!(entry.content, Content::Unlisted) {
                self.empty.push(page);
            } else {
                self.clock += 1;
                entry.unused_since = self.clock;
                self.unused.insert((self.clock, page));
            }
        }
    }

    /// Forgets everything nobody uses: the weights have changed.
    pub(crate) fn forget_unused(&mut self) {
        while let Some((_, page)) = self.unused.pop_first() {
            self.unlist(page);
            self.empty.push(page);
        }
        self.known.clear();
        // as at the beginning: among equals the number of a page decides, and what came before must not show
        self.empty.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn longest_begun(&self, after: Chain, keys: &[TokenKey]) -> Option<(PageId, usize)> {
        let shared = |page: PageId| match &self.pages[page].content {
            Content::Begun { keys: held, .. } => held.iter().zip(keys).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let candidates = self.begun.get(&after)?.iter().map(|&page| (page, shared(page)));
        candidates.filter(|&(_, tokens)| tokens > 0).max_by_key(|&(page, tokens)| (tokens, page))
    }

    fn take(&mut self, page: PageId) {
        let entry = &mut self.pages[page];
        if entry.users == 0 {
            self.unused.remove(&(entry.unused_since, page));
        }
        entry.users += 1;
    }

    /// An empty page; the caller knows that there is one, or one to be forgotten.
    fn make_empty(&mut self) -> PageId {
        if let Some(page) = self.empty.pop() {
            return page;
        }
        let (_, page) = self.unused.pop_first().expect("the caller has counted");
        self.unlist(page);
        page
    }

    fn unlist(&mut self, page: PageId) {
        match std::mem::take(&mut self.pages[page].content) {
            Content::Unlisted => {}
            Content::Full(chain) => {
                self.full.remove(&chain);
            }
            Content::Begun { after, .. } => {
                if let Some(pages) = self.begun.get_mut(&after) {
                    pages.retain(|&other| other != page);
                    if pages.is_empty() {
                        self.begun.remove(&after);
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
        tokens.iter().copied().map(TokenKey::word).collect()
    }

    fn count(from: u32, to: u32) -> Vec<TokenKey> {
        keys(&(from..to).collect::<Vec<_>>())
    }

    fn compute(table: &mut PageTable, keys: &[TokenKey]) -> usize {
        let mut lease = table.lease(keys);
        let found = lease.tokens();
        assert!(table.extend(&mut lease, keys));
        table.release(lease, keys);
        found
    }

    #[test]
    fn features_are_neither_words_nor_those_of_another_picture() {
        let features = |digest: &str| TokenKey::features(digest).take(3000).collect::<Vec<_>>();
        let all = [features("one"), features("other"), count(0, 3000)].concat();
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 9000);
        assert_eq!(features("one"), features("one"));
    }

    #[test]
    fn an_episode_finds_its_past() {
        let mut table = PageTable::new(8, 4);
        assert_eq!(compute(&mut table, &count(0, 10)), 0);
        assert_eq!(compute(&mut table, &count(0, 15)), 10, "two full pages and the one begun");
        assert_eq!(compute(&mut table, &count(0, 15)), 14, "the last token is always computed");
        assert_eq!(compute(&mut table, &count(1, 15)), 0);
    }

    #[test]
    fn episodes_share_a_beginning_also_while_it_is_computed() {
        let mut table = PageTable::new(8, 4);
        let [one, two] = [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 7]].map(|tokens| keys(&tokens));
        let mut first = table.lease(&one);
        assert!(table.extend(&mut first, &one));
        let mut second = table.lease(&two);
        assert_eq!(second.tokens(), 4);
        assert!(table.extend(&mut second, &two));
        assert_eq!(first.pages()[0], second.pages()[0]);
        assert_ne!(first.pages()[1], second.pages()[1]);
        table.release(first, &one);
        table.release(second, &two);
        assert_eq!(compute(&mut table, &two), 6);
    }

    #[test]
    fn the_longest_unused_makes_room_and_what_is_used_stays() {
        let mut table = PageTable::new(4, 4);
        assert_eq!(compute(&mut table, &count(0, 8)), 0);
        assert_eq!(compute(&mut table, &count(100, 108)), 0);
        let in_use = count(100, 108);
        let lease = table.lease(&in_use);
        assert_eq!(lease.tokens(), 4);
        let mut new = table.lease(&count(200, 213));
        assert!(!table.extend(&mut new, &count(200, 213)), "four pages with one in use");
        assert!(table.extend(&mut new, &count(200, 212)));
        assert_eq!(table.lease(&count(0, 8)).tokens(), 0, "made room");
        assert_eq!(table.lost(), 0);
        table.release(lease, &in_use[..4]);
        table.release(new, &count(200, 212));
    }

    #[test]
    fn what_is_computed_again_for_want_of_pages_is_counted() {
        let mut table = PageTable::new(3, 4);
        compute(&mut table, &count(0, 9));
        compute(&mut table, &count(100, 112));
        assert_eq!(table.lost(), 0, "other tokens");
        compute(&mut table, &count(0, 9));
        assert_eq!(table.lost(), 8, "two full pages");
        table.forget_unused();
        compute(&mut table, &count(0, 9));
        assert_eq!(table.lost(), 8, "other weights");
    }

    #[test]
    fn new_weights_forget() {
        let mut table = PageTable::new(4, 4);
        compute(&mut table, &count(0, 10));
        table.forget_unused();
        assert_eq!(compute(&mut table, &count(0, 10)), 0);
    }

    proptest! {
        /// Whatever sequences come and go: no page is used by two unless both begin alike up to its end, and all are
        /// there again at the end.
        #[test]
        fn pages_are_never_mixed_up(
            steps in prop::collection::vec((0usize..4, 1usize..20, any::<bool>()), 1..60)
        ) {
            let mut table = PageTable::new(12, 3);
            let mut live: Vec<(Lease, Vec<TokenKey>)> = vec![];
            let mut written: HashMap<(PageId, usize), (Vec<TokenKey>, TokenKey)> = HashMap::new();
            for (family, length, end) in steps {
                let tokens: Vec<u32> = (0..length).map(|at| if at < 7 { at as u32 } else { (family * 100 + at) as u32 }).collect();
                let keys = keys(&tokens);
                let mut lease = table.lease(&keys);
                let found = lease.tokens();
                prop_assert!(found < keys.len());
                let place = |pages: &[PageId], at: usize| (pages[at / 3], at % 3);
                for at in 0..found {
                    prop_assert_eq!(&written[&place(lease.pages(), at)], &(keys[..at].to_vec(), keys[at]));
                }
                if table.extend(&mut lease, &keys) {
                    for at in found..keys.len() {
                        written.insert(place(lease.pages(), at), (keys[..at].to_vec(), keys[at]));
                    }
                    live.push((lease, keys));
                } else {
                    table.release(lease, &keys[..found]);
                }
                for (lease, keys) in &live {
                    for at in 0..keys.len() {
                        prop_assert_eq!(&written[&place(lease.pages(), at)], &(keys[..at].to_vec(), keys[at]));
                    }
                }
                if end && !live.is_empty() {
                    let (lease, keys) = live.remove(family % live.len());
                    table.release(lease, &keys);
                }
            }
            for (lease, keys) in live {
                table.release(lease, &keys);
            }
            prop_assert_eq!(table.empty.len() + table.unused.len(), 12);
        }
    }
}
