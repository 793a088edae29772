//! The key of a symbol, with or without shift; and free keys for symbols without one.

/// No symbol.
const NONE: u32 = 0;

/// A key and what to hold with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stroke {
    /// The key's code.
    pub code: u8,
    /// With shift.
    pub shift: bool,
}

/// The symbols of every key, as the X server has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyboard {
    first: u8,
    per_key: usize,
    symbols: Vec<u32>,
}

impl Keyboard {
    /// From the code of the first key, the number of symbols a key has, and all symbols key by key.
    pub fn new(first: u8, per_key: u8, symbols: Vec<u32>) -> Self {
        Self { first, per_key: usize::from(per_key).max(1), symbols }
    }

    fn keys(&self) -> impl Iterator<Item = (u8, &[u32])> {
        (self.first..=u8::MAX).zip(self.symbols.chunks_exact(self.per_key))
    }

    /// The key of a symbol; one that needs no shift before one that does. Further levels are ignored: their
    /// symbols are typed with a free key, which needs no knowledge of the layout.
    pub fn find(&self, symbol: u32) -> Option<Stroke> {
        let at = |level: usize| {
            let is_here = |symbols: &[u32]| {
                let given = symbols.get(level).copied().unwrap_or(NONE);
                // a key with only a lower-case letter gives the capital with shift
                let capital = || level == 1 && given == NONE && capital_of(symbols[0]) == Some(symbol);
                given == symbol || capital()
            };
            self.keys().find(|(_, symbols)| is_here(symbols)).map(|(code, _)| code)
        };
        let plain = at(0).map(|code| Stroke { code, shift: false });
        plain.or_else(|| at(1).map(|code| Stroke { code, shift: true }))
    }

    /// Keys without symbols.
    pub fn free(&self) -> impl Iterator<Item = u8> {
        self.keys().filter(|(_, symbols)| symbols.iter().all(|symbol| *symbol == NONE)).map(|(code, _)| code)
    }

    /// Records that a key has this symbol now.
    pub fn set(&mut self, code: u8, symbol: u32) {
        let at = usize::from(code.saturating_sub(self.first)) * self.per_key;
        if let Some(symbols) = self.symbols.get_mut(at..at + self.per_key) {
            symbols.fill(NONE);
            symbols.iter_mut().take(2).for_each(|slot| *slot = symbol);
        }
    }
}

fn capital_of(symbol: u32) -> Option<u32> {
    let letter = u8::try_from(symbol).ok().filter(u8::is_ascii_lowercase)?;
    Some(letter.to_ascii_uppercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn board() -> Keyboard {
        // a, A; nothing; 1, !; b without a capital
        Keyboard::new(8, 2, vec![0x61, 0x41, 0, 0, 0x31, 0x21, 0x62, 0])
    }

    #[test]
    fn symbols_are_found_with_and_without_shift() {
        let stroke = |code, shift| Some(Stroke { code, shift });
        for (symbol, found) in [
            ('a', stroke(8, false)),
            ('A', stroke(8, true)),
            ('1', stroke(10, false)),
            ('!', stroke(10, true)),
            ('b', stroke(11, false)),
            ('B', stroke(11, true)),
            ('c', None),
        ] {
            assert_eq!(board().find(symbol.into()), found, "{symbol}");
        }
    }

    #[test]
    fn a_symbol_on_two_keys_is_typed_without_shift() {
        // as "<" on the 102nd key of a keyboard from the US
        let board = Keyboard::new(8, 2, vec![0x2c, 0x3c, 0x3c, 0x3e]);
        assert_eq!(board.find('<'.into()), Some(Stroke { code: 9, shift: false }));
    }

    #[test]
    fn a_free_key_takes_a_symbol() {
        let mut board = board();
        assert_eq!(board.free().collect::<Vec<_>>(), [9]);
        board.set(9, 0x0100_6f22);
        assert_eq!(board.find(0x0100_6f22), Some(Stroke { code: 9, shift: false }));
        assert_eq!(board.free().count(), 0);
    }

    proptest! {
        #[test]
        fn what_is_found_is_there(symbols in proptest::collection::vec(0u32..0x80, 0..60), symbol in 1u32..0x80) {
            let board = Keyboard::new(8, 3, symbols);
            if let Some(Stroke { code, shift }) = board.find(symbol) {
                let (_, here) = board.keys().find(|(key, _)| *key == code).unwrap();
                let level = here[usize::from(shift)];
                prop_assert!(level == symbol || (shift && level == NONE));
            }
        }
    }
}
