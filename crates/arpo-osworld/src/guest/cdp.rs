//! The Chrome DevTools Protocol: tabs over HTTP, pages over one WebSocket each.

use super::{Browser, Tab};
use crate::error::GuestError;
use base64::Engine;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tungstenite::{Message, WebSocket, client};

const CALL_LIMIT: Duration = Duration::from_secs(30);
/// A page that has not loaded by then is used as it is.
const LOAD_LIMIT: Duration = Duration::from_mins(1);
const LOAD_POLL: Duration = Duration::from_millis(250);

/// A browser at a host and port.
pub struct Cdp {
    agent: ureq::Agent,
    host: String,
    port: u16,
}

impl Cdp {
    /// A browser; nothing is connected yet.
    pub fn new(host: &str, port: u16) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(CALL_LIMIT))
            .build()
            .new_agent();
        Self { agent, host: host.to_owned(), port }
    }

    fn lost(call: &str, problem: &dyn std::fmt::Display) -> GuestError {
        GuestError::Unreachable { call: format!("browser: {call}"), problem: problem.to_string() }
    }

    fn http(&self, path: &str, put: bool) -> Result<Value, GuestError> {
        let url = format!("http://{}:{}{path}", self.host, self.port);
        let sent = if put { self.agent.put(&url).send_empty() } else { self.agent.get(&url).call() };
        let mut response = sent.map_err(|error| Self::lost(path, &error))?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(|error| Self::lost(path, &error))?;
        if status != 200 {
            return Err(GuestError::Refused {
                call: format!("browser: {path}"),
                status,
                body: text.chars().take(200).collect(),
            });
        }
        // Closing a tab returns plain text.
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// One request on the page's WebSocket.
    fn command(&self, id: &str, method: &str, parameters: &Value) -> Result<Value, GuestError> {
        let mut socket = self.connect(id)?;
        let request = json!({"id": 1, "method": method, "params": parameters}).to_string();
        socket.send(Message::text(request)).map_err(|error| Self::lost(method, &error))?;
        let start = Instant::now();
        while start.elapsed() < CALL_LIMIT {
            let message = socket.read().map_err(|error| Self::lost(method, &error))?;
            let Ok(text) = message.into_text() else { continue };
            let Ok(value) = serde_json::from_str::<Value>(&text) else { continue };
            if value["id"] == 1 {
                return match value.get("error") {
                    Some(error) => Err(Self::lost(method, &error)),
                    None => Ok(value["result"].clone()),
                };
            }
        }
        Err(Self::lost(method, &"no reply in time"))
    }

    fn connect(&self, id: &str) -> Result<WebSocket<TcpStream>, GuestError> {
        let failed = |error: &dyn std::fmt::Display| Self::lost("connect", error);
        let addresses = (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| failed(&error))?;
        let mut last = String::from("no address");
        for address in addresses {
            let stream = match TcpStream::connect_timeout(&address, CALL_LIMIT) {
                Ok(stream) => stream,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            stream.set_read_timeout(Some(CALL_LIMIT)).map_err(|error| failed(&error))?;
            stream.set_write_timeout(Some(CALL_LIMIT)).map_err(|error| failed(&error))?;
            let url = format!("ws://{}:{}/devtools/page/{id}", self.host, self.port);
            return client(url, stream).map(|(socket, _)| socket).map_err(|error| failed(&error));
        }
        Err(Self::lost("connect", &last))
    }
}

fn tab(value: &Value) -> Option<Tab> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(Tab { id: text("id")?, title: text("title").unwrap_or_default(), url: text("url")? })
}

impl Browser for Cdp {
    fn tabs(&self) -> Result<Vec<Tab>, GuestError> {
        let list = self.http("/json/list", false)?;
        Ok(list
            .as_array()
            .into_iter()
            .flatten()
            .filter(|one| one["type"] == "page")
            .filter_map(tab)
            .collect())
    }

    fn open(&self, url: &str) -> Result<Tab, GuestError> {
        let path = format!("/json/new?{}", utf8_percent_encode(url, NON_ALPHANUMERIC));
        let opened = self.http(&path, true)?;
        let opened = tab(&opened).ok_or_else(|| Self::lost("new tab", &opened))?;
        let start = Instant::now();
        while start.elapsed() < LOAD_LIMIT {
            std::thread::sleep(LOAD_POLL);
            let state = self.evaluate(&opened.id, "[document.readyState, location.href]");
            let is_there =
                |state: &Value| state[0] == "complete" && (state[1] != "about:blank" || url == "about:blank");
            if state.is_ok_and(|state| is_there(&state)) {
                break;
            }
        }
        Ok(opened)
    }

    fn close(&self, id: &str) -> Result<(), GuestError> {
        self.http(&format!("/json/close/{id}"), false).map(drop)
    }

    fn evaluate(&self, id: &str, expression: &str) -> Result<Value, GuestError> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true});
        let reply = self.command(id, "Runtime.evaluate", &parameters)?;
        match reply.get("exceptionDetails") {
            Some(details) => Err(Self::lost("evaluate", &details)),
            None => Ok(reply["result"].get("value").cloned().unwrap_or(Value::Null)),
        }
    }

    /// Letter paper without margins, as Playwright prints by default.
    fn pdf(&self, id: &str) -> Result<Vec<u8>, GuestError> {
        let parameters = json!({
            "landscape": false, "displayHeaderFooter": false, "printBackground": false, "scale": 1,
            "paperWidth": 8.5, "paperHeight": 11, "marginTop": 0, "marginBottom": 0, "marginLeft": 0,
            "marginRight": 0, "preferCSSPageSize": false
        });
        let reply = self.command(id, "Page.printToPDF", &parameters)?;
        let data = reply["data"].as_str().ok_or_else(|| Self::lost("pdf", &"no data"))?;
        base64::engine::general_purpose::STANDARD.decode(data).map_err(|error| Self::lost("pdf", &error))
    }
}
