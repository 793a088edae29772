//! Process 1 of a container: it reaps orphans and forwards signals. The server runs as a child, because a process cannot
//! wait both for all processes and for its own commands.

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::env;
use std::io;
use std::process::Command;

/// Starts this program once more and acts as init until that ends; returns its exit status.
pub fn run() -> io::Result<u8> {
    // before the child, so that its end cannot be missed
    let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGINT])?;
    let child = Command::new(env::current_exe()?).args(env::args_os().skip(1)).spawn()?;
    let child = Pid::from_child(&child);
    for signal in signals.forever() {
        match signal {
            SIGTERM => kill_process(child, Signal::TERM)?,
            SIGINT => kill_process(child, Signal::INT)?,
            _ => {
                if let Some(status) = reap(child)? {
                    return Ok(status);
                }
            }
        }
    }
    Ok(0)
}

/// Reaps everything that has ended; returns the status of the child if it was among it.
fn reap(child: Pid) -> io::Result<Option<u8>> {
    let mut ended = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => ended = Some(code_of(status)),
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(ended),
            Err(error) => return Err(error.into()),
        }
    }
}

/// As in a shell: 128 plus the number of a signal.
fn code_of(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
