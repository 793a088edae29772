//! Guests that run already: each is lent to one user at a time, and nothing about it is changed.

use super::address::Addresses;
use super::desktop::Desktop;
use super::error::ProviderError;
use super::ready::{Patience, wait_until_ready};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a running guest may take for its first answer.
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

    /// A guest nobody uses, if it answers.
    pub(super) fn start(
        this: &Arc<Self>,
        deadline: Instant,
        given_up: &AtomicBool,
    ) -> Result<Desktop, ProviderError> {
        let taken = this.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let addresses = taken.ok_or(ProviderError::NoFreeGuest { count: this.count })?;
        let name = addresses.server_url();
        let place = Place { fleet: Arc::clone(this), addresses: addresses.clone(), name };
        let desktop = Desktop::fixed(addresses, place);
        wait_until_ready(&desktop, Patience::quick(READY_WITHIN), deadline, given_up)?;
        Ok(desktop)
    }
}

/// A guest in use; free again when this is dropped.
pub(super) struct Place {
    fleet: Arc<Fleet>,
    addresses: Addresses,
    name: String,
}

impl Place {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // To the other end: one that does not answer is tried last.
        let mut free = self.fleet.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.insert(0, self.addresses.clone());
    }
}
