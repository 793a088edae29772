//! The supervisor against a small Jobs server: submits, submits again under a new name, says what is missing, ends all.

use super::auth::Auth;
use super::client::{Client, RayError, Submission};
use super::supervisor::{Pace, Plan, Supervisor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What the server knows, for a test to change.
#[derive(Default)]
struct Cluster {
    /// Nodes: state, resource, count.
    nodes: Vec<(&'static str, &'static str, f64)>,
    /// States of jobs by their names.
    jobs: BTreeMap<String, &'static str>,
    submitted: Vec<Value>,
    stopped: Vec<String>,
    deleted: Vec<String>,
    packages: Vec<String>,
    /// The next submission is answered with a traceback.
    fails: bool,
    /// A job that is pending stays so when it is stopped.
    keeps_pending: bool,
    authorization: Option<String>,
}

#[derive(Clone)]
struct Server {
    cluster: Arc<Mutex<Cluster>>,
    address: String,
}

impl Server {
    fn start(nodes: &[(&'static str, &'static str, f64)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cluster = Arc::new(Mutex::new(Cluster { nodes: nodes.to_vec(), ..Cluster::default() }));
        let shared = Arc::clone(&cluster);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || while answer(&stream, &shared).is_some() {});
            }
        });
        Self { cluster, address }
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap()
    }

    fn client(&self) -> Client {
        Client::new(&self.address, Auth::default())
    }

    /// A supervisor for so many desktops, and what it says.
    fn supervisor(&self, desktops: usize) -> (Supervisor, Arc<Mutex<Vec<String>>>) {
        self.supervisor_with_spare(desktops, 0)
    }

    fn supervisor_with_spare(
        &self,
        desktops: usize,
        spare_hosts: usize,
    ) -> (Supervisor, Arc<Mutex<Vec<String>>>) {
        let said = Arc::new(Mutex::new(vec![]));
        let lines = Arc::clone(&said);
        let log = Box::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()));
        let plan = Plan {
            run: "arpo-1".into(),
            command: "exec ./arpo-worker --connect 'trainer:1'".into(),
            runtime_env: json!({"env_vars": {"ARPO_CLUSTER_TOKEN": "secret"}}),
            desktops,
            spare_hosts,
        };
        (Supervisor::new(self.client(), plan, PACE, log), said)
    }
}

const PACE: Pace = Pace {
    poll: Duration::from_millis(1),
    nodes: Duration::ZERO,
    initial_backoff: Duration::from_secs(1),
    max_backoff: Duration::from_secs(8),
    settled: Duration::from_mins(1),
    pending: Duration::from_secs(30),
    end: Duration::from_millis(300),
    stop: Duration::from_millis(20),
};

/// Answers one request; `None` when the connection is over.
fn answer(stream: &TcpStream, cluster: &Mutex<Cluster>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut cluster = cluster.lock().unwrap();
    cluster.authorization = authorization;
    let (status, text) = cluster.respond(&method, path.trim_start_matches("/api/"), &body);
    drop(cluster);
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()
}

impl Cluster {
    fn respond(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let parts: Vec<&str> = path.split(['/', '?']).filter(|part| !part.is_empty()).collect();
        match (method, parts.as_slice()) {
            ("GET", ["version"]) => (200, json!({"ray_version": "2.60.0"}).to_string()),
            ("GET", ["v0", "nodes", ..]) => {
                let node = |(state, resource, count): &(&str, &str, f64)| json!({"state": state, "resources_total": {*resource: count}});
                let nodes: Vec<Value> = self.nodes.iter().map(node).collect();
                (200, json!({"data": {"result": {"result": nodes}}}).to_string())
            }
            ("POST", ["jobs"]) if std::mem::take(&mut self.fails) => {
                (500, "Traceback (most recent call last):\n  File \"x.py\"\nRuntimeError: no agent\n".into())
            }
            ("POST", ["jobs"]) => {
                let job: Value = serde_json::from_slice(body).unwrap();
                self.jobs.insert(job["submission_id"].as_str().unwrap().into(), "PENDING");
                self.submitted.push(job);
                (200, "{}".into())
            }
            ("GET", ["jobs", _, "logs"]) => (200, json!({"logs": "first\nerror: no room\n"}).to_string()),
            ("GET", ["jobs", id]) => match self.jobs.get(*id) {
                Some(status) => (200, json!({"status": status, "message": "as it is"}).to_string()),
                None => (404, format!("Job {id} does not exist")),
            },
            ("POST", ["jobs", id, "stop"]) => {
                self.stopped.push((*id).into());
                if !self.keeps_pending || self.jobs.get(*id) != Some(&"PENDING") {
                    self.jobs.insert((*id).into(), "STOPPED");
                }
                (200, json!({"stopped": true}).to_string())
            }
            ("DELETE", ["jobs", id]) => {
                self.deleted.push((*id).into());
                (200, json!({"deleted": true}).to_string())
            }
            ("PUT", ["packages", "gcs", name]) => {
                self.packages.push((*name).into());
                (200, String::new())
            }
            ("GET", ["packages", "gcs", name]) if self.packages.iter().any(|known| known == name) => {
                (200, String::new())
            }
            _ => (404, "404: Not Found".into()),
        }
    }

    fn names(&self) -> Vec<&str> {
        self.submitted.iter().map(|job| job["submission_id"].as_str().unwrap()).collect()
    }
}

#[test]
fn each_host_gets_a_job_for_its_share() {
    let server = Server::start(&[("ALIVE", "docker:10.0.0.1", 1.0), ("ALIVE", "docker:10.0.0.2", 9.0)]);
    let (mut supervisor, _) = server.supervisor(4);
    supervisor.tick(Instant::now());
    let cluster = server.cluster();
    assert_eq!(cluster.names(), ["arpo-1-10-0-0-1", "arpo-1-10-0-0-2"]);
    let job = &cluster.submitted[1];
    assert_eq!(job["entrypoint_resources"], json!({"docker:10.0.0.2": 3}));
    assert_eq!(job["runtime_env"]["env_vars"]["ARPO_CLUSTER_TOKEN"], "secret");
    let entrypoint = job["entrypoint"].as_str().unwrap();
    assert!(
        entrypoint.ends_with("--desktops 3 --host '10.0.0.2'") && !entrypoint.contains("secret"),
        "{entrypoint}"
    );
}

#[test]
fn a_job_that_fails_is_submitted_again_under_a_new_name_after_a_rest() {
    let server = Server::start(&[("ALIVE", "docker:a", 2.0)]);
    let (mut supervisor, said) = server.supervisor(2);
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    supervisor.tick(start);
    server.cluster().jobs.insert("arpo-1-a".into(), "FAILED");
    supervisor.tick(start);
    supervisor.tick(start);
    assert_eq!(server.cluster().names().len(), 1, "not before a rest");
    let line = said.lock().unwrap().last().unwrap().clone();
    assert!(line.contains("error: no room") && line.contains("in 1s"), "{line}");
    supervisor.tick(at(1));
    assert_eq!(server.cluster().names(), ["arpo-1-a", "arpo-1-a-r1"]);
    assert_eq!(server.cluster().deleted, ["arpo-1-a"]);
    // it rests longer each time, and in the end there is no hope
    let mut time = 1;
    for (attempt, rest) in [(1, 2), (2, 4), (3, 8)] {
        assert_eq!(supervisor.problem(), None);
        server.cluster().jobs.insert(format!("arpo-1-a-r{attempt}"), "FAILED");
        supervisor.tick(at(time));
        supervisor.tick(at(time + rest - 1));
        assert_eq!(server.cluster().names().len(), attempt + 1);
        if attempt < 3 {
            supervisor.tick(at(time + rest));
            assert_eq!(server.cluster().names().len(), attempt + 2);
        }
        time += rest;
    }
    assert!(supervisor.problem().is_some_and(|problem| problem.contains("error: no room")));
}

#[test]
fn an_error_is_the_last_line_of_a_traceback_and_the_job_is_tried_again() {
    let server = Server::start(&[("ALIVE", "docker:a", 2.0)]);
    let (mut supervisor, said) = server.supervisor(2);
    server.cluster().fails = true;
    let start = Instant::now();
    supervisor.tick(start);
    let line = said.lock().unwrap().last().unwrap().clone();
    assert!(line.contains("status 500: RuntimeError: no agent") && !line.contains("Traceback"), "{line}");
    supervisor.tick(start + Duration::from_secs(1));
    assert_eq!(server.cluster().names(), ["arpo-1-a-r1"]);
}

#[test]
fn a_job_that_waits_for_long_says_once_what_for() {
    let server = Server::start(&[("ALIVE", "docker:a", 2.0)]);
    let (mut supervisor, said) = server.supervisor(2);
    let start = Instant::now();
    supervisor.tick(start);
    supervisor.tick(start + Duration::from_secs(29));
    assert!(said.lock().unwrap().is_empty());
    for seconds in 30..33 {
        supervisor.tick(start + Duration::from_secs(seconds));
    }
    let lines = said.lock().unwrap().clone();
    assert!(lines.len() == 1 && lines[0].contains("PENDING") && lines[0].contains("2 docker:a"), "{lines:?}");
}

#[test]
fn a_node_that_dies_and_comes_back_gets_its_worker_again() {
    let alive = [("ALIVE", "docker:a", 2.0), ("ALIVE", "docker:b", 2.0)];
    let server = Server::start(&alive);
    let (mut supervisor, said) = server.supervisor(4);
    let start = Instant::now();
    supervisor.tick(start);
    {
        let mut cluster = server.cluster();
        cluster.nodes[1].0 = "DEAD";
        cluster.jobs.insert("arpo-1-a".into(), "RUNNING");
        cluster.jobs.insert("arpo-1-b".into(), "FAILED");
    }
    supervisor.tick(start);
    supervisor.tick(start + Duration::from_mins(2));
    assert_eq!(server.cluster().names(), ["arpo-1-a", "arpo-1-b"], "nowhere to place it");
    // another host takes over what is missing, and the old one is welcome, too
    server.cluster().nodes.push(("ALIVE", "docker:c", 9.0));
    supervisor.tick(start + Duration::from_mins(2));
    assert_eq!(server.cluster().submitted[2]["entrypoint_resources"], json!({"docker:c": 2}));
    server.cluster().nodes[1].0 = "ALIVE";
    supervisor.tick(start + Duration::from_mins(2));
    assert_eq!(server.cluster().names()[3], "arpo-1-b-r1");
    let lines = said.lock().unwrap().join("\n");
    assert!(lines.contains("b has left the Ray cluster") && lines.contains("b has joined"), "{lines}");
}

#[test]
fn at_the_end_no_job_is_left() {
    let server =
        Server::start(&[("ALIVE", "docker:a", 1.0), ("ALIVE", "docker:b", 1.0), ("ALIVE", "docker:c", 1.0)]);
    let (mut supervisor, said) = server.supervisor(3);
    let start = Instant::now();
    supervisor.tick(start);
    server.cluster().jobs.insert("arpo-1-a".into(), "RUNNING");
    server.cluster().jobs.insert("arpo-1-b".into(), "RUNNING");
    supervisor.tick(start);
    // it knew that the run was over
    server.cluster().jobs.insert("arpo-1-a".into(), "SUCCEEDED");
    supervisor.end();
    let mut cluster = server.cluster();
    assert_eq!(cluster.stopped, ["arpo-1-c", "arpo-1-b"], "first what had not begun, then what did not end");
    cluster.deleted.sort();
    assert_eq!(cluster.deleted, ["arpo-1-a", "arpo-1-b", "arpo-1-c"]);
    assert!(said.lock().unwrap().is_empty());
}

/// As Ray does it: the stop is carried out when the resource is there.
#[test]
fn a_job_that_waits_for_its_resource_is_stopped_and_not_waited_for() {
    let server = Server::start(&[("ALIVE", "docker:a", 1.0)]);
    server.cluster().keeps_pending = true;
    let (mut supervisor, said) = server.supervisor(1);
    supervisor.tick(Instant::now());
    supervisor.end();
    assert_eq!(server.cluster().stopped, ["arpo-1-a"], "once is enough");
    let lines = said.lock().unwrap();
    assert!(lines.len() == 1 && lines[0].contains("Ray stops it before it begins"), "{lines:?}");
}

#[test]
fn a_lost_host_s_desktops_fit_on_the_others() {
    let server =
        Server::start(&[("ALIVE", "docker:a", 9.0), ("ALIVE", "docker:b", 9.0), ("ALIVE", "docker:c", 9.0)]);
    let (mut supervisor, _) = server.supervisor_with_spare(6, 1);
    supervisor.tick(Instant::now());
    let cluster = server.cluster();
    let held: Vec<&Value> = cluster.submitted.iter().map(|job| &job["entrypoint_resources"]).collect();
    assert_eq!(held, [&json!({"docker:a": 3}), &json!({"docker:b": 3}), &json!({"docker:c": 3})]);
}

#[test]
fn a_cluster_that_is_away_is_reported_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let client = Client::new(&address, Auth::default());
    let problem = client.version().unwrap_err().to_string();
    assert!(problem.contains(&address) && problem.contains("ray start --head"), "{problem}");
    let submission = Submission {
        id: "x".into(),
        entrypoint: "y".into(),
        resource: ("z".into(), 1),
        runtime_env: json!({}),
    };
    assert!(matches!(client.submit(&submission), Err(RayError::Unreachable { .. })));
}

#[test]
fn a_package_is_uploaded_once() {
    let server = Server::start(&[]);
    let program = std::env::current_exe().unwrap();
    let client = server.client();
    let first = super::package::store(&client, &program).unwrap();
    assert_eq!(super::package::store(&client, &program).unwrap(), first);
    assert!(first.starts_with("gcs://_ray_pkg_") && server.cluster().packages.len() == 1);
}

#[test]
fn a_cluster_without_hosts_says_what_to_start() {
    let server = Server::start(&[("ALIVE", "CPU", 2.0)]);
    let ray = super::Ray {
        head: server.address.clone(),
        desktops: 1,
        spare_hosts: 0,
        program: super::Program::Shared("/shared/it's".into()),
        advertise: String::new(),
        token: String::new(),
        auth: Auth::default(),
    };
    let problem = ray.check().unwrap_err().to_string();
    assert!(problem.contains("ray start --head --resources='{\"docker:IP\": 128}'"), "{problem}");
    server.cluster().nodes.push(("ALIVE", "docker:a", 1.0));
    assert!(ray.check().is_ok());
    assert_eq!(super::quoted("/shared/it's"), r"'/shared/it'\''s'");
    for (advertise, listen, expected) in [
        ("", "10.0.0.1:7700", "10.0.0.1:7700"),
        ("", "0.0.0.0:7700", "127.0.0.1:7700"),
        ("tunnel", "0.0.0.0:7700", "tunnel:7700"),
        ("tunnel:1", "0.0.0.0:7700", "tunnel:1"),
        ("10.0.0.9", "0.0.0.0:7700", "10.0.0.9:7700"),
        ("fd00::1", "0.0.0.0:7700", "[fd00::1]:7700"),
        ("[fd00::1]:9", "0.0.0.0:7700", "[fd00::1]:9"),
    ] {
        let ray = super::Ray { advertise: advertise.into(), ..ray.clone() };
        assert_eq!(ray.connect(listen.parse().unwrap()).unwrap(), expected, "{advertise} {listen}");
    }
}
