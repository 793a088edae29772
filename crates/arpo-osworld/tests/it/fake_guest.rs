//! A guest that responds from tables and logs its calls.

use arpo_osworld::error::GuestError;
use arpo_osworld::guest::{Browser, Command, CommandLine, Guest, Output, Tab, Window};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Default)]
pub(crate) struct FakeGuest {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) outputs: BTreeMap<String, Output>,
    pub(crate) tree: Option<String>,
    pub(crate) tabs: RefCell<Vec<Tab>>,
    /// Values of expressions that contain the key.
    pub(crate) pages: BTreeMap<String, Value>,
    /// Every expression that was evaluated.
    pub(crate) scripts: RefCell<Vec<String>>,
    /// Expressions that contain this fail once, as on a page that is being left.
    pub(crate) fails_once: Cell<Option<&'static str>>,
    /// Names of calls that are refused.
    pub(crate) refuses: Vec<&'static str>,
    pub(crate) dead: bool,
    /// Commands and files are those of this machine.
    pub(crate) local: bool,
    pub(crate) log: RefCell<Vec<String>>,
}

impl FakeGuest {
    fn record_call(&self, name: &'static str, what: &str) -> Result<(), GuestError> {
        self.log.borrow_mut().push(format!("{name} {what}"));
        if self.dead {
            return Err(GuestError::Unreachable { call: name.into(), problem: "gone".into() });
        }
        if self.refuses.contains(&name) {
            return Err(GuestError::Refused { call: name.into(), status: 500, body: "no".into() });
        }
        Ok(())
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }
}

impl Browser for FakeGuest {
    fn tabs(&self) -> Result<Vec<Tab>, GuestError> {
        self.record_call("tabs", "")?;
        Ok(self.tabs.borrow().clone())
    }

    fn open(&self, url: &str) -> Result<Tab, GuestError> {
        self.record_call("open tab", url)?;
        let tab = Tab { id: format!("new {url}"), title: String::new(), url: url.to_owned() };
        self.tabs.borrow_mut().insert(0, tab.clone());
        Ok(tab)
    }

    fn close(&self, id: &str) -> Result<(), GuestError> {
        self.record_call("close tab", id)?;
        self.tabs.borrow_mut().retain(|tab| tab.id != id);
        Ok(())
    }

    fn evaluate(&self, _: &str, expression: &str) -> Result<Value, GuestError> {
        self.scripts.borrow_mut().push(expression.to_owned());
        if self.fails_once.get().is_some_and(|part| expression.contains(part)) {
            self.fails_once.set(None);
            return Err(GuestError::Unreachable { call: "evaluate".into(), problem: "no context".into() });
        }
        let answer = self.pages.iter().find(|(part, _)| expression.contains(part.as_str()));
        Ok(answer.map_or(Value::Null, |(_, value)| value.clone()))
    }

    fn pdf(&self, _: &str) -> Result<Vec<u8>, GuestError> {
        Ok(b"%PDF-1.4".to_vec())
    }
}

impl Guest for FakeGuest {
    fn run(&self, command: &Command) -> Result<Option<Output>, GuestError> {
        let line = command.body()["command"].to_string();
        self.record_call("run", &line)?;
        if let (true, CommandLine::Words(words)) = (self.local, &command.line) {
            let output = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            return Ok(Some(Output { stdout, ..Output::default() }));
        }
        Ok(self
            .outputs
            .iter()
            .find(|(part, _)| line.contains(part.as_str()))
            .map(|(_, output)| output.clone()))
    }

    fn launch(&self, command: &Command) -> Result<(), GuestError> {
        self.record_call("launch", &command.body()["command"].to_string())
    }

    fn read_file(&self, path: &str) -> Result<Option<Vec<u8>>, GuestError> {
        self.record_call("read", path)?;
        if self.local {
            return Ok(std::fs::read(path).ok());
        }
        Ok(self.files.get(path).cloned())
    }

    fn write_file(&self, path: &str, content: &[u8]) -> Result<(), GuestError> {
        if self.local {
            std::fs::write(path, content).unwrap();
        }
        self.record_call("write", &format!("{path} {} bytes", content.len()))
    }

    fn open_file(&self, path: &str) -> Result<(), GuestError> {
        self.record_call("open", path)
    }

    fn activate_window(&self, window: &Window) -> Result<(), GuestError> {
        self.record_call("activate", &window.name)
    }

    fn close_window(&self, window: &Window) -> Result<(), GuestError> {
        self.record_call("close", &window.name)
    }

    fn change_wallpaper(&self, path: &str) -> Result<(), GuestError> {
        self.record_call("wallpaper", path)
    }

    fn accessibility_tree(&self) -> Result<Option<String>, GuestError> {
        Ok(self.tree.clone())
    }

    fn terminal_output(&self) -> Result<Option<String>, GuestError> {
        Ok(Some("$ ls\n".into()))
    }

    fn screen_size(&self) -> Result<Option<Value>, GuestError> {
        Ok(Some(serde_json::json!({"width": 1920, "height": 1080})))
    }

    fn window_size(&self, class: &str) -> Result<Option<Value>, GuestError> {
        Ok((class == "vlc").then(|| serde_json::json!({"width": 1920, "height": 1080})))
    }

    fn wallpaper(&self) -> Result<Option<Vec<u8>>, GuestError> {
        Ok(self.files.get("wallpaper").cloned())
    }

    fn desktop_path(&self) -> Result<Option<String>, GuestError> {
        Ok(Some("/home/user/Desktop".into()))
    }

    fn list_directory(&self, path: &str) -> Result<Option<Value>, GuestError> {
        let names = self.files.keys().filter_map(|file| file.strip_prefix("~/Desktop/"));
        let children: Vec<Value> =
            names.map(|name| serde_json::json!({"type": "file", "name": name})).collect();
        Ok(Some(serde_json::json!({"type": "directory", "name": path, "children": children})))
    }

    fn vlc_status(&self) -> Result<Option<Vec<u8>>, GuestError> {
        Ok(self.files.get("status").cloned())
    }

    fn browser(&self) -> &dyn Browser {
        self
    }

    fn pause(&self, time: Duration) {
        self.log.borrow_mut().push(format!("pause {}", time.as_secs_f64()));
    }
}
