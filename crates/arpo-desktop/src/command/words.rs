//! Text as Python's standard library splits, expands and shows it: `shlex.split`, `os.path.expanduser`,
//! `os.path.expandvars`, `repr`, the text mode of pipes.

/// Why a line cannot be split, in Python's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadWords {
    /// A quotation has no end.
    #[error("No closing quotation")]
    Quotation,
    /// A backslash is the last character.
    #[error("No escaped character")]
    Escape,
}

/// The words of a line, as `shlex.split` finds them.
pub fn split(line: &str) -> Result<Vec<String>, BadWords> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(rest.next().ok_or(BadWords::Escape)?),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or(BadWords::Quotation)? {
                        '\'' => break,
                        other => word.push(other),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or(BadWords::Quotation)? {
                        '"' => break,
                        '\\' => match rest.next().ok_or(BadWords::Escape)? {
                            escaped @ ('"' | '\\') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        other => word.push(other),
                    }
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// A path with `~` and variables expanded. Another user's home is not known here and stays as it is written.
pub fn expanded(path: &str, home: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let path = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            format!("{}{rest}", home.trim_end_matches('/'))
        }
        _ => path.to_owned(),
    };
    let mut expanded = String::new();
    let mut rest = path.as_str();
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let (name, length) = if let Some(braced) = behind.strip_prefix('{') {
            braced.find('}').map_or(("", 0), |end| (&braced[..end], end + 2))
        } else {
            let end = behind.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric());
            let end = end.unwrap_or(behind.len());
            (&behind[..end], end)
        };
        match variable(name).filter(|_| !name.is_empty()) {
            Some(value) => expanded.push_str(&value),
            None => expanded.push_str(&rest[at..=at + length]),
        }
        rest = &behind[length..];
    }
    expanded + rest
}

/// A text as Python's `repr` shows it, for messages.
pub fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut shown = String::from(quote);
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            '\\' => shown.push_str("\\\\"),
            other if other == quote => shown.extend(['\\', other]),
            other => shown.push(other),
        }
    }
    shown.push(quote);
    shown
}

/// A list of texts as Python's `repr` shows it.
pub fn repr_list(texts: &[String]) -> String {
    let shown: Vec<String> = texts.iter().map(|text| repr(text)).collect();
    format!("[{}]", shown.join(", "))
}

/// Output of a program, as a pipe in text mode gives it: UTF-8 with universal newlines. An error is in
/// Python's words.
pub fn text_of(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        let reason = match error.utf8_error().error_len() {
            None => "unexpected end of data",
            Some(_) if matches!(byte, 0xc2..=0xf4) => "invalid continuation byte",
            Some(_) => "invalid start byte",
        };
        format!("'utf-8' codec can't decode byte 0x{byte:02x} in position {at}: {reason}")
    })?;
    Ok(if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_split_as_by_shlex() {
        for (line, words) in [
            ("", vec![]),
            ("  a\tb\n", vec!["a", "b"]),
            ("a 'b c' \"d e\"", vec!["a", "b c", "d e"]),
            ("a'b'\"c\"d", vec!["abcd"]),
            ("''", vec![""]),
            ("a\\ b \\'", vec!["a b", "'"]),
            ("\"\\\"\\\\\\n\" '\\n'", vec!["\"\\\\n", "\\n"]),
            ("a#b #c", vec!["a#b", "#c"]),
            ("é 'ü ö'", vec!["é", "ü ö"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        assert_eq!(split("a 'b"), Err(BadWords::Quotation));
        assert_eq!(split("a \"b"), Err(BadWords::Quotation));
        assert_eq!(split("a \\"), Err(BadWords::Escape));
    }

    #[test]
    fn paths_are_expanded() {
        let variable = |name: &str| (name == "A_1").then(|| "/x".to_owned());
        for (path, whole) in [
            ("~", "/home/user"),
            ("~/a", "/home/user/a"),
            ("~other/a", "~other/a"),
            ("a/~/b", "a/~/b"),
            ("$A_1/b", "/x/b"),
            ("a${A_1}b", "a/xb"),
            ("$B/${B}/${A_1", "$B/${B}/${A_1"),
            ("100$", "100$"),
        ] {
            assert_eq!(expanded(path, "/home/user", variable), whole, "{path}");
        }
    }

    #[test]
    fn texts_are_shown_as_by_repr() {
        assert_eq!(repr("a'b"), "\"a'b\"");
        assert_eq!(repr("a'b\"c\n"), "'a\\'b\"c\\n'");
        assert_eq!(repr_list(&["sleep".into(), "200".into()]), "['sleep', '200']");
    }

    #[test]
    fn pipes_are_text() {
        assert_eq!(text_of(b"a\r\nb\rc\n".to_vec()), Ok("a\nb\nc\n".into()));
        let problem = "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte";
        assert_eq!(text_of(vec![b'a', 0xff]), Err(problem.into()));
        assert!(text_of(vec![0xc3]).unwrap_err().ends_with("position 0: unexpected end of data"));
    }

    proptest! {
        #[test]
        fn words_in_single_quotes_come_back(words in proptest::collection::vec("[^']{0,8}", 0..5)) {
            let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            prop_assert_eq!(split(&quoted.join(" ")).unwrap(), words);
        }

        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,40}") {
            let _ = split(&text);
            let _ = expanded(&text, "/h", |name| Some(name.to_owned()));
            let _ = repr(&text);
        }
    }
}
