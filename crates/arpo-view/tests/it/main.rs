//! Run folders read, served, reported on, and looked at in a real browser.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod api;
mod browser;
mod chromium;
mod fixture;
mod readers;
mod report;
mod results;
