//! How workers come to a run: as child processes, as jobs of a Ray cluster, or started by somebody else.

pub mod listen;
pub mod local;
pub mod ray;

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
    /// Why no worker will ever come, if that is known.
    fn problem(&self) -> Option<String> {
        None
    }
}
