//! How much memory this process holds, and how much there is to have.

/// Resident memory in MiB; `None` where the system does not say.
pub fn resident_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Memory that could be had, in GiB; `None` where the system does not say.
pub fn available_gib() -> Option<f64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0 / 1024.0)
}
