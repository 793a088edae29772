//! Frames of a video, by the guest's ffmpeg, or by this host's where there is no guest.
//!
//! With a guest, no video that an agent made is decoded on this host.
//!
//! Not prevented: an agent that is root in its desktop can replace the guest's ffmpeg by a program that writes the frames it wants.

use crate::error::{GuestError, MetricError};
use crate::guest::{Command, Guest};
use crate::host::{Ending, FFMPEG};
use crate::sandbox::random_name;
use crate::state::FileState;
use crate::task::TaskFile;
use std::ffi::OsStr;
use std::time::Duration;

/// Decoding may take so long.
const LIMIT: Duration = Duration::from_secs(90);
/// The guest's, by its path: one that comes first on an agent's `PATH` is not run.
const GUEST_FFMPEG: &str = "/usr/bin/ffmpeg";
/// Every decoded frame once, in order, whatever its time: at one frame in a thousand seconds none lasts long enough to be repeated,
/// and none comes early enough to be left out.
const EVERY_FRAME: &str = "settb=1,setpts=N*1000";
const RATE: &str = "1/1000";

/// The arguments that write the first frames as PNG files, numbered from 1.
fn arguments<'a>(video: &'a str, frames: &'a str, pattern: &'a str) -> Vec<&'a str> {
    vec![
        "-nostdin",
        "-v",
        "quiet",
        "-y",
        "-i",
        video,
        "-an",
        "-sn",
        "-vf",
        EVERY_FRAME,
        "-r",
        RATE,
        "-frames:v",
        frames,
        "-pix_fmt",
        "rgb24",
        pattern,
    ]
}

/// Why a guest cannot decode the videos of a task, before it is played: afterwards the agent may have removed what decodes them.
pub fn obstacle(task: &TaskFile, guest: &dyn Guest) -> Result<Option<String>, GuestError> {
    let has_videos = task.evaluator.checks.iter().any(|check| check.func == "compare_videos");
    Ok((has_videos && !can_decode(guest)?).then(no_ffmpeg))
}

fn can_decode(guest: &dyn Guest) -> Result<bool, GuestError> {
    let found = guest.run(&Command::words(&["test", "-x", GUEST_FFMPEG]))?;
    Ok(found.is_some_and(|output| output.returncode == 0))
}

fn no_ffmpeg() -> String {
    format!("videos are decoded in the desktop, which has no {GUEST_FFMPEG}")
}

/// Passes the first frames on, as PNG files. A video that cannot be decoded has none.
pub fn frames_by_guest(
    guest: &dyn Guest,
    video: &FileState,
    limit: usize,
    each: &mut dyn FnMut(&[u8]) -> Result<(), MetricError>,
) -> Result<(), MetricError> {
    if !can_decode(guest)? {
        return Err(MetricError::raises(no_ffmpeg()));
    }
    let folder = format!("/tmp/frames-{}", random_name());
    guest.run(&Command::words(&["mkdir", "-p", &folder]))?;
    let (file, pattern) = (format!("{folder}/video"), format!("{folder}/%d.png"));
    guest.write_file(&file, &video.bytes)?;
    let (limit_s, frames) = (LIMIT.as_secs().to_string(), limit.to_string());
    let mut words = vec!["timeout", &limit_s, GUEST_FFMPEG];
    words.extend(arguments(&file, &frames, &pattern));
    guest.run(&Command::words(&words))?;
    for number in 1..=limit {
        let Some(frame) = guest.read_file(&format!("{folder}/{number}.png"))? else { break };
        each(&frame)?;
    }
    guest.run(&Command::words(&["rm", "-rf", &folder]))?;
    Ok(())
}

/// The same by this host's ffmpeg.
pub fn frames_by_host(
    video: &FileState,
    limit: usize,
    each: &mut dyn FnMut(&[u8]) -> Result<(), MetricError>,
) -> Result<(), MetricError> {
    let failed = |error: std::io::Error| MetricError::Host(format!("frames of a video: {error}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let (file, pattern) = (folder.path().join("video"), folder.path().join("%d.png"));
    std::fs::write(&file, &video.bytes).map_err(failed)?;
    let (file, pattern) = (file.to_string_lossy(), pattern.to_string_lossy());
    let frames = limit.to_string();
    let words = arguments(&file, &frames, &pattern);
    let (ending, _) = FFMPEG.run(&words.into_iter().map(OsStr::new).collect::<Vec<_>>(), b"", LIMIT)?;
    if ending == Ending::Late {
        return Err(MetricError::Host(format!("ffmpeg was not done after {} s", LIMIT.as_secs())));
    }
    for number in 1..=limit {
        let path = folder.path().join(format!("{number}.png"));
        if !path.is_file() {
            break;
        }
        each(&std::fs::read(path).map_err(failed)?)?;
    }
    Ok(())
}
