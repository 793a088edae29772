//! Inference servers (vLLM, `SGLang`) as the rollout policy: token ids and screenshots go out; sampled token ids, their
//! log-probabilities and the version of the weights come back; new weights go out through a folder that both sides see.
//!
//! | to change | look in |
//! |---|---|
//! | which server is asked, and which has the current weights | `fleet` |
//! | how a server is brought up to date | `keeper` |
//! | retries, deadlines, back-pressure | `asking` |
//! | which answers are used | `answer` |
//! | what is sent to vLLM, to `SGLang` | `vllm`, `sglang`, behind `protocol` |
//! | servers that this program starts | `start` |
//! | where weights are written | `weights` |

mod answer;
mod asking;
mod fleet;
mod keeper;
mod protocol;
mod sglang;
mod start;
mod vllm;
mod weights;

use super::exchange::Exchange;
use super::http::Http;
use super::transcription;
use super::{GenerationRequest, Policy, RequestId, Response, RolloutPolicy, WeightUpdate};
use crate::TrainError;
use crate::agent::Agent;
use crate::episode::{History, TranscriptSlice};
use crate::run::notices::Notices;
use crate::run::stop::StopSwitch;
use arpo_agent::geometry::Size;
use arpo_agent::style::ActionFormat;
use arpo_core::config::{Config, RolloutEngine};
use arpo_core::trajectory::PolicyVersion;
use arpo_model::checkpoint::Weights;
use arpo_model::config::ModelConfig;
use asking::{Asker, Outcome};
use fleet::{Fleet, Target};
use keeper::Keeper;
use protocol::{Protocol, ServedOptions};
use start::{StartOptions, StartedServers};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tch::Kind;
use vllm::Vllm;
use weights::WeightStore;

/// Requests in a row that ended their episodes, per server, after which the run cannot go on.
const GIVE_UP_AFTER: usize = 8;

/// Longest wait for an update that is under way when the run ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// A model and everything that a server needs of it.
#[derive(Debug)]
pub struct ServedModel {
    /// Its dimensions.
    pub config: ModelConfig,
    /// Its weights, shared with the learner if that changes them in place.
    pub weights: Weights,
    /// Its other files, as they are saved with it.
    pub side_files: BTreeMap<String, Vec<u8>>,
    /// Tokenizer, image processor and prompt format.
    pub agent: Arc<Agent>,
    /// The version of the weights.
    pub version: PolicyVersion,
}

/// A model on inference servers.
pub struct ServedPolicy {
    asker: Arc<Asker>,
    exchange: Exchange<Outcome>,
    lost: Vec<(RequestId, String)>,
    lost_in_row: usize,
    temperature: f64,
    version: PolicyVersion,
    weights: Weights,
    /// Part of the labels of weights: other runs use others.
    run: String,
    wait: Duration,
    stop: StopSwitch,
    keepers: Vec<JoinHandle<()>>,
    /// Dropped in this order: the servers end before their weights are removed.
    started: Option<StartedServers>,
    store: WeightStore,
}

impl ServedPolicy {
    /// The servers of a configuration. Without `rollout.weights`, weights are saved in this folder. Nothing is asked before
    /// weights are published. What becomes of a server goes to the notices: it does not stop the run.
    pub fn new(
        config: &Config,
        model: ServedModel,
        folder: &Path,
        key: Option<&str>,
        notices: &Notices,
    ) -> Result<Self, TrainError> {
        let rollout = &config.rollout;
        let ServedModel { config: dimensions, weights, side_files, agent, version } = model;
        let root = if rollout.weights.is_empty() { folder } else { Path::new(&rollout.weights) };
        let tied_head = dimensions.text.tied_head;
        let store = WeightStore::new(root, &dimensions, side_files, notices)?;
        let images = config.agent.max_screenshots.min(config.collect.max_steps);
        let start = (!rollout.start.trim().is_empty()).then(|| StartOptions {
            engine: rollout.engine,
            command: rollout.start.clone(),
            gpus: rollout.gpus.clone(),
            folder: store.root().to_path_buf(),
            images,
            dtype: if weights.kind() == Kind::BFloat16 { "bfloat16" } else { "float32" },
        });
        let addresses = match &start {
            Some(start) => start::addresses(start)?,
            None => rollout.servers.iter().map(|url| url.trim_end_matches('/').to_owned()).collect(),
        };
        let options = Arc::new(ServedOptions {
            max_tokens: config.agent.max_tokens,
            end_token: agent.end_token,
            forbidden: agent.forbidden.clone(),
            trained_temperature: config.collect.temperature,
            images,
            tied_head,
            key_variable: rollout.key_variable.clone(),
            has_key: key.is_some(),
        });
        let protocol: Arc<dyn Protocol> = match rollout.engine {
            RolloutEngine::Sglang => Arc::new(sglang::Sglang),
            RolloutEngine::Vllm | RolloutEngine::Builtin => Arc::new(Vllm::new(Arc::clone(&agent))),
        };
        let fleet = Arc::new(Fleet::new(addresses, rollout.requests));
        let wait = Duration::from_secs_f64(rollout.wait_seconds);
        let asker = Asker {
            fleet: Arc::clone(&fleet),
            protocol: Arc::clone(&protocol),
            http: Http::new(key.map(str::to_owned)),
            options: Arc::clone(&options),
            agent,
            notices: notices.clone(),
            limit: Duration::from_secs_f64(rollout.limit_seconds),
            wait,
        };
        let mut policy = Self {
            asker: Arc::new(asker),
            exchange: Exchange::new(),
            lost: vec![],
            lost_in_row: 0,
            temperature: config.collect.temperature,
            version,
            weights,
            run: unique(),
            wait,
            stop: StopSwitch::default(),
            keepers: vec![],
            started: None,
            store,
        };
        for server in 0..fleet.len() {
            let keeper = Keeper {
                fleet: Arc::clone(&fleet),
                protocol: Arc::clone(&protocol),
                http: Http::new(key.map(str::to_owned)),
                options: Arc::clone(&options),
                notices: notices.clone(),
                limit: Duration::from_secs_f64(rollout.update_seconds),
            };
            let keep = move || keeper.run(server);
            let thread = Builder::new().name(format!("keeper {server}")).spawn(keep);
            let thread =
                thread.map_err(|error| TrainError::Io(format!("no thread for a server: {error}")))?;
            policy.keepers.push(thread);
        }
        policy.started = start.map(|start| StartedServers::start(&start, &fleet, notices)).transpose()?;
        Ok(policy)
    }

    fn fleet(&self) -> &Fleet {
        &self.asker.fleet
    }

    /// Waits until at least one server has the weights, and every other one has them or has failed.
    fn wait_for_servers(&self) -> Result<(), TrainError> {
        match self.fleet().wait_for_any(Instant::now() + self.wait, &self.stop) {
            Some(Ok(())) => Ok(()),
            Some(Err(setbacks)) => {
                Err(TrainError::Service(format!("no server can be sampled from: {setbacks}")))
            }
            None => Err(TrainError::Interrupted),
        }
    }
}

impl Drop for ServedPolicy {
    fn drop(&mut self) {
        self.exchange.cancel_all();
        self.fleet().close();
        // an update that is under way ends, so that no server stays paused
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while self.keepers.iter().any(|keeper| !keeper.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl fmt::Debug for ServedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedPolicy").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Differs between any two processes.
fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

impl Policy for ServedPolicy {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        let GenerationRequest { id, history } = request;
        let (asker, temperature) = (Arc::clone(&self.asker), self.temperature);
        self.exchange.send(id, move |wanted| asker.ask(history, temperature, wanted))
    }

    fn pending(&self) -> usize {
        self.exchange.pending()
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        let mut responses = vec![];
        for (id, outcome) in self.exchange.receive()? {
            match outcome {
                Outcome::Response(response) => {
                    self.lost_in_row = 0;
                    responses.push((id, response));
                }
                Outcome::Lost(reason) => {
                    self.lost_in_row += 1;
                    if self.lost_in_row >= GIVE_UP_AFTER * self.fleet().len() {
                        let count = self.lost_in_row;
                        return Err(TrainError::Service(format!(
                            "{count} requests in a row failed: {reason}"
                        )));
                    }
                    self.lost.push((id, reason));
                }
                Outcome::Fatal(reason) => return Err(TrainError::Service(reason)),
            }
        }
        Ok(responses)
    }

    fn take_lost(&mut self) -> Vec<(RequestId, String)> {
        std::mem::take(&mut self.lost)
    }

    fn cancel_all(&mut self) {
        self.exchange.cancel_all();
        self.fleet().forget_episodes();
        self.lost.clear();
    }

    fn version(&self) -> PolicyVersion {
        self.version
    }

    fn format(&self) -> ActionFormat {
        self.asker.agent.style.format
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        Ok(self.asker.agent.processor.resized_size(screen)?)
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        transcription::transcript(&self.asker.agent, history)
    }
}

impl RolloutPolicy for ServedPolicy {
    fn publish(&mut self, weights: WeightUpdate, version: PolicyVersion) -> Result<(), TrainError> {
        let known = self.fleet().target().is_some_and(|target| target.version == version);
        let copied = matches!(weights, WeightUpdate::Copy(_));
        if let WeightUpdate::Copy(weights) = weights {
            self.weights = weights;
        }
        if copied || !known {
            let folder = self.store.save(&self.weights, version)?;
            let label = format!("arpo-{}-{}", self.run, version.0);
            self.fleet().aim(Target { version, label, folder: folder.clone() });
            self.version = version;
            self.wait_for_servers()?;
            let mut kept = self.fleet().folders_in_use();
            kept.push(folder);
            self.store.keep_only(&kept);
            return Ok(());
        }
        self.wait_for_servers()
    }

    fn set_temperature(&mut self, temperature: f64) {
        self.temperature = temperature;
    }

    fn stopped_by(&mut self, stop: StopSwitch) {
        self.stop = stop;
    }
}
