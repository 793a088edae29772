//! The part of an address behind the question mark.

use crate::ViewError;
use percent_encoding::percent_decode_str;
use std::str::FromStr;

/// Names and values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query; `+` is a space.
    pub(crate) fn parse(text: &str) -> Self {
        let decoded =
            |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self(pairs.collect())
    }

    /// A value that is not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }

    /// A value that must be there.
    pub(crate) fn needed(&self, name: &str) -> Result<&str, ViewError> {
        self.text(name).ok_or_else(|| ViewError::Request(format!("expected ?{name}=...")))
    }

    /// A number; an error if it is none.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, ViewError> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                let shown: String = text.chars().take(40).collect();
                ViewError::Request(format!("{name}={shown:?}: expected a number"))
            })
        };
        self.text(name).map(parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        let query = Query::parse("a=1&b=x%20y+z&c=&d&e=%3Cscript%3E&bad=%ff");
        assert_eq!(query.number::<u32>("a").unwrap(), Some(1));
        assert_eq!(query.text("b"), Some("x y z"));
        assert_eq!((query.text("c"), query.text("d"), query.text("none")), (None, None, None));
        assert_eq!(query.text("e"), Some("<script>"));
        assert!(query.number::<u32>("b").unwrap_err().to_string().contains("expected a number"));
        assert!(query.text("bad").is_some());
    }
}
