//! A chat server of the tests: scripted answers over HTTP.

use super::*;
use crate::episode::{EpisodePlan, EpisodeScreen};
use arpo_agent::geometry::UITARS_LIMITS;
use arpo_agent::style::AgentStyle;
use arpo_agent::window::ScreenshotWindow;
use arpo_core::action::{Action, ModelBox};
use arpo_core::task::{Task, TaskId};
use base64::Engine;
use image::RgbImage;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// An answer of the test server.
#[derive(Clone, Copy)]
enum Reply {
    Text(&'static str),
    /// Status, further headers, body.
    Error(u16, &'static str, &'static str),
}

/// Responds with these texts in turn, then always with the last one; returns its address and the requests.
fn server(texts: &'static [&'static str]) -> (String, Receiver<Value>) {
    server_of(texts.iter().map(|&text| Reply::Text(text)).collect())
}

fn server_of(replies: Vec<Reply>) -> (String, Receiver<Value>) {
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
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                if head.starts_with("GET") {
                    break Value::Null;
                }
                if let Ok(body) = serde_json::from_str::<Value>(body) {
                    break body;
                }
            };
            let _ = sender.send(body);
            let (status, headers, body) = match replies[number.min(replies.len() - 1)] {
                Reply::Text(text) => {
                    (200, "", json!({"choices": [{"message": {"content": text}}]}).to_string())
                }
                Reply::Error(status, headers, body) => (status, headers, body.to_owned()),
            };
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}Connection: close");
            let _ = write!(stream, "{head}\r\n\r\n{body}");
        }
    });
    (address, requests)
}

fn options(server: String) -> ChatOptions {
    ChatOptions {
        servers: vec![server],
        model: "ui-tars".into(),
        key: None,
        key_variable: "KEY".into(),
        temperature: 0.0,
        top_p: None,
        max_tokens: 100,
        frequency_penalty: 1.0,
        limit: Duration::from_secs(20),
        tries: 2,
        seeded: true,
        retry_unparsable: true,
        pixels: UITARS_LIMITS,
        max_screenshots: 5,
    }
}

fn request(number: u64) -> GenerationRequest {
    request_of(number, 0)
}

fn request_of(number: u64, episode: usize) -> GenerationRequest {
    let task = Task {
        id: TaskId::new("t"),
        instruction: "Open the mail.".into(),
        application: String::new(),
        setup: Value::Null,
        evaluator: Value::Null,
    };
    let plan = EpisodePlan {
        id: EpisodeId::new(0, &task.id, episode),
        task: Arc::new(task),
        world_seed: 0,
        sampling_seed: 0,
        max_steps: 15,
        hint: None,
    };
    let screen = Arc::new(RgbImage::from_pixel(56, 28, image::Rgb([1, 2, 3])));
    let history =
        History { plan: Arc::new(plan), screens: vec![EpisodeScreen::new(screen, None)], responses: vec![] };
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
fn without_a_server_episodes_are_lost_and_then_the_policy_fails() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("http://127.0.0.1:{port}/v1");
    let mut policy = ChatPolicy::new(
        ChatOptions { tries: 1, ..options(address.clone()) },
        AgentStyle::uitars(ScreenshotWindow::new(15, 0)),
    );
    for number in 1..GIVE_UP_AFTER as u64 {
        policy.submit(request(number)).unwrap();
        let (id, reason) = lost(&mut policy).unwrap().remove(0);
        assert!(id == RequestId(number) && reason.starts_with(&format!("{address}: ")), "{reason}");
    }
    policy.submit(request(0)).unwrap();
    let problem = lost(&mut policy).unwrap_err().to_string();
    assert!(problem.starts_with("4 requests in a row without a response: http"), "{problem}");
    assert!(ChatPolicy::available(&[address], None, "KEY", Duration::from_secs(2)).is_err());
}

/// The requests that are given up next, however many steps that takes.
fn lost(policy: &mut ChatPolicy) -> Result<Vec<(RequestId, String)>, TrainError> {
    loop {
        assert!(policy.step()?.is_empty());
        let lost = policy.take_lost();
        if !lost.is_empty() {
            return Ok(lost);
        }
    }
}

fn policy_of(address: String) -> ChatPolicy {
    ChatPolicy::new(options(address), AgentStyle::uitars(ScreenshotWindow::new(15, 0)))
}

#[test]
fn a_busy_server_is_asked_again_when_it_says() {
    let busy = Reply::Error(429, "Retry-After: 0.1\r\n", r#"{"error": {"message": "slow down"}}"#);
    // more often than there are tries: a busy server has not failed
    let (address, requests) = server_of(vec![busy, busy, busy, busy, Reply::Text("Action: wait()")]);
    let mut policy = policy_of(address);
    policy.submit(request(7)).unwrap();
    assert_eq!(responses(&mut policy).unwrap()[0].1.text, "Action: wait()");
    assert_eq!(requests.iter().take(5).count(), 5);
    // a wait beyond the limit ends the episode, not the evaluation
    let long = Reply::Error(429, "Retry-After: 3600\r\n", "slow down");
    let mut policy = policy_of(server_of(vec![long]).0);
    policy.submit(request(7)).unwrap();
    let reason = lost(&mut policy).unwrap().remove(0).1;
    assert!(reason.contains("the wait of 3600 s is longer than `chat.limit_seconds` allows"), "{reason}");
}

#[test]
fn a_wrong_model_and_a_missing_key_fail_at_once() {
    let model = r#"{"error": {"message": "The model `ui-tars` does not exist."}}"#;
    let key = r#"{"error": "Unauthorized"}"#;
    for (status, body, expected) in
        [(404, model, "it has no model \"ui-tars\""), (401, key, "KEY is not set")]
    {
        let (address, requests) = server_of(vec![Reply::Error(status, "", body)]);
        let mut policy = policy_of(address.clone());
        policy.submit(request(7)).unwrap();
        let problem = lost(&mut policy).unwrap_err().to_string();
        assert!(problem.contains(expected) && problem.starts_with(&address), "{problem}");
        assert_eq!(requests.try_iter().count(), 1, "asked again");
    }
    let (address, _requests) = server_of(vec![Reply::Error(401, "", key)]);
    let problem = ChatPolicy::available(&[address], None, "KEY", Duration::from_secs(5)).unwrap_err();
    assert!(problem.to_string().contains("KEY is not set"), "{problem}");
}

/// Many proxies have no list of models.
#[test]
fn a_server_without_a_list_of_models_is_asked_all_the_same() {
    for status in [404, 405, 500] {
        let (address, _requests) = server_of(vec![Reply::Error(status, "", "nothing here")]);
        let available =
            ChatPolicy::available(std::slice::from_ref(&address), None, "KEY", Duration::from_secs(5));
        assert_eq!(available.unwrap(), [address], "{status}");
    }
}

#[test]
fn a_conversation_that_is_too_long_costs_its_episode() {
    let long = r#"{"error": {"message": "This model's maximum context length is 10 tokens."}}"#;
    let (address, requests) = server_of(vec![Reply::Error(400, "", long), Reply::Text("Action: wait()")]);
    let mut policy = policy_of(address);
    policy.submit(request(1)).unwrap();
    assert!(lost(&mut policy).unwrap()[0].1.contains("--max-model-len"));
    policy.submit(request(2)).unwrap();
    assert_eq!(responses(&mut policy).unwrap()[0].0, RequestId(2));
    assert_eq!(requests.try_iter().count(), 2);
}

#[test]
fn servers_share_the_episodes_and_an_episode_keeps_its_server() {
    let (one, at_one) = server(&["Action: wait()"]);
    let (two, at_two) = server(&["Action: wait()"]);
    let options = ChatOptions { servers: vec![one, two], ..options(String::new()) };
    let mut policy = ChatPolicy::new(options, AgentStyle::uitars(ScreenshotWindow::new(15, 0)));
    for (number, episode) in [0, 1, 0, 0, 1, 2].into_iter().enumerate() {
        policy.submit(request_of(number as u64, episode)).unwrap();
        responses(&mut policy).unwrap();
    }
    // episodes 0 and 2 at the first, 1 at the second
    assert_eq!((at_one.try_iter().count(), at_two.try_iter().count()), (4, 2));
}

/// As with the built-in engine: the model's own sizes, and an unparsable response ends the episode.
#[test]
fn without_retries_an_unparsable_response_is_returned() {
    let (address, requests) = server(&["click somewhere"]);
    let pixels = PixelLimits { min: 784, max: 1 << 20 };
    let options = ChatOptions { pixels, retry_unparsable: false, frequency_penalty: 0.0, ..options(address) };
    let mut policy = ChatPolicy::new(options, AgentStyle::uitars(ScreenshotWindow::new(15, 0)));
    let small = Size { width: 168, height: 140 };
    assert_eq!(policy.seen_size(small).unwrap(), small);
    policy.submit(request(0)).unwrap();
    let response = responses(&mut policy).unwrap().remove(0).1;
    assert_eq!((response.text.as_str(), response.complete), ("click somewhere", true));
    assert_eq!(requests.recv().unwrap()["frequency_penalty"], 0.0);
    assert!(requests.try_recv().is_err(), "requested again");
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
