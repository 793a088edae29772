//! Connecting to a name that may have several addresses: `localhost`, or a host with IPv6, often has one first at which nobody
//! listens.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Connects to the first address of a name that answers. Each has an equal part of the timeout.
pub fn connect_to_any(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<TcpStream> {
    let found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let part = timeout / found.len().max(1) as u32;
    let mut problems: Vec<(IpAddr, io::Error)> = vec![];
    for one in found {
        match TcpStream::connect_timeout(&one, part) {
            Ok(stream) => return Ok(stream),
            Err(error) => problems.push((one.ip(), error)),
        }
    }
    if problems.len() > 1 {
        let all: Vec<String> = problems.iter().map(|(ip, error)| format!("{ip}: {error}")).collect();
        return Err(io::Error::other(all.join(", ")));
    }
    let only = problems.pop().map(|(_, error)| error);
    Err(only.unwrap_or_else(|| io::Error::other("the name has no address")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const LIMIT: Duration = Duration::from_mins(1);

    #[test]
    fn an_address_at_which_nobody_listens_is_passed_over() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let addresses = [nobody, listener.local_addr().unwrap()];
        let stream = connect_to_any(&addresses[..], LIMIT).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
        let problem = |addresses: &[SocketAddr]| connect_to_any(addresses, LIMIT).unwrap_err();
        assert_eq!(problem(&[nobody]).kind(), io::ErrorKind::ConnectionRefused);
        let refused = problem(&[nobody]);
        assert_eq!(
            problem(&[nobody, nobody]).to_string(),
            format!("127.0.0.1: {refused}, 127.0.0.1: {refused}")
        );
        assert_eq!(problem(&[]).to_string(), "the name has no address");
    }
}
