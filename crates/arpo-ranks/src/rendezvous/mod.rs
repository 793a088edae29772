//! How ranks find each other: rank 0 listens, the others dial it and show the token of the cluster.
//!
//! Ranks are numbered machine by machine, those of rank 0's first, and there in the order of their arrival. When all are
//! there, each listens for the rank before it, rank 0 tells each where the next one is, and they connect to a ring. The ranks
//! of a run may form several groups: rank 0 is rank 0 of each of them, and every other rank is in one. A peer that says
//! something else than a rank, or nothing, is refused with a line and does not hold anybody up. A rank that leaves while it
//! waits is not counted, and if the others do not come, those that wait are told so.
//!
//! This file has the two sides of the conversation: rank 0's ([`Rendezvous`]) and that of the others ([`join`]).
//!
//! | to change | look in |
//! |---|---|
//! | who is let in, and which number it gets | `arrivals` |
//! | how ranks become neighbours in the ring | `neighbours` |
//! | how peers are heard, how many at a time and for how long | `hearing` |

mod arrivals;
mod hearing;
mod neighbours;

use crate::connect::connect_to_any;
use crate::deadline::is_timeout;
use crate::error::RankError;
use crate::group::{Group, GroupOptions, Line, Place};
use crate::hello::{Hello, Neighbour, Pass, Ready, Refused, Welcome, host};
use crate::kind::Kind;
use crate::token;
use arrivals::Member;
use hearing::{HELLO_TIMEOUT, hear, read, tell};
use neighbours::{LOOPBACK, neighbours, ring_listener};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Rank 0 before the others have come.
#[derive(Debug)]
pub struct Rendezvous {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
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
            // a signal, which look() knows of, or the time is over
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cut(error)),
            Ok(0) => {
                let ended = "closed the connection before the run began";
                return Err(RankError::Rendezvous(format!("rank 0 at {address} {ended}")));
            }
            Ok(_) => break read(&stream, &[Kind::Welcome, Kind::Refused], HELLO_TIMEOUT).map_err(cut)?,
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

/// Longest time for a name to become known.
const LOOK_UP_TIMEOUT: Duration = Duration::from_mins(1);

fn dial(
    address: &str,
    deadline: Instant,
    look: &mut dyn FnMut() -> Result<(), RankError>,
) -> Result<TcpStream, RankError> {
    let began = Instant::now();
    loop {
        look()?;
        let error = match connect_to_any(address, HELLO_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        // an address without a port stays one, and a name that is still unknown after a while is mistyped
        let is_hopeless = error.kind() == io::ErrorKind::InvalidInput
            || (began.elapsed() > LOOK_UP_TIMEOUT && address.to_socket_addrs().is_err());
        if is_hopeless || Instant::now() > deadline {
            return Err(RankError::Rendezvous(format!(
                "no rank 0 at {address}: {error}; expected the HOST:PORT of a run that waits for ranks"
            )));
        }
        // it may still be loading its model, and its name may be new
        std::thread::sleep(Duration::from_millis(200));
    }
}
