//! Addresses taken apart as Python's `urllib.parse` does, and OSWorld's two ways of comparing them.

use arpo_core::generation::Generation;
use percent_encoding::percent_decode_str;
use std::net::IpAddr;

/// The parts of an address; `;params` stay with the path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Address {
    /// Lower case, without its colon.
    pub scheme: String,
    /// User, host and port.
    pub netloc: String,
    /// From the first slash.
    pub path: String,
    /// After the question mark.
    pub query: String,
    /// After the hash.
    pub fragment: String,
}

impl Address {
    /// Python's `urlparse`.
    pub fn parse(url: &str) -> Self {
        let clean: String =
            url.trim_start_matches(|letter: char| letter <= ' ').replace(['\n', '\r', '\t'], "");
        let mut rest = clean.as_str();
        let mut address = Self::default();
        if let Some(at) = rest.find(':')
            && rest.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && rest[..at].chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
        {
            address.scheme = rest[..at].to_ascii_lowercase();
            rest = &rest[at + 1..];
        }
        if let Some(after) = rest.strip_prefix("//") {
            let end = after.find(['/', '?', '#']).unwrap_or(after.len());
            address.netloc = String::from(&after[..end]);
            rest = &after[end..];
        }
        if let Some((before, fragment)) = rest.split_once('#') {
            address.fragment = String::from(fragment);
            rest = before;
        }
        if let Some((before, query)) = rest.split_once('?') {
            address.query = String::from(query);
            rest = before;
        }
        address.path = String::from(rest);
        address
    }

    /// Python's `parse_qs(query).get(key, [''])[0]`: the first non-empty value.
    pub fn query_value(&self, key: &str) -> String {
        let plain = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(name, value)| plain(name) == key && !value.is_empty());
        values.next().map(|(_, value)| plain(value)).unwrap_or_default()
    }
}

/// Percent signs resolved, as `urllib.parse.unquote` does.
pub fn unquote(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// OSWorld's `compare_urls`.
///
/// ARPO era: an address without a scheme has no host, and every `www.` in the host goes. Verified: a missing
/// scheme is http, and of the host only the name remains: public suffix, port and user go, and `www` if it is
/// the whole of the subdomain. Both: the path "/" is no path.
pub fn same_address(a: &str, b: &str, generation: Generation) -> bool {
    normal(a, generation) == normal(b, generation)
}

fn normal(url: &str, generation: Generation) -> Address {
    let mut address = match generation {
        Generation::ArpoEra => {
            let mut address = Address::parse(url);
            address.netloc = address.netloc.to_lowercase().replace("www.", "");
            address
        }
        Generation::Verified => {
            let mut address =
                if has_scheme(url) { Address::parse(url) } else { Address::parse(&format!("http://{url}")) };
            address.netloc = registered_name(&address.netloc.to_lowercase());
            address
        }
    };
    if address.scheme.is_empty() {
        address.scheme = "http".into();
    }
    if address.path == "/" {
        address.path.clear();
    }
    address
}

fn has_scheme(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    })
}

/// `subdomain.domain` of a host, as tldextract splits it with private suffixes left out.
fn registered_name(netloc: &str) -> String {
    let host = netloc.rsplit_once('@').map_or(netloc, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let host = host.trim_end_matches('.');
    if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return host.to_owned();
    }
    let without_suffix = match public_suffix(host) {
        Some(suffix) if suffix == host => return String::new(),
        Some(suffix) => &host[..host.len() - suffix.len() - 1],
        None => host,
    };
    match without_suffix.rsplit_once('.') {
        Some(("" | "www", domain)) => domain.to_owned(),
        _ => without_suffix.to_owned(),
    }
}

fn public_suffix(host: &str) -> Option<&str> {
    let mut rest = host;
    loop {
        let suffix = psl::suffix(rest.as_bytes())?;
        let text = &rest[rest.len() - suffix.as_bytes().len()..];
        match suffix.typ() {
            Some(psl::Type::Icann) => return Some(text),
            Some(psl::Type::Private) => rest = text.split_once('.')?.1,
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_apart_as_in_python() {
        let address = Address::parse("HTTPS://User@www.Example.com:80/a/b;p?q=1&r=a+b%21#frag");
        assert_eq!(address.scheme, "https");
        assert_eq!(address.netloc, "User@www.Example.com:80");
        assert_eq!(address.path, "/a/b;p");
        assert_eq!(address.query_value("r"), "a b!");
        assert_eq!(address.query_value("none"), "");
        assert_eq!(address.fragment, "frag");
        assert_eq!(Address::parse("www.a.com/x").netloc, "");
    }

    #[test]
    fn generations_compare_differently() {
        let same = |a, b, generation| same_address(a, b, generation);
        assert!(same("https://www.a.com/", "https://a.com", Generation::ArpoEra));
        assert!(!same("a.com", "http://a.com", Generation::ArpoEra));
        assert!(same("a.com", "http://a.com", Generation::Verified));
        assert!(same("https://www.airbnb.com.sg/x", "https://airbnb.com:443/x", Generation::Verified));
        assert!(!same("https://shop.a.com", "https://a.com", Generation::Verified));
        assert!(same("chrome://settings/", "chrome://settings", Generation::Verified));
        assert!(!same("https://a.com/?q=1", "https://a.com/?q=2", Generation::Verified));
    }

    #[test]
    fn names_are_tldextract_s() {
        for (host, name) in [
            ("www.airbnb.com.sg", "airbnb"),
            ("a.b.github.io", "a.b.github"),
            ("localhost", "localhost"),
            ("127.0.0.1:8080", "127.0.0.1"),
            ("www.com", "www"),
            (".amazon.com", "amazon"),
        ] {
            assert_eq!(registered_name(host), name, "{host}");
        }
    }
}
