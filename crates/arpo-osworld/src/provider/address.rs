//! Where a desktop listens: its own address on an internal network, or ports the engine chose on this machine.

use super::error::ProviderError;
use crate::guest::http::Ports;
use bollard::models::ContainerInspectResponse;

/// Ports inside every desktop, as OSWorld has them.
pub(super) const INSIDE: [(&str, u16); 4] =
    [("server", 5000), ("chromium", 9222), ("vlc", 8080), ("vnc", 8006)];

/// Where a desktop listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// Name or number of its host; an IPv6 number in brackets.
    pub host: String,
    /// OSWorld's server.
    pub server: u16,
    /// The browser's debugging port.
    pub chromium: u16,
    /// VLC's web interface.
    pub vlc: u16,
    /// VNC, where the desktop has it.
    pub vnc: u16,
}

impl Addresses {
    /// The usual ports of a host.
    pub fn of_host(host: &str) -> Self {
        let [server, chromium, vlc, vnc] = INSIDE.map(|(_, port)| port);
        Self { host: host.to_owned(), server, chromium, vlc, vnc }
    }

    /// A running guest's `http://host[:port]`, the other ports being the usual ones, or all four as OSWorld writes
    /// them, `http://host:server:chromium:vnc:vlc`.
    pub fn parse(url: &str) -> Result<Self, ProviderError> {
        let wrong = || {
            ProviderError::Option(format!(
                "{url:?} is not a running guest: expected http://host:port, or http://host:server:chromium:vnc:vlc"
            ))
        };
        let rest = url.trim().strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
        // The colons of an IPv6 number in brackets are no port's.
        let end = rest.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, ports) = match rest[end..].find(':') {
            Some(colon) => (&rest[..end + colon], &rest[end + colon + 1..]),
            None => (rest, ""),
        };
        let numbered = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || host.contains(['/', '@', '?', '#', ' ']) || (host.contains(':') && !numbered) {
            return Err(wrong());
        }
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(wrong);
        let mut addresses = Self::of_host(host);
        match ports.split(':').collect::<Vec<_>>()[..] {
            [""] if rest == host => {}
            [server] => addresses.server = port(server)?,
            [server, chromium, vnc, vlc] => {
                (addresses.server, addresses.chromium) = (port(server)?, port(chromium)?);
                (addresses.vnc, addresses.vlc) = (port(vnc)?, port(vlc)?);
            }
            _ => return Err(wrong()),
        }
        Ok(addresses)
    }

    /// The server's address.
    pub fn server_url(&self) -> String {
        format!("http://{}:{}", self.host, self.server)
    }

    /// The VNC address.
    pub fn vnc_url(&self) -> String {
        format!("http://{}:{}", self.host, self.vnc)
    }

    /// The ports as the client of a guest takes them.
    pub fn ports(&self) -> Ports {
        Ports { server: self.server, chromium: self.chromium, vlc: self.vlc }
    }
}

/// Where a container on an internal network listens: at its own address.
pub(super) fn own_address(found: &ContainerInspectResponse, network: &str) -> Option<Addresses> {
    let networks = found.network_settings.as_ref()?.networks.as_ref()?;
    let number = networks.get(network)?.ip_address.as_deref()?;
    (!number.is_empty()).then(|| Addresses::of_host(number))
}

/// Where a container with published ports listens, on the host that is given.
pub(super) fn published_address(found: &ContainerInspectResponse, host: &str) -> Option<Addresses> {
    let ports = found.network_settings.as_ref()?.ports.as_ref()?;
    let outside = |inside: u16| {
        let bound = ports.get(&format!("{inside}/tcp"))?.as_ref()?;
        // With IPv6 the engine may bind twice, to different ports: the first IPv4 one is ours.
        let ipv4 = bound.iter().find(|one| !one.host_ip.as_deref().unwrap_or_default().contains(':'));
        ipv4.or(bound.first())?.host_port.as_deref()?.parse::<u16>().ok()
    };
    let [server, chromium, vlc, vnc] = INSIDE.map(|(_, port)| outside(port));
    Some(Addresses { host: host.to_owned(), server: server?, chromium: chromium?, vlc: vlc?, vnc: vnc? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn inspected(settings: &serde_json::Value) -> ContainerInspectResponse {
        serde_json::from_value(json!({"NetworkSettings": settings})).expect("an engine's answer")
    }

    #[test]
    fn an_internal_desktop_is_at_its_own_address() {
        let found = inspected(&json!({"Ports": {}, "Networks": {"arpo-1": {"IPAddress": "172.18.0.2"}}}));
        let addresses = own_address(&found, "arpo-1").expect("an address");
        assert_eq!(addresses.server_url(), "http://172.18.0.2:5000");
        assert_eq!(addresses.ports(), Ports::default());
        assert_eq!(own_address(&found, "other"), None);
        let stopped = inspected(&json!({"Networks": {"arpo-1": {"IPAddress": ""}}}));
        assert_eq!(own_address(&stopped, "arpo-1"), None);
    }

    #[test]
    fn a_published_desktop_is_at_the_ports_the_engine_chose() {
        let bound = |port: &str| json!([{"HostIp": "::1", "HostPort": "1"}, {"HostIp": "127.0.0.1", "HostPort": port}]);
        let ports = json!({"5000/tcp": bound("32768"), "9222/tcp": bound("32769"), "8080/tcp": bound("32770"),
            "8006/tcp": bound("32771"), "5900/tcp": null});
        let found = inspected(&json!({"Ports": ports}));
        let addresses = published_address(&found, "127.0.0.1").expect("ports");
        let wanted =
            Addresses { host: "127.0.0.1".into(), server: 32768, chromium: 32769, vlc: 32770, vnc: 32771 };
        assert_eq!(addresses, wanted);
        assert_eq!(published_address(&inspected(&json!({"Ports": {"5000/tcp": null}})), "127.0.0.1"), None);
    }

    #[test]
    fn a_running_guest_is_named_by_its_address() {
        let parsed = |url| Addresses::parse(url).map(|found| found.server_url()).ok();
        assert_eq!(parsed("http://10.0.0.5:5001").as_deref(), Some("http://10.0.0.5:5001"));
        assert_eq!(parsed("http://desk/").as_deref(), Some("http://desk:5000"));
        assert_eq!(parsed("http://[::1]:5001").as_deref(), Some("http://[::1]:5001"));
        assert_eq!(parsed("http://[::1]").as_deref(), Some("http://[::1]:5000"));
        let second = Addresses::parse("http://desk:5001:9223:8007:8081").expect("four ports");
        assert_eq!((second.server, second.chromium, second.vnc, second.vlc), (5001, 9223, 8007, 8081));
        for wrong in [
            "desk:5000",
            "https://desk",
            "http://",
            "http://desk:0",
            "http://desk:x",
            "http://a:b:1",
            "http://a/b",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
