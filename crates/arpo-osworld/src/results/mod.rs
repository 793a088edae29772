//! Result folders as OSWorld writes them, and the tables that are made of them.
//!
//! `<root>/<action space>/<observation>/<model>/<trial>/<domain>/<task id>/` holds `result.txt`, `traj.jsonl`, a
//! `step_*.png` for every action and, if it was recorded, `recording.mp4`.
//!
//! | to change | look in |
//! |---|---|
//! | which files an episode leaves | [`record`] |
//! | when they are written | [`recorder`] |
//! | how folders are read and counted | [`table`] |

pub mod record;
pub mod recorder;
pub mod table;

/// The score, the last file of a finished task.
pub const SCORE_FILE: &str = "result.txt";
/// A line for every action.
pub const ACTIONS_FILE: &str = "traj.jsonl";
/// The recording of the episode.
pub const RECORDING_FILE: &str = "recording.mp4";
/// Notes: steps of the set-up that the guest refused, failed recordings.
pub const LOG_FILE: &str = "runtime.log";
