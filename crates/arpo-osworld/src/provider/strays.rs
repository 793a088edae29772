//! Leftovers of dead processes on the engine: found by their labels, checked by their owner, removed.

use super::docker::{QUICK, SLOW};
use super::error::ProviderError;
use super::hosted::Hosted;
use super::owner::{OWNER_LABEL, Owner};
use super::snapshot::SNAPSHOT_PREFIX;
use bollard::errors::Error;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, ListNetworksOptionsBuilder,
    RemoveImageOptionsBuilder,
};
use std::collections::HashMap;

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strays {
    /// Containers, by name.
    pub containers: Vec<String>,
    /// Networks, by name.
    pub networks: Vec<String>,
    /// Images of snapshots.
    pub images: Vec<String>,
}

impl Strays {
    /// Nothing was there.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.networks.is_empty() && self.images.is_empty()
    }
}

/// Whether something with these labels belongs to a process that has surely ended.
fn is_stray(labels: &HashMap<String, String>, is_gone: impl Fn(&Owner) -> bool) -> bool {
    labels.get(OWNER_LABEL).and_then(|label| Owner::parse(label)).is_some_and(|owner| is_gone(&owner))
}

impl Hosted {
    /// Removes containers, then networks and images, of processes that have surely ended.
    pub(super) fn remove_strays(&self) -> Result<Strays, ProviderError> {
        self.remove_labelled(OWNER_LABEL, |labels| is_stray(labels, |owner| owner.is_gone(&self.owner)))
    }

    /// Removes what has a label (`name` or `name=value`) and matches a predicate.
    pub(super) fn remove_labelled(
        &self,
        label: &str,
        wanted: impl Fn(&HashMap<String, String>) -> bool,
    ) -> Result<Strays, ProviderError> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let mut removed = Strays::default();

        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let containers = self.engine.call("list desktops", QUICK, |docker| async move {
            docker.list_containers(Some(options)).await
        })?;
        for found in containers {
            let Some(id) = found.id.filter(|_| wanted(&found.labels.unwrap_or_default())) else { continue };
            self.remove_container(&id)?;
            let name = found.names.unwrap_or_default().into_iter().next();
            removed.containers.push(name.map_or(id, |name| name.trim_start_matches('/').to_owned()));
        }

        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        let networks = self.engine.call("list networks", QUICK, |docker| async move {
            docker.list_networks(Some(options)).await
        })?;
        for found in networks {
            let Some(id) = found.id.filter(|_| wanted(&found.labels.unwrap_or_default())) else { continue };
            self.engine.call("remove a network", SLOW, |docker| async move {
                or_already_gone(docker.remove_network(&id).await)
            })?;
            removed.networks.extend(found.name);
        }

        let options = ListImagesOptionsBuilder::default().filters(&filters).build();
        let images = self
            .engine
            .call("list images", QUICK, |docker| async move { docker.list_images(Some(options)).await })?;
        for found in images {
            // A container's labels are in every image that is made of it: only those made here are removed.
            let snapshot = found.repo_tags.iter().all(|tag| tag.starts_with(SNAPSHOT_PREFIX));
            if snapshot && wanted(&found.labels) {
                self.remove_image(&found.id)?;
                removed.images.push(found.repo_tags.into_iter().next().unwrap_or(found.id));
            }
        }
        Ok(removed)
    }

    /// Removes an image and its name.
    pub(super) fn remove_image(&self, id: &str) -> Result<(), ProviderError> {
        let id = id.to_owned();
        let options = RemoveImageOptionsBuilder::default().force(true).build();
        self.engine.call("remove an image", SLOW, |docker| async move {
            or_already_gone(docker.remove_image(&id, Some(options), None).await.map(|_| ()))
        })
    }
}

/// Two processes may clean up at once: what the other removed, or is removing, counts as removed.
pub(super) fn or_already_gone(answer: Result<(), Error>) -> Result<(), Error> {
    match answer {
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        Err(Error::DockerResponseServerError { status_code: 409, message })
            if message.contains("already in progress") =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_labelled_is_a_stray() {
        let here = Owner::this_process();
        let label = |value: &str| HashMap::from([(OWNER_LABEL.to_owned(), value.to_owned())]);
        let gone = |owner: &Owner| owner.pid != here.pid;
        let other = Owner { pid: here.pid + 1, ..here.clone() };
        assert!(is_stray(&label(&other.to_string()), gone));
        assert!(!is_stray(&label(&here.to_string()), gone));
        assert!(!is_stray(&label("somebody else's label"), gone));
        assert!(!is_stray(&HashMap::new(), gone));
    }
}
