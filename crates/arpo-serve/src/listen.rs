//! Connections: accepted up to a limit, each with deadlines for its headers and for a client that does not read. A stop
//! ends everything in order: no new connections, open requests fail, connections close, the engine's thread ends.

use crate::http::{Server, router};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// For the head of a request, and between two requests of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
/// How long a client may read nothing while there is something for it.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
/// For connections to end after a stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// For the engine's current pass after a stop.
const LAST_PASS_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until `stop` is ready, then ends everything; returns whether the engine's thread has ended too.
pub async fn serve(server: Arc<Server>, listener: TcpListener, stop: impl Future<Output = ()>) -> bool {
    let application = router(Arc::clone(&server));
    let places = Arc::new(Semaphore::new(server.limits.connections));
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
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
                    let (application, stopped) = (application.clone(), stopped.clone());
                    connections.spawn(async move {
                        connection(stream, application, stopped).await;
                        drop(place);
                    });
                }
                // no file descriptors are left, for example: some will be free again
                Err(_) => sleep(Duration::from_millis(100)).await,
            },
        }
    }
    drop(listener);
    server.stop();
    let _ = stopping.send(());
    let ended = timeout(SHUTDOWN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        connections.shutdown().await;
    }
    let joined = tokio::task::spawn_blocking(move || server.join());
    timeout(LAST_PASS_TIMEOUT, joined).await.is_ok()
}

async fn connection(stream: TcpStream, application: Router, mut stopped: watch::Receiver<()>) {
    // events are small and must not wait for more of them
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(WriteDeadline::new(stream));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connection = builder.serve_connection(stream, TowerToHyperService::new(application));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // an error is a client that went away
        _ = connection.as_mut() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A stream whose writes fail when the other side reads nothing for too long.
struct WriteDeadline {
    stream: TcpStream,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl WriteDeadline {
    fn new(stream: TcpStream) -> Self {
        Self { stream, waiting: None }
    }

    fn checked<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let deadline = || Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_TIMEOUT));
        match self.waiting.get_or_insert_with(deadline).as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for WriteDeadline {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteDeadline {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.checked(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.checked(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.checked(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A server on threads of its own, for benchmarks and tests.
#[derive(Debug)]
pub struct Background {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<bool>>,
}

impl Background {
    /// Listens on a free port of the loopback interface.
    pub fn start(server: Arc<Server>) -> io::Result<Self> {
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("server".into()).spawn(move || {
            // a dropped sender is a stop too
            runtime.block_on(serve(server, listener, async { drop(stopped.await) }))
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Stops it; returns whether everything has ended.
    pub fn stop(&mut self) -> bool {
        drop(self.stop.take());
        self.thread.take().is_none_or(|thread| thread.join().unwrap_or(false))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The runtime of a server: few threads, because the engine does the work.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("http").enable_all().build()
}

/// Ready when the process is asked to stop: Ctrl-C or `SIGTERM`.
pub async fn stop_signal() -> io::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}
