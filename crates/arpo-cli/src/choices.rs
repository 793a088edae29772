//! Arguments that take one of a library's choices.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A parser for one of a library's choices, by the name the library gives it.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [T],
    key: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(move |choice| key(*choice));
    PossibleValuesParser::new(names).map(move |name| {
        let named = choices.iter().copied().find(|choice| key(*choice) == name);
        named.expect("only these names get here")
    })
}
