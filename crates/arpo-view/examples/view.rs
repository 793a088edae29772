//! `arpo view` without the rest of the program, for machines without libtorch: `cargo run --release -p arpo-view --example view -- runs`.

use arpo_view::server::listen::{runtime, serve, stop_signal};
use arpo_view::{Listen, page_address, viewer};
use std::io::Write;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if folders.is_empty() {
        return Err("expected run folders, folders of runs, or OSWorld's result folders".into());
    }
    let viewer = viewer(&folders, None)?;
    let runtime = runtime()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind(Listen::default().address()?))?;
    writeln!(std::io::stderr(), "view: {}", page_address(listener.local_addr()?, None))?;
    runtime.block_on(serve(viewer, listener, async { drop(stop_signal().await) }));
    Ok(())
}
