//! Guests that run already: each has one user at a time, and nothing about it is changed.

use super::address::Addresses;
use super::desktop::Desktop;
use super::error::ProviderError;
use super::ready::{ReadinessPolicy, wait_until_ready};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Timeout of the first response of a running guest.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Guests that run already.
pub(super) struct Fleet {
    free: Mutex<Vec<Addresses>>,
    count: usize,
}

impl Fleet {
    pub(super) fn new(guests: Vec<Addresses>) -> Self {
        let count = guests.len();
        Self { free: Mutex::new(guests.into_iter().rev().collect()), count }
    }

    /// A free guest, if it responds.
    pub(super) fn start(
        this: &Arc<Self>,
        deadline: Instant,
        given_up: &AtomicBool,
    ) -> Result<Desktop, ProviderError> {
        let taken = this.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let addresses = taken.ok_or(ProviderError::NoFreeGuest { count: this.count })?;
        let name = addresses.server_url();
        let slot = Slot { fleet: Arc::clone(this), addresses: addresses.clone(), name };
        let desktop = Desktop::fixed(addresses, slot);
        wait_until_ready(&desktop, ReadinessPolicy::quick(READY_WITHIN), deadline, given_up)?;
        Ok(desktop)
    }
}

/// A guest in use; released on drop.
pub(super) struct Slot {
    fleet: Arc<Fleet>,
    addresses: Addresses,
    name: String,
}

impl Slot {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // To the other end: a guest that does not respond is tried last.
        let mut free = self.fleet.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.insert(0, self.addresses.clone());
    }
}
