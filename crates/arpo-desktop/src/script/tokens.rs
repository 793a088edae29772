//! Python text to tokens: names, numbers, strings, punctuation, ends of statements. None for anything else.

/// A token of a script.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name or keyword.
    Name(String),
    /// A number.
    Number(f64),
    /// A string literal, unescaped.
    Text(String),
    /// A single mark.
    Mark(char),
    /// A line break or semicolon outside brackets.
    End,
}

const MARKS: &str = ".,=()[]-+*/";

/// All tokens of a script. An indented line is unsupported: it belongs to a block.
pub(super) fn tokens(source: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = source.trim();
    let mut depth = 0usize;
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '\n' | ';' => (Some(Token::End), 1),
            ' ' | '\t' | '\r' => {
                let after_line = rest.len() < source.len() && is_line_start(source, rest);
                if after_line
                    && depth == 0
                    && !rest.trim_start_matches([' ', '\t', '\r']).starts_with(['\n', '#'])
                {
                    return None;
                }
                (None, 1)
            }
            '#' => (None, rest.find('\n').unwrap_or(rest.len())),
            '\'' | '"' => {
                let (text, length) = string(rest, false)?;
                (Some(Token::Text(text)), length)
            }
            'r' if rest[1..].starts_with(['\'', '"']) => {
                let (text, length) = string(&rest[1..], true)?;
                (Some(Token::Text(text)), length + 1)
            }
            '0'..='9' => {
                let length = number_length(rest);
                let digits = rest[..length].replace('_', "");
                (Some(Token::Number(digits.parse().ok()?)), length)
            }
            _ if first == '_' || first.is_ascii_alphabetic() => {
                let length = rest.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric());
                let length = length.unwrap_or(rest.len());
                (Some(Token::Name(rest[..length].to_owned())), length)
            }
            _ if MARKS.contains(first) => (Some(Token::Mark(first)), 1),
            _ => return None,
        };
        match token {
            Some(Token::Mark('(' | '[')) => depth += 1,
            Some(Token::Mark(')' | ']')) => depth = depth.checked_sub(1)?,
            _ => {}
        }
        // within brackets a line break means nothing
        tokens.extend(token.filter(|token| depth == 0 || *token != Token::End || first == ';'));
        rest = &rest[length..];
    }
    (depth == 0).then_some(tokens)
}

/// Whether `rest` is at the start of a line.
fn is_line_start(source: &str, rest: &str) -> bool {
    let before = &source[..source.trim_end().len() - rest.len()];
    before.ends_with('\n')
}

/// Digits with a point and an exponent.
fn number_length(text: &str) -> usize {
    let mut length = 0;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(length) {
        let exponent_sign = matches!(byte, b'+' | b'-') && matches!(bytes[length - 1], b'e' | b'E');
        if byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'e' | b'E') || exponent_sign {
            length += 1;
        } else {
            break;
        }
    }
    length
}

/// A string literal at the start of a text: its value, and its length in the source.
fn string(text: &str, raw: bool) -> Option<(String, usize)> {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let quote = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut value = String::new();
    let mut rest = &text[quote.len()..];
    loop {
        if rest.starts_with(quote) {
            return Some((value, text.len() - rest.len() + quote.len()));
        }
        let first = rest.chars().next()?;
        rest = &rest[first.len_utf8()..];
        match first {
            '\n' if quote.len() == 1 => return None,
            '\\' if raw => {
                let next = rest.chars().next()?;
                rest = &rest[next.len_utf8()..];
                value.extend(['\\', next]);
            }
            '\\' => rest = escape(rest, &mut value)?,
            other => value.push(other),
        }
    }
}

/// An escape sequence after its backslash.
fn escape<'a>(rest: &'a str, value: &mut String) -> Option<&'a str> {
    let first = rest.chars().next()?;
    let behind = &rest[first.len_utf8()..];
    let coded = |digits: usize| {
        let code = u32::from_str_radix(behind.get(..digits)?, 16).ok()?;
        Some((char::from_u32(code)?, &behind[digits..]))
    };
    let (letter, behind) = match first {
        '\n' => return Some(behind),
        'n' => ('\n', behind),
        't' => ('\t', behind),
        'r' => ('\r', behind),
        '\\' | '\'' | '"' => (first, behind),
        'x' => coded(2)?,
        'u' => coded(4)?,
        'U' => coded(8)?,
        // octal, bell and named characters: not what clients send
        '0'..='9' | 'a' | 'b' | 'f' | 'v' | 'N' => return None,
        // an unknown escape keeps its backslash
        other => {
            value.push('\\');
            (other, behind)
        }
    };
    value.push(letter);
    Some(behind)
}
