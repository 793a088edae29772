//! How ranks find each other: rank 0 listens, the others dial it and show the token of the cluster.
//!
//! Ranks are numbered in the order of their arrival. When all are there, each listens for the rank before it, rank 0 tells
//! each where the next one is, and they connect to a ring. A stranger that says something else, or nothing, is refused with
//! a line and does not hold anybody up.

use crate::deadline::UntilDeadline;
use crate::error::RankError;
use crate::frame::{Frame, Kind};
use crate::group::{Group, GroupOptions, Line};
use crate::hello::{Hello, Neighbour, Pass, Ready, Refused, RingHello, Welcome, host};
use crate::token;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Longest time for a hello, and for a connection between neighbours.
const HELLO: Duration = Duration::from_secs(10);

/// How often those who wait look up.
const GLANCE: Duration = Duration::from_millis(20);

/// Most connections without a hello: strangers cannot use up the threads.
const MOST_STRANGERS: usize = 64;

/// Rank 0 before the others have come.
#[derive(Debug)]
pub struct Rendezvous {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

/// A process that has said a proper hello.
struct Arrived {
    name: String,
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
        let deadline = Instant::now() + limit;
        let arrived = self.arrivals(size - 1, limit, deadline, news, look)?;
        if arrived.is_empty() {
            return Ok(Group::alone());
        }
        let remote =
            |one: &Arrived| one.stream.peer_addr().map(|peer| peer.ip()).ok().filter(|ip| !ip.is_loopback());
        let hosts: Vec<Option<IpAddr>> = arrived.iter().map(remote).collect();
        let one_machine = hosts.iter().all(Option::is_none);
        let welcome = |rank: usize| Welcome {
            rank,
            size,
            one_machine,
            deadline_ms: options.deadline.as_millis() as u64,
            silence_ms: options.silence.as_millis() as u64,
        };
        let cut = |one: &Arrived| {
            let name = one.name.clone();
            move |error: io::Error| {
                RankError::Rendezvous(format!("{name} left before the run began: {error}"))
            }
        };
        for (number, one) in arrived.iter().enumerate() {
            tell(&one.stream, Kind::Welcome, &welcome(number + 1)).map_err(cut(one))?;
        }
        let listener = ring_listener(one_machine, self.address.is_ipv6())?;
        let own = listener.local_addr().map_err(RankError::system("listening for ranks"))?.port();
        let mut places = vec![Neighbour { host: None, port: own }];
        for (one, host) in arrived.iter().zip(hosts) {
            let Ready { port } = hear(&one.stream, Kind::Ready).map_err(cut(one))?;
            places.push(Neighbour { host, port });
        }
        for (number, one) in arrived.iter().enumerate() {
            tell(&one.stream, Kind::Neighbour, &places[(number + 2) % size]).map_err(cut(one))?;
        }
        let next = SocketAddr::new(
            places[1].host.unwrap_or_else(|| loopback(self.address.is_ipv6())),
            places[1].port,
        );
        let neighbours = neighbours(0, size, &listener, next, &self.token)?;
        let lines = arrived.into_iter().map(|Arrived { name, stream }| Line { name, stream }).collect();
        Group::start(0, size, options, lines, Some(neighbours))
    }

    /// So many processes that have said a proper hello, with their ranks in their names.
    fn arrivals(
        &self,
        count: usize,
        limit: Duration,
        deadline: Instant,
        news: &mut dyn FnMut(&str),
        look: &mut dyn FnMut() -> Result<(), RankError>,
    ) -> Result<Vec<Arrived>, RankError> {
        let (sender, introductions) = channel();
        let (mut arrived, mut strangers): (Vec<Arrived>, usize) = (vec![], 0);
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
            while strangers < MOST_STRANGERS
                && let Ok((stream, peer)) = self.listener.accept()
            {
                let (sender, token) = (sender.clone(), self.token.clone());
                let introduce = move || {
                    let introduced = introduction(&stream, &token);
                    let introduced = introduced
                        .map(|hello| (hello, stream))
                        .map_err(|reason| format!("refused {peer}: {reason}"));
                    let _ = sender.send(introduced);
                };
                Builder::new()
                    .name("hello".into())
                    .spawn(introduce)
                    .map_err(RankError::system("a thread"))?;
                strangers += 1;
            }
            if let Ok(introduced) = introductions.recv_timeout(GLANCE) {
                strangers -= 1;
                match introduced {
                    Ok((Hello { host, process, .. }, stream)) => {
                        let host: String =
                            host.chars().filter(|letter| !letter.is_control()).take(64).collect();
                        let name = format!("rank {} ({host}, process {process})", arrived.len() + 1);
                        arrived.push(Arrived { name, stream });
                    }
                    Err(line) => news(&line),
                }
            }
        }
        Ok(arrived)
    }
}

/// Reads and checks a hello; a process that is not taken is told why.
fn introduction(stream: &TcpStream, token: &str) -> Result<Hello, String> {
    let checked = stream
        .set_nonblocking(false)
        .and_then(|()| hear::<Hello>(stream, Kind::Hello))
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
            Ok(_) => break read(&stream, &[Kind::Welcome, Kind::Refused]).map_err(cut)?,
        }
    };
    if answer.kind == Kind::Refused {
        let Refused { reason } = answer.fields().map_err(cut)?;
        return Err(RankError::Refused(reason));
    }
    let Welcome { rank, size, one_machine, deadline_ms, silence_ms } = answer.fields().map_err(cut)?;
    let zero = stream.peer_addr().map_err(cut)?;
    let listener = ring_listener(one_machine, zero.is_ipv6())?;
    let port = listener.local_addr().map_err(cut)?.port();
    tell(&stream, Kind::Ready, &Ready { port }).map_err(cut)?;
    let Neighbour { host, port } = hear(&stream, Kind::Neighbour).map_err(cut)?;
    let next = SocketAddr::new(host.unwrap_or(zero.ip()), port);
    let neighbours = neighbours(rank, size, &listener, next, token)?;
    let options = GroupOptions {
        deadline: Duration::from_millis(deadline_ms),
        silence: Duration::from_millis(silence_ms),
    };
    let line = Line { name: format!("rank 0 ({zero})"), stream };
    Group::start(rank, size, options, vec![line], Some(neighbours))
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

fn loopback(is_ipv6: bool) -> IpAddr {
    if is_ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

/// A listener for the rank before this one, which only other machines' ranks can reach if there are any.
fn ring_listener(one_machine: bool, is_ipv6: bool) -> Result<TcpListener, RankError> {
    let any: IpAddr = if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let ip = if one_machine { loopback(is_ipv6) } else { any };
    TcpListener::bind((ip, 0)).map_err(RankError::system("listening for the rank before this one"))
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
    let deadline = Instant::now() + HELLO;
    loop {
        if let Ok((from, _)) = listener.accept() {
            let introduced = from.set_nonblocking(false).and_then(|()| hear::<RingHello>(&from, Kind::Ring));
            // a stranger is not worth a word
            if introduced.is_ok_and(|hello| hello.pass.check(token).is_ok() && hello.rank == before) {
                return Ok((from, to));
            }
        }
        if Instant::now() > deadline {
            return Err(RankError::Rendezvous(format!(
                "rank {before} did not connect to rank {rank} within {} s",
                HELLO.as_secs_f64()
            )));
        }
        std::thread::sleep(GLANCE);
    }
}

fn tell(stream: &TcpStream, kind: Kind, fields: &impl serde::Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(HELLO))?;
    Frame::new(kind, fields)?.write(&mut &*stream)
}

fn read(stream: &TcpStream, kinds: &[Kind]) -> io::Result<Frame> {
    Frame::read(&mut UntilDeadline { stream, deadline: Instant::now() + HELLO }, kinds)
}

fn hear<T: serde::de::DeserializeOwned>(stream: &TcpStream, kind: Kind) -> io::Result<T> {
    read(stream, &[kind])?.fields()
}
