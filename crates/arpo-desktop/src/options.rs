//! Command-line options.

use arpo_core::generation::Generation;
use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::net::SocketAddr;
use std::path::PathBuf;

/// OSWorld's server inside a desktop container.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct Options {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:5000")]
    pub listen: SocketAddr,

    /// The X display to show and control.
    #[arg(long, default_value = ":0")]
    pub display: String,

    /// Which generation of OSWorld's server to imitate. They differ in a few responses and in what they wait for.
    #[arg(long, value_parser = generations(), default_value = "arpo-era", env = "ARPO_DESKTOP_GENERATION")]
    pub generation: Generation,

    /// Accept only requests that carry this, as `Authorization: Bearer TOKEN`.
    #[arg(long, env = "ARPO_DESKTOP_TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    /// A program to start first, which brings up the display. Requests get status 503 until the display is ready.
    #[arg(long, value_name = "PROGRAM")]
    pub session: Option<PathBuf>,

    /// The display is ready only when the window manager has made room for a panel, which comes a second after the wallpaper.
    #[arg(long)]
    pub panel: bool,
}

/// A parser for a generation, by its key.
fn generations() -> impl TypedValueParser<Value = Generation> {
    PossibleValuesParser::new(Generation::ALL.map(Generation::key)).map(|key| {
        let named = Generation::ALL.into_iter().find(|generation| generation.key() == key);
        named.expect("only these keys get here")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_osworld() {
        let options = Options::parse_from(["arpo-desktop"]);
        assert_eq!(options.listen.to_string(), "0.0.0.0:5000");
        assert_eq!((options.display.as_str(), options.generation), (":0", Generation::ArpoEra));
        let options = Options::parse_from(["arpo-desktop", "--generation", "verified"]);
        assert_eq!(options.generation, Generation::Verified);
        let error = Options::try_parse_from(["arpo-desktop", "--generation", "verifed"]).unwrap_err();
        assert!(error.to_string().contains("[possible values: arpo-era, verified]"), "{error}");
    }
}
