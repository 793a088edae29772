//! A small deterministic inference server with vLLM's interface, as vLLM 0.32 was seen to answer, for everything that a real
//! one does not do on request: dying, answering with other weights, reading another prompt, being slow or busy.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The image placeholder of the pocket model.
const IMAGE_TOKEN: u64 = 5;

/// How a server behaves; may be changed while it runs.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub(crate) struct Behaviour {
    /// The response to every request, and the log-probability of each of its tokens.
    pub(crate) response: Vec<u32>,
    pub(crate) logp: f64,
    /// Closes connections without an answer.
    pub(crate) dead: bool,
    /// Waits before it samples.
    pub(crate) slow: Duration,
    /// Answers so many requests with 429 first.
    pub(crate) busy: usize,
    /// Fails at so many requests first.
    pub(crate) fails: usize,
    /// Answers so many requests with this label first.
    pub(crate) other_label: Option<(usize, &'static str)>,
    /// Changes the prompt that it says it read.
    pub(crate) misreads: bool,
    /// Says that images begin a token later.
    pub(crate) misplaces: bool,
    /// Fails to empty its prefix cache.
    pub(crate) keeps_cache: bool,
    /// Its log-probabilities.
    pub(crate) logprobs_mode: &'static str,
    /// Has the control requests.
    pub(crate) dev_mode: bool,
    /// Has tokens in and out.
    pub(crate) scale_out: bool,
    /// Answers nothing but control requests without a key, as vLLM started with `--api-key`.
    pub(crate) wants_key: bool,
    /// Answers requests for responses with this status and message.
    pub(crate) refuses: Option<(u16, &'static str)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            response: vec![],
            logp: -0.5,
            dead: false,
            slow: Duration::ZERO,
            busy: 0,
            fails: 0,
            other_label: None,
            misreads: false,
            misplaces: false,
            keeps_cache: false,
            logprobs_mode: "processed_logprobs",
            dev_mode: true,
            scale_out: true,
            wants_key: false,
            refuses: None,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    behaviour: Behaviour,
    label: String,
    paused: bool,
    /// Requests for responses that it has now, and the most that it had at once.
    sampling: usize,
    most: usize,
    /// Features of the images in its cache.
    images: HashMap<String, usize>,
    /// Paths of all requests, and the bodies of those for responses.
    calls: Vec<String>,
    asked: Vec<Value>,
}

/// A server; its thread ends with the test's process.
#[derive(Debug, Clone)]
pub(crate) struct Conformance {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
}

impl Conformance {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { behaviour, label: "default".into(), ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.state.lock().unwrap().behaviour);
    }

    /// As after a start: the weights are those of its own checkpoint.
    pub(crate) fn restart(&self) {
        self.state.lock().unwrap().label = "default".into();
    }

    /// Drops all images from its cache.
    pub(crate) fn forget_images(&self) {
        self.state.lock().unwrap().images.clear();
    }

    pub(crate) fn label(&self) -> String {
        self.state.lock().unwrap().label.clone()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state.lock().unwrap().paused
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.state.lock().unwrap().most
    }

    /// The paths that were called since the last time.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// The requests for responses since the last time.
    pub(crate) fn take_asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

/// One request of a connection.
fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let Some((method, path, body)) = read(&mut stream) else { return };
    let dead = {
        let mut state = state.lock().unwrap();
        state.calls.push(path.split('?').next().unwrap_or_default().to_owned());
        state.behaviour.dead
    };
    if dead {
        return;
    }
    let (status, headers, answer) = answer(&method, &path, &body, state);
    let text = if answer.is_null() { String::new() } else { answer.to_string() };
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}Connection: close", text.len());
    let _ = write!(stream, "{head}\r\n\r\n{text}");
}

fn read(stream: &mut TcpStream) -> Option<(String, String, Value)> {
    let (mut request, mut buffer) = (Vec::new(), [0; 1 << 14]);
    loop {
        let count = stream.read(&mut buffer).ok().filter(|&count| count > 0)?;
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            let mut words = head.split_whitespace();
            let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
            return Some((method, path, serde_json::from_str(body).unwrap_or(Value::Null)));
        }
    }
}

fn answer(method: &str, path: &str, body: &Value, state: &Mutex<State>) -> (u16, &'static str, Value) {
    let good = |value: Value| (200, "", value);
    let error = |status, message: &str| (status, "", json!({"error": {"message": message}}));
    let behaviour = state.lock().unwrap().behaviour.clone();
    let path = path.split('?').next().unwrap_or_default();
    let control = path != "/v1/models" && !path.ends_with("/generate") && !path.ends_with("/completions");
    if control && !behaviour.dev_mode {
        return (404, "", json!({"detail": "Not Found"}));
    }
    if !control && behaviour.wants_key {
        return (401, "", json!({"error": "Unauthorized"}));
    }
    match (method, path) {
        ("GET", "/server_info") => {
            let model = json!({"logprobs_mode": behaviour.logprobs_mode});
            good(json!({"vllm_config": {"model_config": model}}))
        }
        ("GET", "/v1/models") => good(json!({"data": [{"id": "pocket"}]})),
        ("GET", "/weight_info") => good(json!({"weight_version": state.lock().unwrap().label})),
        ("POST", "/pause") => {
            state.lock().unwrap().paused = true;
            good(json!({"status": "paused"}))
        }
        ("POST", "/resume") => {
            state.lock().unwrap().paused = false;
            good(json!({"status": "resumed"}))
        }
        ("POST", "/collective_rpc") => {
            let folder = body["kwargs"]["weights_path"].as_str().unwrap_or_default();
            let is_model = std::path::Path::new(folder).join("model.safetensors").is_file();
            if is_model { good(json!({"results": [null]})) } else { error(500, "no such weights") }
        }
        ("POST", "/reset_prefix_cache") => good(json!({"success": !behaviour.keeps_cache})),
        ("POST", "/reset_mm_cache") => {
            state.lock().unwrap().images.clear();
            good(Value::Null)
        }
        ("POST", "/reset_encoder_cache") => good(Value::Null),
        ("POST", "/update_weight_version") => {
            state.lock().unwrap().label = body["new_version"].as_str().unwrap().into();
            good(json!({"success": true}))
        }
        ("GET", "/inference/v1/generate") if behaviour.scale_out => (405, "", json!({"detail": "Method"})),
        ("POST", "/inference/v1/generate") if behaviour.scale_out => sample(body, state, &behaviour),
        ("POST", "/v1/chat/completions") => sample(body, state, &behaviour),
        _ => (404, "", json!({"detail": "Not Found"})),
    }
}

fn sample(body: &Value, state: &Mutex<State>, behaviour: &Behaviour) -> (u16, &'static str, Value) {
    let label = {
        let mut state = state.lock().unwrap();
        state.asked.push(body.clone());
        state.most = state.most.max(state.sampling + 1);
        if state.behaviour.busy > 0 {
            state.behaviour.busy -= 1;
            return (429, "Retry-After: 0.05\r\n", json!({"error": {"message": "slow down"}}));
        }
        if state.behaviour.fails > 0 {
            state.behaviour.fails -= 1;
            return (500, "", json!({"error": {"message": "out of luck"}}));
        }
        // as after a start of its own: the label is the engine's, in answers and when it is asked for
        if let Some((left, label)) = &mut state.behaviour.other_label
            && *left > 0
        {
            *left -= 1;
            let label = *label;
            label.clone_into(&mut state.label);
        }
        state.label.clone()
    };
    if let Some((status, message)) = behaviour.refuses {
        return (status, "", json!({"error": {"message": message}}));
    }
    state.lock().unwrap().sampling += 1;
    std::thread::sleep(behaviour.slow);
    state.lock().unwrap().sampling -= 1;
    let (mut prompt, mut places) = (vec![], vec![]);
    // a chat request has the prompt that the test expects in place of a template
    let tokens = body["token_ids"].as_array().cloned().unwrap_or_default();
    let mut parts = body["content_parts"].as_array().cloned().unwrap_or_default().into_iter();
    for token in tokens {
        if token.as_u64() != Some(IMAGE_TOKEN) {
            prompt.push(token);
            continue;
        }
        let part = parts.next().unwrap_or_default();
        let uuid = part["uuid"].as_str().unwrap_or_default().to_owned();
        let images = &mut state.lock().unwrap().images;
        let features = if let Some(url) = part["url"].as_str() {
            *images.entry(uuid).or_insert_with(|| features(url))
        } else if let Some(&known) = images.get(&uuid) {
            known
        } else {
            let message = "Cache miss for image at index 0 but data is not provided.";
            return (400, "", json!({"error": {"message": message}}));
        };
        places.push(json!({"offset": prompt.len() + usize::from(behaviour.misplaces), "length": features}));
        prompt.extend(std::iter::repeat_n(token, features));
    }
    if behaviour.misreads {
        prompt[3] = json!(77);
    }
    let logprob = |token: &u32| json!({"token_id": token, "logprob": behaviour.logp, "rank": 1});
    let content: Vec<Value> = behaviour.response.iter().map(logprob).collect();
    let end = behaviour.response.len();
    let choice = json!({
        "index": 0, "finish_reason": "stop", "token_ids": behaviour.response, "logprobs": {"content": content},
        "weight_versions": [{"version": label, "start": 0, "end": end}],
    });
    (200, "", json!({"prompt_token_ids": prompt, "mm_placeholders": {"image": places}, "choices": [choice]}))
}

/// The features of an image whose sides are multiples of 28 pixels.
fn features(url: &str) -> usize {
    use base64::Engine;
    let png = url.strip_prefix("data:image/png;base64,").unwrap();
    let png = base64::engine::general_purpose::STANDARD.decode(png).unwrap();
    let image = image::load_from_memory(&png).unwrap();
    (image.width() as usize / 28) * (image.height() as usize / 28)
}
