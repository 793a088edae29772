//! Commands that clients send: how they are parsed, how they run, and which of them run natively.
//!
//! | to change | look in |
//! |---|---|
//! | how text is split, expanded and quoted as in Python | [`words`] |
//! | how a command runs and is killed | [`run`] |
//! | what is done without Python | [`native`] |

pub mod native;
pub mod run;
pub mod words;

use serde_json::Value;
use std::path::Path;

/// A command of a client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments.
    Words(Vec<String>),
    /// One line for the shell.
    Line(String),
    /// A line for the shell, and its `$0`, `$1`, …
    LineWithArguments(Vec<String>),
}

/// What is wrong with a command request. OSWorld's server parses it outside of its error handling, so a client sees
/// an internal error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    /// Not a text or a list of them.
    #[error("a command is a text or a list of texts, not {0}")]
    Kind(String),
    /// Quotes that do not end.
    #[error(transparent)]
    Words(#[from] words::BadWords),
}

impl Command {
    /// From the fields `command` and `shell` of a request. Words that begin with `~/` are expanded.
    pub fn from_request(request: &Value, home: &str) -> Result<Self, BadCommand> {
        let shell = request.get("shell").is_some_and(is_true);
        let command = match request.get("command") {
            None if shell => Self::Line(String::new()),
            None => Self::Words(vec![]),
            Some(Value::String(line)) if shell => Self::Line(line.clone()),
            Some(Value::String(line)) => Self::Words(words::split(line)?),
            Some(Value::Array(items)) => {
                let text = |item: &Value| {
                    item.as_str().map(str::to_owned).ok_or_else(|| BadCommand::Kind(item.to_string()))
                };
                let words = items.iter().map(text).collect::<Result<_, _>>()?;
                if shell { Self::LineWithArguments(words) } else { Self::Words(words) }
            }
            Some(other) => return Err(BadCommand::Kind(other.to_string())),
        };
        let expand = |words: Vec<String>| {
            let expand_one = |word: String| match word.strip_prefix("~/") {
                Some(rest) => format!("{}/{rest}", home.trim_end_matches('/')),
                None => word,
            };
            words.into_iter().map(expand_one).collect()
        };
        Ok(match command {
            Self::Words(words) => Self::Words(expand(words)),
            Self::LineWithArguments(words) => Self::LineWithArguments(expand(words)),
            line @ Self::Line(_) => line,
        })
    }

    /// The same for a guest that calls Python only `python3`, as Debian does.
    #[must_use]
    pub fn for_path(mut self, path: &str) -> Self {
        if let Self::Words(words) = &mut self
            && let Some(first) = words.first_mut().filter(|first| *first == "python")
            && !is_in_path("python", path)
            && is_in_path("python3", path)
        {
            "python3".clone_into(first);
        }
        self
    }

    /// The program to start and its arguments; none without a program.
    pub fn program(&self) -> Option<(String, Vec<String>)> {
        let shell = |rest: &[String]| {
            let arguments = [&["-c".to_owned()], rest].concat();
            Some(("/bin/sh".to_owned(), arguments))
        };
        match self {
            Self::Words(words) => words.split_first().map(|(first, rest)| (first.clone(), rest.to_vec())),
            Self::Line(line) => shell(std::slice::from_ref(line)),
            Self::LineWithArguments(words) => shell(words),
        }
    }

    /// As Python's `repr` shows it in a message.
    pub fn repr(&self) -> String {
        match self {
            Self::Line(line) => line.clone(),
            Self::Words(words) | Self::LineWithArguments(words) => words::repr_list(words),
        }
    }

    /// As the response to a launch shows it.
    pub fn joined(&self) -> String {
        match self {
            Self::Line(line) => line.clone(),
            Self::Words(words) => words.join(" "),
            Self::LineWithArguments(words) => words::repr_list(words),
        }
    }
}

/// Whether a name is that of a program in the folders of a `PATH`.
pub fn is_in_path(name: &str, path: &str) -> bool {
    !name.contains('/') && path.split(':').any(|folder| Path::new(folder).join(name).is_file())
}

/// Python's truth value.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(request: &Value) -> Command {
        Command::from_request(request, "/home/user").unwrap()
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn requests_are_read_as_by_osworld() {
        for (request, command) in [
            (json!({"command": "ls 'a b' ~/c"}), Command::Words(words(&["ls", "a b", "/home/user/c"]))),
            (
                json!({"command": ["ls", "~/d", "x~/e"]}),
                Command::Words(words(&["ls", "/home/user/d", "x~/e"])),
            ),
            (json!({"command": "ls ~/c | wc", "shell": true}), Command::Line("ls ~/c | wc".into())),
            (
                json!({"command": ["echo $0", "a"], "shell": 1}),
                Command::LineWithArguments(words(&["echo $0", "a"])),
            ),
            (json!({}), Command::Words(vec![])),
            (json!({"shell": true}), Command::Line(String::new())),
        ] {
            assert_eq!(read(&request), command, "{request}");
        }
        for request in [json!({"command": "a 'b"}), json!({"command": 3}), json!({"command": ["a", 3]})] {
            assert!(Command::from_request(&request, "/").is_err(), "{request}");
        }
    }

    #[test]
    fn programs_are_looked_for_in_the_path() {
        assert!(is_in_path("sh", "/nowhere:/bin"));
        assert!(!is_in_path("sh", "/nowhere"));
        assert!(!is_in_path("../bin/sh", "/bin"));
    }

    #[test]
    fn python_is_python3_where_that_is_its_only_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let python = || Command::Words(words(&["python", "-c", "python"]));
        assert_eq!(python().for_path(path), python());
        std::fs::write(folder.path().join("python3"), "").unwrap();
        assert_eq!(python().for_path(path), Command::Words(words(&["python3", "-c", "python"])));
        std::fs::write(folder.path().join("python"), "").unwrap();
        assert_eq!(python().for_path(path), python());
    }

    #[test]
    fn a_shell_gets_its_line_first() {
        let (program, arguments) =
            read(&json!({"command": ["echo $0", "a"], "shell": true})).program().unwrap();
        assert_eq!((program.as_str(), arguments), ("/bin/sh", words(&["-c", "echo $0", "a"])));
        assert_eq!(read(&json!({})).program(), None);
    }
}
