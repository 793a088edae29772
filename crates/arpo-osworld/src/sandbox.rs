//! Where a Python test file runs on files that an agent has written: in the agent's own desktop, never on this host.
//!
//! The test and the agent's files lie in two folders of their own. The driver reads a secret and removes its file before
//! anything of the agent is loaded, and writes the result together with that secret. So an agent's code makes no score by
//! printing one, by ending the process or by writing a result without knowing the secret. At its limit the whole process
//! group is killed; its output goes nowhere, so a process that is left behind keeps nobody waiting.
//!
//! Not prevented: the test imports the agent's code into the driver's process, and code that searches that process (its frames,
//! its memory) finds the secret, or can replace what the test calls. No test that imports its subject can do better.

use crate::error::MetricError;
use crate::guest::{Command, Guest};
use crate::state::FileState;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

/// Where untrusted files are opened and untrusted code runs.
pub trait Sandbox {
    /// The result of a function of a test file, from 0 to 1, run beside other files.
    fn run_test(&self, test: &FileState, files: &[&FileState], function: &str) -> Result<f64, MetricError>;

    /// Passes the first frames of a video on, as PNG files.
    fn video_frames(
        &self,
        video: &FileState,
        limit: usize,
        each: &mut dyn FnMut(&[u8]) -> Result<(), MetricError>,
    ) -> Result<(), MetricError>;
}

/// The guest itself as a sandbox.
pub struct GuestSandbox<'a> {
    /// The desktop that the agent worked on.
    pub guest: &'a dyn Guest,
    /// Seconds that a test may take.
    pub limit_seconds: u32,
}

impl<'a> GuestSandbox<'a> {
    /// A sandbox with the usual limit.
    pub fn new(guest: &'a dyn Guest) -> Self {
        Self { guest, limit_seconds: 30 }
    }
}

/// Runs the function and writes the secret, then the score or what was raised.
const DRIVER: &str = r#"import importlib.util, os, sys

def main(check, agent, name, function):
    with open(os.path.join(check, "secret")) as file:
        secret = file.read()
    os.remove(os.path.join(check, "secret"))
    try:
        os.chdir(agent)
        sys.path.insert(0, agent)
        spec = importlib.util.spec_from_file_location("checked_by_arpo", os.path.join(check, name))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        answer = getattr(module, function)()
        score = float(answer) if isinstance(answer, (bool, int, float)) else float(bool(answer))
        # not a number is 0, too
        result = "score " + repr(min(1.0, score) if score > 0.0 else 0.0)
    except BaseException as error:
        result = "raised " + type(error).__name__ + ": " + str(error)
    with open(os.path.join(check, "result"), "w") as file:
        file.write(secret + " " + result)

main(*sys.argv[1:5])
"#;

impl Sandbox for GuestSandbox<'_> {
    fn run_test(&self, test: &FileState, files: &[&FileState], function: &str) -> Result<f64, MetricError> {
        let guest = self.guest;
        let (root, secret) = (format!("/tmp/check-{}", random_name()), random_name());
        let (check, agent) = (format!("{root}/check"), format!("{root}/agent"));
        guest.run(&Command::words(&["mkdir", "-p", &check, &agent]))?;
        for file in files {
            for (name, bytes) in file.siblings.iter().chain([(&file.name, &file.bytes)]) {
                guest.write_file(&format!("{agent}/{}", plain(name)), bytes)?;
            }
        }
        let name = plain(&test.name);
        let (driver, result) = (format!("{check}/driver"), format!("{check}/result"));
        guest.write_file(&format!("{check}/{name}"), &test.bytes)?;
        guest.write_file(&driver, DRIVER.as_bytes())?;
        guest.write_file(&format!("{check}/secret"), secret.as_bytes())?;
        let limit = self.limit_seconds.to_string();
        // `timeout` makes a process group of its own and kills it as a whole
        let line = r#"exec timeout --kill-after=1 "$@" </dev/null >/dev/null 2>&1"#;
        guest.run(&Command::words(&[
            "sh", "-c", line, "sh", &limit, "python3", "-I", &driver, &check, &agent, name, function,
        ]))?;
        let content = guest.read_file(&result)?;
        guest.run(&Command::words(&["rm", "-rf", &root]))?;
        let raises = |problem: &str| MetricError::raises(format!("test file: {problem}"));
        let text = content.as_deref().map(String::from_utf8_lossy);
        let Some(result) = text.as_deref().and_then(|text| text.strip_prefix(&secret)?.strip_prefix(' '))
        else {
            return Err(raises(&format!("no result within {limit} s, or its process ended itself")));
        };
        let score = result.strip_prefix("score ").and_then(|score| score.parse().ok());
        score.ok_or_else(|| raises(result))
    }

    fn video_frames(
        &self,
        video: &FileState,
        limit: usize,
        each: &mut dyn FnMut(&[u8]) -> Result<(), MetricError>,
    ) -> Result<(), MetricError> {
        crate::video::frames_by_guest(self.guest, video, limit, each)
    }
}

/// A name that nobody can guess.
pub(crate) fn random_name() -> String {
    let number = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", number(), number())
}

fn plain(name: &str) -> &str {
    Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("unnamed")
}
