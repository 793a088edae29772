//! What a host has: asked by `arpo doctor --cluster` before a run.

use super::desktops::Source;
use crate::protocol::outcome::Inspection;
use std::thread::available_parallelism;

/// Looks at this host, and whether desktops of this source could be started on it.
pub(super) fn of(source: &Source) -> Inspection {
    let opened = source.as_ref().map_err(Clone::clone);
    let opened = opened.and_then(|source| source.open().map_err(|error| error.to_string()));
    Inspection {
        processors: available_parallelism().map_or(1, std::num::NonZero::get),
        memory_gib: memory_gib(),
        problem: opened.err(),
    }
}

fn memory_gib() -> Option<f64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / f64::from(1 << 20))
}
