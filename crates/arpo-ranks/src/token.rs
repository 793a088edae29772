//! The shared token: whoever has it may host desktops of a run or be a rank of its learner, and is told its configuration.
//!
//! It travels as it is, and so do screens and weights: beyond one machine a private network is expected, or a tunnel.

use std::fmt::Write;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::net::SocketAddr;

/// The environment variable with the token; never an argument, because everybody on a host sees those.
pub const TOKEN_VARIABLE: &str = "ARPO_CLUSTER_TOKEN";

/// The token of this process; empty for none.
pub fn from_environment() -> String {
    std::env::var(TOKEN_VARIABLE).unwrap_or_default()
}

/// A token nobody can guess.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Whether two tokens are equal. It takes as long for a token that differs in its first letter as for one that differs in its
/// last, so that nobody can find it letter by letter.
pub fn is_same(expected: &str, given: &str) -> bool {
    let (expected, given) = (expected.as_bytes(), given.as_bytes());
    let mut difference = expected.len() ^ given.len();
    for (number, byte) in given.iter().enumerate() {
        // a shorter token is compared with itself again and again, which changes nothing: its length differs
        let other = expected.get(number % expected.len().max(1)).copied().unwrap_or_default();
        difference |= usize::from(black_box(byte ^ other));
    }
    black_box(difference) == 0
}

/// An error if an address that others can reach, of this key of the configuration, has no token.
pub fn check_address(key: &str, address: SocketAddr, token: &str) -> Result<(), String> {
    if token.is_empty() && !address.ip().is_loopback() {
        return Err(format!(
            "`{key}` = {address} can be reached by other machines: expected {TOKEN_VARIABLE} in the environment, the same for \
             this program and those that connect to it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_is_the_same() {
        for (one, other, same) in [
            ("", "", true),
            ("abc", "abc", true),
            ("abc", "abd", false),
            ("abc", "ab", false),
            ("abc", "abca", false),
            ("abc", "abcabc", false),
            ("abc", "", false),
            ("", "abc", false),
            ("", "\0", false),
        ] {
            assert_eq!(is_same(one, other), same, "{one:?} {other:?}");
        }
    }

    #[test]
    fn others_need_a_token() {
        assert!(check_address("cluster.listen", "127.0.0.1:1".parse().unwrap(), "").is_ok());
        assert!(check_address("cluster.listen", "[::1]:1".parse().unwrap(), "").is_ok());
        assert!(check_address("cluster.listen", "0.0.0.0:1".parse().unwrap(), "t").is_ok());
        let problem = check_address("cluster.listen", "0.0.0.0:1".parse().unwrap(), "").unwrap_err();
        assert!(problem.contains(TOKEN_VARIABLE), "{problem}");
    }

    #[test]
    fn random_tokens_differ() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert!(one.len() == 32 && one != other);
    }
}
