//! Where desktops come from: containers of our image, OSWorld's virtual machine in its container, running guests.
//!
//! A [`Provider`] starts [`Desktop`]s; [`Spares`] keeps some ready so that a reset is fast. A desktop is
//! removed when it is dropped, whatever happens; what a killed process leaves behind is removed by the next one
//! that starts, found by its labels. Everything is synchronous and every wait has a deadline.

mod address;
mod body;
mod desktop;
mod docker;
mod error;
mod fleet;
mod hosted;
mod leftovers;
mod options;
mod owner;
mod ready;
mod slots;
mod snapshot;
mod spares;

pub use address::Addresses;
pub use desktop::Desktop;
pub use error::ProviderError;
pub use leftovers::{CleanScope, Leftovers};
pub use options::{Container, Limits, Machine, Network, Options, TOKEN_VARIABLE, Vm};
pub use owner::{Owner, OwnerStatus};
pub use snapshot::Snapshot;
pub use spares::Spares;

use docker::Engine;
use fleet::Fleet;
use hosted::Hosted;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Removes containers, networks and images that runs left on the engine, and says what they were.
pub fn remove_leftovers(scope: CleanScope) -> Result<Leftovers, ProviderError> {
    Engine::connect()?.remove_leftovers(&Owner::this_process(), scope)
}

/// The engine, where it listens and which version it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineVersion {
    /// Where it listens.
    pub host: String,
    /// Its version.
    pub version: String,
}

/// Asks the engine of `DOCKER_HOST`, or of this machine, for its version.
pub fn engine_version() -> Result<EngineVersion, ProviderError> {
    Engine::connect()?.version()
}

/// Starts desktops of one kind for one run. Cheap to clone; clones share what they hold.
#[derive(Clone)]
pub struct Provider {
    source: Source,
    leftovers: Arc<Leftovers>,
}

#[derive(Clone)]
enum Source {
    Hosted(Arc<Hosted>),
    Fixed(Arc<Fleet>),
}

impl Provider {
    /// Connects to the engine, checks that image and disk are there, and removes what dead runs left.
    pub fn new(options: Options) -> Result<Self, ProviderError> {
        if let Machine::Fixed(guests) = options.machine {
            if guests.is_empty() {
                return Err(ProviderError::Option("no running guest is named: give http://host:port".into()));
            }
            return Ok(Self {
                source: Source::Fixed(Arc::new(Fleet::new(guests))),
                leftovers: Arc::default(),
            });
        }
        let hosted = Hosted::new(Engine::connect()?, options)?;
        // What cannot be removed now is found by the next provider; it must not keep this run from starting.
        let leftovers = hosted.remove_leftovers().unwrap_or_default();
        Ok(Self { source: Source::Hosted(Arc::new(hosted)), leftovers: Arc::new(leftovers) })
    }

    /// A new desktop that responds, before the deadline and within the limit of its kind.
    pub fn start(&self, deadline: Instant) -> Result<Desktop, ProviderError> {
        self.start_unless(None, deadline, &AtomicBool::new(false))
    }

    /// A new desktop with the files of a snapshot.
    pub fn start_from(&self, snapshot: &Snapshot, deadline: Instant) -> Result<Desktop, ProviderError> {
        self.start_unless(Some(snapshot), deadline, &AtomicBool::new(false))
    }

    /// Saves the files of a desktop as they are now; its processes are not saved.
    pub fn snapshot(
        &self,
        desktop: &Desktop,
        name: &str,
        deadline: Instant,
    ) -> Result<Snapshot, ProviderError> {
        match &self.source {
            Source::Hosted(hosted) => Snapshot::take(hosted, desktop, name, deadline),
            Source::Fixed(_) => Err(ProviderError::Option("a running guest has no snapshots".into())),
        }
    }

    /// Removes containers, networks and images of processes that have surely ended.
    pub fn remove_leftovers(&self) -> Result<Leftovers, ProviderError> {
        match &self.source {
            Source::Hosted(hosted) => hosted.remove_leftovers(),
            Source::Fixed(_) => Ok(Leftovers::default()),
        }
    }

    /// Removes every desktop of this provider, whoever still holds it, and its network.
    pub fn remove_all(&self) -> Result<Leftovers, ProviderError> {
        match &self.source {
            Source::Hosted(hosted) => hosted.remove_all(),
            Source::Fixed(_) => Ok(Leftovers::default()),
        }
    }

    /// What was removed when this provider was made.
    pub fn leftovers_at_start(&self) -> &Leftovers {
        &self.leftovers
    }

    /// False for running guests: a "new" desktop of theirs is the old one as it was left.
    pub fn starts_fresh(&self) -> bool {
        matches!(self.source, Source::Hosted(_))
    }

    fn start_unless(
        &self,
        snapshot: Option<&Snapshot>,
        deadline: Instant,
        given_up: &AtomicBool,
    ) -> Result<Desktop, ProviderError> {
        match &self.source {
            Source::Hosted(hosted) => Hosted::start(hosted, snapshot, deadline, given_up),
            Source::Fixed(fleet) => Fleet::start(fleet, deadline, given_up),
        }
    }
}
