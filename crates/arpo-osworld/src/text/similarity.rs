//! Similarity of two sequences: rapidfuzz's `fuzz.ratio` and difflib's `SequenceMatcher.ratio`.

use std::collections::HashMap;
use std::hash::Hash;

/// rapidfuzz's `fuzz.ratio`, 0 to 100: twice the longest common subsequence over both lengths, in characters.
pub fn ratio(a: &str, b: &str) -> f64 {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let total = a.len() + b.len();
    if total == 0 {
        return 100.0;
    }
    let distance = total - 2 * common_subsequence(&a, &b);
    (1.0 - distance as f64 / total as f64) * 100.0
}

/// The length of the longest common subsequence, 64 cells of a column at a time (Hyyrö's bit-parallel scheme).
fn common_subsequence(a: &[char], b: &[char]) -> usize {
    let blocks = a.len().div_ceil(64);
    let mut positions: HashMap<char, Vec<u64>> = HashMap::new();
    for (at, letter) in a.iter().enumerate() {
        positions.entry(*letter).or_insert_with(|| vec![0; blocks])[at / 64] |= 1 << (at % 64);
    }
    let mut column = vec![u64::MAX; blocks];
    for letter in b {
        let Some(matches) = positions.get(letter) else { continue };
        let mut carry = false;
        for (cell, matching) in column.iter_mut().zip(matches) {
            let kept = *cell & matching;
            let (sum, over) = cell.overflowing_add(kept);
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            carry = over || over_again;
            *cell = sum | (*cell & !matching);
        }
    }
    let tail = a.len() % 64;
    column
        .iter()
        .enumerate()
        .map(|(block, cell)| {
            let unused = if tail != 0 && block + 1 == blocks { u64::MAX << tail } else { 0 };
            (!(cell | unused)).count_ones() as usize
        })
        .sum()
}

/// difflib's `SequenceMatcher(a=a, b=b).ratio()`, with its rule that elements filling more than a hundredth of a
/// long `b` start no match.
pub fn sequence_ratio<T: Eq + Hash>(a: &[T], b: &[T]) -> f64 {
    let total = a.len() + b.len();
    if total == 0 {
        return 1.0;
    }
    let mut positions: HashMap<&T, Vec<usize>> = HashMap::new();
    for (at, element) in b.iter().enumerate() {
        positions.entry(element).or_default().push(at);
    }
    if b.len() >= 200 {
        let popular = b.len() / 100 + 1;
        positions.retain(|_, at| at.len() <= popular);
    }
    let mut matched = 0;
    let mut open = vec![(0, a.len(), 0, b.len())];
    while let Some((a_from, a_to, b_from, b_to)) = open.pop() {
        let (at_a, at_b, size) = longest_match(a, b, &positions, (a_from, a_to, b_from, b_to));
        if size > 0 {
            matched += size;
            open.push((a_from, at_a, b_from, at_b));
            open.push((at_a + size, a_to, at_b + size, b_to));
        }
    }
    2.0 * matched as f64 / total as f64
}

fn longest_match<T: Eq + Hash>(
    a: &[T],
    b: &[T],
    positions: &HashMap<&T, Vec<usize>>,
    (a_from, a_to, b_from, b_to): (usize, usize, usize, usize),
) -> (usize, usize, usize) {
    let mut best = (a_from, b_from, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (at_a, element) in a.iter().enumerate().take(a_to).skip(a_from) {
        let mut next = HashMap::new();
        for &at_b in positions.get(element).into_iter().flatten().filter(|at| (b_from..b_to).contains(at)) {
            let length =
                at_b.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0) + 1;
            next.insert(at_b, length);
            if length > best.2 {
                best = (at_a + 1 - length, at_b + 1 - length, length);
            }
        }
        lengths = next;
    }
    let (mut at_a, mut at_b, mut size) = best;
    while at_a > a_from && at_b > b_from && a[at_a - 1] == b[at_b - 1] {
        (at_a, at_b, size) = (at_a - 1, at_b - 1, size + 1);
    }
    while at_a + size < a_to && at_b + size < b_to && a[at_a + size] == b[at_b + size] {
        size += 1;
    }
    (at_a, at_b, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn ratios_are_rapidfuzz_s() {
        // rapidfuzz 3.14: fuzz.ratio of each pair.
        assert!(near(ratio("", ""), 100.0));
        assert!(near(ratio("a", ""), 0.0));
        assert!(near(ratio("this is a test", "this is a test!"), 96.551_724_137_931_03));
        assert!(near(ratio("kitten", "sitting"), 61.538_461_538_461_54));
    }

    #[test]
    fn long_texts_cross_blocks() {
        let a: String = (0..300).map(|at| char::from(b'a' + (at % 7) as u8)).collect();
        let b = a.replace('c', "");
        let expected = 200.0 * b.len() as f64 / (a.len() + b.len()) as f64;
        assert!(near(ratio(&a, &b), expected));
        assert!(near(ratio(&b, &a), expected));
    }

    #[test]
    fn sequence_ratios_are_difflib_s() {
        assert!(near(sequence_ratio(&["a", "b", "c"], &["a", "c"]), 0.8));
        assert!(near(sequence_ratio(b"abcd", b"bcde"), 0.75));
        assert!(near(sequence_ratio::<u8>(b"", b""), 1.0));
    }
}
