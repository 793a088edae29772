//! A server on a free port, and requests to it.

use arpo_core::config::Config;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::Engine;
use arpo_serve::listen::Background;
use arpo_serve::{Limits, ServedModel, Server};
use arpo_train::agent::Agent;
use arpo_train::memory_plan::Work;
use arpo_train::trainer::setup;
use base64::Engine as _;
use image::RgbImage;
use serde_json::{Value, json};
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tch::Device;

/// More than anything takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

/// The configuration of the pocket agent, as in the quick preset.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.model.device = arpo_core::config::DeviceChoice::Cpu;
    config.agent.prompt = arpo_core::config::PromptLength::Short;
    config.agent.min_pixels = 784;
    config.model.freeze_vision = true;
    config.model.cache_gib = 1.0 / 64.0;
    config.collect.desktops = 8;
    config
}

/// The pocket model's engine and agent.
pub(crate) fn engine() -> (Engine, Arc<Agent>) {
    let config = config();
    let loaded = setup::load(&config).unwrap();
    let plan = setup::memory(&config, &loaded.config, Device::Cpu, Work::Sampling);
    let engine = setup::engine_within(
        &plan,
        &config,
        &loaded.config,
        &loaded.weights,
        &loaded.agent,
        PolicyVersion(3),
    );
    (engine, loaded.agent)
}

/// A running server.
pub(crate) struct Fixture {
    pub(crate) server: Arc<Server>,
    pub(crate) background: Background,
    pub(crate) agent: Arc<Agent>,
    client: ureq::Agent,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default(), None)
    }

    pub(crate) fn with(limits: Limits, key: Option<&str>) -> Self {
        let (engine, agent) = engine();
        let model = ServedModel {
            name: "pocket".into(),
            tokenizer: Arc::clone(&agent.tokenizer),
            processor: agent.processor.clone(),
            end_token: agent.end_token,
            image_token: agent.image_token,
            merge: agent.merge,
            forbidden: agent.forbidden.clone(),
        };
        let server = Server::start(engine, model, limits, key).unwrap();
        let background = Background::start(Arc::clone(&server)).unwrap();
        let client = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(DEADLINE))
            .proxy(None)
            .build()
            .new_agent();
        Self { server, background, agent, client }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.background.address)
    }

    /// Status and body of a POST with these bytes.
    pub(crate) fn post_bytes(&self, path: &str, bytes: &[u8]) -> (u16, String) {
        let request = self.client.post(self.url(path)).header("Content-Type", "application/json");
        let mut response = request.send(bytes).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.post_bytes(path, body.to_string().as_bytes());
        (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// The response to a chat request that succeeds.
    pub(crate) fn chat(&self, body: &Value) -> Value {
        let (status, response) = self.post("/v1/chat/completions", body);
        assert_eq!(status, 200, "{response}");
        response
    }

    /// The chunks of a streamed response.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let (status, text) = self.post_bytes(path, body.to_string().as_bytes());
        assert_eq!(status, 200, "{text}");
        let mut events: Vec<&str> = text
            .split("\n\n")
            .filter(|event| !event.is_empty())
            .map(|event| &event["data: ".len()..])
            .collect();
        assert_eq!(events.pop(), Some("[DONE]"));
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    pub(crate) fn get(&self, path: &str, key: Option<&str>) -> (u16, String) {
        let mut request = self.client.get(self.url(path));
        if let Some(key) = key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request.call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    /// Waits until the engine has nothing to do; everything that requests took is free then.
    pub(crate) fn wait_until_idle(&self, places: usize) {
        let began = Instant::now();
        loop {
            let load = self.server.load();
            let idle = (load.running, load.waiting, load.leased_pages) == (0, 0, 0);
            if idle && self.server.free_places() == places {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{load:?}, {} places free", self.server.free_places());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A screenshot that differs by its number.
pub(crate) fn screenshot(number: u32) -> RgbImage {
    RgbImage::from_fn(112, 84, |x, y| {
        image::Rgb([(x * number + y) as u8, (x ^ (y * number)) as u8, (7 * number) as u8])
    })
}

pub(crate) fn data_url(image: &RgbImage) -> String {
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, image::ImageFormat::Png).unwrap();
    format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(png.into_inner()))
}

pub(crate) fn image_part(number: u32) -> Value {
    json!({"type": "image_url", "image_url": {"url": data_url(&screenshot(number))}})
}

/// A conversation with one screenshot.
pub(crate) fn body(number: u32, more: &Value) -> Value {
    let mut body = json!({
        "model": "pocket",
        "messages": [
            {"role": "system", "content": "GUI agent"},
            {"role": "user", "content": "Open the mail."},
            {"role": "user", "content": [image_part(number)]},
        ],
        "max_tokens": 12,
        "seed": 7,
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}
