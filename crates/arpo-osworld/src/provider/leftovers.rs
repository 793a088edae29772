//! Leftovers of dead processes on the engine: found by their labels, checked by their owner, removed.

use super::docker::{Engine, QUICK, SLOW};
use super::error::ProviderError;
use super::owner::{OWNER_LABEL, Owner, OwnerStatus};
use super::snapshot::SNAPSHOT_PREFIX;
use bollard::errors::Error;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListImagesOptionsBuilder, ListNetworksOptionsBuilder,
    RemoveContainerOptionsBuilder, RemoveImageOptionsBuilder,
};
use std::collections::HashMap;

/// Which leftovers are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanScope {
    /// Those of processes that have surely ended.
    EndedProcesses,
    /// Also those of processes that cannot be seen from here: on another machine or in another container.
    UnseenProcesses,
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Leftovers {
    /// Containers, by name.
    pub containers: Vec<String>,
    /// Networks, by name.
    pub networks: Vec<String>,
    /// Images of snapshots.
    pub images: Vec<String>,
}

impl Leftovers {
    /// Nothing was there.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.networks.is_empty() && self.images.is_empty()
    }
}

/// Whether something with these labels is a leftover, given the status of its owner.
fn is_leftover(
    labels: &HashMap<String, String>,
    scope: CleanScope,
    status: impl Fn(&Owner) -> OwnerStatus,
) -> bool {
    let owner = labels.get(OWNER_LABEL).and_then(|label| Owner::parse(label));
    match owner.map(|owner| status(&owner)) {
        Some(OwnerStatus::Gone) => true,
        Some(OwnerStatus::Elsewhere) => scope == CleanScope::UnseenProcesses,
        Some(OwnerStatus::Alive) | None => false,
    }
}

impl Engine {
    /// Removes leftover containers, then networks and images.
    pub(super) fn remove_leftovers(
        &self,
        here: &Owner,
        scope: CleanScope,
    ) -> Result<Leftovers, ProviderError> {
        self.remove_labelled(OWNER_LABEL, |labels| {
            is_leftover(labels, scope, |owner| owner.current_status(here))
        })
    }

    /// Removes what has a label (`name` or `name=value`) and matches a predicate.
    pub(super) fn remove_labelled(
        &self,
        label: &str,
        wanted: impl Fn(&HashMap<String, String>) -> bool,
    ) -> Result<Leftovers, ProviderError> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let mut removed = Leftovers::default();

        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let containers = self.call("list desktops", QUICK, |docker| async move {
            docker.list_containers(Some(options)).await
        })?;
        for found in containers {
            let Some(id) = found.id.filter(|_| wanted(&found.labels.unwrap_or_default())) else { continue };
            self.remove_container(&id)?;
            let name = found.names.unwrap_or_default().into_iter().next();
            removed.containers.push(name.map_or(id, |name| name.trim_start_matches('/').to_owned()));
        }

        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        let networks =
            self.call(
                "list networks",
                QUICK,
                |docker| async move { docker.list_networks(Some(options)).await },
            )?;
        for found in networks {
            let Some(id) = found.id.filter(|_| wanted(&found.labels.unwrap_or_default())) else { continue };
            self.call("remove a network", SLOW, |docker| async move {
                or_already_gone(docker.remove_network(&id).await)
            })?;
            removed.networks.extend(found.name);
        }

        let options = ListImagesOptionsBuilder::default().filters(&filters).build();
        let images =
            self.call("list images", QUICK, |docker| async move { docker.list_images(Some(options)).await })?;
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

    /// Kills and removes a container; it is no error if it is already gone or being removed.
    pub(super) fn remove_container(&self, name: &str) -> Result<(), ProviderError> {
        let id = name.to_owned();
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        self.call("remove a desktop", SLOW, |docker| async move {
            or_already_gone(docker.remove_container(&id, Some(options)).await)
        })
    }

    /// Removes an image and its name.
    pub(super) fn remove_image(&self, id: &str) -> Result<(), ProviderError> {
        let id = id.to_owned();
        let options = RemoveImageOptionsBuilder::default().force(true).build();
        self.call("remove an image", SLOW, |docker| async move {
            or_already_gone(docker.remove_image(&id, Some(options), None).await.map(|_| ()))
        })
    }
}

/// Two processes may clean up at once: what the other removed, or is removing, counts as removed.
fn or_already_gone(answer: Result<(), Error>) -> Result<(), Error> {
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
    fn only_what_a_dead_process_labelled_is_a_leftover() {
        let here = Owner::this_process();
        let label = |value: &str| HashMap::from([(OWNER_LABEL.to_owned(), value.to_owned())]);
        let status = |owner: &Owner| match owner.pid {
            pid if pid == here.pid => OwnerStatus::Alive,
            1 => OwnerStatus::Elsewhere,
            _ => OwnerStatus::Gone,
        };
        let of = |pid: u32| label(&Owner { pid, ..here.clone() }.to_string());
        let ended = CleanScope::EndedProcesses;
        assert!(is_leftover(&of(here.pid + 1), ended, status));
        assert!(!is_leftover(&of(here.pid), ended, status));
        assert!(!is_leftover(&of(1), ended, status), "it may be alive");
        assert!(is_leftover(&of(1), CleanScope::UnseenProcesses, status));
        assert!(
            !is_leftover(&of(here.pid), CleanScope::UnseenProcesses, status),
            "never that of a living one"
        );
        assert!(!is_leftover(&label("somebody else's label"), ended, status));
        assert!(!is_leftover(&HashMap::new(), ended, status));
    }
}
