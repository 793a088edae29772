//! Programs of this host that metrics use where the guest has none: found on the `PATH`, run with a deadline.

use crate::error::MetricError;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a program may print.
const OUTPUT_LIMIT_BYTES: u64 = 16 << 20;
/// Saying what data it has may take a program so long.
const LIST_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A program that metrics use, and the package of Debian that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Its name on the `PATH`.
    pub name: &'static str,
    /// The package, or several with blanks between them.
    pub package: &'static str,
    /// An option with which it prints what data it has, a line each, and the line of what it must have.
    pub data: Option<(&'static str, &'static str)>,
}

/// How a run of a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With status 0.
    Succeeded,
    /// With another status, or by a signal.
    Failed,
    /// It was killed at its limit.
    Late,
}

/// Reads the text of images, which is English.
pub const TESSERACT: Program = Program {
    name: "tesseract",
    package: "tesseract-ocr tesseract-ocr-eng",
    data: Some(("--list-langs", "eng")),
};
/// Decodes videos.
pub const FFMPEG: Program = Program { name: "ffmpeg", package: "ffmpeg", data: None };

impl Program {
    /// Whether it is on the `PATH`, with the data that it must have.
    pub fn is_installed(self) -> bool {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).any(|folder| folder.join(self.name).is_file())
            && self.data.is_none_or(|(option, line)| self.lists(option, line))
    }

    fn lists(self, option: &str, line: &str) -> bool {
        self.run(&[OsStr::new(option)], b"", LIST_LIMIT).is_ok_and(|(ending, printed)| {
            ending == Ending::Succeeded
                && String::from_utf8_lossy(&printed).lines().any(|one| one.trim() == line)
        })
    }

    /// That it is missing, and how to get it.
    pub fn missing(self) -> MetricError {
        MetricError::NoProgram { program: self.name, package: self.package }
    }

    /// Runs it on some input: how it ended, and what it printed. It is killed at the limit.
    pub fn run(
        self,
        arguments: &[&OsStr],
        input: &[u8],
        limit: Duration,
    ) -> Result<(Ending, Vec<u8>), MetricError> {
        run(Path::new(self.name), arguments, input, limit).map_err(|problem| match problem {
            Problem::Absent => self.missing(),
            Problem::Other(why) => MetricError::Host(format!("{}: {why}", self.name)),
        })
    }
}

enum Problem {
    Absent,
    Other(String),
}

fn run(
    program: &Path,
    arguments: &[&OsStr],
    input: &[u8],
    limit: Duration,
) -> Result<(Ending, Vec<u8>), Problem> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Problem::Absent,
        _ => Problem::Other(error.to_string()),
    })?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    thread::scope(|scope| {
        // a program that ends early closes its input: what it printed counts
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        let printed = scope.spawn(move || {
            let mut printed = Vec::new();
            let read = stdout.map(|stdout| stdout.take(OUTPUT_LIMIT_BYTES).read_to_end(&mut printed));
            read.transpose().map(|_| printed)
        });
        let ending = wait(&mut child, limit)?;
        let printed = printed.join().map_err(|_| Problem::Other("its output cannot be read".into()))?;
        Ok((ending, printed.map_err(|error| Problem::Other(error.to_string()))?))
    })
}

fn wait(child: &mut Child, limit: Duration) -> Result<Ending, Problem> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return Ok(if status.success() { Ending::Succeeded } else { Ending::Failed });
            }
            Ok(None) if Instant::now() < end => thread::sleep(POLL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Ending::Late);
            }
            Err(error) => return Err(Problem::Other(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(script: &str, input: &[u8], limit: Duration) -> Result<(Ending, Vec<u8>), String> {
        let arguments = ["-c", script].map(OsStr::new);
        run(Path::new("sh"), &arguments, input, limit).map_err(|problem| match problem {
            Problem::Absent => "absent".to_owned(),
            Problem::Other(why) => why,
        })
    }

    #[test]
    fn a_program_reads_prints_and_ends() {
        let large = vec![b'a'; 1 << 20];
        let end = (Ending::Succeeded, large.clone());
        assert_eq!(printed("cat", &large, Duration::from_secs(20)).unwrap(), end);
        assert_eq!(
            printed("echo no; exit 3", &large, Duration::from_secs(20)).unwrap(),
            (Ending::Failed, b"no\n".to_vec())
        );
        let late = printed("echo so far; exec sleep 60", b"", Duration::from_secs(1)).unwrap();
        assert_eq!(late, (Ending::Late, b"so far\n".to_vec()));
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let none = Program { name: "no-such-program", package: "some-package", data: None };
        assert!(!none.is_installed());
        let error = none.run(&[], b"", Duration::from_secs(1)).unwrap_err().to_string();
        assert_eq!(
            error,
            "no-such-program is not installed on this host, or not completely; on Debian: apt-get install some-package"
        );
    }

    #[test]
    fn a_program_without_its_data_is_not_installed() {
        let with =
            |line| Program { name: "printf", package: "coreutils", data: Some(("deu\\neng\\n", line)) };
        assert!(with("eng").is_installed());
        assert!(!with("fra").is_installed() && !with("en").is_installed());
    }
}
