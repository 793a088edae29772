//! Colours, for terminals without `NO_COLOR`.

use std::env;

/// The style of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Warning,
}

/// Whether colours are used.
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
        let disabled = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { coloured: terminal && !disabled && !dumb }
    }

    /// Applies a style to a text, if colours are used.
    pub(super) fn style(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "1;32",
            Style::Warning => "33",
        };
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Whether colours are used.
    pub(super) fn is_coloured(self) -> bool {
        self.coloured
    }
}
