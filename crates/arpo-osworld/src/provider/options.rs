//! Options of desktops: image, resource limits, network.

use super::address::Addresses;
use std::path::PathBuf;
use std::time::Duration;

/// Which desktops, for which run.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The run they belong to, as their label.
    pub run: String,
    /// What they are.
    pub machine: Machine,
}

/// What a desktop is.
#[derive(Debug, Clone, PartialEq)]
pub enum Machine {
    /// A container of our image.
    Container(Container),
    /// OSWorld's virtual machine in its container.
    Vm(Vm),
    /// Guests that run already; nothing here starts, pauses, resets or ends them.
    Fixed(Vec<Addresses>),
}

/// A container of our image.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// The image.
    pub image: String,
    /// Variables, as `NAME=value`. The token of [`TOKEN_VARIABLE`] is also sent to its server.
    pub environment: Vec<String>,
    /// Resource limits.
    pub limits: Limits,
    /// Network access.
    pub network: Network,
    /// Timeout of its first response.
    pub ready_within: Duration,
}

/// The environment variable with the token that the server of our image requires.
pub const TOKEN_VARIABLE: &str = "ARPO_DESKTOP_TOKEN";

impl Container {
    /// The token that its server requires, if any.
    pub fn token(&self) -> Option<&str> {
        let values = self.environment.iter().filter_map(|variable| variable.split_once('='));
        values.rev().find(|(name, _)| *name == TOKEN_VARIABLE).map(|(_, value)| value)
    }
}

impl Default for Container {
    fn default() -> Self {
        Self {
            image: "arpo-desktop:latest".into(),
            environment: Vec::new(),
            limits: Limits::default(),
            network: Network::Isolated,
            ready_within: Duration::from_secs(30),
        }
    }
}

/// OSWorld's virtual machine in its container.
#[derive(Debug, Clone, PartialEq)]
pub struct Vm {
    /// The image with the hypervisor.
    pub image: String,
    /// The disk, a qcow2 file; it is only read, what a guest writes goes to a layer of its container.
    pub disk: PathBuf,
    /// Size of the guest's disk, as `32G`.
    pub disk_size: String,
    /// Memory of the guest, as `4G`.
    pub ram_size: String,
    /// Processors of the guest.
    pub cpu_cores: u32,
    /// What the container may use; the hypervisor bounds the guest by itself, so by default no limits.
    pub limits: Limits,
    /// Network access; OSWorld's tasks expect the internet.
    pub network: Network,
    /// Timeout of its first response.
    pub ready_within: Duration,
}

impl Vm {
    /// OSWorld's own settings with a disk.
    pub fn new(disk: PathBuf) -> Self {
        Self {
            image: "happysixd/osworld-docker".into(),
            disk,
            disk_size: "32G".into(),
            ram_size: "4G".into(),
            cpu_cores: 4,
            limits: Limits::none(),
            network: Network::Bridge,
            ready_within: Duration::from_mins(5),
        }
    }
}

/// Resource limits of a container; `None` is unlimited.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Memory, swap included.
    pub memory_bytes: Option<u64>,
    /// Processors, may be fractional.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// `/dev/shm`, where Chromium keeps its bitmaps.
    pub shared_memory_bytes: Option<u64>,
    /// Files it writes, where the engine's storage driver can bound them; others refuse to start it.
    pub disk_bytes: Option<u64>,
    /// Dropped capabilities.
    pub dropped_capabilities: Vec<String>,
    /// `security_opt` of Docker, as `seccomp=unconfined`.
    pub security: Vec<String>,
}

impl Limits {
    /// No limits but the machine's.
    pub fn none() -> Self {
        Self {
            memory_bytes: None,
            cpus: None,
            processes: None,
            shared_memory_bytes: None,
            disk_bytes: None,
            dropped_capabilities: Vec::new(),
            security: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: Some(3 << 30),
            cpus: None,
            processes: Some(512),
            shared_memory_bytes: Some(256 << 20),
            disk_bytes: None,
            // Raw packets would let a guest's root take another desktop's address on the shared bridge; an isolated desktop
            // gives them up by itself, once its firewall is set. Not `no-new-privileges`: tasks use sudo.
            dropped_capabilities: vec!["NET_RAW".into(), "MKNOD".into()],
            security: Vec::new(),
        }
    }
}

/// What a desktop can reach. The first two are reached at the container's own address, which only this machine can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Nothing: no way out, no other desktop, no server of this machine. Only for images with our firewall.
    Isolated,
    /// Servers of this machine that listen on all its addresses; no way out, no other desktop.
    Internal,
    /// Whatever the engine's bridge can reach; reached at ports of this machine that the engine chooses.
    Bridge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_the_one_the_server_is_given() {
        let with = |variables: &[&str]| Container {
            environment: variables.iter().map(|variable| (*variable).to_owned()).collect(),
            ..Container::default()
        };
        assert_eq!(with(&[]).token(), None);
        assert_eq!(with(&["A=1", "ARPO_DESKTOP_TOKEN=x=y"]).token(), Some("x=y"));
    }
}
