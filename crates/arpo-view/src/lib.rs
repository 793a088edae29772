//! Run folders in a browser: a live dashboard, a player of episodes, and reports.
//!
//! Everything here reads run folders and nothing writes into them: a finished, a running and a copied run look the same.
//! Without libtorch, so that a run can be looked at anywhere.
//!
//! | to change | look in |
//! |---|---|
//! | how growing files are read | the crate `arpo-lines` |
//! | a run folder: metrics, index of episodes, tasks, state | [`run`] |
//! | an episode: turns, marks on the screenshot, tokens | [`episode`] |
//! | OSWorld's result folders | [`results`] |
//! | which runs are shown | [`library`] |
//! | the server and what the pages ask for | [`server`] |
//! | the pages | the folder `assets/` |
//! | `arpo runs` | [`runs`] |
//! | `arpo report` | [`report`] |
//! | runs made up for benchmarks and tests | [`testing`] |

pub mod episode;
mod error;
pub mod library;
pub mod report;
pub mod results;
pub mod run;
pub mod runs;
pub mod server;
pub mod testing;

pub use error::ViewError;
pub use server::listen::Background;

use library::Library;
use server::{Viewer, check_token};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The port of `arpo view`, unless it is told another.
pub const PORT: u16 = 9100;

/// Where to listen, and who may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub host: IpAddr,
    /// The port; 0 for a free one.
    pub port: u16,
    /// What every request must carry; needed for any address that is not a loopback address.
    pub token: Option<String>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { host: IpAddr::from([127, 0, 0, 1]), port: PORT, token: None }
    }
}

impl Listen {
    /// The address, if it may be listened on.
    pub fn address(&self) -> Result<SocketAddr, ViewError> {
        if let Some(token) = &self.token {
            check_token(token)?;
        } else if !self.host.is_loopback() {
            let problem = format!(
                "--host {}: expected a --token, because other machines can reach this address",
                self.host
            );
            return Err(ViewError::Request(problem));
        }
        Ok(SocketAddr::new(self.host, self.port))
    }
}

/// The address of the page, with the token, which a browser needs once.
pub fn page_address(address: SocketAddr, token: Option<&str>) -> String {
    let token = token.map(|token| format!("?token={token}")).unwrap_or_default();
    format!("http://{address}/{token}")
}

/// The viewer of some folders.
pub fn viewer(folders: &[PathBuf], token: Option<&str>) -> Result<Arc<Viewer>, ViewError> {
    Ok(Viewer::new(Library::open(folders)?, token))
}

/// Serves the page of a run beside it, on a loopback address and a free port if the usual one is taken. The server ends when the
/// returned value is dropped.
pub fn serve_in_background(folder: &Path, port: Option<u16>) -> Result<Background, ViewError> {
    let viewer = viewer(&[folder.to_path_buf()], None)?;
    let address = |port| SocketAddr::new(Listen::default().host, port);
    let failed =
        |error: std::io::Error| ViewError::Request(format!("the page of the run cannot be served: {error}"));
    match port {
        Some(port) => Background::start(viewer, address(port)).map_err(failed),
        None => Background::start(Arc::clone(&viewer), address(PORT))
            .or_else(|_| Background::start(viewer, address(0)))
            .map_err(failed),
    }
}
