//! Taking workers in: whoever connects has a few seconds and a few kilobytes to say a proper hello.

use super::Shared;
use super::registry::Introduction;
use crate::link::{Link, read_by, read_messages, write_by};
use crate::protocol::frame::Kind;
use crate::protocol::{Hello, Inquiry, Message, ProtocolError, Refused, VERSION, token};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Longest time for a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Most unauthenticated connections, those without a hello yet: they cannot use up the threads.
const MOST_UNAUTHENTICATED: usize = 64;

/// Most desktops that a worker may offer.
const MOST_DESKTOPS: usize = 10_000;

/// Takes connections until the hub is closed.
pub(super) fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let unauthenticated = Arc::new(AtomicUsize::new(0));
    for connection in listener.incoming() {
        if shared.registry().closed {
            return;
        }
        let Ok(stream) = connection else {
            // no more files, for example: others may close theirs
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if unauthenticated.fetch_add(1, Ordering::Relaxed) >= MOST_UNAUTHENTICATED {
            unauthenticated.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (shared, counted) = (Arc::clone(shared), Arc::clone(&unauthenticated));
        let serve = move || serve(&shared, &stream, &counted);
        if Builder::new().name("worker".into()).spawn(serve).is_err() {
            unauthenticated.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One connection, from its hello to its end.
fn serve(shared: &Shared, stream: &TcpStream, unauthenticated: &AtomicUsize) {
    let peer = stream.peer_addr().map_or_else(|_| "a peer".into(), |peer| peer.to_string());
    let hello = introduction(shared, stream);
    unauthenticated.fetch_sub(1, Ordering::Relaxed);
    let introduction = match hello {
        Ok(Peer::Worker(introduction)) => introduction,
        Ok(Peer::Inquirer) => {
            let _ = write_by(stream, &Message::Status(Box::new(shared.status())), HELLO_TIMEOUT);
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        Err(reason) => {
            let refused = Message::Refused(Refused { reason: reason.clone() });
            let _ = write_by(stream, &refused, HELLO_TIMEOUT);
            let _ = stream.shutdown(Shutdown::Both);
            if !shared.registry().closed {
                shared.log(&format!("refused {peer}: {reason}"));
            }
            return;
        }
    };
    let Ok(link) = Link::start(stream, introduction.capacity) else { return };
    let attached = {
        let mut registry = shared.registry();
        if registry.closed {
            None
        } else {
            registry.attach(&introduction, link, |desktops| shared.welcome(desktops))
        }
    };
    let Some(number) = attached else { return };
    shared.changed.notify_all();
    let read = read_messages(stream, &[Kind::Answer, Kind::Heartbeat], |message| {
        if let Message::Answer(answer) = message {
            shared.registry().answered(&introduction.worker, answer);
        }
        true
    });
    let _ = stream.shutdown(Shutdown::Both);
    let lost = shared.registry().detach(&introduction.worker, number, Instant::now());
    if let (true, Err(problem)) = (lost, read)
        && !matches!(problem, ProtocolError::Connection(_))
    {
        shared.log(&format!("the worker at {peer} was cut off: {problem}"));
    }
}

/// Who connects.
enum Peer {
    /// A worker.
    Worker(Introduction),
    /// Somebody who only asks how the cluster is.
    Inquirer,
}

/// The peer behind a connection, or why it is refused.
fn introduction(shared: &Shared, stream: &TcpStream) -> Result<Peer, String> {
    let expected = [Kind::Hello, Kind::Inquiry];
    let message =
        read_by(stream, &expected, Instant::now() + HELLO_TIMEOUT).map_err(|error| error.to_string())?;
    let hello = match message {
        Message::Inquiry(Inquiry { protocol, program, token }) => {
            check(shared, protocol, &program, &token)?;
            return Ok(Peer::Inquirer);
        }
        Message::Hello(hello) => hello,
        _ => return Err("expected a hello".into()),
    };
    let Hello { protocol, program, token, worker, host, process, desktops } = hello;
    check(shared, protocol, &program, &token)?;
    if !(1..=MOST_DESKTOPS).contains(&desktops) {
        return Err(format!("{desktops} desktops: expected 1 to {MOST_DESKTOPS}"));
    }
    Ok(Peer::Worker(Introduction { worker, host, process, capacity: desktops }))
}

/// Whether a peer may come in.
fn check(shared: &Shared, protocol: u32, program: &str, token: &str) -> Result<(), String> {
    let expected = &shared.options.token;
    // first, so that a peer without the token learns nothing else
    if !expected.is_empty() && !token::is_same(expected, token) {
        let variable = token::TOKEN_VARIABLE;
        return Err(format!("another token: expected the trainer's {variable} in the environment"));
    }
    let ours = env!("CARGO_PKG_VERSION");
    if protocol != VERSION || program != ours {
        return Err(format!(
            "version {program} with protocol {protocol}: expected {ours} with protocol {VERSION}, the trainer's own"
        ));
    }
    Ok(())
}

/// An address that this process reaches itself under.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}
