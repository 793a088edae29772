//! The files of a prepared desktop as an image, so that an expensive set-up is done once.
//!
//! Files only: processes are not saved, a desktop started from a snapshot restarts its applications.

use super::desktop::Desktop;
use super::docker::COMMIT;
use super::error::ProviderError;
use super::hosted::Hosted;
use bollard::models::ContainerConfig;
use bollard::query_parameters::CommitContainerOptionsBuilder;
use std::sync::Arc;
use std::time::Instant;

/// Repository of snapshots; the tag says whose.
const REPOSITORY: &str = "arpo-snapshot";
/// How the names of snapshots begin.
pub(super) const SNAPSHOT_PREFIX: &str = "arpo-snapshot:";

/// The files of a desktop at one point in time; removed on drop.
pub struct Snapshot {
    hosted: Arc<Hosted>,
    image: String,
}

impl Snapshot {
    /// Its image, as `docker` names it.
    pub fn image(&self) -> &str {
        &self.image
    }

    pub(super) fn take(
        hosted: &Arc<Hosted>,
        desktop: &Desktop,
        name: &str,
        deadline: Instant,
    ) -> Result<Self, ProviderError> {
        let right = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(right) {
            return Err(ProviderError::Option(format!(
                "a snapshot cannot be called {name:?}: up to 64 letters, digits, '-', '_' and '.'"
            )));
        }
        if hosted.is_vm() {
            let problem = "a virtual machine has no snapshots: each start is a new layer over its disk";
            return Err(ProviderError::Option(problem.into()));
        }
        let Some((container, of)) = desktop.container() else {
            return Err(ProviderError::Option("a running guest has no snapshots".into()));
        };
        if !Arc::ptr_eq(of, hosted) {
            return Err(ProviderError::Option(format!("desktop {container} is another provider's")));
        }
        let tag = format!("{}-{name}", hosted.token);
        // Created first: it removes the image even if the engine never responds.
        let snapshot = Self { hosted: Arc::clone(hosted), image: format!("{REPOSITORY}:{tag}") };
        let options = CommitContainerOptionsBuilder::default()
            .container(container)
            .repo(REPOSITORY)
            .tag(&tag)
            .pause(true)
            .build();
        let config = ContainerConfig { labels: Some(hosted.labels()), ..ContainerConfig::default() };
        let limit = COMMIT.min(deadline.saturating_duration_since(Instant::now()));
        hosted.engine.call("commit a desktop's files", limit, |docker| async move {
            docker.commit_container(options, config).await
        })?;
        Ok(snapshot)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // An image that stays has its provider's label and is removed with it.
        let _ = self.hosted.engine.remove_image(&self.image);
    }
}
