//! Who waits for whom: the three orders in which the same four things are done.
//!
//! In rounds, everything that is under way comes to its end before anything new begins, and what came of it is taken in
//! by the numbers of the episodes. So what happens does not depend on how long anything takes. A round has two halves:
//! the policy answers, while episodes that are over are judged and free desktops are reset; then the answers are acted,
//! while desktops that have become free are reset.

use super::pool::News;
use super::session::Session;
use super::state::Stage;
use crate::TrainError;
use arpo_core::config::Order;

impl Session<'_> {
    /// Plays all episodes to their ends.
    pub(super) fn play(&mut self) -> Result<(), TrainError> {
        match self.options.order {
            Order::Rounds => self.in_rounds(),
            Order::Arrival => self.by_arrival(),
            Order::LockStep => self.in_lock_step(),
        }
    }

    fn by_arrival(&mut self) -> Result<(), TrainError> {
        loop {
            self.evaluate_over();
            self.reset_idle();
            self.act_answered();
            self.ask_ready();
            if self.is_done() {
                return Ok(());
            }
            self.check_desktops()?;
            // whatever has come by now is taken in before anything is asked, so that questions go together
            let mut wait = true;
            while let Some(news) = self.news(wait)? {
                self.handle(news);
                wait = false;
            }
        }
    }

    fn in_rounds(&mut self) -> Result<(), TrainError> {
        self.barrier()?;
        // all that can begin together does, whatever had been reset ahead
        self.reset_idle();
        self.barrier()?;
        while !self.is_done() {
            self.check_desktops()?;
            self.evaluate_over();
            self.reset_idle();
            self.ask_ready();
            self.barrier()?;
            self.act_answered();
            self.reset_idle();
            self.barrier()?;
        }
        Ok(())
    }

    /// As the released code collects: all begin together, and the slowest is waited for at the beginning, at each step
    /// and at the end.
    fn in_lock_step(&mut self) -> Result<(), TrainError> {
        self.barrier()?;
        self.reset_idle();
        self.barrier()?;
        while !self.is_done() {
            self.check_desktops()?;
            if self.living.is_empty() {
                self.reset_idle();
                self.barrier()?;
                continue;
            }
            self.ask_ready();
            self.barrier()?;
            self.act_answered();
            self.barrier()?;
            if !self.living.values().any(|living| living.stage == Stage::Ready) {
                self.evaluate_over();
                self.barrier()?;
            }
        }
        Ok(())
    }

    /// Waits until nothing is under way, then takes in what came of it. Desktops that are being replaced are waited for
    /// while episodes wait for them.
    fn barrier(&mut self) -> Result<(), TrainError> {
        loop {
            let mut came = Vec::new();
            while self.thinking > 0
                || self.pool.is_calling()
                || (self.has_waiting() && self.pool.is_starting())
            {
                came.extend(self.news(true)?);
            }
            came.sort_by_key(by_number);
            for news in came {
                self.handle(news);
            }
            // an episode that was lost may wait now
            if !(self.has_waiting() && self.pool.is_starting()) {
                return Ok(());
            }
        }
    }
}

/// Answers first, then calls by the numbers of their episodes, then starts.
fn by_number(news: &News) -> (bool, u64, usize) {
    match news {
        News::Policy(_) => (false, 0, 0),
        News::Call { place, episode, .. } => (true, episode.unwrap_or(u64::MAX), *place),
    }
}
