//! `arpo serve`: a checkpoint behind an OpenAI-compatible HTTP interface.

use crate::Failure;
use arpo_core::config::{Config, DeviceChoice, SuiteChoice};
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::Engine;
use arpo_image::ImageProcessor;
use arpo_serve::listen::{runtime, stop_signal};
use arpo_serve::{Limits, ServedModel, Server, serve};
use arpo_train::agent::Agent;
use arpo_train::base_model;
use arpo_train::memory_plan::Work;
use arpo_train::style_choice;
use arpo_train::trainer::setup;
use clap::{Args, ValueEnum, value_parser};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;

/// The variable that holds the key, so that it need not be on the command line, where other users see it.
const KEY_VARIABLE: &str = "ARPO_API_KEY";

/// The arguments of `arpo serve`.
#[derive(Args)]
pub(crate) struct ServeArguments {
    /// The checkpoint: a Hugging Face folder, or `pocket`
    #[arg(long, default_value = "pocket")]
    model: String,
    /// The model's name in requests [default: as given to --model]
    #[arg(long)]
    name: Option<String>,
    /// The port; 0 for a free one, which is printed
    #[arg(long, default_value_t = 9000)]
    port: u16,
    /// The address to listen on; other machines reach the server only if it is not a loopback address, which needs a key
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Refuse requests without this key, except to /health; better given in the variable `ARPO_API_KEY`
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    limits: LimitArguments,
}

/// How the model is computed.
#[derive(Args)]
pub(crate) struct EngineArguments {
    /// The device; auto is a GPU if there is one and the model is not the pocket model
    #[arg(long, value_enum, default_value = "auto")]
    device: DeviceName,
    /// Memory for the KV cache in GiB; 0 for as much as is free on a GPU, and for 0.5 on a CPU
    #[arg(long, value_name = "GIB", default_value_t = 0.0)]
    cache_gib: f64,
    /// Responses that are computed at a time
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = value_parser!(u16).range(1..=10_000))]
    max_running: u16,
    /// Images are enlarged to at least this many pixels [default: as the checkpoint says]
    #[arg(long, value_name = "PIXELS")]
    min_pixels: Option<u64>,
    /// Images are reduced to at most this many pixels [default: as the checkpoint says]
    #[arg(long, value_name = "PIXELS")]
    max_pixels: Option<u64>,
}

/// What requests may ask for.
#[derive(Args)]
#[expect(clippy::struct_field_names, reason = "the names of the options")]
struct LimitArguments {
    /// Tokens of a prompt and its response together; fewer if the cache is smaller
    #[arg(long, value_name = "TOKENS", default_value_t = Limits::default().context_tokens)]
    max_context: usize,
    /// Responses that wait, besides those that are computed; a request beyond that is refused with status 429
    #[arg(long, value_name = "COUNT", default_value_t = 224, value_parser = value_parser!(u32).range(..=1_000_000))]
    max_queue: u32,
    /// Images of a request
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().images)]
    max_images: usize,
    /// Pixels of an image as it is sent
    #[arg(long, value_name = "PIXELS", default_value_t = Limits::default().image_pixels)]
    max_image_pixels: u64,
    /// Memory for the decoded images of all requests in MiB, at least that of the largest request; a request waits 30 s for its
    /// share and is then refused with status 429
    #[arg(long, value_name = "MIB", default_value_t = Limits::default().decoded_bytes >> 20)]
    max_decoded_mib: usize,
    /// Size of a request in MiB
    #[arg(long, value_name = "MIB", default_value_t = Limits::default().body_bytes >> 20)]
    max_body_mib: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    Auto,
    Cpu,
    Cuda,
}

pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let key = arguments.api_key.clone().or_else(|| std::env::var(KEY_VARIABLE).ok());
    let key = key.filter(|key| !key.is_empty());
    if !arguments.host.is_loopback() && key.is_none() {
        return Err(Failure::usage(format!(
            "--host {}: expected a key in the variable {KEY_VARIABLE} or in --api-key, because other machines can reach this \
             address",
            arguments.host
        )));
    }
    let limits = arguments.limits.limits(arguments.engine.max_running)?;
    // before the model is loaded, which takes longer
    let runtime = runtime().map_err(Failure::failed)?;
    let address = SocketAddr::new(arguments.host, arguments.port);
    let listener = runtime
        .block_on(TcpListener::bind(address))
        .map_err(|error| Failure::failed(format!("cannot listen on {address}: {error}")))?;
    let address = listener.local_addr().map_err(Failure::failed)?;
    let name = arguments.name.clone().unwrap_or_else(|| arguments.model.clone());
    let (engine, agent, style) = arguments.engine.load(&arguments.model)?;
    let device = engine.model().device();
    let context = limits.context_tokens.min(engine.cache_tokens());
    let server =
        Server::start(engine, served(&agent, &name), limits, key.as_deref()).map_err(Failure::failed)?;
    let _ = writeln!(
        std::io::stderr(),
        "serving {name} at http://{address}/v1 on {device:?}, {context} tokens of context, {} responses at a time; as an \
         agent it has the style {style}",
        arguments.engine.max_running
    );
    let stop = async {
        if stop_signal().await.is_err() {
            // without a handler Ctrl-C ends the process by itself
            std::future::pending::<()>().await;
        }
    };
    runtime.block_on(serve(server, listener, stop));
    // a pass that still runs must not hold the program
    runtime.shutdown_background();
    Err(Failure::Stopped(None))
}

/// What the server needs to know of an agent.
pub(crate) fn served(agent: &Agent, name: &str) -> ServedModel {
    ServedModel {
        name: name.to_owned(),
        tokenizer: Arc::clone(&agent.tokenizer),
        processor: agent.processor.clone(),
        end_token: agent.end_token,
        image_token: agent.image_token,
        merge: agent.merge,
        forbidden: agent.forbidden.clone(),
    }
}

impl LimitArguments {
    fn limits(&self, running: u16) -> Result<Limits, Failure> {
        let sizes = [("--max-context", self.max_context), ("--max-body-mib", self.max_body_mib)];
        if let Some((option, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(Failure::usage(format!("{option} 0: expected at least 1")));
        }
        if self.max_body_mib > 4096 {
            return Err(Failure::usage(format!(
                "--max-body-mib {}: expected at most 4096",
                self.max_body_mib
            )));
        }
        Ok(Limits {
            body_bytes: self.max_body_mib << 20,
            images: self.max_images,
            image_pixels: self.max_image_pixels,
            decoded_bytes: self.max_decoded_mib.saturating_mul(1 << 20),
            context_tokens: self.max_context,
            choices: usize::from(running) + self.max_queue as usize,
            ..Limits::default()
        })
    }
}

impl EngineArguments {
    /// The configuration of a run that only samples with this model.
    pub(crate) fn configuration(&self, model: &str) -> Result<Config, Failure> {
        let mut config = Config::default();
        model.clone_into(&mut config.model.base);
        config.model.device = match self.device {
            DeviceName::Auto => DeviceChoice::Auto,
            DeviceName::Cpu => DeviceChoice::Cpu,
            DeviceName::Cuda => DeviceChoice::Cuda,
        };
        if !(0.0..=10_000.0).contains(&self.cache_gib) {
            return Err(Failure::usage(format!("--cache-gib {}: expected 0 to 10000", self.cache_gib)));
        }
        config.model.cache_gib = self.cache_gib;
        // features stay the same, and each image is encoded alone: a response does not depend on the others
        config.model.freeze_vision = true;
        config.collect.desktops = usize::from(self.max_running);
        config.tasks.suite =
            if model == base_model::POCKET { SuiteChoice::Pocket } else { SuiteChoice::Osworld };
        Ok(config)
    }

    /// The same with the image sizes of a checkpoint, unless others are given.
    fn with_image_sizes(&self, mut config: Config) -> Result<Config, Failure> {
        let (_, files) = base_model::check(&config.model.base).map_err(Failure::of)?;
        let limits = files.get("preprocessor_config.json").map(|bytes| ImageProcessor::parse(bytes));
        let limits = limits.transpose().map_err(Failure::usage)?.map(|processor| processor.limits);
        if let Some(limits) = limits {
            config.agent.min_pixels = self.min_pixels.unwrap_or(limits.min);
            config.agent.max_pixels = self.max_pixels.unwrap_or(limits.max);
        }
        let (min, max) = (config.agent.min_pixels, config.agent.max_pixels);
        if min > max {
            return Err(Failure::usage(format!("--min-pixels {min}: expected at most --max-pixels, {max}")));
        }
        Ok(config)
    }

    /// The engine with a model's weights, its agent, and the name of the agent's style.
    pub(crate) fn load(&self, model: &str) -> Result<(Engine, Arc<Agent>, &'static str), Failure> {
        let mut config = self.with_image_sizes(self.configuration(model)?)?;
        style_choice::settle(&mut config).map_err(Failure::usage)?;
        let loaded = setup::load(&config).map_err(Failure::of)?;
        let (_, device) = setup::dtype_and_device(&config).map_err(Failure::of)?;
        let plan = setup::memory(&config, &loaded.config, device, Work::Sampling);
        let engine = setup::engine_within(
            &plan,
            &config,
            &loaded.config,
            &loaded.weights,
            &loaded.agent,
            PolicyVersion(0),
        );
        Ok((engine, loaded.agent, style_choice::name(config.agent.style)))
    }
}
