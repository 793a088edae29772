//! The load of `arpo bench serve`: clients that play episodes against a chat server. Every turn sends the conversation so
//! far with all its screenshots, as agents do, and reads the response as a stream.

use arpo_env::environment::encode_png;
use base64::Engine;
use image::RgbImage;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a response.
const DEADLINE: Duration = Duration::from_mins(10);

/// A chat server and what it is asked.
pub(super) struct Target {
    /// As `http://host:port/v1`.
    pub(super) url: String,
    pub(super) model: String,
    pub(super) key: Option<String>,
    /// Tokens of a response at most.
    pub(super) tokens: usize,
    /// Asks for responses of exactly that length, which not every server understands.
    pub(super) ignore_eos: bool,
}

/// How one turn went.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TurnTimes {
    /// Until the first text that is not empty; a response may have none.
    pub(super) first_token: Option<f64>,
    pub(super) whole: f64,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) response_tokens: u64,
}

/// All turns of a load, or the first problem.
pub(super) struct Measured {
    pub(super) turns: Vec<TurnTimes>,
    pub(super) seconds: f64,
}

/// Plays `episodes` of `turns` with this many clients at a time; `screenshot` draws the screen of an episode and a turn.
pub(super) fn play(
    target: &Target,
    clients: usize,
    episodes: usize,
    turns: usize,
    screenshot: impl Fn(usize, usize) -> RgbImage + Sync,
) -> Result<Measured, String> {
    // drawn and encoded before the clock starts
    let urls: Vec<Vec<String>> = (0..episodes)
        .map(|episode| (0..turns).map(|turn| data_url(&screenshot(episode, turn))).collect())
        .collect::<Result<_, _>>()?;
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let play_some = || {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(DEADLINE))
            .proxy(None)
            .build()
            .new_agent();
        let mut done = Vec::new();
        loop {
            let episode = next.fetch_add(1, Ordering::Relaxed);
            let Some(screens) = urls.get(episode) else { return Ok(done) };
            done.extend(target.episode(&agent, episode, screens)?);
        }
    };
    let results: Vec<Result<Vec<TurnTimes>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(play_some)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a client panicked".into())))
            .collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let turns = results.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Measured { turns, seconds })
}

impl Target {
    fn episode(
        &self,
        agent: &ureq::Agent,
        episode: usize,
        screens: &[String],
    ) -> Result<Vec<TurnTimes>, String> {
        let text =
            |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
        let mut messages = vec![
            text("system", "You are a helpful assistant."),
            text("user", &format!("Task {episode}: open the settings and switch the network off.")),
        ];
        let mut times = Vec::new();
        for (turn, url) in screens.iter().enumerate() {
            messages
                .push(json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}));
            let seed = (episode * 1000 + turn) as u64;
            let (response, measured) = self.turn(agent, &messages, seed)?;
            messages.push(text("assistant", &response));
            times.push(measured);
        }
        Ok(times)
    }

    fn turn(
        &self,
        agent: &ureq::Agent,
        messages: &[Value],
        seed: u64,
    ) -> Result<(String, TurnTimes), String> {
        let mut body = json!({
            "model": self.model, "messages": messages, "max_tokens": self.tokens, "temperature": 1.0,
            "seed": seed, "stream": true, "stream_options": {"include_usage": true},
        });
        if self.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        let body = body.to_string();
        let began = Instant::now();
        let mut request =
            agent.post(format!("{}/chat/completions", self.url)).header("Content-Type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let mut response = request.send(body).map_err(|error| format!("{}: {error}", self.url))?;
        let status = response.status().as_u16();
        if status != 200 {
            let text = response.body_mut().read_to_string().unwrap_or_default();
            return Err(format!("{}: status {status}: {text}", self.url));
        }
        let (mut text, mut times, mut chunks) = (String::new(), TurnTimes::default(), 0);
        for line in BufReader::new(response.body_mut().as_reader()).lines() {
            let line = line.map_err(|error| format!("{}: {error}", self.url))?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                break;
            }
            let chunk: Value = serde_json::from_str(data).map_err(|error| format!("{error}: {data}"))?;
            if !chunk["error"].is_null() {
                return Err(chunk["error"].to_string());
            }
            if let Some(new) = chunk["choices"][0]["delta"]["content"].as_str().filter(|new| !new.is_empty())
            {
                if text.is_empty() {
                    times.first_token = Some(began.elapsed().as_secs_f64());
                }
                text.push_str(new);
                chunks += 1;
            }
            let usage = &chunk["usage"];
            if usage.is_object() {
                times.prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or(0);
                times.response_tokens = usage["completion_tokens"].as_u64().unwrap_or(0);
                times.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
            }
        }
        times.whole = began.elapsed().as_secs_f64();
        if times.response_tokens == 0 {
            // a server without usage in streams sends about a token a chunk
            times.response_tokens = chunks;
        }
        Ok((text, times))
    }
}

fn data_url(image: &RgbImage) -> Result<String, String> {
    let png = encode_png(image).map_err(|error| error.to_string())?;
    Ok(format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(png)))
}
