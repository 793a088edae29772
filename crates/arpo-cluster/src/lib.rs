//! Desktops in other processes and on other machines.
//!
//! A trainer listens; workers (`arpo-worker`) dial it, host desktops and carry out its calls. The trainer sees a source of
//! desktops like any other, so that collecting and learning know nothing of machines.
//!
//! | to change | look in |
//! |---|---|
//! | what trainer and workers say to each other | [`protocol`] |
//! | the worker: its connection, its desktops | [`worker`] |
//! | the trainer's side: which worker gets a desktop, lost workers, bad hosts | [`mod@hub`] |
//! | how workers come to a run | [`placement`] |
//! | asking a running trainer how its workers are | [`contact`] |

pub mod contact;
pub mod hub;
mod link;
pub mod placement;
pub mod protocol;
pub mod worker;

use arpo_core::config::{Config, Workers};
use arpo_suite::{EnvironmentSource, SuiteError};
use hub::{Hub, HubOptions};
use placement::Placement;
use placement::listen::Listen;
use placement::local::Local;
use placement::ray::Ray;
use protocol::token;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

/// Checks what can be checked before anything is started: the address and its token, the program for workers.
pub fn check(config: &Config) -> Result<(), SuiteError> {
    match placement_of(config)? {
        Workers::None => Ok(()),
        Workers::Local(_) => Local::program_beside_this().map(drop),
        Workers::Ray(head) => {
            ray_listen_address(config, &head)?;
            Ray::new(config, &head, String::new())?.check()
        }
        Workers::Listen => {
            token::check_address(LISTEN_KEY, listen_address(config)?, &token::from_environment())
                .map_err(SuiteError::Configuration)
        }
    }
}

/// The source of the desktops that a configuration names: in this process, or on workers.
pub fn source(
    config: &Config,
    folder: Option<&Path>,
    log: impl Fn(&str) + Send + Sync + 'static,
    stopped: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Arc<dyn EnvironmentSource>, SuiteError> {
    Ok(match hub(config, folder, log, stopped)? {
        Some(hub) => Arc::new(hub),
        None => arpo_suite::source(config)?,
    })
}

/// The hub for the workers that a configuration names; `None` if it names none. It tells `log` what a user may want to know,
/// and waits for workers until `stopped` says that nobody wants them any more. In the folder, if there is one, it says where
/// it is, and local workers write their logs.
pub fn hub(
    config: &Config,
    folder: Option<&Path>,
    log: impl Fn(&str) + Send + Sync + 'static,
    stopped: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Option<Hub>, SuiteError> {
    let (options, placement): (HubOptions, Box<dyn Placement>) = match placement_of(config)? {
        Workers::None => return Ok(None),
        Workers::Local(workers) => {
            // a token of its own, because everybody on this machine can connect
            let token = token::random().map_err(|error| SuiteError::Service(error.to_string()))?;
            let local = Local {
                workers,
                desktops: placement::room(config.collect.desktops, workers, config.cluster.spare_hosts),
                program: Local::program_beside_this()?,
                arguments: vec![],
                token: token.clone(),
                logs: folder.map(|folder| folder.join("workers")),
            };
            let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            (HubOptions::new(config, listen, token), Box::new(local))
        }
        Workers::Ray(head) => {
            let random = || token::random().map_err(|error| SuiteError::Service(error.to_string()));
            let token = Some(token::from_environment()).filter(|token| !token.is_empty());
            let token = token.map_or_else(random, Ok)?;
            let ray = Ray::new(config, &head, token.clone())?;
            (HubOptions::new(config, ray_listen_address(config, &head)?, token), Box::new(ray))
        }
        Workers::Listen => {
            let options = HubOptions::new(config, listen_address(config)?, token::from_environment());
            (options, Box::new(Listen))
        }
    };
    let hub = Hub::start(config, options, placement, Box::new(log))?;
    Ok(Some(hub.stopped_by(stopped).found_in(folder.map(Path::to_path_buf))))
}

fn placement_of(config: &Config) -> Result<Workers, SuiteError> {
    config.cluster.placement().map_err(SuiteError::Configuration)
}

/// Where to listen for workers that Ray starts: where its head sees this machine, unless another address is configured.
fn ray_listen_address(config: &Config, head: &str) -> Result<SocketAddr, SuiteError> {
    if config.cluster.listen.is_empty() {
        return Ok(SocketAddr::new(placement::ray::route_to(head)?, 0));
    }
    listen_address(config)
}

/// The key of the address that workers connect to.
pub(crate) const LISTEN_KEY: &str = "cluster.listen";

/// Where to listen for workers that somebody else starts, if nothing is configured.
const LISTEN: &str = "127.0.0.1:7700";

fn listen_address(config: &Config) -> Result<SocketAddr, SuiteError> {
    let text = match config.cluster.listen.as_str() {
        "" => LISTEN,
        text => text,
    };
    let wrong = |problem: String| {
        SuiteError::Configuration(format!(
            "`cluster.listen` = {text:?}: {problem}; expected an address of this machine, such as \"0.0.0.0:7700\""
        ))
    };
    let mut addresses = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    addresses.next().ok_or_else(|| wrong("it has no address".into()))
}
