//! Trainer and workers over loopback: what they say, who is refused, what happens when connections and workers are lost.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod connections;
mod desktops;
mod endurance;
mod messages;
mod processes;
mod records;
mod refusals;
mod status;
