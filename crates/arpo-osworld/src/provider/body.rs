//! The engine's description of a container, from the options of a desktop; pure functions.

use super::address::INSIDE;
use super::options::{Container, Limits, Vm};
use bollard::models::{
    ContainerCreateBody, DeviceMapping, HostConfig, HostConfigLogConfig, Mount, MountType, PortBinding,
};
use std::collections::HashMap;
use std::path::Path;

/// The program of our image that starts it closed off. An internal network keeps a container from the outside, and not from
/// servers of the engine's machine that listen on all addresses: they answer at the network's gateway. So this sets rules in
/// the container's own network namespace, which go with the container, and gives up the capability to change them.
pub(super) const ISOLATED_ENTRY_POINT: &str = "/usr/local/sbin/desktop-isolated";

/// How a container is connected.
pub(super) enum Link<'a> {
    /// To an internal network of this name.
    Internal(&'a str),
    /// To an internal network of this name, with a firewall of its own.
    Isolated(&'a str),
    /// To the engine's bridge, with ports published at this address of the engine's machine.
    Published(&'a str),
}

/// What setting the rules of a firewall needs.
const FIREWALL_CAPABILITIES: [&str; 2] = ["NET_ADMIN", "NET_RAW"];

/// Our image, or a snapshot of it.
pub(super) fn container(
    options: &Container,
    image: &str,
    labels: HashMap<String, String>,
    link: &Link<'_>,
) -> ContainerCreateBody {
    let mut host = limited(&options.limits);
    let exposed_ports = connect(&mut host, link);
    let is_isolated = matches!(link, Link::Isolated(_));
    if is_isolated {
        // for its entry point alone, which sets the rules and gives all of it up; iptables' older backend needs raw sockets
        host.cap_add = Some(FIREWALL_CAPABILITIES.map(String::from).into());
        if let Some(dropped) = &mut host.cap_drop {
            dropped.retain(|name| !FIREWALL_CAPABILITIES.contains(&name.as_str()));
        }
    }
    ContainerCreateBody {
        user: is_isolated.then(|| "0".into()),
        entrypoint: is_isolated.then(|| vec![ISOLATED_ENTRY_POINT.to_owned()]),
        image: Some(image.to_owned()),
        // The same in every desktop: it is in the prompt of a terminal, which the agent sees.
        hostname: Some("desktop".into()),
        env: Some(options.environment.clone()),
        labels: Some(labels),
        exposed_ports,
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// OSWorld's virtual machine. `disk` is absolute; without KVM the hypervisor emulates.
pub(super) fn vm(
    options: &Vm,
    disk: &Path,
    kvm: bool,
    labels: HashMap<String, String>,
    link: &Link<'_>,
) -> ContainerCreateBody {
    let mut host = limited(&options.limits);
    let exposed_ports = connect(&mut host, link);
    // The hypervisor makes a network of its own for its guest.
    host.cap_add = Some(vec!["NET_ADMIN".into()]);
    // A mount, not a bind: a missing file is an error, and a colon in its path is a colon.
    host.mounts = Some(vec![Mount {
        typ: Some(MountType::BIND),
        source: Some(disk.to_string_lossy().into_owned()),
        target: Some("/System.qcow2".into()),
        read_only: Some(true),
        ..Mount::default()
    }]);
    let mut env = vec![
        format!("DISK_SIZE={}", options.disk_size),
        format!("RAM_SIZE={}", options.ram_size),
        format!("CPU_CORES={}", options.cpu_cores),
    ];
    if kvm {
        host.devices = Some(vec![DeviceMapping {
            path_on_host: Some("/dev/kvm".into()),
            path_in_container: Some("/dev/kvm".into()),
            cgroup_permissions: Some("rwm".into()),
        }]);
    } else {
        env.push("KVM=N".into());
    }
    ContainerCreateBody {
        image: Some(options.image.clone()),
        env: Some(env),
        labels: Some(labels),
        exposed_ports,
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

fn limited(limits: &Limits) -> HostConfig {
    let bytes = |limit: Option<u64>| limit.map(|bytes| bytes as i64);
    let log = [("max-size", "1m"), ("max-file", "1")];
    HostConfig {
        memory: bytes(limits.memory_bytes),
        // Memory and swap together: the same number means no swap on top.
        memory_swap: bytes(limits.memory_bytes),
        nano_cpus: limits.cpus.map(|cpus| (cpus * 1e9).round() as i64),
        pids_limit: limits.processes.map(i64::from),
        shm_size: bytes(limits.shared_memory_bytes),
        storage_opt: limits.disk_bytes.map(|bytes| HashMap::from([("size".into(), bytes.to_string())])),
        cap_drop: (!limits.dropped_capabilities.is_empty()).then(|| limits.dropped_capabilities.clone()),
        security_opt: (!limits.security.is_empty()).then(|| limits.security.clone()),
        // A verbose desktop must not fill the machine's disk.
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(log.map(|(name, value)| (name.into(), value.into())).into()),
        }),
        ..HostConfig::default()
    }
}

/// Connects it and returns the ports it exposes.
fn connect(host: &mut HostConfig, link: &Link<'_>) -> Option<Vec<String>> {
    match link {
        Link::Internal(name) | Link::Isolated(name) => {
            host.network_mode = Some((*name).to_owned());
            // The engine's resolver would carry names out where this machine's own resolver is on its loopback:
            // a server that is not there answers nothing.
            host.dns = Some(vec!["127.0.0.1".into()]);
            // An unknown name must fail at once, not after ten seconds of an episode.
            host.dns_options = Some(vec!["timeout:1".into(), "attempts:1".into()]);
            None
        }
        Link::Published(address) => {
            let name = |port: u16| format!("{port}/tcp");
            // An empty port lets the engine choose a free one: nothing collides, whoever else starts containers.
            let bound = PortBinding { host_ip: Some((*address).to_owned()), host_port: Some(String::new()) };
            let bindings = INSIDE.map(|(_, port)| (name(port), Some(vec![bound.clone()])));
            host.port_bindings = Some(bindings.into());
            Some(INSIDE.iter().map(|(_, port)| name(*port)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::path::PathBuf;

    fn sent(body: &ContainerCreateBody) -> Value {
        serde_json::to_value(body).expect("JSON")
    }

    #[test]
    fn our_image_is_limited_and_has_no_way_out() {
        let options = Container::default();
        let body =
            sent(&container(&options, "arpo-desktop:latest", HashMap::new(), &Link::Internal("arpo-1")));
        assert_eq!(body["Image"], "arpo-desktop:latest");
        let host = &body["HostConfig"];
        assert_eq!(host["NetworkMode"], "arpo-1");
        assert_eq!(host["PortBindings"], Value::Null);
        assert_eq!(host["Memory"], json!(3_u64 << 30));
        assert_eq!(host["MemorySwap"], json!(3_u64 << 30));
        assert_eq!(host["PidsLimit"], 512);
        assert_eq!(host["ShmSize"], json!(256 << 20));
        assert_eq!(host["CapDrop"], json!(["NET_RAW", "MKNOD"]));
        assert_eq!(host["LogConfig"]["Config"]["max-size"], "1m");
        assert_eq!(host["StorageOpt"], Value::Null);
        assert_eq!(host["NanoCpus"], Value::Null);
    }

    #[test]
    fn an_isolated_desktop_sets_its_firewall_first() {
        let options = Container::default();
        let body = |link: &Link<'_>| sent(&container(&options, "i", HashMap::new(), link));
        let isolated = body(&Link::Isolated("arpo-1"));
        assert_eq!(isolated["Entrypoint"], json!([ISOLATED_ENTRY_POINT]));
        assert_eq!(isolated["User"], "0");
        assert_eq!(isolated["HostConfig"]["CapAdd"], json!(["NET_ADMIN", "NET_RAW"]));
        assert_eq!(isolated["HostConfig"]["CapDrop"], json!(["MKNOD"]));
        assert_eq!(isolated["HostConfig"]["NetworkMode"], "arpo-1");
        let internal = body(&Link::Internal("arpo-1"));
        assert_eq!(
            (&internal["Entrypoint"], &internal["HostConfig"]["CapAdd"]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn limits_are_sent_as_they_are_set() {
        let limits = Limits { cpus: Some(1.5), disk_bytes: Some(10), ..Limits::none() };
        let options = Container { limits, ..Container::default() };
        let body = sent(&container(&options, "i", HashMap::new(), &Link::Published("127.0.0.1")));
        let host = &body["HostConfig"];
        assert_eq!(host["NanoCpus"], json!(1_500_000_000_u64));
        assert_eq!(host["StorageOpt"], json!({"size": "10"}));
        assert_eq!(host["Memory"], Value::Null);
        assert_eq!(host["PortBindings"]["5000/tcp"], json!([{"HostIp": "127.0.0.1", "HostPort": ""}]));
        assert!(body["ExposedPorts"].get("9222/tcp").is_some());
    }

    #[test]
    fn the_virtual_machine_is_started_as_osworld_does() {
        let options = Vm::new(PathBuf::from("Ubuntu.qcow2"));
        let disk = Path::new("/data/Ubuntu.qcow2");
        let body = sent(&vm(&options, disk, true, HashMap::new(), &Link::Published("127.0.0.1")));
        assert_eq!(body["Image"], "happysixd/osworld-docker");
        assert_eq!(body["Env"], json!(["DISK_SIZE=32G", "RAM_SIZE=4G", "CPU_CORES=4"]));
        let host = &body["HostConfig"];
        assert_eq!(host["CapAdd"], json!(["NET_ADMIN"]));
        assert_eq!(host["Devices"][0]["PathOnHost"], "/dev/kvm");
        let mount = json!({"Target": "/System.qcow2", "Source": "/data/Ubuntu.qcow2", "Type": "bind", "ReadOnly": true});
        assert_eq!(host["Mounts"], json!([mount]));
        assert!(
            ["5000/tcp", "9222/tcp", "8080/tcp", "8006/tcp"]
                .iter()
                .all(|port| host["PortBindings"].get(port).is_some())
        );
        let slow = sent(&vm(&options, disk, false, HashMap::new(), &Link::Published("127.0.0.1")));
        assert_eq!(slow["Env"][3], "KVM=N");
        assert_eq!(slow["HostConfig"]["Devices"], Value::Null);
    }
}
