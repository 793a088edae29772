//! A model behind an OpenAI-compatible chat server, such as vLLM: screenshots go out as PNG, words come back.
//!
//! For judging only: a chat server tells neither tokens nor their log-probabilities. A response that cannot be read is
//! asked for again at temperature 1, and the last one that cannot ends the episode, as in OSWorld's agent for UI-TARS.
//! Where no server answers, the episode ends without a judgement ([`NO_ANSWER`]); after several in a row the policy gives
//! up.

use super::{Answer, Policy, Question, Ticket, transcript_in_bytes};
use crate::TrainError;
use crate::episode::{History, TranscriptSlice, reference};
use arpo_agent::conversation::{Content, ConversationStyle, Message, Turn, conversation};
use arpo_agent::geometry::{PixelLimits, Size, smart_resize};
use arpo_agent::parse::parse;
use arpo_core::trajectory::PolicyVersion;
use arpo_engine::Screenshot;
use base64::Engine;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a chat server is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatOptions {
    /// Servers that share the episodes, as `http://host:port/v1`.
    pub servers: Vec<String>,
    /// The model's name there.
    pub model: String,
    /// Sent as a bearer's, where a server asks for one.
    pub key: Option<String>,
    /// Sampling temperature.
    pub temperature: f64,
    /// Only the likeliest tokens that together have this probability.
    pub top_p: Option<f64>,
    /// Tokens of a response at most.
    pub max_tokens: usize,
    /// Tokens become less likely the more often a response has them.
    pub frequency_penalty: f64,
    /// For one request.
    pub limit: Duration,
    /// Requests for one response at most.
    pub tries: u32,
    /// Ask again for a response that cannot be parsed.
    pub retry_unparsable: bool,
    /// The sizes at which the model sees screens; the server's own image processor must have the same.
    pub pixels: PixelLimits,
}

/// The beginning of a response that no server gave.
pub const NO_ANSWER: &str = "(no answer) ";
/// So many questions in a row, for each server, without an answer: nobody is there.
const GIVE_UP_AFTER: usize = 4;
/// How long a pass waits for an answer, so that questions that come meanwhile are asked.
const PASS: Duration = Duration::from_millis(50);
/// Between requests after one that got no answer.
const AFTER_NO_ANSWER: Duration = Duration::from_secs(2);
/// Pictures kept encoded: a question shows its last ones again.
const KEPT_PICTURES: usize = 512;
const ERROR_CHARACTERS: usize = 300;

/// A model behind a chat server.
pub struct ChatPolicy {
    asking: Arc<Asking>,
    given: usize,
    unanswered: usize,
    failures_in_row: usize,
    /// Questions given up come back under an old round.
    round: u64,
    answers: Receiver<(u64, Ticket, Result<String, String>)>,
    sender: Sender<(u64, Ticket, Result<String, String>)>,
}

struct Asking {
    options: ChatOptions,
    style: ConversationStyle,
    agent: ureq::Agent,
    pictures: Mutex<HashMap<Arc<str>, Arc<str>>>,
}

impl ChatPolicy {
    /// Asks in this style.
    pub fn new(options: ChatOptions, style: ConversationStyle) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(options.limit))
            .proxy(None)
            .build()
            .new_agent();
        let (sender, answers) = channel();
        let asking = Arc::new(Asking { options, style, agent, pictures: Mutex::default() });
        Self { asking, given: 0, unanswered: 0, failures_in_row: 0, round: 0, answers, sender }
    }

    /// The servers that answer, of those that might be there.
    pub fn living(
        candidates: &[String],
        key: Option<&str>,
        limit: Duration,
    ) -> Result<Vec<String>, TrainError> {
        let agent = ureq::Agent::config_builder().timeout_global(Some(limit)).proxy(None).build().new_agent();
        let answers = |server: &String| {
            let request = agent.get(format!("{server}/models"));
            let request = match key {
                Some(key) => request.header("Authorization", format!("Bearer {key}")),
                None => request,
            };
            request.call().is_ok()
        };
        let living: Vec<String> = candidates.iter().filter(|server| answers(server)).cloned().collect();
        if living.is_empty() {
            return Err(TrainError::Options(format!(
                "no chat server answers at {}: expected an OpenAI-compatible one, for example `vllm serve`",
                candidates.join(", ")
            )));
        }
        Ok(living)
    }
}

impl fmt::Debug for ChatPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatPolicy").field("options", &self.asking.options).finish_non_exhaustive()
    }
}

impl Asking {
    /// A response that can be read; or none, and why. Every further try is at the next server.
    fn respond(&self, first: usize, history: &History) -> Result<String, String> {
        let messages = self.messages(history)?;
        let servers = &self.options.servers;
        let (mut temperature, mut unreadable, mut problem) = (self.options.temperature, None, String::new());
        for attempt in 0..self.options.tries.max(1) {
            let server = &servers[(first + attempt as usize) % servers.len()];
            let seed = history
                .plan
                .sampling_seed
                .wrapping_add((history.answers.len() as u64) << 8 | u64::from(attempt));
            match self.request(server, &messages, temperature, seed) {
                Ok(text) if !self.options.retry_unparsable || parse(&text).is_ok() => return Ok(text),
                Ok(text) => {
                    temperature = 1.0;
                    unreadable = Some(text);
                }
                Err(error) => {
                    problem = format!("{server}: {error}");
                    if attempt + 1 < self.options.tries {
                        std::thread::sleep(AFTER_NO_ANSWER);
                    }
                }
            }
        }
        // the episode is over; what was said stays on record
        unreadable
            .map(|text| format!("{text}\nAction: finished(content='')"))
            .filter(|text| parse(text).is_ok())
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
        let said = || text.chars().take(ERROR_CHARACTERS).collect::<String>();
        if status != 200 {
            return Err(format!("status {status}: {}", said()));
        }
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("no JSON ({error}): {}", said()))?;
        value["choices"][0]["message"]["content"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| format!("an answer without choices[0].message.content: {}", said()))
    }

    fn messages(&self, history: &History) -> Result<Value, String> {
        let past: Vec<Turn> = history
            .screens
            .iter()
            .zip(&history.answers)
            .map(|(screen, answer)| Turn { screenshot: reference(screen), response: answer.text.clone() })
            .collect();
        let current = history.screens.last().map(reference);
        let screens: HashMap<&str, &Screenshot> =
            history.screens.iter().map(|screen| (screen.digest.as_ref(), screen)).collect();
        let said = conversation(&history.plan.task.instruction, &past, current.as_ref(), &self.style);
        let message = |message: &Message| {
            let content = match &message.content {
                Content::Text(text) => json!([{"type": "text", "text": text}]),
                Content::Image(image) => {
                    let url = self.picture(screens[image.digest.as_str()])?;
                    json!([{"type": "image_url", "image_url": {"url": &*url}}])
                }
            };
            Ok(json!({"role": message.role.name(), "content": content}))
        };
        said.iter().map(message).collect::<Result<Vec<Value>, String>>().map(Value::Array)
    }

    /// A screenshot as an address that holds its own content.
    fn picture(&self, screen: &Screenshot) -> Result<Arc<str>, String> {
        let known = |pictures: &HashMap<_, _>| pictures.get(&screen.digest).cloned();
        if let Some(url) = known(&self.pictures.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(url);
        }
        let mut png = Vec::new();
        let encoder = PngEncoder::new_with_quality(&mut png, CompressionType::Fast, FilterType::Adaptive);
        screen.image.write_with_encoder(encoder).map_err(|error| error.to_string())?;
        let encoded = base64::engine::general_purpose::STANDARD.encode(png);
        let url: Arc<str> = format!("data:image/png;base64,{encoded}").into();
        let mut pictures = self.pictures.lock().unwrap_or_else(PoisonError::into_inner);
        if pictures.len() >= KEPT_PICTURES {
            pictures.clear();
        }
        pictures.insert(Arc::clone(&screen.digest), Arc::clone(&url));
        Ok(url)
    }
}

impl Policy for ChatPolicy {
    fn ask(&mut self, question: Question) -> Result<(), TrainError> {
        let first = self.given;
        self.given += 1;
        let (asking, sender, round) = (Arc::clone(&self.asking), self.sender.clone(), self.round);
        let Question { ticket, history } = question;
        let ask = move || drop(sender.send((round, ticket, asking.respond(first, &history))));
        std::thread::Builder::new()
            .name("question".into())
            .spawn(ask)
            .map_err(|error| TrainError::Options(format!("no thread to ask on: {error}")))?;
        self.unanswered += 1;
        Ok(())
    }

    fn unanswered(&self) -> usize {
        self.unanswered
    }

    fn advance(&mut self) -> Result<Vec<(Ticket, Answer)>, TrainError> {
        let Ok(first) = self.answers.recv_timeout(PASS) else { return Ok(vec![]) };
        let mut answers = Vec::new();
        for (round, ticket, answered) in std::iter::once(first).chain(self.answers.try_iter()) {
            if round != self.round {
                continue;
            }
            self.unanswered -= 1;
            let complete = answered.is_ok();
            self.failures_in_row = if complete { 0 } else { self.failures_in_row + 1 };
            let text = match answered {
                Ok(text) => text,
                Err(problem) if self.failures_in_row >= GIVE_UP_AFTER * self.asking.options.servers.len() => {
                    return Err(TrainError::Options(format!("no chat server answers any more: {problem}")));
                }
                Err(problem) => format!("{NO_ANSWER}{problem}"),
            };
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            let logp = vec![0.0; tokens.len()];
            answers.push((ticket, Answer { text, tokens, logp, complete, version: PolicyVersion(0) }));
        }
        Ok(answers)
    }

    fn abandon(&mut self) {
        self.round += 1;
        self.unanswered = 0;
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    fn seen_size(&self, screen: Size) -> Result<Size, TrainError> {
        smart_resize(screen, self.asking.options.pixels)
            .map_err(|error| TrainError::Options(error.to_string()))
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
    use arpo_core::task::{Task, TaskId};
    use arpo_core::trajectory::EpisodeId;
    use image::RgbImage;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Says these responses in turn, the last one for ever, and keeps what it was asked.
    fn server(said: &'static [&'static str]) -> (String, Receiver<Value>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        let (asked, requests) = channel();
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
                let _ = asked.send(body);
                let said = said[number.min(said.len() - 1)];
                let answer = json!({"choices": [{"message": {"content": said}}]}).to_string();
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close", answer.len());
                let _ = write!(stream, "{head}\r\n\r\n{answer}");
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

    fn question(number: u64) -> Question {
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
        let history = History { plan: Arc::new(plan), screens: vec![screen], answers: vec![] };
        Question { ticket: Ticket(number), history }
    }

    fn asked(said: &'static [&'static str]) -> (Vec<(Ticket, Answer)>, Receiver<Value>) {
        let (address, requests) = server(said);
        let mut policy =
            ChatPolicy::new(options(address), ConversationStyle::uitars(ScreenshotWindow::new(15, 0)));
        policy.ask(question(7)).unwrap();
        (answers(&mut policy).unwrap(), requests)
    }

    /// The next answers, however many passes they take.
    fn answers(policy: &mut ChatPolicy) -> Result<Vec<(Ticket, Answer)>, TrainError> {
        loop {
            let answers = policy.advance()?;
            if !answers.is_empty() {
                return Ok(answers);
            }
        }
    }

    #[test]
    fn the_task_and_the_screen_go_out_and_a_response_comes_back() {
        let (answers, requests) = asked(&["Thought: there.\nAction: click(start_box='(3,4)')"]);
        assert_eq!(answers[0].0, Ticket(7));
        assert!(answers[0].1.text.ends_with("click(start_box='(3,4)')"));
        let request = requests.recv().unwrap();
        assert_eq!((&request["model"], &request["temperature"]), (&json!("ui-tars"), &json!(0.0)));
        let messages = request["messages"].as_array().unwrap();
        assert!(messages[1]["content"][0]["text"].as_str().unwrap().contains("Open the mail."));
        let url = messages[2]["content"][0]["image_url"]["url"].as_str().unwrap();
        let png = url.strip_prefix("data:image/png;base64,").unwrap();
        let png = base64::engine::general_purpose::STANDARD.decode(png).unwrap();
        assert_eq!(image::load_from_memory(&png).unwrap().to_rgb8().dimensions(), (56, 28));
    }

    #[test]
    fn what_cannot_be_read_is_asked_for_again_and_ends_the_episode_at_last() {
        let (answers, requests) = asked(&["I do not know.", "Action: wait()"]);
        assert_eq!(answers[0].1.text, "Action: wait()");
        requests.recv().unwrap();
        assert_eq!(requests.recv().unwrap()["temperature"], json!(1.0));
        let (answers, _) = asked(&["I do not know."]);
        assert!(answers[0].1.text.starts_with("I do not know.\nAction: finished("));
    }

    #[test]
    fn a_server_that_is_gone_ends_episodes_and_then_everything() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("http://127.0.0.1:{port}/v1");
        let mut policy = ChatPolicy::new(
            ChatOptions { tries: 1, ..options(address.clone()) },
            ConversationStyle::uitars(ScreenshotWindow::new(15, 0)),
        );
        for number in 1..GIVE_UP_AFTER as u64 {
            policy.ask(question(number)).unwrap();
            let answer = answers(&mut policy).unwrap().remove(0).1;
            assert!(!answer.complete && answer.text.starts_with(&format!("{NO_ANSWER}{address}: ")));
        }
        policy.ask(question(0)).unwrap();
        let problem = answers(&mut policy).unwrap_err().to_string();
        assert!(problem.starts_with("no chat server answers any more: http"), "{problem}");
        assert!(ChatPolicy::living(&[address], None, Duration::from_secs(2)).is_err());
    }

    /// As the built-in engine would: the model's own sizes, and what it says ends the episode if nobody can read it.
    #[test]
    fn a_model_of_our_own_is_taken_at_its_word() {
        let (address, requests) = server(&["click somewhere"]);
        let pixels = PixelLimits { min: 784, max: 1 << 20 };
        let options =
            ChatOptions { pixels, retry_unparsable: false, frequency_penalty: 0.0, ..options(address) };
        let mut policy = ChatPolicy::new(options, ConversationStyle::uitars(ScreenshotWindow::new(15, 0)));
        let small = Size { width: 168, height: 140 };
        assert_eq!(policy.seen_size(small).unwrap(), small);
        policy.ask(question(0)).unwrap();
        let answer = answers(&mut policy).unwrap().remove(0).1;
        assert_eq!((answer.text.as_str(), answer.complete), ("click somewhere", true));
        assert_eq!(requests.recv().unwrap()["frequency_penalty"], 0.0);
        assert!(requests.try_recv().is_err(), "asked again");
    }
}
