//! Synchronisation: the three orders in which resets, requests, actions and evaluations are started.
//!
//! In rounds, all running work completes before any new work starts, and the results are handled in the order of the
//! episodes' numbers. So the episodes do not depend on timing. A round has two halves: the policy generates, while
//! finished episodes are evaluated and free desktops reset; then the actions are executed, while desktops that became
//! free are reset.

use super::pool::PoolEvent;
use super::session::Session;
use super::state::Phase;
use crate::TrainError;
use arpo_core::config::Order;

impl Session<'_> {
    /// Runs all episodes.
    pub(super) fn run(&mut self) -> Result<(), TrainError> {
        match self.options.order {
            Order::Rounds => self.in_rounds(),
            Order::Arrival => self.by_arrival(),
            Order::LockStep => self.in_lock_step(),
        }
    }

    fn by_arrival(&mut self) -> Result<(), TrainError> {
        loop {
            self.start_evaluations();
            self.start_resets();
            self.start_actions();
            self.request_responses();
            if self.is_done() {
                return Ok(());
            }
            self.check_desktops()?;
            // all events that have arrived are handled before requests are sent, so that they go into one batch
            let mut wait = true;
            while let Some(event) = self.next_event(wait)? {
                self.handle(event);
                wait = false;
            }
        }
    }

    fn in_rounds(&mut self) -> Result<(), TrainError> {
        self.barrier()?;
        // all desktops start their first episodes together, no matter which were reset in advance
        self.start_resets();
        self.barrier()?;
        while !self.is_done() {
            self.check_desktops()?;
            self.start_evaluations();
            self.start_resets();
            self.request_responses();
            self.barrier()?;
            self.start_actions();
            self.start_resets();
            self.barrier()?;
        }
        Ok(())
    }

    /// As in the released code: all episodes start together and wait for the slowest at the reset, at each step and at
    /// the evaluation.
    fn in_lock_step(&mut self) -> Result<(), TrainError> {
        self.barrier()?;
        self.start_resets();
        self.barrier()?;
        while !self.is_done() {
            self.check_desktops()?;
            if self.active.is_empty() {
                self.start_resets();
                self.barrier()?;
                continue;
            }
            self.request_responses();
            self.barrier()?;
            self.start_actions();
            self.barrier()?;
            if !self.active.values().any(|active| active.phase == Phase::Ready) {
                self.start_evaluations();
                self.barrier()?;
            }
        }
        Ok(())
    }

    /// Waits until no work is running, then handles the results. Waits for desktops that are being replaced only while
    /// episodes are queued.
    fn barrier(&mut self) -> Result<(), TrainError> {
        loop {
            let mut events = Vec::new();
            while self.generating > 0
                || self.pool.is_calling()
                || (self.has_waiting() && self.pool.is_starting())
            {
                events.extend(self.next_event(true)?);
            }
            events.sort_by_key(by_number);
            for event in events {
                self.handle(event);
            }
            // handling the events may have queued the replacement of a lost episode
            if !(self.has_waiting() && self.pool.is_starting()) {
                return Ok(());
            }
        }
    }
}

/// Responses first, then calls by the numbers of their episodes, then starts.
fn by_number(event: &PoolEvent) -> (bool, u64, usize) {
    match event {
        PoolEvent::Policy(_) => (false, 0, 0),
        PoolEvent::Call { slot, episode, .. } => (true, episode.unwrap_or(u64::MAX), *slot),
    }
}
