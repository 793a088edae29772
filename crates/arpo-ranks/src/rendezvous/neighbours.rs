//! The ring: every rank connects to the next one and takes the connection of the one before.

use super::hearing::{Door, HELLO_TIMEOUT, read, tell};
use crate::error::RankError;
use crate::hello::{Pass, RingHello};
use crate::kind::Kind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Longest time for a neighbour's hello once it is connected: it says it at once.
const RING_HELLO_TIMEOUT: Duration = Duration::from_secs(1);

/// How ranks of one machine reach each other, whatever the address of rank 0.
pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A listener for the rank before this one, which other machines can reach only if there are ranks on some.
pub(super) fn ring_listener(one_machine: bool) -> Result<TcpListener, RankError> {
    let bound = if one_machine {
        TcpListener::bind((LOOPBACK, 0))
    } else {
        // for IPv4, too
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
    };
    bound.map_err(RankError::system("listening for the rank before this one"))
}

/// Connects to the next rank and takes the connection of the one before.
pub(super) fn neighbours(
    rank: usize,
    size: usize,
    listener: &TcpListener,
    next: SocketAddr,
    token: &str,
) -> Result<(TcpStream, TcpStream), RankError> {
    let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
    let to = TcpStream::connect_timeout(&next, HELLO_TIMEOUT)
        .and_then(|to| tell(&to, Kind::Ring, &RingHello { pass: Pass::new(token), rank }).map(|()| to));
    let to = to.map_err(|error| RankError::Rendezvous(format!("rank {after} at {next}: {error}")))?;
    listener.set_nonblocking(true).map_err(RankError::system("listening for ranks"))?;
    let (mut door, deadline) = (Door::new(), Instant::now() + HELLO_TIMEOUT);
    loop {
        let token = token.to_owned();
        let introduced = door.next(listener, move |stream, _| {
            let hello = read(stream, &[Kind::Ring], RING_HELLO_TIMEOUT).and_then(|frame| Ok(frame.fields()?));
            let hello: RingHello = hello.map_err(|error| error.to_string())?;
            hello.pass.check(&token).map(|()| hello.rank)
        })?;
        // anybody else is not worth a word
        if let Some(Ok((rank, from))) = introduced
            && rank == before
        {
            return Ok((from, to));
        }
        if Instant::now() > deadline {
            return Err(RankError::Rendezvous(format!(
                "rank {before} did not connect to rank {rank} within {} s",
                HELLO_TIMEOUT.as_secs_f64()
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_peers_at_a_port_of_the_ring_hold_nobody_up() {
        let listen = || ring_listener(true).unwrap();
        let (zero, one) = (listen(), listen());
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let (to_zero, to_one) = (address(&zero), address(&one));
        // they are before the neighbour in the queue, and say nothing
        let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(to_zero).unwrap()).collect();
        let began = Instant::now();
        let other = std::thread::spawn(move || neighbours(1, 2, &one, to_zero, "secret"));
        neighbours(0, 2, &zero, to_one, "secret").unwrap();
        other.join().unwrap().unwrap();
        assert!(began.elapsed() < HELLO_TIMEOUT / 2, "{:?}", began.elapsed());
        drop(silent);
    }
}
