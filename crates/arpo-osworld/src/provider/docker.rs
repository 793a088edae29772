//! The Docker engine for synchronous callers: each call runs on a runtime of its own and has a deadline.

use super::EngineVersion;
use super::error::ProviderError;
use bollard::Docker;
use bollard::errors::Error;
use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Timeout of quick calls: queries, pausing, labels.
pub(super) const QUICK: Duration = Duration::from_secs(20);
/// Timeout of creating, starting and removing: an engine with many desktops is slow.
pub(super) const SLOW: Duration = Duration::from_mins(1);
/// Timeout of committing a container's files.
pub(super) const COMMIT: Duration = Duration::from_mins(5);

/// Where the engine listens unless `DOCKER_HOST` says otherwise.
const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";

/// A connection to an engine.
pub(super) struct Engine {
    docker: Docker,
    /// Taken on drop, so that nothing waits for it.
    runtime: Option<Runtime>,
    host: String,
}

impl Engine {
    /// Connects to the engine of `DOCKER_HOST`, or of this machine, and agrees on a version with it.
    pub(super) fn connect() -> Result<Self, ProviderError> {
        let host = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
        Self::connect_to(host.as_deref().unwrap_or(DEFAULT_HOST), QUICK)
    }

    /// Connects to the engine at an address, within a time.
    pub(super) fn connect_to(host: &str, limit: Duration) -> Result<Self, ProviderError> {
        let failed = |error: &Error| connection_error(host, error);
        let docker = Docker::connect_with_host(host).map_err(|error| failed(&error))?;
        // Our own deadlines apply instead.
        let docker = docker.with_timeout(COMMIT * 2);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("docker")
            .enable_all()
            .build()
            .map_err(|error| ProviderError::NoEngine { host: host.to_owned(), problem: error.to_string() })?;
        let mut engine = Self { docker, runtime: Some(runtime), host: host.to_owned() };
        let agreed = engine.raw(limit, Docker::negotiate_version);
        engine.docker = match agreed {
            Some(Ok(docker)) => docker,
            Some(Err(error)) => return Err(failed(&error)),
            None => {
                let problem = format!("no response within {} s", limit.as_secs_f32());
                return Err(ProviderError::NoEngine { host: host.to_owned(), problem });
            }
        };
        Ok(engine)
    }

    /// Its version.
    pub(super) fn version(&self) -> Result<EngineVersion, ProviderError> {
        let found = self.call("tell its version", QUICK, |docker| async move { docker.version().await })?;
        Ok(EngineVersion { host: self.host.clone(), version: found.version.unwrap_or_default() })
    }

    /// The host's name if the engine runs on another machine.
    pub(super) fn remote_host(&self) -> Option<&str> {
        remote_host(&self.host)
    }

    /// Calls the engine; `call` names it for errors, as in "could not {call}".
    pub(super) fn call<T, F, W>(&self, call: &str, limit: Duration, what: W) -> Result<T, ProviderError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
        W: FnOnce(Docker) -> F,
    {
        match self.raw(limit, what) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(Error::DockerResponseServerError { message, .. })) => {
                Err(ProviderError::Engine { call: call.to_owned(), problem: one_line(&message) })
            }
            Some(Err(error)) => match connection_error(&self.host, &error) {
                ProviderError::NoEngine { problem, .. } => {
                    Err(ProviderError::Engine { call: call.to_owned(), problem: one_line(&problem) })
                }
                other => Err(other),
            },
            None => Err(ProviderError::Deadline { call: call.to_owned(), limit_secs: limit.as_secs() }),
        }
    }

    /// Calls the engine; "not found" is `None`.
    pub(super) fn call_if_found<T, F, W>(
        &self,
        call: &str,
        limit: Duration,
        what: W,
    ) -> Result<Option<T>, ProviderError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
        W: FnOnce(Docker) -> F,
    {
        self.call(call, limit, |docker| {
            let future = what(docker);
            async move {
                match future.await {
                    Ok(answer) => Ok(Some(answer)),
                    Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }
        })
    }

    /// None on a timeout. A task and a channel, not `block_on`: it works on every thread, also while one
    /// unwinds from a panic, and its deadline holds even if the runtime hangs.
    fn raw<T, F, W>(&self, limit: Duration, what: W) -> Option<Result<T, Error>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
        W: FnOnce(Docker) -> F,
    {
        let runtime = self.runtime.as_ref()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        let future = what(self.docker.clone());
        runtime.spawn(async move {
            let answer = tokio::time::timeout(limit, future).await.ok();
            // The caller may have stopped waiting.
            let _ = sender.send(answer);
        });
        receiver.recv_timeout(limit + Duration::from_secs(1)).ok().flatten()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn remote_host(host: &str) -> Option<&str> {
    let rest = host.strip_prefix("tcp://").or_else(|| host.strip_prefix("http://"))?;
    let rest = rest.split('/').next().unwrap_or(rest);
    let name = rest.rsplit_once(':').map_or(rest, |(name, _)| name);
    (!matches!(name, "localhost" | "127.0.0.1" | "[::1]")).then_some(name)
}

fn connection_error(host: &str, error: &Error) -> ProviderError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    let mut problem = error.to_string();
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<io::Error>() {
            if io.kind() == io::ErrorKind::PermissionDenied {
                return ProviderError::Forbidden { host: host.to_owned() };
            }
            problem = io.to_string();
        }
        cause = current.source();
    }
    ProviderError::NoEngine { host: host.to_owned(), problem }
}

/// The engine's message without line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_elsewhere_has_a_name() {
        assert_eq!(remote_host("unix:///var/run/docker.sock"), None);
        assert_eq!(remote_host("tcp://127.0.0.1:2375"), None);
        assert_eq!(remote_host("tcp://desk.example:2375"), Some("desk.example"));
        assert_eq!(remote_host("http://10.0.0.7:2375/"), Some("10.0.0.7"));
    }

    #[test]
    fn a_missing_engine_is_a_one_line_error() {
        let error =
            Engine::connect_to("unix:///nowhere/docker.sock", QUICK).err().map(|error| error.to_string());
        let text = error.expect("there is no engine");
        assert!(text.starts_with("no Docker engine at unix:///nowhere/docker.sock"), "{text}");
        assert!(text.contains("DOCKER_HOST"), "{text}");
        let error = Engine::connect_to("tcp://127.0.0.1:1", QUICK).err().map(|error| error.to_string());
        assert!(
            error.expect("nobody listens on port 1").starts_with("no Docker engine at tcp://127.0.0.1:1")
        );
    }

    #[test]
    fn an_engine_that_hangs_is_not_waited_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let host = format!("tcp://{}", listener.local_addr().expect("its address"));
        let begun = std::time::Instant::now();
        let error =
            Engine::connect_to(&host, Duration::from_millis(300)).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("no response within 0.3 s")));
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
}
