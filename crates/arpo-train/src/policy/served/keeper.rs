//! A server's keeper: brings it up to date whenever it is behind, as often as needed, until the run ends.

use super::fleet::{Fleet, Setback};
use super::protocol::{Line, Protocol, ServedOptions, Unusable};
use crate::policy::http::Http;
use crate::run::notices::Notices;
use std::sync::Arc;
use std::time::Duration;

/// Deadline of a server that is asked how it is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(20);

/// Wait after a setback; doubled with each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// What a keeper needs.
pub(super) struct Keeper {
    pub(super) fleet: Arc<Fleet>,
    pub(super) protocol: Arc<dyn Protocol>,
    pub(super) http: Http,
    pub(super) options: Arc<ServedOptions>,
    pub(super) notices: Notices,
    /// Deadline of a step of an update.
    pub(super) limit: Duration,
}

impl Keeper {
    /// Keeps a server until the fleet closes.
    pub(super) fn run(&self, server: usize) {
        let address = self.fleet.address(server);
        let (mut setbacks, mut said) = (0, None);
        while let Some(target) = self.fleet.next_update(server) {
            let line = |limit| Line { http: &self.http, address: &address, limit };
            let result = self
                .protocol
                .inspect(line(STATUS_TIMEOUT), &self.options)
                .and_then(|()| self.protocol.update(line(self.limit), &target))
                .map_err(|unusable| match &unusable {
                    Unusable::Failing(problem) => {
                        self.options.about_key(problem).map_or(unusable, Unusable::Refused)
                    }
                    Unusable::Refused(_) => unusable,
                });
            match result {
                Ok(()) => {
                    self.fleet.updated(server, &target, Ok(()));
                    if said.take().is_some() {
                        let version = target.version.0;
                        self.notices.say(&format!("server {address}: has the weights of version {version}"));
                    }
                    setbacks = 0;
                }
                Err(unusable) => {
                    let reason = unusable.to_string();
                    let refused = matches!(unusable, Unusable::Refused(_));
                    // once for every reason: a server may need minutes to start
                    if said.as_ref() != Some(&reason) && !self.fleet.is_closing() {
                        self.notices.say(&format!("server {address}: gets no questions: {reason}"));
                        said = Some(reason.clone());
                    }
                    self.fleet.updated(server, &target, Err(Setback { reason, refused }));
                    let rest = (INITIAL_BACKOFF * (1 << setbacks.min(10))).min(MAX_BACKOFF);
                    setbacks += 1;
                    self.fleet.rest(&target, rest);
                }
            }
        }
    }
}
