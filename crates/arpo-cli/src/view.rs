//! `arpo view`, `arpo runs` and `arpo report`: run folders in a browser, as a list, as a file.

use crate::{Failure, write_json};
use arpo_view::run::Run;
use arpo_view::server::listen::{runtime, serve, stop_signal};
use arpo_view::{Listen, ViewError, page_address, report, runs, viewer};
use clap::Args;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;

/// The variable that holds the token, so that it need not be on the command line, where other users see it.
const TOKEN_VARIABLE: &str = "ARPO_VIEW_TOKEN";

/// The arguments of `arpo view`.
#[derive(Args)]
pub(crate) struct ViewArguments {
    /// Run folders, folders of runs, or OSWorld's result folders
    #[arg(required = true, value_name = "RUN")]
    folders: Vec<PathBuf>,
    /// The port; 0 for a free one, which is printed
    #[arg(long, default_value_t = arpo_view::PORT)]
    port: u16,
    /// The address to listen on; other machines reach the page only if it is not a loopback address, which needs a token
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Show nothing without this token; better given in the variable `ARPO_VIEW_TOKEN`
    #[arg(long)]
    token: Option<String>,
}

/// The arguments of `arpo runs`.
#[derive(Args)]
pub(crate) struct RunsArguments {
    /// The folder of runs
    #[arg(default_value = "runs", value_name = "FOLDER")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The arguments of `arpo report`.
#[derive(Args)]
pub(crate) struct ReportArguments {
    /// Run folders, or folders of runs; runs that differ only in their seed are one experiment
    #[arg(required = true, value_name = "RUN")]
    folders: Vec<PathBuf>,
    /// The HTML file to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Also write the curve of success as a picture, beside the HTML file
    #[arg(long)]
    png: bool,
    /// Also write every metric of every iteration as comma-separated values, beside the HTML file
    #[arg(long)]
    csv: bool,
}

/// Bad names and options are the user's, the rest is not.
fn failure(error: ViewError) -> Failure {
    match error {
        ViewError::Request(_) | ViewError::Missing(_) => Failure::usage(error),
        error @ ViewError::File { .. } => Failure::failed(error),
    }
}

pub(crate) fn view(arguments: &ViewArguments) -> Result<(), Failure> {
    let token = arguments.token.clone().or_else(|| std::env::var(TOKEN_VARIABLE).ok());
    let token = token.filter(|token| !token.is_empty());
    let listen = Listen { host: arguments.host, port: arguments.port, token };
    let address = listen.address().map_err(failure)?;
    let viewer = viewer(&arguments.folders, listen.token.as_deref()).map_err(failure)?;
    let runtime = runtime().map_err(Failure::failed)?;
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(|error| {
        Failure::failed(format!("cannot listen on {address}: {error}; --port 0 takes a free port"))
    })?;
    let address = listener.local_addr().map_err(Failure::failed)?;
    let _ = writeln!(
        std::io::stderr(),
        "view: {}  (Ctrl-C ends it)",
        page_address(address, listen.token.as_deref())
    );
    let stop = async {
        if stop_signal().await.is_err() {
            // without a handler Ctrl-C ends the process by itself
            std::future::pending::<()>().await;
        }
    };
    runtime.block_on(serve(viewer, listener, stop));
    runtime.shutdown_background();
    Err(Failure::Stopped(None))
}

pub(crate) fn list(arguments: &RunsArguments, out: &mut impl Write) -> Result<(), Failure> {
    let (lines, problems) = runs::list(&arguments.folder).map_err(failure)?;
    for problem in problems {
        let _ = writeln!(std::io::stderr(), "warning: {problem}");
    }
    if arguments.json {
        return write_json(&lines, out);
    }
    if lines.is_empty() {
        writeln!(out, "no runs in {}", arguments.folder.display())?;
        return Ok(());
    }
    write!(out, "{}", runs::table(&lines))?;
    Ok(())
}

pub(crate) fn report(arguments: &ReportArguments, out: &mut impl Write) -> Result<(), Failure> {
    let mut opened = vec![];
    for folder in &arguments.folders {
        let found = arpo_view::library::found(folder);
        // a folder without runs gives the error that says what was expected
        let found = if found.is_empty() { vec![folder.clone()] } else { found };
        for path in found {
            opened.push(Run::open(&path).map_err(failure)?);
        }
    }
    let html = report::page::html(&mut opened, &report::written_now()).map_err(failure)?;
    write_file(&arguments.out, html.as_bytes(), out)?;
    if arguments.png {
        write_file(&arguments.out.with_extension("png"), &report::png(&opened), out)?;
    }
    if arguments.csv {
        write_file(&arguments.out.with_extension("csv"), report::csv(&opened).as_bytes(), out)?;
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8], out: &mut impl Write) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    writeln!(out, "written: {}", path.display())?;
    Ok(())
}
