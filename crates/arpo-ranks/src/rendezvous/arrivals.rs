//! Who comes to rank 0: processes that say a proper hello, and the numbers they get.

use super::Rendezvous;
use super::hearing::{Door, hear, tell};
use crate::error::RankError;
use crate::hello::{Hello, Refused};
use crate::kind::Kind;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A process that has said a proper hello.
struct Arrived {
    hello: Hello,
    /// Its address for other machines; `None` on rank 0's own.
    machine: Option<IpAddr>,
    stream: TcpStream,
}

impl Arrived {
    /// Whether it waits: its connection has not ended.
    fn waits(&self) -> bool {
        let seen = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        // whatever else is read has a deadline instead
        let restored = self.stream.set_nonblocking(false);
        let open = seen.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |count| count > 0);
        open && restored.is_ok()
    }
}

/// A process with its number in the run.
pub(super) struct Member {
    /// `rank 3 (host, process 17)`.
    pub(super) name: String,
    pub(super) machine: Option<IpAddr>,
    pub(super) stream: TcpStream,
}

impl Rendezvous {
    /// So many processes that have said a proper hello, in the order of their numbers.
    pub(super) fn members(
        &self,
        count: usize,
        limit: Duration,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<Vec<Member>, RankError> {
        Ok(numbered(self.arrivals(count, limit, news, look)?))
    }

    /// So many processes that have said a proper hello, in the order of their arrival. If they do not come together, those that
    /// wait are told why.
    fn arrivals(
        &self,
        count: usize,
        limit: Duration,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<Vec<Arrived>, RankError> {
        let mut arrived = vec![];
        let complete = self.wait_for(count, limit, &mut arrived, news, look);
        if let Err(error) = &complete {
            let reason = format!("the run did not begin: {error}");
            for one in &arrived {
                refuse(&one.stream, &reason);
            }
        }
        complete.map(|()| arrived)
    }

    fn wait_for(
        &self,
        count: usize,
        limit: Duration,
        arrived: &mut Vec<Arrived>,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        let deadline = Instant::now() + limit;
        let mut door = Door::new();
        loop {
            // one that was killed and started again must not be counted twice
            arrived.retain(|one| {
                let waits = one.waits();
                if !waits {
                    news(&format!("a rank ({}) left before the others had come", origin(&one.hello)));
                }
                waits
            });
            if arrived.len() >= count {
                return Ok(());
            }
            look()?;
            if Instant::now() > deadline {
                return Err(RankError::Rendezvous(format!(
                    "{} of {count} other ranks came to {} within {} s",
                    arrived.len(),
                    self.address,
                    limit.as_secs_f64()
                )));
            }
            let token = self.token.clone();
            let introduced = door.next(&self.listener, move |stream, peer| {
                introduction(stream, &token).map_err(|reason| format!("refused {peer}: {reason}"))
            })?;
            match introduced {
                Some(Ok((hello, stream))) => {
                    let machine = machine_of(&stream);
                    arrived.push(Arrived { hello, machine, stream });
                }
                Some(Err(line)) => news(&line),
                None => {}
            }
        }
    }
}

/// The processes with their numbers.
fn numbered(mut arrived: Vec<Arrived>) -> Vec<Member> {
    // neighbours are on one machine as far as possible; stable, and rank 0's own comes first
    arrived.sort_by_key(|one| one.machine);
    let member = |(number, one): (usize, Arrived)| {
        let Arrived { hello, machine, stream } = one;
        let name = format!("rank {} ({})", number + 1, origin(&hello));
        Member { name, machine, stream }
    };
    arrived.into_iter().enumerate().map(member).collect()
}

/// `host, process 17`.
fn origin(hello: &Hello) -> String {
    let host: String = hello.host.chars().filter(|letter| !letter.is_control()).take(64).collect();
    format!("{host}, process {}", hello.process)
}

/// Reads and checks a hello; a process that is not taken is told why.
fn introduction(stream: &TcpStream, token: &str) -> Result<Hello, String> {
    let checked = hear::<Hello>(stream, Kind::Hello)
        .map_err(|error| error.to_string())
        .and_then(|hello| hello.pass.check(token).map(|()| hello));
    if let Err(reason) = &checked {
        refuse(stream, reason);
    }
    checked
}

/// Tells a process why it is not taken.
fn refuse(stream: &TcpStream, reason: &str) {
    // cut, so that it never grows beyond a frame
    let reason = reason.chars().take(600).collect();
    let _ = tell(stream, Kind::Refused, &Refused { reason });
    let _ = stream.shutdown(Shutdown::Both);
}

/// The machine of a rank; a connection that has ended already is noticed before the rank is counted.
fn machine_of(stream: &TcpStream) -> Option<IpAddr> {
    let (peer, own) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
    address_for_others(peer.ip(), own.ip())
}

/// The address of a rank for those on other machines, from the two ends of its connection as rank 0 sees them; `None` for rank
/// 0's own machine, of which a rank has the same address as rank 0 if it has not dialled the loopback interface.
///
/// A listener at `[::]` sees IPv4 peers under IPv6 addresses, with which a machine without IPv6 can do nothing.
fn address_for_others(peer: IpAddr, own: IpAddr) -> Option<IpAddr> {
    Some(peer.to_canonical()).filter(|ip| !ip.is_loopback() && *ip != own.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::Pass;
    use crate::rendezvous::neighbours::LOOPBACK;
    use std::net::TcpListener;

    #[test]
    fn other_machines_are_told_addresses_that_they_can_use() {
        let told = |peer: &str| seen(peer, "10.0.0.5").map(|ip| ip.to_string());
        assert_eq!(told("::ffff:10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(told("10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!(told("fd00::7").as_deref(), Some("fd00::7"));
        for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.5", "::ffff:10.0.0.5"] {
            assert_eq!(told(here), None, "{here}");
        }
        assert_eq!(seen("10.0.0.5", "::ffff:10.0.0.5"), None);
    }

    /// The address for others of a rank that connected from the first address to the second.
    fn seen(peer: &str, own: &str) -> Option<IpAddr> {
        address_for_others(peer.parse().unwrap(), own.parse().unwrap())
    }

    #[test]
    fn ranks_are_numbered_machine_by_machine() {
        let listener = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let arrived = |(process, peer): (u32, &str)| Arrived {
            hello: Hello { pass: Pass::new(""), host: "node".into(), process },
            // `learn.listen` = "10.0.0.5:7701", which the ranks of rank 0's machine dial, too
            machine: seen(peer, "10.0.0.5"),
            stream: TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
        };
        let peers = ["10.0.0.9", "10.0.0.5", "10.0.0.3", "10.0.0.9", "127.0.0.1", "10.0.0.3", "10.0.0.5"];
        let members = numbered((0..).zip(peers).map(arrived).collect());
        let names: Vec<&str> = members.iter().map(|one| one.name.as_str()).collect();
        let expected = [1, 4, 6, 2, 5, 0, 3].into_iter().zip(1..);
        let expected: Vec<String> =
            expected.map(|(process, rank)| format!("rank {rank} (node, process {process})")).collect();
        assert_eq!(names, expected);
        assert!(members[..3].iter().all(|one| one.machine.is_none()));
    }
}
