//! Which hosts of a Ray cluster take how many desktops: the resources `docker:<ip>` of its nodes say.

use super::client::Node;
use std::collections::BTreeMap;

/// What the name of a host's resource begins with; the rest is the host.
const PREFIX: &str = "docker:";

/// The hosts with a node that is alive, and how many desktops each offers.
pub(super) fn offers(nodes: &[Node]) -> BTreeMap<String, usize> {
    let mut offers = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.state == "ALIVE") {
        for (resource, count) in &node.resources_total {
            // a fraction of a desktop is none
            if let Some(host) = resource.strip_prefix(PREFIX)
                && *count >= 1.0
            {
                *offers.entry(host.to_owned()).or_default() += *count as usize;
            }
        }
    }
    offers
}

/// The resource of a host.
pub(super) fn resource(host: &str) -> String {
    format!("{PREFIX}{host}")
}

/// Spreads desktops over hosts as evenly as their offers allow; no host gets more than it offers. Hosts without any are left
/// out.
pub(super) fn shares(offers: &BTreeMap<String, usize>, desktops: usize) -> BTreeMap<String, usize> {
    let total = |level: usize| offers.values().map(|count| level.min(*count)).sum::<usize>();
    // the lowest level that is enough, and then one less for as many hosts as that is too much
    let most = offers.values().copied().max().unwrap_or(0);
    let level = (0..=most).find(|level| total(*level) >= desktops).unwrap_or(most);
    let mut excess = total(level).saturating_sub(desktops);
    let mut shares = BTreeMap::new();
    for (host, count) in offers.iter().rev() {
        let mut share = level.min(*count);
        if excess > 0 && share == level {
            (share, excess) = (share - 1, excess - 1);
        }
        if share > 0 {
            shares.insert(host.clone(), share);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, usize)]) -> BTreeMap<String, usize> {
        entries.iter().map(|(host, count)| ((*host).to_owned(), *count)).collect()
    }

    #[test]
    fn desktops_are_spread_evenly_within_the_offers() {
        for (offers, desktops, expected) in [
            (vec![("a", 4), ("b", 4)], 6, vec![("a", 3), ("b", 3)]),
            (vec![("a", 4), ("b", 4)], 5, vec![("a", 3), ("b", 2)]),
            (vec![("a", 1), ("b", 9)], 6, vec![("a", 1), ("b", 5)]),
            (vec![("a", 2), ("b", 2)], 100, vec![("a", 2), ("b", 2)]),
            (vec![("a", 2), ("b", 2), ("c", 2)], 1, vec![("a", 1)]),
            (vec![("a", 128)], 7, vec![("a", 7)]),
            (vec![], 7, vec![]),
        ] {
            assert_eq!(shares(&map(&offers), desktops), map(&expected), "{offers:?} {desktops}");
        }
    }

    #[test]
    fn hosts_are_the_resources_of_nodes_that_live() {
        let node = |state: &str, resources: &[(&str, f64)]| Node {
            state: state.into(),
            resources_total: resources.iter().map(|(name, count)| ((*name).into(), *count)).collect(),
        };
        let nodes = [
            node("ALIVE", &[("CPU", 2.0), ("docker:10.0.0.1", 4.0), ("docker:10.0.0.9", 0.5)]),
            node("DEAD", &[("docker:10.0.0.2", 4.0)]),
            node("ALIVE", &[("docker:10.0.0.3", 2.0)]),
        ];
        assert_eq!(offers(&nodes), map(&[("10.0.0.1", 4), ("10.0.0.3", 2)]));
    }
}
