//! Queries the Docker engine over its socket; the command-line client is not needed.

use super::Finding;
use serde::Deserialize;
use std::env;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Name of the finding.
pub(super) const NAME: &str = "Docker";

/// Timeout of one read or write; the whole check has its own deadline.
const IO_TIMEOUT: Duration = Duration::from_secs(5);

/// The engine's address if `DOCKER_HOST` is not set.
const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";

/// The engine's response to `GET /version`.
#[derive(Deserialize)]
struct Version {
    #[serde(rename = "Version")]
    version: String,
}

/// Checks whether an engine responds.
pub(super) fn engine() -> Finding {
    let host = env::var("DOCKER_HOST")
        .ok()
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| DEFAULT_HOST.to_owned());
    let needed_for = "container desktops and OSWorld";
    let install = "apt-get install docker.io && systemctl start docker";
    match query(&host) {
        Ok(version) => Finding::usable(NAME, format!("engine {version} at {host}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Finding::missing(NAME, format!("no engine at {host}"), needed_for, install)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let detail = format!("permission denied for the engine at {host}");
            Finding::broken(NAME, detail, needed_for, "usermod -aG docker $USER, then log in again")
        }
        Err(error) => Finding::broken(
            "Docker",
            format!("the engine at {host} does not respond: {error}"),
            needed_for,
            install,
        ),
    }
}

fn query(host: &str) -> io::Result<String> {
    if let Some(path) = host.strip_prefix("unix://") {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        return version(stream);
    }
    if let Some(address) = host.strip_prefix("tcp://") {
        let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect_timeout(&address, IO_TIMEOUT)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        return version(stream);
    }
    Err(io::Error::other("expected DOCKER_HOST to be unix://PATH or tcp://HOST:PORT"))
}

/// One HTTP/1.0 request, after which the engine closes the connection: not worth a client library.
fn version(mut stream: impl Read + Write) -> io::Result<String> {
    stream.write_all(b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut response = Vec::new();
    stream.take(1 << 20).read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response);
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let version: Version = serde_json::from_str(body)
        .map_err(|_| io::Error::other(format!("{:?}", response.lines().next().unwrap_or("nothing"))))?;
    Ok(version.version)
}
