//! The owner of a container: a process, identified by machine, boot, process namespace and start time.
//!
//! A container whose owner is surely gone is a leftover and may be removed; one whose owner may live somewhere this
//! process cannot see is left alone.

use std::fmt;
use std::fs;

/// The label with the owner.
pub(super) const OWNER_LABEL: &str = "arpo.owner";
/// The label with the run.
pub(super) const RUN_LABEL: &str = "arpo.run";

/// A process on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The machine's id, from `/etc/machine-id`; empty where there is none.
    pub machine: String,
    /// The id of its boot.
    pub boot: String,
    /// The namespace its process number counts in.
    pub namespace: String,
    /// Its process number.
    pub pid: u32,
    /// When it was started, in ticks since the boot: a later process with its number has another.
    pub started_ticks: u64,
}

/// The status of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerStatus {
    /// It runs.
    Alive,
    /// It does not run any more.
    Gone,
    /// It is on a machine or in a namespace that is not visible from here.
    Elsewhere,
}

impl Owner {
    /// This process.
    pub fn this_process() -> Self {
        let read =
            |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned());
        let pid = std::process::id();
        Self {
            machine: read("/etc/machine-id"),
            boot: read("/proc/sys/kernel/random/boot_id"),
            namespace: namespace.unwrap_or_default(),
            pid,
            started_ticks: started_ticks(pid).unwrap_or(0),
        }
    }

    /// An owner from its label.
    pub fn parse(label: &str) -> Option<Self> {
        let mut parts = label.split('/');
        let mut next = || parts.next().map(str::to_owned);
        let (machine, boot, namespace) = (next()?, next()?, next()?);
        let (pid, started_ticks) = (next()?.parse().ok()?, next()?.parse().ok()?);
        next().is_none().then_some(Self { machine, boot, namespace, pid, started_ticks })
    }

    /// The status of this owner as seen by `here`, given when the process with its number was started, if there is one.
    pub fn status(&self, here: &Self, started: impl FnOnce(u32) -> Option<u64>) -> OwnerStatus {
        if self.boot.is_empty() || here.boot.is_empty() {
            return OwnerStatus::Elsewhere;
        }
        if self.boot != here.boot {
            // An earlier boot of this machine: nothing of it runs. Another machine: unknown.
            let same_machine = !self.machine.is_empty() && self.machine == here.machine;
            return if same_machine { OwnerStatus::Gone } else { OwnerStatus::Elsewhere };
        }
        if self.namespace != here.namespace {
            return OwnerStatus::Elsewhere;
        }
        match started(self.pid) {
            Some(ticks) if ticks == self.started_ticks => OwnerStatus::Alive,
            _ => OwnerStatus::Gone,
        }
    }

    /// The status of this owner now, as seen by `here`.
    pub fn current_status(&self, here: &Self) -> OwnerStatus {
        self.status(here, started_ticks)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, boot, namespace, pid, started_ticks } = self;
        write!(out, "{machine}/{boot}/{namespace}/{pid}/{started_ticks}")
    }
}

/// When a process was started, in ticks since the boot; none if it does not exist or is a zombie.
fn started_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ticks_of_stat(&stat)
}

/// The 22nd field, counted after the name: the name is in parentheses and may contain anything.
fn ticks_of_stat(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(machine: &str, boot: &str, namespace: &str) -> Owner {
        let text = |text: &str| text.to_owned();
        Owner {
            machine: text(machine),
            boot: text(boot),
            namespace: text(namespace),
            pid: 7,
            started_ticks: 100,
        }
    }

    #[test]
    fn only_an_owner_that_has_surely_ended_is_gone() {
        let here = owner("m", "b", "pid:[1]");
        assert_eq!(here.status(&here, |_| Some(100)), OwnerStatus::Alive);
        assert_eq!(here.status(&here, |_| None), OwnerStatus::Gone);
        // Its number was given to another process.
        assert_eq!(here.status(&here, |_| Some(101)), OwnerStatus::Gone);
        // An earlier boot of this machine.
        assert_eq!(owner("m", "a", "pid:[1]").status(&here, |_| Some(100)), OwnerStatus::Gone);
        // Another machine at the same engine, another container on this machine, a system without boot numbers.
        assert_eq!(owner("n", "a", "pid:[1]").status(&here, |_| None), OwnerStatus::Elsewhere);
        assert_eq!(owner("", "a", "pid:[1]").status(&owner("", "b", ""), |_| None), OwnerStatus::Elsewhere);
        assert_eq!(owner("m", "b", "pid:[2]").status(&here, |_| None), OwnerStatus::Elsewhere);
        assert_eq!(owner("m", "", "pid:[1]").status(&here, |_| None), OwnerStatus::Elsewhere);
    }

    #[test]
    fn an_owner_survives_its_label() {
        let this = Owner::this_process();
        assert_eq!(Owner::parse(&this.to_string()), Some(this.clone()));
        assert_eq!(this.current_status(&this), OwnerStatus::Alive);
        for wrong in ["", "a/b/c/1", "a/b/c/x/1", "a/b/c/1/2/3"] {
            assert_eq!(Owner::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_gone() {
        let here = Owner::this_process();
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let owner = Owner { pid: child.id(), started_ticks: 1, ..here.clone() };
        child.wait().expect("its end");
        assert_eq!(owner.current_status(&here), OwnerStatus::Gone);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 9 9";
        assert_eq!(ticks_of_stat(stat), Some(4242));
        assert_eq!(ticks_of_stat(&stat.replace(" S ", " Z ")), None);
    }
}
