//! Desktops that an engine runs for this process: their names, labels, network and startup.

use super::address::{own_address, published_address};
use super::body::{self, Link};
use super::desktop::{ContainerGuard, Desktop};
use super::docker::{Engine, QUICK, SLOW};
use super::error::ProviderError;
use super::leftovers::{CleanScope, Leftovers};
use super::options::{Container, Machine, Network, Options, TOKEN_VARIABLE};
use super::owner::{OWNER_LABEL, Owner, RUN_LABEL};
use super::ready::{ReadinessPolicy, wait_until_ready};
use super::slots::StartSlots;
use super::snapshot::Snapshot;
use bollard::models::{ContainerCreateBody, NetworkCreateRequest};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, StartContainerOptions,
};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The label with the provider's token: everything this provider made, even in calls that failed.
pub(super) const PROVIDER_LABEL: &str = "arpo.provider";

/// Desktops of one provider on an engine.
pub(super) struct Hosted {
    pub(super) engine: Engine,
    pub(super) owner: Owner,
    /// A name no other provider has, in any process.
    pub(super) token: String,
    options: Options,
    /// The internal network, made when the first desktop needs it.
    network: Mutex<Option<String>>,
    started: AtomicU64,
    /// None where starts cost this machine nothing, or take minutes of waiting.
    slots: Option<StartSlots>,
}

impl Hosted {
    /// Whether its desktops share the kernel of this machine.
    pub(super) fn is_local_container(&self) -> bool {
        matches!(self.options.machine, Machine::Container(_)) && self.engine.remote_host().is_none()
    }

    /// Checks that image and disk exist.
    pub(super) fn new(engine: Engine, mut options: Options) -> Result<Self, ProviderError> {
        if let Machine::Container(container) = &mut options.machine {
            require_token(container)?;
        }
        let owner = Owner::this_process();
        let token = token(&owner, &options.run);
        let (network, started) = (Mutex::new(None), AtomicU64::new(0));
        let mut hosted = Self { engine, owner, token, options, network, started, slots: None };
        hosted.slots = hosted.is_local_container().then(StartSlots::for_processors);
        let network = match &hosted.options.machine {
            Machine::Container(container) => container.network,
            Machine::Vm(vm) => {
                if hosted.engine.remote_host().is_none() && !vm.disk.is_file() {
                    return Err(ProviderError::NoDisk { path: vm.disk.clone() });
                }
                vm.network
            }
            Machine::Fixed(_) => return Err(ProviderError::Option("running guests have no engine".into())),
        };
        if let (Network::Isolated | Network::Internal, Some(host)) = (network, hosted.engine.remote_host()) {
            return Err(ProviderError::Option(format!(
                "desktops of the engine on {host} cannot be reached on an internal network: network = \"bridge\""
            )));
        }
        hosted.check_image(hosted.image())?;
        Ok(hosted)
    }

    /// A new desktop that responds; removed again if it does not.
    pub(super) fn start(
        this: &Arc<Self>,
        snapshot: Option<&Snapshot>,
        deadline: Instant,
        given_up: &AtomicBool,
    ) -> Result<Desktop, ProviderError> {
        let name = format!("arpo-{}-{}", this.token, this.started.fetch_add(1, Ordering::Relaxed));
        let _slot = match &this.slots {
            None => None,
            Some(slots) => Some(slots.take(deadline, given_up).ok_or_else(|| not_begun(&name, given_up))?),
        };
        let (body, network) = this.description(snapshot)?;
        let left = |limit: Duration| limit.min(deadline.saturating_duration_since(Instant::now()));
        // From here on the container is removed unless it becomes a desktop.
        let guard = ContainerGuard::new(Arc::clone(this), &name);
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let image = body.image.clone().unwrap_or_default();
        let created = this.engine.call_if_found("create a desktop", left(SLOW), |docker| async move {
            docker.create_container(Some(options), body).await
        })?;
        if created.is_none() {
            return Err(missing(&image));
        }
        let id = name.clone();
        let started = this.engine.call("start a desktop", left(SLOW), |docker| async move {
            docker.start_container(&id, None::<StartContainerOptions>).await
        });
        started.map_err(|error| match error {
            ProviderError::Engine { problem, .. } if problem.contains(body::ISOLATED_ENTRY_POINT) => {
                ProviderError::NotIsolated { image }
            }
            other => other,
        })?;
        let id = name.clone();
        let found = this.engine.call("describe a desktop", left(QUICK), |docker| async move {
            docker.inspect_container(&id, None::<InspectContainerOptions>).await
        })?;
        let addresses = match &network {
            Some(network) => own_address(&found, network),
            None => published_address(&found, this.engine.remote_host().unwrap_or("127.0.0.1")),
        };
        let Some(addresses) = addresses else {
            // A container that ends at once has no address any more: its end is the better message.
            guard.check()?;
            let problem = "it has no address".to_owned();
            return Err(ProviderError::Engine { call: format!("connect desktop {name}"), problem });
        };
        let desktop = Desktop::hosted(addresses, guard, this.token_of_server());
        wait_until_ready(&desktop, this.policy(), deadline, given_up)?;
        Ok(desktop)
    }

    /// Labels of everything this provider makes.
    pub(super) fn labels(&self) -> HashMap<String, String> {
        HashMap::from([
            (RUN_LABEL.to_owned(), self.options.run.clone()),
            (OWNER_LABEL.to_owned(), self.owner.to_string()),
            (PROVIDER_LABEL.to_owned(), self.token.clone()),
        ])
    }

    /// True for OSWorld's virtual machine.
    pub(super) fn is_vm(&self) -> bool {
        matches!(self.options.machine, Machine::Vm(_))
    }

    fn token_of_server(&self) -> Option<String> {
        match &self.options.machine {
            Machine::Container(container) => container.token().map(str::to_owned),
            Machine::Vm(_) | Machine::Fixed(_) => None,
        }
    }

    /// What its desktops can reach.
    fn access(&self) -> Network {
        match &self.options.machine {
            Machine::Container(container) => container.network,
            Machine::Vm(vm) => vm.network,
            Machine::Fixed(_) => Network::Bridge,
        }
    }

    fn image(&self) -> &str {
        match &self.options.machine {
            Machine::Container(container) => &container.image,
            Machine::Vm(vm) => &vm.image,
            Machine::Fixed(_) => "",
        }
    }

    fn policy(&self) -> ReadinessPolicy {
        match &self.options.machine {
            Machine::Vm(vm) => ReadinessPolicy {
                limit: vm.ready_within,
                interval: Duration::from_secs(1),
                one_try: Duration::from_secs(10),
                settles: false,
            },
            Machine::Container(container) => {
                ReadinessPolicy { settles: true, ..ReadinessPolicy::quick(container.ready_within) }
            }
            Machine::Fixed(_) => ReadinessPolicy::quick(Duration::from_secs(30)),
        }
    }

    fn check_image(&self, image: &str) -> Result<(), ProviderError> {
        let name = image.to_owned();
        let found = self.engine.call_if_found("look for an image", QUICK, |docker| async move {
            docker.inspect_image(&name).await
        })?;
        found.map(|_| ()).ok_or_else(|| missing(image))
    }

    /// The container to make and the internal network it is on, if it is on one.
    fn description(
        &self,
        snapshot: Option<&Snapshot>,
    ) -> Result<(ContainerCreateBody, Option<String>), ProviderError> {
        let network = match self.access() {
            Network::Isolated | Network::Internal => Some(self.network()?),
            Network::Bridge => None,
        };
        // The loopback of another machine is not reachable from here.
        let publish_at = if self.engine.remote_host().is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let link = match (&network, self.access()) {
            (Some(name), Network::Isolated) => Link::Isolated(name),
            (Some(name), Network::Internal | Network::Bridge) => Link::Internal(name),
            (None, _) => Link::Published(publish_at),
        };
        let body = match &self.options.machine {
            Machine::Container(container) => {
                let image = snapshot.map_or(container.image.as_str(), Snapshot::image);
                body::container(container, image, self.labels(), &link)
            }
            Machine::Vm(vm) => {
                let remote = self.engine.remote_host().is_some();
                let kvm = remote || Path::new("/dev/kvm").exists();
                body::vm(vm, &absolute(&vm.disk), kvm, self.labels(), &link)
            }
            Machine::Fixed(_) => ContainerCreateBody::default(),
        };
        Ok((body, network))
    }

    /// The internal network, made once. One per provider, not per machine: names of networks are not unique on an
    /// engine, so that two processes could not make one together; and it goes when its provider goes.
    fn network(&self) -> Result<String, ProviderError> {
        let mut network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = &*network {
            return Ok(name.clone());
        }
        let name = format!("arpo-{}", self.token);
        let icc = ("com.docker.network.bridge.enable_icc".to_owned(), "false".to_owned());
        let request = NetworkCreateRequest {
            name: name.clone(),
            driver: Some("bridge".into()),
            internal: Some(true),
            // Desktops do not see each other.
            options: Some(HashMap::from([icc])),
            labels: Some(self.labels()),
            ..NetworkCreateRequest::default()
        };
        self.engine.call("create the desktops' network", SLOW, |docker| async move {
            docker.create_network(request).await
        })?;
        *network = Some(name.clone());
        Ok(name)
    }
}

impl Hosted {
    /// Removes what processes that have surely ended left behind.
    pub(super) fn remove_leftovers(&self) -> Result<Leftovers, ProviderError> {
        self.engine.remove_leftovers(&self.owner, CleanScope::EndedProcesses)
    }

    /// Removes everything of this provider.
    pub(super) fn remove_all(&self) -> Result<Leftovers, ProviderError> {
        self.engine.remove_labelled(&format!("{PROVIDER_LABEL}={}", self.token), |_| true)
    }
}

impl Drop for Hosted {
    /// Every desktop is gone by now: each of them holds this. What is left are containers of calls that were
    /// abandoned while the engine was still busy, and the network.
    fn drop(&mut self) {
        let _ = self.remove_all();
    }
}

/// Every server has a token: whoever else uses this machine can reach the address of a desktop.
fn require_token(container: &mut Container) -> Result<(), ProviderError> {
    if container.token().is_none() {
        let mut random = [0_u8; 16];
        let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random));
        read.map_err(|error| ProviderError::Option(format!("no random token: /dev/urandom: {error}")))?;
        let token = random.iter().fold(String::new(), |token, byte| token + &format!("{byte:02x}"));
        container.environment.push(format!("{TOKEN_VARIABLE}={token}"));
    }
    Ok(())
}

/// Eight hexadecimal digits from owner, time and count: unique enough for names on one engine.
fn token(owner: &Owner, run: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let digest = Sha256::digest(format!("{owner}\n{run}\n{now}\n{count}"));
    let first = digest.iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    format!("{first:08x}")
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Why a start had no turn.
fn not_begun(name: &str, given_up: &AtomicBool) -> ProviderError {
    if given_up.load(Ordering::Acquire) {
        return ProviderError::Closing { name: name.to_owned() };
    }
    let problem = "other desktops were still being started at the deadline".to_owned();
    ProviderError::Engine { call: format!("start desktop {name}"), problem }
}

fn missing(image: &str) -> ProviderError {
    let remedy = if image.starts_with("arpo-desktop") {
        "build it with `./x image`".to_owned()
    } else {
        format!("get it with `docker pull {image}`")
    };
    ProviderError::NoImage { image: image.to_owned(), remedy }
}
