//! A question to the Docker engine, over its own socket: the command-line client is not needed.

use super::Finding;
use serde::Deserialize;
use std::env;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What the finding is called.
pub(super) const NAME: &str = "Docker";

/// For one read or write; the whole question has a deadline of its own.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the engine listens unless `DOCKER_HOST` says otherwise.
const DEFAULT_HOST: &str = "unix:///var/run/docker.sock";

/// The engine's answer to `GET /version`.
#[derive(Deserialize)]
struct Version {
    #[serde(rename = "Version")]
    version: String,
}

/// Whether an engine answers.
pub(super) fn engine() -> Finding {
    let host = env::var("DOCKER_HOST")
        .ok()
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| DEFAULT_HOST.to_owned());
    let needed_for = "container desktops and OSWorld";
    let install = "apt-get install docker.io && systemctl start docker";
    match ask(&host) {
        Ok(version) => Finding::usable(NAME, format!("engine {version} at {host}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Finding::missing(NAME, format!("no engine at {host}"), needed_for, install)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let detail = format!("the engine at {host} refuses this user");
            Finding::broken(NAME, detail, needed_for, "usermod -aG docker $USER, then log in again")
        }
        Err(error) => Finding::broken(
            "Docker",
            format!("the engine at {host} does not answer: {error}"),
            needed_for,
            install,
        ),
    }
}

fn ask(host: &str) -> io::Result<String> {
    if let Some(path) = host.strip_prefix("unix://") {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        return version(stream);
    }
    if let Some(address) = host.strip_prefix("tcp://") {
        let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        return version(stream);
    }
    Err(io::Error::other("expected DOCKER_HOST to be unix://PATH or tcp://HOST:PORT"))
}

/// One request in HTTP/1.0, which the engine answers and then closes: no client library for one number.
fn version(mut stream: impl Read + Write) -> io::Result<String> {
    stream.write_all(b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let version: Version = serde_json::from_str(body)
        .map_err(|_| io::Error::other(format!("{:?}", answer.lines().next().unwrap_or("nothing"))))?;
    Ok(version.version)
}
