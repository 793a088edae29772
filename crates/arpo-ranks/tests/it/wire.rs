//! A connection that can be cut: the bytes between two programs pass through here.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;

/// A connection through this program.
pub(crate) struct Wire {
    ends: [TcpStream; 2],
}

impl Wire {
    /// Takes the next connection of a listener, and passes its bytes on to an address and back.
    pub(crate) fn through(listener: &TcpListener, address: impl ToSocketAddrs) -> Self {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(address).unwrap();
        let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || pass(from, to));
        thread::spawn(move || pass(server, client));
        Self { ends }
    }

    /// Ends the connection at both ends.
    pub(crate) fn cut(self) {
        for end in self.ends {
            // the first cut may have ended the second one, too
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// Passes bytes on until it is cut.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
        && to.write_all(&buffer[..count]).is_ok()
    {}
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
