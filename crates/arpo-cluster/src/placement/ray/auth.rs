//! The token of a Ray cluster that was started with `RAY_AUTH_MODE=token`: found where Ray's own programs find it.

use arpo_suite::SuiteError;
use std::fmt;
use std::path::{Path, PathBuf};

/// What requests prove themselves with.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Auth(Option<String>);

/// Without the token, which is nobody's business.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Auth(token)" } else { "Auth(none)" })
    }
}

impl Auth {
    /// As the environment of this process says.
    pub fn from_environment() -> Result<Self, SuiteError> {
        Self::find(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// The token.
    pub(super) fn token(&self) -> Option<&str> {
        self.0.as_deref()
    }

    fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SuiteError> {
        if variable("RAY_AUTH_MODE").is_none_or(|mode| mode != "token") {
            return Ok(Self(None));
        }
        if let Some(token) = variable("RAY_AUTH_TOKEN") {
            return Ok(Self(Some(token.trim().into())));
        }
        let path = match variable("RAY_AUTH_TOKEN_PATH") {
            Some(path) => PathBuf::from(path),
            None => Path::new(&variable("HOME").unwrap_or_default()).join(".ray/auth_token"),
        };
        let wrong = |problem: String| {
            SuiteError::Configuration(format!(
                "RAY_AUTH_MODE=token, and {}: {problem}; expected the cluster's token there or in RAY_AUTH_TOKEN",
                path.display()
            ))
        };
        let token = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        match token.trim() {
            "" => Err(wrong("the file is empty".into())),
            token => Ok(Self(Some(token.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Auth, String> {
        Auth::find(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
        .map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_found_where_ray_finds_it() {
        let file = std::env::temp_dir().join(format!("arpo-ray-token-{}", std::process::id()));
        std::fs::write(&file, "from the file\n").unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(found(&[("RAY_AUTH_TOKEN", "t")]), Ok(Auth(None)), "the mode is off");
        assert_eq!(found(&[("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", "t")]), Ok(Auth(Some("t".into()))));
        let from_file = found(&[("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN_PATH", path)]).unwrap();
        assert_eq!(from_file.token(), Some("from the file"));
        assert_eq!(format!("{from_file:?}"), "Auth(token)");
        std::fs::remove_file(&file).unwrap();
        let problem = found(&[("RAY_AUTH_MODE", "token"), ("HOME", "/nowhere")]).unwrap_err();
        assert!(
            problem.contains("/nowhere/.ray/auth_token") && problem.contains("RAY_AUTH_TOKEN"),
            "{problem}"
        );
    }
}
