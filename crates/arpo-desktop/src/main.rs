//! The program: reads its options, acts as init when it is process 1, and serves.

use arpo_desktop::options::Options;
use arpo_desktop::server::{Guest, router};
use arpo_desktop::{init, session};
use clap::Parser;
use rustix::process::{Pid, Signal, kill_process_group};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if std::process::id() == 1 {
        init::run().map(ExitCode::from).map_err(Into::into)
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(serve(options)))
    };
    done.unwrap_or_else(|error| {
        log(&format!("error: {error}"));
        ExitCode::FAILURE
    })
}

/// A line on standard error, which is a container's log.
fn log(line: &str) {
    // a failure to log cannot be logged
    let _ = writeln!(std::io::stderr(), "arpo-desktop: {line}");
}

async fn serve(options: Options) -> Result<ExitCode, Box<dyn Error>> {
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    let guest = Arc::new(Guest::new(options.generation, &options.display, options.token));
    let group = match &options.session {
        None => None,
        Some(program) => {
            let mut child = session::start(program, &options.display)
                .map_err(|error| format!("the session {} cannot be started: {error}", program.display()))?;
            let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            tokio::spawn(async move {
                match child.wait().await {
                    Ok(status) => log(&format!("error: the session ended: {status}")),
                    Err(error) => log(&format!("error: the session is lost: {error}")),
                }
            });
            group
        }
    };
    let waiting = Arc::clone(&guest);
    let display = options.display.clone();
    tokio::spawn(async move {
        let started = Instant::now();
        session::wait_for_display(&display).await;
        if options.panel && !session::wait_for_panel(&display).await {
            log("error: the session has no panel");
        }
        waiting.set_ready();
        log(&format!("the display {display} is ready after {:.1} s", started.elapsed().as_secs_f64()));
    });
    log(&format!("listening on {}", listener.local_addr()?));
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    tokio::select! {
        served = axum::serve(listener, router(guest)) => served?,
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    if let Some(group) = group {
        // an error means that it is gone already
        let _ = kill_process_group(group, Signal::TERM);
    }
    Ok(ExitCode::SUCCESS)
}
