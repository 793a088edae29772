//! How ranks find each other: rank 0 listens, the others dial it and show the token of the cluster.
//!
//! Ranks are numbered machine by machine, those of rank 0's first, and there in the order of their arrival. When all are
//! there, each listens for the rank before it, rank 0 tells each where the next one is, and they connect to a ring. The ranks
//! of a run may form several groups: rank 0 is rank 0 of each of them, and every other rank is in one. A peer that says
//! something else than a rank, or nothing, is refused with a line and does not hold anybody up.

use crate::deadline::UntilDeadline;
use crate::error::RankError;
use crate::group::{Group, GroupOptions, Line, Place};
use crate::hello::{Hello, Neighbour, Pass, Ready, Refused, RingHello, Welcome, host};
use crate::kind::{Frame, Kind};
use crate::token;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Longest time for a hello, and for a connection between neighbours.
const HELLO: Duration = Duration::from_secs(10);

/// Longest time for a neighbour's hello once it is connected: it says it at once.
const RING_HELLO: Duration = Duration::from_secs(1);

/// How often those who wait look up.
const GLANCE: Duration = Duration::from_millis(20);

/// Most connections without a hello: whoever connects cannot use up the threads.
const MOST_UNKNOWN: usize = 64;

/// Rank 0 before the others have come.
#[derive(Debug)]
pub struct Rendezvous {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

/// A process that has said a proper hello.
struct Arrived {
    hello: Hello,
    /// Its address for other machines; `None` on rank 0's own.
    machine: Option<IpAddr>,
    stream: TcpStream,
}

/// A process with its number in the run.
struct Member {
    /// `rank 3 (host, process 17)`.
    name: String,
    machine: Option<IpAddr>,
    stream: TcpStream,
}

impl Rendezvous {
    /// Listens at an address of this machine, which is the value of this key of the configuration.
    pub fn listen(key: &str, address: SocketAddr, token: &str) -> Result<Self, RankError> {
        token::check_address(key, address, token).map_err(RankError::Rendezvous)?;
        let wrong = |error: io::Error| {
            RankError::Rendezvous(format!(
                "`{key}` = {address}: {error}; expected an address of this machine that is free"
            ))
        };
        let listener = TcpListener::bind(address).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(RankError::system("listening for ranks"))?;
        let address = listener.local_addr().map_err(RankError::system("listening for ranks"))?;
        Ok(Self { listener, address, token: token.into() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for all other ranks and forms the group. `news` is told in a line who was refused; `look` is asked again and
    /// again whether to go on waiting.
    pub fn gather(
        self,
        size: usize,
        options: GroupOptions,
        limit: Duration,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<Group, RankError> {
        let [group] = self.gather_groups([size - 1], options, limit, news, look)?;
        Ok(group)
    }

    /// The same for several groups with so many other ranks each: the first ranks are in the first group, and so on.
    pub fn gather_groups<const GROUPS: usize>(
        self,
        others: [usize; GROUPS],
        options: GroupOptions,
        limit: Duration,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<[Group; GROUPS], RankError> {
        let mut members = self.members(others.iter().sum(), limit, news, look)?.into_iter();
        let (mut groups, mut offset) = (vec![], 0);
        for count in others {
            groups.push(self.group(members.by_ref().take(count).collect(), offset, options)?);
            offset += count;
        }
        <[Group; GROUPS]>::try_from(groups)
            .map_err(|groups| RankError::Internal(format!("{} groups instead of {GROUPS}", groups.len())))
    }

    /// Forms a group with these ranks; so many are in groups before it.
    fn group(&self, members: Vec<Member>, offset: usize, options: GroupOptions) -> Result<Group, RankError> {
        if members.is_empty() {
            return Ok(Group::alone());
        }
        let size = members.len() + 1;
        let one_machine = members.iter().all(|member| member.machine.is_none());
        let welcome = |rank: usize| Welcome {
            rank,
            size,
            offset,
            one_machine,
            deadline_ms: options.deadline.as_millis() as u64,
            silence_ms: options.silence.as_millis() as u64,
        };
        let cut = |one: &Member| {
            let name = one.name.clone();
            move |error: io::Error| {
                RankError::Rendezvous(format!("{name} left before the run began: {error}"))
            }
        };
        for (number, one) in members.iter().enumerate() {
            tell(&one.stream, Kind::Welcome, &welcome(number + 1)).map_err(cut(one))?;
        }
        let listener = ring_listener(one_machine)?;
        let own = listener.local_addr().map_err(RankError::system("listening for ranks"))?.port();
        let mut places = vec![Neighbour { host: None, port: own }];
        for one in &members {
            let Ready { port } = hear(&one.stream, Kind::Ready).map_err(cut(one))?;
            places.push(Neighbour { host: one.machine, port });
        }
        for (number, one) in members.iter().enumerate() {
            tell(&one.stream, Kind::Neighbour, &places[(number + 2) % size]).map_err(cut(one))?;
        }
        let next = SocketAddr::new(places[1].host.unwrap_or(LOOPBACK), places[1].port);
        let neighbours = neighbours(0, size, &listener, next, &self.token)?;
        let lines = members.into_iter().map(|Member { name, stream, .. }| Line { name, stream }).collect();
        Group::start(Place { rank: 0, size, offset }, options, lines, Some(neighbours))
    }

    /// So many processes that have said a proper hello, in the order of their numbers.
    fn members(
        &self,
        count: usize,
        limit: Duration,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<Vec<Member>, RankError> {
        Ok(numbered(self.arrivals(count, limit, news, look)?))
    }

    /// So many processes that have said a proper hello, in the order of their arrival.
    fn arrivals(
        &self,
        count: usize,
        limit: Duration,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<Vec<Arrived>, RankError> {
        let deadline = Instant::now() + limit;
        let mut door = Door::new();
        let mut arrived: Vec<Arrived> = vec![];
        while arrived.len() < count {
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
        Ok(arrived)
    }
}

/// The processes with their numbers.
fn numbered(mut arrived: Vec<Arrived>) -> Vec<Member> {
    // neighbours are on one machine as far as possible; stable, and rank 0's own comes first
    arrived.sort_by_key(|one| one.machine);
    let member = |(number, one): (usize, Arrived)| {
        let Arrived { hello: Hello { host, process, .. }, machine, stream } = one;
        let host: String = host.chars().filter(|letter| !letter.is_control()).take(64).collect();
        let name = format!("rank {} ({host}, process {process})", number + 1);
        Member { name, machine, stream }
    };
    arrived.into_iter().enumerate().map(member).collect()
}

/// Hears those who connect, each in a thread of its own, so that one that says nothing holds nobody up.
struct Door<T> {
    sender: Sender<Introduced<T>>,
    introductions: Receiver<Introduced<T>>,
    /// Connections that have not introduced themselves.
    unknown: usize,
}

/// What somebody said, and the connection; or why it is not taken.
type Introduced<T> = Result<(T, TcpStream), String>;

impl<T: Send + 'static> Door<T> {
    fn new() -> Self {
        let (sender, introductions) = channel();
        Self { sender, introductions, unknown: 0 }
    }

    /// Accepts who has connected, and waits a moment for the next that has introduced itself.
    fn next(
        &mut self,
        listener: &TcpListener,
        introduce: impl Fn(&TcpStream, SocketAddr) -> Result<T, String> + Clone + Send + 'static,
    ) -> Result<Option<Introduced<T>>, RankError> {
        while self.unknown < MOST_UNKNOWN
            && let Ok((stream, peer)) = listener.accept()
        {
            let (sender, introduce) = (self.sender.clone(), introduce.clone());
            let hear = move || {
                let heard = stream.set_nonblocking(false).map_err(|error| error.to_string());
                let _ = sender.send(heard.and_then(|()| introduce(&stream, peer)).map(|who| (who, stream)));
            };
            Builder::new().name("hello".into()).spawn(hear).map_err(RankError::system("a thread"))?;
            self.unknown += 1;
        }
        let introduced = self.introductions.recv_timeout(GLANCE).ok();
        self.unknown -= usize::from(introduced.is_some());
        Ok(introduced)
    }
}

/// Reads and checks a hello; a process that is not taken is told why.
fn introduction(stream: &TcpStream, token: &str) -> Result<Hello, String> {
    let checked = hear::<Hello>(stream, Kind::Hello)
        .map_err(|error| error.to_string())
        .and_then(|hello| hello.pass.check(token).map(|()| hello));
    if let Err(reason) = &checked {
        let _ = tell(stream, Kind::Refused, &Refused { reason: reason.clone() });
        let _ = stream.shutdown(Shutdown::Both);
    }
    checked
}

/// Joins the group of a rank 0 at `HOST:PORT`, which may not listen yet.
pub fn join(
    address: &str,
    token: &str,
    limit: Duration,
    look: &mut dyn FnMut() -> Result<(), RankError>,
) -> Result<Group, RankError> {
    let deadline = Instant::now() + limit;
    let stream = dial(address, deadline, look)?;
    let cut = |error: io::Error| RankError::Rendezvous(format!("rank 0 at {address}: {error}"));
    let hello = Hello { pass: Pass::new(token), host: host(), process: std::process::id() };
    tell(&stream, Kind::Hello, &hello).map_err(cut)?;
    let answer = loop {
        look()?;
        if Instant::now() > deadline {
            return Err(RankError::Rendezvous(format!(
                "the other ranks did not come to {address} within {} s",
                limit.as_secs_f64()
            )));
        }
        // only peeked, so that nothing is lost when nothing is there yet
        stream.set_read_timeout(Some(Duration::from_millis(200))).map_err(cut)?;
        match stream.peek(&mut [0]) {
            Err(error) if crate::deadline::is_timeout(&error) => {}
            Err(error) => return Err(cut(error)),
            Ok(_) => break read(&stream, &[Kind::Welcome, Kind::Refused], HELLO).map_err(cut)?,
        }
    };
    if answer.kind == Kind::Refused {
        let Refused { reason } = answer.fields().map_err(|error| cut(error.into()))?;
        return Err(RankError::Refused(reason));
    }
    let Welcome { rank, size, offset, one_machine, deadline_ms, silence_ms } =
        answer.fields().map_err(|error| cut(error.into()))?;
    let zero = stream.peer_addr().map_err(cut)?;
    let listener = ring_listener(one_machine)?;
    let port = listener.local_addr().map_err(cut)?.port();
    tell(&stream, Kind::Ready, &Ready { port }).map_err(cut)?;
    let Neighbour { host, port } = hear(&stream, Kind::Neighbour).map_err(cut)?;
    let machine_of_zero = if one_machine { LOOPBACK } else { zero.ip().to_canonical() };
    let next = SocketAddr::new(host.unwrap_or(machine_of_zero), port);
    let neighbours = neighbours(rank, size, &listener, next, token)?;
    let options = GroupOptions {
        deadline: Duration::from_millis(deadline_ms),
        silence: Duration::from_millis(silence_ms),
    };
    let line = Line { name: format!("rank 0 ({zero})"), stream };
    Group::start(Place { rank, size, offset }, options, vec![line], Some(neighbours))
}

fn dial(
    address: &str,
    deadline: Instant,
    look: &mut dyn FnMut() -> Result<(), RankError>,
) -> Result<TcpStream, RankError> {
    let wrong = |problem: &dyn std::fmt::Display| {
        RankError::Rendezvous(format!(
            "no rank 0 at {address}: {problem}; expected the HOST:PORT of a run that waits for ranks"
        ))
    };
    loop {
        look()?;
        let found = address.to_socket_addrs().map_err(|error| wrong(&error))?.next();
        let found = found.ok_or_else(|| wrong(&"the name has no address"))?;
        match TcpStream::connect_timeout(&found, HELLO) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(wrong(&error)),
            // it may still be loading its model
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// How ranks of one machine reach each other, whatever the address of rank 0.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The machine of a rank; a connection that has ended already is noticed when the rank is told its number.
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

/// A listener for the rank before this one, which other machines can reach only if there are ranks on some.
fn ring_listener(one_machine: bool) -> Result<TcpListener, RankError> {
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
fn neighbours(
    rank: usize,
    size: usize,
    listener: &TcpListener,
    next: SocketAddr,
    token: &str,
) -> Result<(TcpStream, TcpStream), RankError> {
    let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
    let to = TcpStream::connect_timeout(&next, HELLO)
        .and_then(|to| tell(&to, Kind::Ring, &RingHello { pass: Pass::new(token), rank }).map(|()| to));
    let to = to.map_err(|error| RankError::Rendezvous(format!("rank {after} at {next}: {error}")))?;
    listener.set_nonblocking(true).map_err(RankError::system("listening for ranks"))?;
    let (mut door, deadline) = (Door::new(), Instant::now() + HELLO);
    loop {
        let token = token.to_owned();
        let introduced = door.next(listener, move |stream, _| {
            let hello = read(stream, &[Kind::Ring], RING_HELLO).and_then(|frame| Ok(frame.fields()?));
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
                HELLO.as_secs_f64()
            )));
        }
    }
}

fn tell(stream: &TcpStream, kind: Kind, fields: &impl serde::Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(HELLO))?;
    Ok(Frame::new(kind, fields)?.write(&mut &*stream)?)
}

fn read(stream: &TcpStream, kinds: &[Kind], limit: Duration) -> io::Result<Frame> {
    Ok(Frame::read(&mut UntilDeadline { stream, deadline: Instant::now() + limit }, kinds)?)
}

fn hear<T: serde::de::DeserializeOwned>(stream: &TcpStream, kind: Kind) -> io::Result<T> {
    Ok(read(stream, &[kind], HELLO)?.fields()?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(began.elapsed() < HELLO / 2, "{:?}", began.elapsed());
        drop(silent);
    }
}
