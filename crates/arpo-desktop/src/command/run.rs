//! Running a command: in its own process group, for a limited time and with limited output. On a timeout the whole
//! group is killed, so that nothing a command started stays behind.

use super::words::{repr, text_of};
use super::{BadCommand, Command};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::time::timeout;

/// Limit of each of a command's two outputs; the rest is read and dropped.
const OUTPUT_LIMIT_BYTES: usize = 32 << 20;
/// Time limit for a killed command to end.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What it wrote.
    pub output: String,
    /// What it wrote as errors.
    pub error: String,
    /// Its exit status; minus the number of the signal that ended it.
    pub code: i32,
}

/// Why a command has no result; the messages are Python's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// It could not be started, or its output is not text.
    #[error("{0}")]
    Failed(String),
    /// It took too long.
    #[error("Command '{command}' timed out after {seconds} seconds")]
    TimedOut {
        /// As Python shows it.
        command: String,
        /// The limit.
        seconds: u64,
    },
    /// Its request cannot be read.
    #[error(transparent)]
    Bad(#[from] BadCommand),
}

/// Environment variables and working folder of a command.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessContext<'a> {
    /// Variables besides those of this process.
    pub variables: &'a [(String, String)],
    /// Its working folder; otherwise this process's.
    pub folder: Option<&'a Path>,
}

/// Runs a command until it ends and its output is closed.
pub async fn run(
    command: &Command,
    context: ProcessContext<'_>,
    limit: Duration,
) -> Result<Finished, RunError> {
    let (program, mut ready) = prepared(command, context)?;
    ready.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ready.spawn().map_err(|error| failed(&program, &error))?;
    let group = child.id();
    let (output, error) = (child.stdout.take(), child.stderr.take());
    let all = async { tokio::join!(child.wait(), read_limited(output), read_limited(error)) };
    let Ok((status, output, error)) = timeout(limit, all).await else {
        // the group outlives its first process when that has left something running
        signal_group(group, Signal::KILL);
        let _ = timeout(KILL_LIMIT, child.wait()).await;
        return Err(RunError::TimedOut { command: command.repr(), seconds: limit.as_secs() });
    };
    let status = status.map_err(|error| failed(&program, &error))?;
    let text = |bytes| text_of(bytes).map_err(RunError::Failed);
    Ok(Finished { output: text(output)?, error: text(error)?, code: code_of(status) })
}

/// Starts a command and leaves it running; it is reaped when it ends.
pub fn launch(command: &Command, context: ProcessContext<'_>) -> Result<(), RunError> {
    let (program, mut ready) = prepared(command, context)?;
    let mut child = ready.spawn().map_err(|error| failed(&program, &error))?;
    tokio::spawn(async move { child.wait().await });
    Ok(())
}

/// Starts a child in its own process group; the caller waits for it.
pub fn start(command: &Command, context: ProcessContext<'_>) -> Result<Child, RunError> {
    let (program, mut ready) = prepared(command, context)?;
    ready.stdout(Stdio::null()).stderr(Stdio::null());
    ready.spawn().map_err(|error| failed(&program, &error))
}

/// Asks a child to end and, if it does not in time, kills its process group.
pub async fn end(child: &mut Child, signal: Signal, limit: Duration) -> io::Result<ExitStatus> {
    signal_group(child.id(), signal);
    if let Ok(status) = timeout(limit, child.wait()).await {
        return status;
    }
    signal_group(child.id(), Signal::KILL);
    child.wait().await
}

fn prepared(
    command: &Command,
    context: ProcessContext<'_>,
) -> Result<(String, tokio::process::Command), RunError> {
    let no_program = || RunError::Failed("list index out of range".into());
    let (program, arguments) = command.program().ok_or_else(no_program)?;
    let mut ready = tokio::process::Command::new(&program);
    let variables = context.variables.iter().map(|(name, value)| (name, value));
    ready.args(arguments).envs(variables).stdin(Stdio::null()).process_group(0);
    if let Some(folder) = context.folder {
        ready.current_dir(folder);
    }
    Ok((program, ready))
}

/// A system error with Python's message.
fn failed(program: &str, error: &io::Error) -> RunError {
    RunError::Failed(in_python(error, program))
}

/// A system error about a path, with Python's message.
pub fn in_python(error: &io::Error, path: &str) -> String {
    let text = error.to_string();
    let message = text.split(" (os error").next().unwrap_or(&text);
    match error.raw_os_error() {
        Some(number) => format!("[Errno {number}] {message}: {}", repr(path)),
        None => text,
    }
}

fn signal_group(group: Option<u32>, signal: Signal) {
    let group = group.and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(group) = group {
        // an error means that it is gone already
        let _ = kill_process_group(group, signal);
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(-1)
}

async fn read_limited(source: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut output = Vec::new();
    let Some(mut source) = source else { return output };
    let mut chunk = vec![0; 1 << 16];
    // a pipe that breaks has ended
    while let Ok(length @ 1..) = source.read(&mut chunk).await {
        let room = OUTPUT_LIMIT_BYTES.saturating_sub(output.len());
        output.extend_from_slice(&chunk[..length.min(room)]);
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Instant;

    fn line(line: &str) -> Command {
        Command::Line(line.into())
    }

    async fn run_line(text: &str, millis: u64) -> Result<Finished, RunError> {
        run(&line(text), ProcessContext::default(), Duration::from_millis(millis)).await
    }

    #[tokio::test]
    async fn a_command_has_two_outputs_and_a_status() {
        let finished = run_line("echo out; echo err >&2; exit 3", 10_000).await.unwrap();
        assert_eq!(finished, Finished { output: "out\n".into(), error: "err\n".into(), code: 3 });
        assert_eq!(run_line("kill -9 $$", 10_000).await.unwrap().code, -9);
    }

    #[tokio::test]
    async fn start_errors_have_pythons_messages() {
        let words = |words: &[&str]| Command::Words(words.iter().map(|word| (*word).to_owned()).collect());
        let limit = Duration::from_secs(10);
        let missing = run(&words(&["no-such-program"]), ProcessContext::default(), limit).await.unwrap_err();
        assert_eq!(missing.to_string(), "[Errno 2] No such file or directory: 'no-such-program'");
        let nothing = run(&words(&[]), ProcessContext::default(), limit).await.unwrap_err();
        assert_eq!(nothing.to_string(), "list index out of range");
        assert!(launch(&words(&["no-such-program"]), ProcessContext::default()).is_err());
    }

    #[tokio::test]
    async fn a_command_gets_its_variables_and_folder() {
        let variables = [("DISPLAY".to_owned(), ":77".to_owned())];
        let folder = Path::new("/");
        let context = ProcessContext { variables: &variables, folder: Some(folder) };
        let finished = run(&line("echo $DISPLAY; pwd"), context, Duration::from_secs(10)).await.unwrap();
        assert_eq!(finished.output, ":77\n/\n");
    }

    #[tokio::test]
    async fn the_whole_group_is_killed_when_the_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let start = Instant::now();
        let text = format!("sleep 60 & echo $! > {}; wait", file.display());
        let error = run_line(&text, 300).await.unwrap_err();
        assert!(matches!(error, RunError::TimedOut { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
        let grandchild = fs::read_to_string(&file).unwrap();
        let status = format!("/proc/{}/stat", grandchild.trim());
        // gone, or a zombie waiting to be reaped
        let is_dead = || fs::read_to_string(&status).map_or(true, |stat| stat.contains(") Z "));
        while !is_dead() && start.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(is_dead(), "the grandchild lives");
    }

    #[tokio::test]
    async fn output_without_end_is_cut() {
        let finished = run_line("head -c 40000000 /dev/zero", 30_000).await.unwrap();
        assert_eq!((finished.output.len(), finished.code), (OUTPUT_LIMIT_BYTES, 0));
    }
}
