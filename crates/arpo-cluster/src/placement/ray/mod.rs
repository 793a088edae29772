//! Workers as jobs of an existing Ray cluster: one on each host that has a resource `docker:<ip>`, as in the original.
//!
//! Ray places and watches; everything else is between worker and hub as ever, and no screenshot passes through Ray.
//!
//! | to change | look in |
//! |---|---|
//! | requests to Ray | `client` |
//! | the token of a cluster | `auth` |
//! | which host takes how many desktops | `hosts` |
//! | how the program comes to the hosts | `package` |
//! | what happens when a job or a node ends, and at the end of a run | `supervisor` |

mod auth;
mod client;
mod hosts;
mod package;
mod supervisor;
#[cfg(test)]
mod tests;

pub use auth::Auth;
pub use client::{Client, RayError};

use super::local::Local;
use super::supervision::SupervisorThread;
use super::{Placed, Placement};
use crate::hub::HubHandle;
use crate::protocol::token::TOKEN_VARIABLE;
use arpo_core::config::Config;
use arpo_suite::SuiteError;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use supervisor::{Pace, Plan, Supervisor};

/// Time that Ray gives a stopped worker to remove its desktops in; its own three seconds are too few for containers.
const STOP_SECONDS: &str = "20";

/// The folder of workers on their hosts, for the shell.
const FOLDER: &str = "\"${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/arpo\"";

/// Workers on the hosts of a Ray cluster.
#[derive(Debug, Clone)]
pub struct Ray {
    /// Its dashboard, as `HOST:PORT`.
    pub head: String,
    /// How many desktops the run wants.
    pub desktops: usize,
    /// How many hosts may be lost while the others still have room for all of them.
    pub spare_hosts: usize,
    /// Where the program `arpo-worker` is.
    pub program: Program,
    /// What workers are told to connect to: a host, or a host and a port; empty for where the hub listens.
    pub advertise: String,
    /// The shared token.
    pub token: String,
    /// What requests to Ray prove themselves with.
    pub auth: Auth,
}

/// Where the program for workers is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// At this path on every host.
    Shared(String),
    /// On this machine; Ray brings it to the hosts.
    Upload(PathBuf),
}

impl Ray {
    /// As configured, with the cluster's head at `HOST:PORT`.
    pub fn new(config: &Config, head: &str, token: String) -> Result<Self, SuiteError> {
        let cluster = &config.cluster;
        let program = match cluster.worker_path.as_str() {
            "" => Program::Upload(Local::program_beside_this()?),
            path => Program::Shared(path.into()),
        };
        Ok(Self {
            head: head.into(),
            desktops: config.collect.desktops,
            spare_hosts: cluster.spare_hosts,
            program,
            advertise: cluster.advertise.clone(),
            token,
            auth: Auth::from_environment()?,
        })
    }

    /// An error unless the cluster answers and has hosts for desktops.
    pub fn check(&self) -> Result<(), SuiteError> {
        let client = self.client();
        let failed = |error: RayError| SuiteError::Service(error.to_string());
        client.version().map_err(failed)?;
        if hosts::offers(&client.nodes().map_err(failed)?).is_empty() {
            return Err(SuiteError::Service(format!(
                "no node of the Ray cluster at {} has a resource for desktops: expected nodes started with, for example, \
                 `ray start --head --resources='{{\"docker:IP\": 128}}'`, IP being the host's address",
                self.head
            )));
        }
        Ok(())
    }

    fn client(&self) -> Client {
        Client::new(&self.head, self.auth.clone())
    }

    /// What workers connect to, if the hub listens here.
    fn connect(&self, address: SocketAddr) -> Result<String, SuiteError> {
        if self.advertise.is_empty() {
            let reached = match address.ip() {
                ip if ip.is_unspecified() => route_to(&self.head)?,
                ip => ip,
            };
            return Ok(SocketAddr::new(reached, address.port()).to_string());
        }
        let has_port = self.advertise.parse::<SocketAddr>().is_ok()
            || self
                .advertise
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.contains(':') && port.parse::<u16>().is_ok());
        let host = &self.advertise;
        Ok(match host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, address.port()).to_string(),
            Err(_) if has_port => host.clone(),
            Err(_) => format!("{host}:{}", address.port()),
        })
    }
}

/// The address of this machine that the cluster's head sees.
pub(crate) fn route_to(head: &str) -> Result<IpAddr, SuiteError> {
    let failed = |problem: String| {
        SuiteError::Configuration(format!(
            "`cluster.workers` = \"ray://{head}\": {problem}; expected the address of the head's dashboard"
        ))
    };
    let mut addresses = head.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let address =
        addresses.find(SocketAddr::is_ipv4).ok_or_else(|| failed("it has no IPv4 address".into()))?;
    // nothing is sent: connecting a datagram socket chooses the route
    let local = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(address).and_then(|()| socket.local_addr()));
    local.map(|local| local.ip()).map_err(|error| failed(error.to_string()))
}

/// A word for the shell of a host.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl Placement for Ray {
    fn place(&self, address: SocketAddr, hub: &HubHandle) -> Result<Box<dyn Placed>, SuiteError> {
        self.check()?;
        let client = self.client();
        let connect = self.connect(address)?;
        let mut runtime_env =
            json!({"env_vars": {TOKEN_VARIABLE: self.token, "RAY_JOB_STOP_WAIT_TIME_S": STOP_SECONDS}});
        let program = match &self.program {
            Program::Shared(path) => quoted(path),
            Program::Upload(path) => {
                hub.log(&format!("the worker's program is on its way to the Ray cluster at {}", self.head));
                runtime_env["working_dir"] = package::store(&client, path)?.into();
                format!("\"$PWD\"/{}", package::PROGRAM)
            }
        };
        let failed = |error: std::io::Error| SuiteError::Service(error.to_string());
        let run = crate::protocol::token::random().map_err(failed)?;
        let plan = Plan {
            run: format!("arpo-{}", &run[..8]),
            // in a folder that outlives the job, for downloads; in place of the shell, so that a signal for the job is one for
            // the worker
            command: format!(
                "program={program}; mkdir -p {FOLDER} && cd {FOLDER} && exec \"$program\" --connect {} --one-run",
                quoted(&connect)
            ),
            runtime_env,
            desktops: self.desktops,
            spare_hosts: self.spare_hosts,
        };
        let log = hub.clone();
        let log = Box::new(move |line: &str| log.log(line));
        let pace = Pace::default();
        let supervisor = Supervisor::new(client, plan, pace, log);
        Ok(Box::new(SupervisorThread::start("ray", pace.poll, supervisor).map_err(failed)?))
    }
}
