//! How workers come to a run: as child processes, as jobs of a Ray cluster, or started by somebody else.

pub mod listen;
pub mod local;
pub mod ray;
mod supervision;

use crate::hub::HubHandle;
use arpo_suite::SuiteError;
use std::net::SocketAddr;

/// Brings workers to a hub.
pub trait Placement: Send + Sync {
    /// Starts bringing workers that connect to this address; what is returned ends them when it is dropped.
    fn place(&self, address: SocketAddr, hub: &HubHandle) -> Result<Box<dyn Placed>, SuiteError>;
}

/// Workers that are being brought, or have come.
pub trait Placed: Send {
    /// How many it brings, if it knows: a run does not begin without them, unless they are late.
    fn workers(&self) -> usize {
        0
    }

    /// Why no worker will ever come, if that is known.
    fn problem(&self) -> Option<String> {
        None
    }
}

/// The room for desktops on each of so many hosts, if so many of these may be lost and the others still have room for all.
pub(crate) fn room(desktops: usize, hosts: usize, spare: usize) -> usize {
    desktops.div_ceil(hosts.saturating_sub(spare).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_have_room_for_the_desktops_of_a_lost_host() {
        for (desktops, hosts, spare, expected) in
            [(8, 4, 0, 2), (8, 4, 1, 3), (8, 2, 1, 8), (8, 1, 1, 8), (128, 8, 1, 19), (8, 2, 5, 8)]
        {
            assert_eq!(room(desktops, hosts, spare), expected, "{desktops} {hosts} {spare}");
        }
    }
}
