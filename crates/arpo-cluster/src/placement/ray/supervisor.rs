//! One job for each host, watched: submitted again under a new name when it ends too soon, ended with the run.
//!
//! Ray never restarts a job and forgets none of their names, so each attempt has a name of its own. A job whose state
//! cannot be read is taken to be as it was: while Ray's head is away, workers go on without it.

use super::super::room;
use super::super::supervision::{Outlook, Supervised};
use super::client::{Client, JobInfo, RayError, Status, Submission, last_line};
use super::hosts;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// After so many failures in a row on every host, before any job settled, workers cannot run there.
const HOPELESS: u32 = 4;

/// How often and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// Jobs are looked at this often.
    pub(super) poll: Duration,
    /// Nodes are looked at this often.
    pub(super) nodes: Duration,
    /// Rest before a job is submitted again; doubled each time it ends before it has settled.
    pub(super) initial_backoff: Duration,
    pub(super) max_backoff: Duration,
    /// A job that has lived for so long has not failed soon after its start.
    pub(super) settled: Duration,
    /// A job that has waited for so long is reported.
    pub(super) pending: Duration,
    /// Time for workers to remove their desktops in, and then for Ray to stop the jobs of those that did not.
    pub(super) end: Duration,
    /// Time for a job that still waits for its resource to be stopped.
    pub(super) stop: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            nodes: Duration::from_secs(5),
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_mins(1),
            settled: Duration::from_mins(1),
            pending: Duration::from_secs(30),
            end: Duration::from_secs(25),
            stop: Duration::from_secs(3),
        }
    }
}

/// What is the same for all jobs of a run.
pub(super) struct Plan {
    /// What the names of its jobs begin with.
    pub(super) run: String,
    /// The command on a host, without what differs from host to host.
    pub(super) command: String,
    /// Environment variables and files.
    pub(super) runtime_env: Value,
    /// How many desktops the run wants.
    pub(super) desktops: usize,
    /// How many hosts may be lost while the others still have room for all of them.
    pub(super) spare_hosts: usize,
}

/// Receives what a user may want to know, a line at a time.
pub(super) type Log = Box<dyn Fn(&str) + Send>;

/// The jobs of a run.
pub(super) struct Supervisor {
    client: Client,
    plan: Plan,
    pace: Pace,
    log: Log,
    hosts: BTreeMap<String, Host>,
    nodes_at: Option<Instant>,
    away: bool,
}

struct Host {
    /// Its desktops.
    share: usize,
    /// What its node offers; `None` while it has no node.
    offer: Option<usize>,
    job: Option<Job>,
    submissions: u32,
    /// Jobs that ended before they settled, or could not be submitted, in a row.
    failures: u32,
    /// Of these, those that ended.
    crashes: u32,
    /// When the last one ended, and why.
    ended: Option<(Instant, String)>,
}

struct Job {
    id: String,
    since: Instant,
    status: Status,
    reported: bool,
    /// Ray has been told to stop it.
    stopped: bool,
}

impl Supervised for Supervisor {
    fn supervise(&mut self) -> Outlook {
        self.tick(Instant::now());
        let workers = self.hosts.values().filter(|host| host.offer.is_some()).count();
        Outlook { workers, problem: self.problem() }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

impl Supervisor {
    pub(super) fn new(client: Client, plan: Plan, pace: Pace, log: Log) -> Self {
        Self { client, plan, pace, log, hosts: BTreeMap::new(), nodes_at: None, away: false }
    }

    /// Looks at nodes and jobs once, and submits what is missing.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.nodes_at.is_none_or(|at| now.saturating_duration_since(at) >= self.pace.nodes) {
            self.nodes_at = Some(now);
            match self.client.nodes() {
                Ok(nodes) => {
                    self.reached(None);
                    self.update(&hosts::offers(&nodes));
                }
                Err(error) => self.reached(Some(&error)),
            }
        }
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        for name in names {
            // taken out, so that the rest can be used meanwhile
            let Some(mut host) = self.hosts.remove(&name) else { continue };
            match host.job.take() {
                Some(job) => self.look(&name, &mut host, job, now),
                None => self.submit(&name, &mut host, now),
            }
            self.hosts.insert(name, host);
        }
    }

    /// Why no worker will ever come, if that is known.
    pub(super) fn problem(&self) -> Option<String> {
        let hopeless = |host: &Host| host.job.is_none() && host.crashes >= HOPELESS;
        let (name, host) = self.hosts.iter().next()?;
        let (_, why) = host.ended.as_ref()?;
        self.hosts
            .values()
            .all(hopeless)
            .then(|| format!("workers end as soon as Ray starts them; on {name}: {why}"))
    }

    /// Takes note of what the nodes offer now.
    fn update(&mut self, offers: &BTreeMap<String, usize>) {
        for (name, host) in &mut self.hosts {
            let offer = offers.get(name).copied();
            if host.offer.is_some() && offer.is_none() {
                (self.log)(&format!(
                    "{name} has left the Ray cluster; its worker is placed again when it is back"
                ));
            } else if host.offer.is_none() && offer.is_some() {
                (self.log)(&format!("{name} has joined the Ray cluster again"));
                (host.failures, host.crashes, host.ended) = (0, 0, None);
            }
            host.offer = offer;
        }
        let used: usize =
            self.hosts.values().filter(|host| host.offer.is_some()).map(|host| host.share).sum();
        let others = offers.iter().filter(|(name, _)| !self.hosts.contains_key(*name));
        let others = others.map(|(name, offer)| (name.clone(), *offer)).collect();
        let Plan { desktops, spare_hosts, .. } = self.plan;
        let wanted = match spare_hosts {
            0 => desktops,
            spare => room(desktops, offers.len(), spare).saturating_mul(offers.len()),
        };
        for (name, share) in hosts::shares(&others, wanted.saturating_sub(used)) {
            let offer = offers.get(&name).copied();
            let host = Host { share, offer, job: None, submissions: 0, failures: 0, crashes: 0, ended: None };
            self.hosts.insert(name, host);
        }
    }

    fn submit(&self, name: &str, host: &mut Host, now: Instant) {
        let Some(offer) = host.offer else { return };
        let backoff = self.backoff(host.failures);
        if host.ended.as_ref().is_some_and(|(at, _)| now.saturating_duration_since(*at) < backoff) {
            return;
        }
        let base =
            format!("{}-{}", self.plan.run, name.replace(|letter: char| !letter.is_alphanumeric(), "-"));
        let id = match host.submissions {
            0 => base,
            again => format!("{base}-r{again}"),
        };
        host.submissions += 1;
        let desktops = host.share.min(offer);
        let submission = Submission {
            id: id.clone(),
            entrypoint: format!("{} --desktops {desktops} --host {}", self.plan.command, super::quoted(name)),
            resource: (hosts::resource(name), desktops),
            runtime_env: self.plan.runtime_env.clone(),
        };
        match self.client.submit(&submission) {
            // without an answer it may have been submitted all the same: a look will tell
            Ok(()) | Err(RayError::Unreachable { .. }) => {
                host.job =
                    Some(Job { id, since: now, status: Status::Pending, reported: false, stopped: false });
            }
            // as right after the start of a node, when it takes no jobs yet: not the worker's fault
            Err(error) => {
                host.failures += 1;
                self.rests(name, host, now, "could not be placed", error.to_string());
            }
        }
    }

    fn look(&mut self, name: &str, host: &mut Host, mut job: Job, now: Instant) {
        match self.client.job(&job.id) {
            Ok(JobInfo { status, message }) if status.is_over() => {
                self.reached(None);
                let settled = now.saturating_duration_since(job.since) >= self.pace.settled;
                // a node that is gone has no answer, and lets one wait for it
                let line = if host.offer.is_some() { self.client.last_line(&job.id) } else { String::new() };
                let said = match (line.as_str(), message) {
                    ("", message) => last_line(&message.unwrap_or_default()),
                    (line, _) => format!("its last line: {line}"),
                };
                self.ended(name, host, now, settled, format!("{status:?}; {said}"));
                let _ = self.client.delete(&job.id);
            }
            Ok(JobInfo { status, .. }) => {
                self.reached(None);
                let long = now.saturating_duration_since(job.since) >= self.pace.pending;
                if status == Status::Pending && long && !std::mem::replace(&mut job.reported, true) {
                    (self.log)(&waits(name, host, &job, self.pace.pending));
                }
                job.status = status;
                host.job = Some(job);
            }
            Err(RayError::Unknown(_)) => {
                self.ended(name, host, now, false, "Ray does not know the job".into());
            }
            Err(error) => {
                self.reached(Some(&error));
                host.job = Some(job);
            }
        }
    }

    fn ended(&self, name: &str, host: &mut Host, now: Instant, settled: bool, why: String) {
        (host.failures, host.crashes) = if settled { (1, 1) } else { (host.failures + 1, host.crashes + 1) };
        self.rests(name, host, now, "has ended", why);
    }

    fn rests(&self, name: &str, host: &mut Host, now: Instant, what: &str, why: String) {
        let when = match host.offer {
            Some(_) => format!("in {:.0?}", self.backoff(host.failures)),
            None => "when its node is back".into(),
        };
        (self.log)(&format!("the worker on {name} {what} ({why}); it is placed again {when}"));
        host.ended = Some((now, why));
    }

    fn backoff(&self, failures: u32) -> Duration {
        (self.pace.initial_backoff * (1 << failures.min(10).saturating_sub(1))).min(self.pace.max_backoff)
    }

    /// Says once that Ray is away, and once that it is back.
    fn reached(&mut self, error: Option<&RayError>) {
        let was_away = std::mem::replace(&mut self.away, error.is_some());
        match error {
            Some(error) if !was_away => (self.log)(&format!("{error}; workers that run go on")),
            None if was_away => (self.log)("Ray's dashboard answers again"),
            _ => {}
        }
    }

    /// Ends all jobs. Workers know that the run is over and end by themselves, desktops and all; those that do not are
    /// stopped.
    ///
    /// A job that waits for its resource stays PENDING after a stop, for as long as the resource is away; then Ray stops it
    /// before its program begins (Ray 2.60). So it is not waited for.
    pub(super) fn end(&mut self) {
        let mut left: Vec<Job> =
            std::mem::take(&mut self.hosts).into_values().filter_map(|host| host.job).collect();
        for job in left.iter_mut().filter(|job| job.status == Status::Pending) {
            job.stopped = self.client.stop(&job.id).is_ok();
        }
        // a head that does not answer would cost a deadline for each job
        if self.wait_for_end(&mut left) {
            for job in left.iter_mut().filter(|job| !job.stopped) {
                job.stopped = self.client.stop(&job.id).is_ok();
            }
            self.wait_for_end(&mut left);
        }
        for Job { id, status, stopped, .. } in left {
            (self.log)(&match (stopped, status) {
                (true, Status::Pending) => {
                    format!(
                        "job {id} still waits for its resource; when that is there, Ray stops it before it begins"
                    )
                }
                _ => format!(
                    "job {id} could not be ended: its worker ends by itself; `ray job stop {id}` once Ray answers"
                ),
            });
        }
    }

    /// Waits for jobs to end, and deletes those that have; others are left. False if Ray does not answer.
    fn wait_for_end(&self, jobs: &mut Vec<Job>) -> bool {
        let began = Instant::now();
        while !jobs.is_empty() && began.elapsed() < self.pace.end {
            let mut answers = true;
            jobs.retain_mut(|job| match answers.then(|| self.client.job(&job.id)) {
                None => true,
                Some(Ok(info)) if info.status.is_over() => {
                    let _ = self.client.delete(&job.id);
                    false
                }
                Some(Ok(info)) => {
                    job.status = info.status;
                    true
                }
                Some(Err(RayError::Unknown(_))) => false,
                Some(Err(error)) => {
                    answers = !matches!(error, RayError::Unreachable { .. });
                    true
                }
            });
            let waits = |job: &Job| job.stopped && job.status == Status::Pending;
            if !answers {
                return false;
            }
            if jobs.iter().all(waits) && began.elapsed() >= self.pace.stop {
                return true;
            }
            std::thread::sleep(self.pace.poll.min(Duration::from_millis(200)));
        }
        true
    }
}

/// What a job waits for.
fn waits(name: &str, host: &Host, job: &Job, time: Duration) -> String {
    let (resource, share) = (hosts::resource(name), host.share);
    let why = match host.offer {
        None => format!("no node has the resource {resource} any more"),
        Some(offer) => {
            format!(
                "it needs {} of the {offer} {resource} of the cluster: others have them (`ray status`), or \
                 the node is still unpacking the program",
                share.min(offer)
            )
        }
    };
    format!("job {} has been PENDING for {time:.0?}: {why}", job.id)
}
