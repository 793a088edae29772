//! A headless Chromium, driven over its DevTools protocol. Every wait has a deadline.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

const DEADLINE: Duration = Duration::from_secs(40);

/// The program, if this machine has one; `ARPO_CHROMIUM` names another.
fn program() -> Option<String> {
    let named = std::env::var("ARPO_CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let works = |name: &String| {
        let run = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    };
    named.into_iter().chain(known).find(works)
}

/// A page in a browser of its own.
pub(crate) struct Page {
    browser: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    next: u64,
    /// What the page wrote to its console, and errors that nobody caught.
    pub(crate) problems: Vec<String>,
    /// What it has asked for.
    pub(crate) requests: Vec<String>,
    _profile: TempDir,
}

impl Page {
    /// Opens an empty page of a size; `None`, with a message, where no Chromium is installed.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    pub(crate) fn open(width: u32, height: u32) -> Option<Self> {
        let Some(program) = program() else {
            println!("skipped: no Chromium on this machine (apt-get install chromium)");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
            .args(["--remote-debugging-port=0", &format!("--window-size={width},{height}")])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (said, heard) = mpsc::channel();
        let output = BufReader::new(browser.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once("DevTools listening on ") {
                    let _ = said.send(url.trim().to_owned());
                }
            }
        });
        let url = heard.recv_timeout(DEADLINE).expect("Chromium did not say where it listens");
        let address = url.trim_start_matches("ws://").split('/').next().unwrap().to_owned();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        let (socket, _) = tungstenite::client(url.as_str(), stream).unwrap();
        let mut page = Self {
            browser,
            socket,
            session: String::new(),
            next: 0,
            problems: vec![],
            requests: vec![],
            _profile: profile,
        };
        let target = page.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            page.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        attached["sessionId"].as_str().unwrap().clone_into(&mut page.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.resize(width, height);
        Some(page)
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub(crate) fn colours(&mut self, scheme: &str) {
        let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", feature);
    }

    /// Sends a command and waits for its answer; events in between are looked at.
    #[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).unwrap();
        let deadline = Instant::now() + DEADLINE;
        loop {
            assert!(Instant::now() < deadline, "{method}: no answer");
            let Message::Text(text) = self.socket.read().unwrap() else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == json!(id) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.event(&answer);
        }
    }

    fn event(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.consoleAPICalled") => self.problems.push(format!("console: {}", params["args"])),
            Some("Runtime.exceptionThrown") => {
                self.problems.push(format!("error: {}", params["exceptionDetails"]));
            }
            Some("Log.entryAdded") => {
                self.problems.push(format!("log: {} {}", params["entry"]["text"], params["entry"]["url"]));
            }
            Some("Network.requestWillBeSent") => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or("").to_owned());
            }
            _ => {}
        }
    }

    /// Goes to an address and waits until the document is there.
    pub(crate) fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.wait("document.readyState === 'complete'");
    }

    /// The value of an expression, which may be a promise.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let deadline = Instant::now() + DEADLINE;
        while self.value(&format!("Boolean({expression})")) != json!(true) {
            let problems = self.problems.join("\n");
            assert!(Instant::now() < deadline, "never true: {expression}\n{problems}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The text of the page, for messages.
    pub(crate) fn text(&mut self) -> String {
        self.value("document.body.innerText").as_str().unwrap_or("").chars().take(1500).collect()
    }

    /// Presses a key, as a person would.
    pub(crate) fn press(&mut self, key: &str) {
        let text = if key == " " { " " } else { "" };
        let code = if key == " " { "Space" } else { key };
        let number = match key {
            "ArrowRight" => 39,
            "ArrowLeft" => 37,
            " " => 32,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": code, "text": text, "windowsVirtualKeyCode": number});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Presses, moves and releases the mouse.
    pub(crate) fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        for (kind, (x, y)) in [("mousePressed", from), ("mouseMoved", to), ("mouseReleased", to)] {
            let event =
                json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    pub(crate) fn hover(&mut self, (x, y): (f64, f64)) {
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y}));
    }

    /// What is seen, as a PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        use base64::Engine;
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.socket.send(Message::text(json!({"id": 0, "method": "Browser.close"}).to_string()));
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if matches!(self.browser.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
