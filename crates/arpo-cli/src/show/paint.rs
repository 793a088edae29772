//! Colours, for terminals whose owner has not said no (`NO_COLOR`).

use std::env;

/// How a word looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Bold,
    Dim,
    Good,
    Warning,
}

/// Whether there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint {
    coloured: bool,
}

impl Paint {
    /// Without colours.
    #[cfg(test)]
    pub(super) const NONE: Self = Self { coloured: false };

    /// With colours.
    #[cfg(test)]
    pub(super) const COLOURS: Self = Self { coloured: true };

    /// For a stream that is or is not a terminal.
    pub(super) fn for_stream(terminal: bool) -> Self {
        let said_no = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let cannot = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { coloured: terminal && !said_no && !cannot }
    }

    /// A text with its colour, if there are colours.
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Plain => return text.to_owned(),
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Good => "1;32",
            Ink::Warning => "33",
        };
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Whether there are any.
    pub(super) fn is_coloured(self) -> bool {
        self.coloured
    }
}
