//! Workers that somebody else starts: by hand, by systemd, Slurm or Kubernetes.

use super::{Placed, Placement};
use crate::hub::HubHandle;
use arpo_suite::SuiteError;
use std::net::SocketAddr;

/// Starts nothing.
#[derive(Debug, Clone, Copy)]
pub struct Listen;

impl Placement for Listen {
    fn place(&self, _: SocketAddr, _: &HubHandle) -> Result<Box<dyn Placed>, SuiteError> {
        Ok(Box::new(Self))
    }
}

impl Placed for Listen {}
