//! A model behind an OpenAI-compatible chat server, such as vLLM: screenshots go out as PNG, text comes back.
//!
//! For evaluation only: neither tokens nor log-probabilities are requested, and a server is given no new weights. A response that cannot be parsed
//! is requested again at temperature 1, and the last one that cannot ends the episode, as in OSWorld's agent for UI-TARS.
//! Screenshots are sent as they are: the server's image processor resizes them.
//! If no server responds, the episode ends without a score ([`NO_RESPONSE`]); after several in a row the policy gives up.

use super::{GenerationRequest, Policy, RequestId, Response, transcript_in_bytes};
use crate::TrainError;
use crate::episode::{EpisodeScreen, History, TranscriptSlice, reference};
use arpo_agent::conversation::{Content, Message, Turn, conversation};
use arpo_agent::geometry::{PixelLimits, SIDE_FACTOR, Size, smart_resize};
use arpo_agent::style::{ActionFormat, AgentStyle};
use arpo_core::trajectory::PolicyVersion;
use arpo_env::environment::encode_png;
use arpo_image::ImageError;
use base64::Engine;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a chat server is called.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatOptions {
    /// Servers that share the episodes, as `http://host:port/v1`.
    pub servers: Vec<String>,
    /// The model's name there.
    pub model: String,
    /// Sent as a bearer token, if the server needs one.
    pub key: Option<String>,
    /// Sampling temperature.
    pub temperature: f64,
    /// Nucleus sampling: only the most likely tokens with this total probability.
    pub top_p: Option<f64>,
    /// Tokens of a response at most.
    pub max_tokens: usize,
    /// OpenAI `frequency_penalty`.
    pub frequency_penalty: f64,
    /// Timeout of one request.
    pub limit: Duration,
    /// Requests for one response at most.
    pub tries: u32,
    /// Repeat the request if the response cannot be parsed.
    pub retry_unparsable: bool,
    /// The sizes at which the model sees screens; the server's image processor must use the same.
    pub pixels: PixelLimits,
}

/// Prefix of the response text if no server responded.
pub const NO_RESPONSE: &str = "(no answer) ";
/// Requests in a row without a response, per server, before the policy gives up.
const GIVE_UP_AFTER: usize = 4;
/// How long a step waits for a response, so that requests that arrive meanwhile are submitted.
const STEP: Duration = Duration::from_millis(50);
/// Wait before a request is repeated because no response came.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Images kept encoded: a request shows the last ones again.
const KEPT_IMAGES: usize = 512;
const ERROR_CHARACTERS: usize = 300;

/// A model behind a chat server.
pub struct ChatPolicy {
    client: Arc<Client>,
    submitted: usize,
    pending: usize,
    failures_in_row: usize,
    /// Responses to cancelled requests arrive under an old round.
    round: u64,
    responses: Receiver<(u64, RequestId, Result<String, String>)>,
    sender: Sender<(u64, RequestId, Result<String, String>)>,
}

struct Client {
    options: ChatOptions,
    style: AgentStyle,
    agent: ureq::Agent,
    images: Mutex<HashMap<Arc<str>, Arc<str>>>,
}

impl ChatPolicy {
    /// Prompts in this style.
    pub fn new(options: ChatOptions, style: AgentStyle) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(options.limit))
            .proxy(None)
            .build()
            .new_agent();
        let (sender, responses) = channel();
        let client = Arc::new(Client { options, style, agent, images: Mutex::default() });
        Self { client, submitted: 0, pending: 0, failures_in_row: 0, round: 0, responses, sender }
    }

    /// The candidates that respond.
    pub fn available(
        candidates: &[String],
        key: Option<&str>,
        limit: Duration,
    ) -> Result<Vec<String>, TrainError> {
        let agent = ureq::Agent::config_builder().timeout_global(Some(limit)).proxy(None).build().new_agent();
        let responds = |server: &String| {
            let request = agent.get(format!("{server}/models"));
            let request = match key {
                Some(key) => request.header("Authorization", format!("Bearer {key}")),
                None => request,
            };
            request.call().is_ok()
        };
        let available: Vec<String> = candidates.iter().filter(|server| responds(server)).cloned().collect();
        if available.is_empty() {
            return Err(TrainError::Service(format!(
                "no chat server responds at {}: expected an OpenAI-compatible one, for example `vllm serve`",
                candidates.join(", ")
            )));
        }
        Ok(available)
    }
}

impl fmt::Debug for ChatPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatPolicy").field("options", &self.client.options).finish_non_exhaustive()
    }
}

impl Client {
    /// A response that can be parsed; or none, and why. Every further attempt goes to the next server.
    fn respond(&self, first: usize, history: &History) -> Result<String, String> {
        let messages = self.messages(history)?;
        let servers = &self.options.servers;
        let grammar = self.style.format.grammar;
        let (mut temperature, mut unreadable, mut problem) = (self.options.temperature, None, String::new());
        for attempt in 0..self.options.tries.max(1) {
            let server = &servers[(first + attempt as usize) % servers.len()];
            let seed = history
                .plan
                .sampling_seed
                .wrapping_add((history.responses.len() as u64) << 8 | u64::from(attempt));
            match self.request(server, &messages, temperature, seed) {
                Ok(text) if !self.options.retry_unparsable || grammar.parse(&text).is_ok() => {
                    return Ok(text);
                }
                Ok(text) => {
                    temperature = 1.0;
                    unreadable = Some(text);
                }
                Err(error) => {
                    problem = format!("{server}: {error}");
                    if attempt + 1 < self.options.tries {
                        std::thread::sleep(RETRY_DELAY);
                    }
                }
            }
        }
        // the episode is over; the response stays on record
        unreadable
            .map(|text| grammar.given_up(&text))
            .filter(|text| grammar.parse(text).is_ok())
            .ok_or(problem)
    }

    fn request(&self, server: &str, messages: &Value, temperature: f64, seed: u64) -> Result<String, String> {
        let ChatOptions { model, key, top_p, max_tokens, frequency_penalty, .. } = &self.options;
        let mut body = json!({
            "model": model,
            "messages": messages,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "frequency_penalty": frequency_penalty,
            // servers read a signed number
            "seed": seed & (u64::MAX >> 1),
        });
        if let Some(top_p) = top_p {
            body["top_p"] = json!(top_p);
        }
        let mut request =
            self.agent.post(format!("{server}/chat/completions")).header("Content-Type", "application/json");
        if let Some(key) = key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request.send(body.to_string()).map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
        let excerpt = || text.chars().take(ERROR_CHARACTERS).collect::<String>();
        if status != 200 {
            return Err(format!("status {status}: {}", excerpt()));
        }
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("no JSON ({error}): {}", excerpt()))?;
        value["choices"][0]["message"]["content"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("a completion without choices[0].message.content: {}", excerpt()))
    }

    fn messages(&self, history: &History) -> Result<Value, String> {
        let past: Vec<Turn> = history
            .screens
            .iter()
            .zip(&history.responses)
            .map(|(screen, response)| Turn { screenshot: reference(screen), response: response.text.clone() })
            .collect();
        let current = history.screens.last().map(|screen| reference(screen));
        let screens: HashMap<&str, &EpisodeScreen> =
            history.screens.iter().map(|screen| (screen.digest.as_ref(), screen)).collect();
        let messages = conversation(&history.plan.task.instruction, &past, current.as_ref(), &self.style);
        let part = |part: &Content| {
            Ok(match part {
                Content::Text(text) => json!({"type": "text", "text": text}),
                Content::Image(image) => {
                    let url = self.data_url(screens[image.digest.as_str()])?;
                    json!({"type": "image_url", "image_url": {"url": &*url}})
                }
            })
        };
        let message = |message: &Message| {
            let content = message.content.iter().map(part).collect::<Result<Vec<Value>, String>>()?;
            Ok(json!({"role": message.role.name(), "content": content}))
        };
        messages.iter().map(message).collect::<Result<Vec<Value>, String>>().map(Value::Array)
    }

    /// A screenshot as a data URL.
    fn data_url(&self, screen: &EpisodeScreen) -> Result<Arc<str>, String> {
        let known = |images: &HashMap<_, _>| images.get(&screen.digest).cloned();
        if let Some(url) = known(&self.images.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(url);
        }
        let png = match &screen.png {
            Some(png) => Arc::clone(png),
            None => encode_png(&screen.image).map_err(|error| error.to_string())?.into(),
        };
        let encoded = base64::engine::general_purpose::STANDARD.encode(png);
        let url: Arc<str> = format!("data:image/png;base64,{encoded}").into();
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if images.len() >= KEPT_IMAGES {
            images.clear();
        }
        images.insert(Arc::clone(&screen.digest), Arc::clone(&url));
        Ok(url)
    }
}

impl Policy for ChatPolicy {
    fn submit(&mut self, request: GenerationRequest) -> Result<(), TrainError> {
        let first = self.submitted;
        self.submitted += 1;
        let (client, sender, round) = (Arc::clone(&self.client), self.sender.clone(), self.round);
        let GenerationRequest { id, history } = request;
        let send = move || drop(sender.send((round, id, client.respond(first, &history))));
        std::thread::Builder::new()
            .name("chat request".into())
            .spawn(send)
            .map_err(|error| TrainError::Io(format!("no thread for a chat request: {error}")))?;
        self.pending += 1;
        Ok(())
    }

    fn pending(&self) -> usize {
        self.pending
    }

    fn step(&mut self) -> Result<Vec<(RequestId, Response)>, TrainError> {
        let Ok(first) = self.responses.recv_timeout(STEP) else { return Ok(vec![]) };
        let mut responses = Vec::new();
        for (round, id, result) in std::iter::once(first).chain(self.responses.try_iter()) {
            if round != self.round {
                continue;
            }
            self.pending -= 1;
            let complete = result.is_ok();
            self.failures_in_row = if complete { 0 } else { self.failures_in_row + 1 };
            let text = match result {
                Ok(text) => text,
                Err(problem) if self.failures_in_row >= GIVE_UP_AFTER * self.client.options.servers.len() => {
                    return Err(TrainError::Service(format!("no chat server responds any more: {problem}")));
                }
                Err(problem) => format!("{NO_RESPONSE}{problem}"),
            };
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            let logp = vec![0.0; tokens.len()];
            responses.push((id, Response { text, tokens, logp, complete, version: PolicyVersion(0) }));
        }
        Ok(responses)
    }

    fn cancel_all(&mut self) {
        self.round += 1;
        self.pending = 0;
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    fn format(&self) -> ActionFormat {
        self.client.style.format
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        smart_resize(screen, SIDE_FACTOR, self.client.options.pixels)
            .map_err(|error| ImageError::Image(error.to_string()).into())
    }

    fn transcript(&self, history: &History) -> Result<Vec<TranscriptSlice>, TrainError> {
        Ok(transcript_in_bytes(history))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::{EpisodePlan, screenshot};
    use arpo_agent::geometry::UITARS_LIMITS;
    use arpo_agent::window::ScreenshotWindow;
    use arpo_core::action::{Action, ModelBox};
    use arpo_core::task::{Task, TaskId};
    use arpo_core::trajectory::EpisodeId;
    use image::RgbImage;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Responds with these texts in turn, then always with the last one; returns its address and the requests.
    fn server(texts: &'static [&'static str]) -> (String, Receiver<Value>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let (mut request, mut buffer) = (Vec::new(), [0; 1 << 12]);
                let body = loop {
                    let count = stream.read(&mut buffer).unwrap();
                    request.extend_from_slice(&buffer[..count]);
                    let text = String::from_utf8_lossy(&request);
                    let Some((_, body)) = text.split_once("\r\n\r\n") else { continue };
                    if let Ok(body) = serde_json::from_str::<Value>(body) {
                        break body;
                    }
                };
                let _ = sender.send(body);
                let text = texts[number.min(texts.len() - 1)];
                let response = json!({"choices": [{"message": {"content": text}}]}).to_string();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close", response.len());
                let _ = write!(stream, "{head}\r\n\r\n{response}");
            }
        });
        (address, requests)
    }

    fn options(server: String) -> ChatOptions {
        ChatOptions {
            servers: vec![server],
            model: "ui-tars".into(),
            key: None,
            temperature: 0.0,
            top_p: None,
            max_tokens: 100,
            frequency_penalty: 1.0,
            limit: Duration::from_secs(20),
            tries: 2,
            retry_unparsable: true,
            pixels: UITARS_LIMITS,
        }
    }

    fn request(number: u64) -> GenerationRequest {
        let task = Task {
            id: TaskId::new("t"),
            instruction: "Open the mail.".into(),
            application: String::new(),
            setup: Value::Null,
            evaluator: Value::Null,
        };
        let plan = EpisodePlan {
            id: EpisodeId::new(0, &task.id, 0),
            task: Arc::new(task),
            world_seed: 0,
            sampling_seed: 0,
            max_steps: 15,
        };
        let screen = screenshot(Arc::new(RgbImage::from_pixel(56, 28, image::Rgb([1, 2, 3]))));
        let history = History {
            plan: Arc::new(plan),
            screens: vec![EpisodeScreen { screenshot: screen, png: None }],
            responses: vec![],
        };
        GenerationRequest { id: RequestId(number), history }
    }

    fn exchange(texts: &'static [&'static str]) -> (Vec<(RequestId, Response)>, Receiver<Value>) {
        let (address, requests) = server(texts);
        let mut policy = ChatPolicy::new(options(address), AgentStyle::uitars(ScreenshotWindow::new(15, 0)));
        policy.submit(request(7)).unwrap();
        (responses(&mut policy).unwrap(), requests)
    }

    /// The next responses, however many steps they take.
    fn responses(policy: &mut ChatPolicy) -> Result<Vec<(RequestId, Response)>, TrainError> {
        loop {
            let responses = policy.step()?;
            if !responses.is_empty() {
                return Ok(responses);
            }
        }
    }

    #[test]
    fn the_task_and_the_screen_go_out_and_a_response_comes_back() {
        let (responses, requests) = exchange(&["Thought: there.\nAction: click(start_box='(3,4)')"]);
        assert_eq!(responses[0].0, RequestId(7));
        assert!(responses[0].1.text.ends_with("click(start_box='(3,4)')"));
        let request = requests.recv().unwrap();
        assert_eq!((&request["model"], &request["temperature"]), (&json!("ui-tars"), &json!(0.0)));
        let messages = request["messages"].as_array().unwrap();
        assert!(messages[1]["content"][0]["text"].as_str().unwrap().contains("Open the mail."));
        let url = messages[2]["content"][0]["image_url"]["url"].as_str().unwrap();
        let png = url.strip_prefix("data:image/png;base64,").unwrap();
        let png = base64::engine::general_purpose::STANDARD.decode(png).unwrap();
        assert_eq!(image::load_from_memory(&png).unwrap().to_rgb8().dimensions(), (56, 28));
    }

    /// The picture and the task in one message, calls read and mapped from the grid, and an unusable call asked for again.
    #[test]
    fn tool_calls_of_a_server() {
        const CLICK: &str = "Action: Open it.\n<tool_call>\n{\"name\": \"computer_use\", \"arguments\": {\"action\": \
                             \"left_click\", \"coordinate\": [500, 999]}}\n</tool_call>";
        const BROKEN: &str =
            "<tool_call>\n{\"name\": \"computer_use\", \"arguments\": {\"action\": \"key\"}}\n</tool_call>";
        let style = || AgentStyle::computer_use(ScreenshotWindow::new(5, 1), 999);
        let (address, requests) = server(&[BROKEN, CLICK]);
        let mut policy = ChatPolicy::new(options(address), style());
        policy.submit(request(7)).unwrap();
        let (_, response) = responses(&mut policy).unwrap().remove(0);
        assert_eq!(response.text, CLICK);
        let format = policy.format();
        let action = format.grammar.parse(&response.text).unwrap().actions.remove(0);
        let screen = Size { width: 56, height: 28 };
        let start_box = ModelBox::point(28.0, 27.0);
        assert_eq!(format.coordinates.on_screen(&action, screen, screen), Action::Click { start_box });
        let messages = &requests.recv().unwrap()["messages"];
        assert!(messages[0]["content"][0]["text"].as_str().unwrap().contains("computer_use"));
        let user = messages[1]["content"].as_array().unwrap();
        assert_eq!((user.len(), &user[0]["type"]), (2, &json!("image_url")));
        assert!(user[1]["text"].as_str().unwrap().ends_with("Open the mail.\n\nPrevious actions:\nNone"));

        let (address, _) = server(&[BROKEN]);
        let mut policy = ChatPolicy::new(options(address), style());
        policy.submit(request(8)).unwrap();
        let (_, response) = responses(&mut policy).unwrap().remove(0);
        let ended = format.grammar.parse(&response.text).unwrap().actions;
        assert_eq!(ended, [Action::Finished { content: Some(String::new()) }]);
        assert!(response.text.contains("\"action\": \"key\""), "it stays on record: {}", response.text);
    }

    #[test]
    fn an_unparsable_response_is_requested_again_and_then_ends_the_episode() {
        let (responses, requests) = exchange(&["I do not know.", "Action: wait()"]);
        assert_eq!(responses[0].1.text, "Action: wait()");
        requests.recv().unwrap();
        assert_eq!(requests.recv().unwrap()["temperature"], json!(1.0));
        let (responses, _) = exchange(&["I do not know."]);
        assert!(responses[0].1.text.starts_with("I do not know.\nAction: finished("));
    }

    #[test]
    fn without_a_server_episodes_end_and_then_the_policy_fails() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("http://127.0.0.1:{port}/v1");
        let mut policy = ChatPolicy::new(
            ChatOptions { tries: 1, ..options(address.clone()) },
            AgentStyle::uitars(ScreenshotWindow::new(15, 0)),
        );
        for number in 1..GIVE_UP_AFTER as u64 {
            policy.submit(request(number)).unwrap();
            let response = responses(&mut policy).unwrap().remove(0).1;
            assert!(!response.complete && response.text.starts_with(&format!("{NO_RESPONSE}{address}: ")));
        }
        policy.submit(request(0)).unwrap();
        let problem = responses(&mut policy).unwrap_err().to_string();
        assert!(problem.starts_with("no chat server responds any more: http"), "{problem}");
        assert!(ChatPolicy::available(&[address], None, Duration::from_secs(2)).is_err());
    }

    /// As with the built-in engine: the model's own sizes, and an unparsable response ends the episode.
    #[test]
    fn without_retries_an_unparsable_response_is_returned() {
        let (address, requests) = server(&["click somewhere"]);
        let pixels = PixelLimits { min: 784, max: 1 << 20 };
        let options =
            ChatOptions { pixels, retry_unparsable: false, frequency_penalty: 0.0, ..options(address) };
        let mut policy = ChatPolicy::new(options, AgentStyle::uitars(ScreenshotWindow::new(15, 0)));
        let small = Size { width: 168, height: 140 };
        assert_eq!(policy.seen_size(small).unwrap(), small);
        policy.submit(request(0)).unwrap();
        let response = responses(&mut policy).unwrap().remove(0).1;
        assert_eq!((response.text.as_str(), response.complete), ("click somewhere", true));
        assert_eq!(requests.recv().unwrap()["frequency_penalty"], 0.0);
        assert!(requests.try_recv().is_err(), "requested again");
    }
}
