//! Connections: accepted up to a limit, each with a deadline, so that a client that hangs holds no place for ever.

use super::{Viewer, router};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

/// For the head of a request, and between two requests of a connection.
const HEADERS: Duration = Duration::from_secs(75);
/// A connection ends after this, whatever it does; pages open their stream of events again.
const CONNECTION: Duration = Duration::from_mins(15);
/// Connections; further ones wait.
const CONNECTIONS: usize = 256;

/// Serves until `stop` is ready.
pub async fn serve(viewer: Arc<Viewer>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let application = router(viewer);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            (accepted, place) = accept => match accepted {
                Ok((stream, _)) => {
                    let application = application.clone();
                    connections.spawn(async move {
                        // an error is a client that went away, or one that stayed too long
                        let _ = timeout(CONNECTION, connection(stream, application)).await;
                        drop(place);
                    });
                }
                // no file descriptors are left, for example: some will be free again
                Err(_) => sleep(Duration::from_millis(100)).await,
            },
        }
    }
    // nothing that a page reads is lost
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, application: Router) {
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADERS);
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(application)).await;
}

/// A server on threads of its own, beside something else. Dropping it stops it.
#[derive(Debug)]
pub struct Background {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Listens on an address; port 0 is a free one.
    pub fn start(viewer: Arc<Viewer>, address: SocketAddr) -> io::Result<Self> {
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("view".into()).spawn(move || {
            // a dropped sender is a stop too
            runtime.block_on(serve(viewer, listener, async { drop(stopped.await) }));
            // a file that is being read must not hold the program
            runtime.shutdown_background();
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Few threads: pages are small, and training needs the cores.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(8)
        .thread_name("view")
        .enable_all()
        .build()
}

/// Ready when the process is asked to stop: Ctrl-C or `SIGTERM`.
pub async fn stop_signal() -> io::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}
