//! A bench for the provider: a tiny image made on the fly, without a registry, and a second connection to the engine.

use arpo_osworld::provider::{Container, Machine, Network, Options, Provider};
use bollard::Docker;
use bollard::exec::StartExecResults;
use bollard::models::{ContainerCreateBody, ExecConfig, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, InspectContainerOptions, KillContainerOptions,
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveImageOptionsBuilder,
};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The command of the image's first process.
pub(crate) const SERVES: &str = "exec /bin/busybox httpd -f -p 5000 -h /www";

/// A second connection to the engine and an image that serves `GET /screenshot`.
pub(crate) struct Bench {
    docker: Docker,
    runtime: Runtime,
    pub(crate) image: String,
}

impl Bench {
    /// None, with the reason printed, where there is no engine or no static busybox.
    pub(crate) fn new(name: &str, script: &str) -> Option<Self> {
        Self::with_isolation(name, script, None)
    }

    /// The same with the commands of an entry point that closes it off.
    pub(crate) fn with_isolation(name: &str, script: &str, isolation: Option<&str>) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let Ok(docker) = Docker::connect_with_defaults() else { return skip("no Docker engine") };
        let Ok(docker) = runtime.block_on(docker.negotiate_version()) else {
            return skip("no Docker engine");
        };
        let Some(busybox) = static_busybox() else {
            return skip("no static busybox (Debian: apt-get install busybox-static)");
        };
        let image = format!("arpo-test-{name}-{}", std::process::id());
        let bench = Self { docker, runtime, image };
        bench.import(&busybox, script, isolation);
        Some(bench)
    }

    fn import(&self, busybox: &[u8], script: &str, isolation: Option<&str>) {
        let mut tar = Vec::new();
        for folder in ["bin/", "www/", "tmp/", "usr/", "usr/local/", "usr/local/sbin/"] {
            entry(&mut tar, folder, 0o777, &[]);
        }
        entry(&mut tar, "bin/busybox", 0o755, busybox);
        entry(&mut tar, "www/screenshot", 0o644, b"a picture");
        if let Some(isolation) = isolation {
            let text = format!("#!/bin/busybox sh\n{isolation}\n");
            entry(&mut tar, "usr/local/sbin/desktop-isolated", 0o755, text.as_bytes());
        }
        entry(&mut tar, "start", 0o755, format!("#!/bin/busybox sh\n{script}\n").as_bytes());
        tar.extend_from_slice(&[0; 1024]);
        let options = CreateImageOptionsBuilder::default()
            .from_src("-")
            .repo(&self.image)
            .tag("latest")
            .changes(vec![r#"CMD ["/start"]"#.into()])
            .build();
        self.runtime.block_on(async {
            let mut answers = std::pin::pin!(self.docker.create_image(
                Some(options),
                Some(bollard::body_full(tar.into())),
                None
            ));
            while let Some(answer) = answers.next().await {
                answer.expect("the engine takes the image");
            }
        });
    }

    /// The provider's options for this image.
    pub(crate) fn container(&self) -> Container {
        Container {
            image: self.image.clone(),
            ready_within: Duration::from_secs(20),
            // the image has no firewall of its own
            network: Network::Internal,
            ..Container::default()
        }
    }

    /// Runs a call of the engine.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let limited = async { tokio::time::timeout(Duration::from_mins(1), future).await };
        self.runtime.block_on(limited).expect("an answer within a minute")
    }

    /// Names of containers of this image or label.
    pub(crate) fn containers(&self, filter: &str, value: &str) -> Vec<String> {
        let filters = HashMap::from([(filter.to_owned(), vec![value.to_owned()])]);
        let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
        let found = self.wait(self.docker.list_containers(Some(options))).expect("a list");
        found.into_iter().flat_map(|one| one.names.unwrap_or_default()).collect()
    }

    /// Whether a container exists.
    pub(crate) fn exists(&self, name: &str) -> bool {
        self.wait(self.docker.inspect_container(name, None::<InspectContainerOptions>)).is_ok()
    }

    /// Whether a network exists.
    pub(crate) fn network_exists(&self, name: &str) -> bool {
        let filters = HashMap::from([("name".to_owned(), vec![name.to_owned()])]);
        let options = ListNetworksOptionsBuilder::default().filters(&filters).build();
        !self.wait(self.docker.list_networks(Some(options))).expect("a list").is_empty()
    }

    /// Whether an image exists.
    pub(crate) fn image_exists(&self, name: &str) -> bool {
        self.wait(self.docker.inspect_image(name)).is_ok()
    }

    /// Kills a container behind the provider's back.
    pub(crate) fn kill(&self, name: &str) {
        self.wait(self.docker.kill_container(name, None::<KillContainerOptions>)).expect("a kill");
    }

    /// Pauses a container behind the provider's back.
    pub(crate) fn pause(&self, name: &str) {
        self.wait(self.docker.pause_container(name)).expect("a pause");
    }

    /// A container with labels that nobody holds.
    pub(crate) fn leave(&self, name: &str, labels: HashMap<String, String>) {
        let options = CreateContainerOptionsBuilder::default().name(name).build();
        let body = ContainerCreateBody {
            image: Some(self.image.clone()),
            labels: Some(labels),
            host_config: Some(HostConfig { network_mode: Some("none".into()), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        self.wait(self.docker.create_container(Some(options), body)).expect("a container");
    }

    /// Removes a container that nobody holds.
    pub(crate) fn remove(&self, name: &str) {
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        let _ = self.wait(self.docker.remove_container(name, Some(options)));
    }

    /// What a shell command in a container prints.
    pub(crate) fn shell(&self, name: &str, command: &str) -> String {
        let words = ["/bin/busybox", "sh", "-c", command].map(str::to_owned).to_vec();
        let config = ExecConfig {
            cmd: Some(words),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..ExecConfig::default()
        };
        self.wait(async {
            let exec = self.docker.create_exec(name, config).await.expect("an exec");
            let started = self.docker.start_exec(&exec.id, None).await.expect("its start");
            let StartExecResults::Attached { mut output, .. } = started else { return String::new() };
            let mut text = String::new();
            while let Some(part) = output.next().await {
                text.push_str(&String::from_utf8_lossy(part.expect("its output").as_ref()));
            }
            text
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for name in self.containers("ancestor", &self.image) {
            self.remove(name.trim_start_matches('/'));
        }
        let options = RemoveImageOptionsBuilder::default().force(true).build();
        let _ = self.wait(self.docker.remove_image(&self.image, Some(options), None));
    }
}

/// A provider of containers.
pub(crate) fn provider(container: Container) -> Provider {
    let options = Options { run: "test".into(), machine: Machine::Container(container) };
    Provider::new(options).expect("a provider")
}

/// Half a minute from now.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn skip<T>(why: &str) -> Option<T> {
    println!("skipped: {why}");
    None
}

/// A busybox that needs no libraries: it names no loader.
fn static_busybox() -> Option<Vec<u8>> {
    let paths = ["/bin/busybox", "/usr/bin/busybox", "/sbin/busybox"];
    let binary = paths.iter().find_map(|path| std::fs::read(path).ok())?;
    let loader = b"/ld-";
    let dynamic = binary[..binary.len().min(4096)].windows(loader.len()).any(|piece| piece == loader);
    (!dynamic).then_some(binary)
}

/// A file or folder (its name ends with a slash) of a tar archive.
fn entry(tar: &mut Vec<u8>, name: &str, mode: u32, content: &[u8]) {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    let mut field =
        |from: usize, text: String| header[from..from + text.len()].copy_from_slice(text.as_bytes());
    field(100, format!("{mode:07o}\0"));
    field(108, format!("{:07o}\0{:07o}\0", 0, 0));
    field(124, format!("{:011o}\0{:011o}\0", content.len(), 0));
    field(148, " ".repeat(8));
    field(156, if name.ends_with('/') { "5".into() } else { "0".into() });
    field(257, "ustar\u{0}00".into());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}
