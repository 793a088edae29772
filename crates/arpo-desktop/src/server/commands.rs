//! Commands: run for their output, launched without waiting, run until a check passes, or as scripts.

use super::body::JsonBody;
use super::response::HttpResponse;
use super::{Guest, HandlerResult, Shared, home, run_blocking, with_x};
use crate::command::native::{Native, native, script_of};
use crate::command::run::{self, Finished, ProcessContext, RunError};
use crate::command::words::expanded;
use crate::command::{Command, is_true};
use crate::x11::input::ScriptOutcome;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const COMMAND_LIMIT: Duration = Duration::from_mins(2);
const PYTHON_LIMIT: Duration = Duration::from_secs(30);
const CHECK_LIMIT: Duration = Duration::from_secs(5);
/// The longest time that a client can ask for.
const LONGEST_SECONDS: f64 = 24.0 * 3600.0;

const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

/// The field of a request that never starts Python: our module `pyautogui` passes a call on, and Python would pass it back here.
const WITHOUT_PYTHON: &str = "without_python";

/// `/execute`: a command that failed is still a success, with its exit status, as in OSWorld's server. A script of mouse and
/// keyboard that failed is not: an agent would take it for an action.
pub async fn execute(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let command = command_of(&request)?;
    if is_true(request.get(WITHOUT_PYTHON).unwrap_or(&Value::Null)) && native_form(&command).is_none() {
        let error = "the desktop does not support this call or its arguments".to_owned();
        let refused = Finished { output: String::new(), error, code: 1 };
        return Ok(HttpResponse::json(described("error", &refused)));
    }
    match finished(&guest, &command).await? {
        Ok(finished) => {
            let has_failed = finished.code != 0 && is_input_script(&command);
            Ok(HttpResponse::json(described(if has_failed { "error" } else { "success" }, &finished)))
        }
        Err(error) => Ok(HttpResponse::failure(FAILED, error.to_string())),
    }
}

fn is_input_script(command: &Command) -> bool {
    matches!(command, Command::Words(words) if script_of(words).is_some_and(|code| code.contains("pyautogui")))
}

fn native_form(command: &Command) -> Option<Native> {
    if let Command::Words(words) = command { native(words) } else { None }
}

fn command_of(request: &Value) -> Result<Command, HttpResponse> {
    let command = Command::from_request(request, &home()).map_err(HttpResponse::uncaught)?;
    Ok(command.for_path(&env::var("PATH").unwrap_or_default()))
}

/// Runs a command, natively where it is a supported script.
async fn finished(guest: &Arc<Guest>, command: &Command) -> Result<Result<Finished, RunError>, HttpResponse> {
    let quiet = |output: String| Ok(Finished { output, error: String::new(), code: 0 });
    match native_form(command) {
        Some(Native::Print(output)) => Ok(quiet(output)),
        Some(Native::Perform(effects)) => {
            let deadline = Instant::now() + COMMAND_LIMIT;
            let ended =
                with_x(guest, move |guest| guest.input.with(|input| input.perform(&effects, deadline)));
            Ok(match ended.await? {
                ScriptOutcome::Done => quiet(String::new()),
                ScriptOutcome::Failed(error) => Ok(Finished { output: String::new(), error, code: 1 }),
                ScriptOutcome::TimedOut => {
                    Err(RunError::TimedOut { command: command.repr(), seconds: COMMAND_LIMIT.as_secs() })
                }
            })
        }
        None => {
            let variables = guest.variables();
            let context = ProcessContext { variables: &variables, folder: None };
            Ok(run::run(command, context, COMMAND_LIMIT).await)
        }
    }
}

fn described(status: &str, finished: &Finished) -> Value {
    json!({
        "status": status,
        "output": finished.output,
        "error": finished.error,
        "returncode": finished.code,
    })
}

/// `/setup/launch`: a command that is not waited for.
pub async fn launch(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let mut command = command_of(&request)?;
    if let Command::Words(words) = &mut command
        && cfg!(target_arch = "aarch64")
        && let Some(browser) = words.iter_mut().find(|word| *word == "google-chrome")
    {
        // there is no Chrome for this processor
        "chromium".clone_into(browser);
    }
    let variables = guest.variables();
    match run::launch(&command, ProcessContext { variables: &variables, folder: None }) {
        Ok(()) => Ok(HttpResponse::text(format!("{} launched successfully", command.joined()))),
        Err(error) => Ok(HttpResponse::failure(FAILED, error.to_string())),
    }
}

/// `/execute_with_verification`: a command, and then a wait for a window or for another command to succeed.
pub async fn execute_with_verification(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let command = command_of(&request)?;
    let finished = match finished(&guest, &command).await? {
        Ok(finished) => finished,
        Err(error) => return Ok(HttpResponse::failure(FAILED, error.to_string())),
    };
    let verification = request.get("verification").unwrap_or(&Value::Null);
    let mut described = described("success", &finished);
    if !is_true(verification) {
        return Ok(HttpResponse::json(described));
    }
    let wait = seconds(&request, "max_wait_time", 10.0)?;
    let interval = seconds(&request, "check_interval", 1.0)?;
    let start = Instant::now();
    while start.elapsed() < wait {
        if is_verified(&guest, verification).await? {
            described["verification"] = "passed".into();
            described["wait_time"] = start.elapsed().as_secs_f64().into();
            return Ok(HttpResponse::json(described));
        }
        tokio::time::sleep(interval).await;
    }
    described["status"] = "verification_failed".into();
    described["verification"] = "failed".into();
    described["wait_time"] = request.get("max_wait_time").cloned().unwrap_or(json!(10));
    Ok(HttpResponse::Json(FAILED, described))
}

async fn is_verified(guest: &Arc<Guest>, verification: &Value) -> Result<bool, HttpResponse> {
    if let Some(name) = verification.get("window_exists").and_then(Value::as_str) {
        let name = name.to_lowercase();
        let clients = with_x(guest, |guest| guest.windows.with(|windows| windows.list())).await?;
        if !clients.iter().any(|client| client.title.to_lowercase().contains(&name)) {
            return Ok(false);
        }
    }
    if let Some(line) = verification.get("command_success").and_then(Value::as_str) {
        let variables = guest.variables();
        let context = ProcessContext { variables: &variables, folder: None };
        let checked = run::run(&Command::Line(line.to_owned()), context, CHECK_LIMIT).await;
        return Ok(checked.is_ok_and(|finished| finished.code == 0));
    }
    Ok(true)
}

fn seconds(request: &Value, name: &str, otherwise: f64) -> Result<Duration, HttpResponse> {
    let seconds = match request.get(name) {
        None => otherwise,
        Some(given) => {
            given.as_f64().filter(|seconds| (0.0..=LONGEST_SECONDS).contains(seconds)).ok_or_else(|| {
                HttpResponse::failure(FAILED, format!("{name} is not a number of seconds: {given}"))
            })?
        }
    };
    Ok(Duration::from_secs_f64(seconds))
}

/// `/run_python`: a script for Python, in a file of its own.
pub async fn run_python(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let Some(code) = request.get("code").and_then(Value::as_str).filter(|code| !code.is_empty()) else {
        return Ok(HttpResponse::failure(StatusCode::BAD_REQUEST, "Code not supplied!"));
    };
    let failed = |message: String, error: &str| {
        let body = json!({"status": "error", "message": message, "need_more": false, "output": null, "error": error});
        HttpResponse::Json(FAILED, body)
    };
    let file = script_file(code.to_owned(), ".py").await?;
    let python = Command::Words(vec!["/usr/bin/python3".into(), file.path().to_string_lossy().into()]);
    let variables = guest.variables();
    let finished =
        run::run(&python, ProcessContext { variables: &variables, folder: None }, PYTHON_LIMIT).await;
    let Finished { output, mut error, code } = match finished {
        Ok(finished) => finished,
        Err(RunError::TimedOut { .. }) => {
            let message = "Execution timeout: Code took too long to execute";
            return Ok(failed(message.into(), "TimeoutExpired"));
        }
        Err(problem) => return Ok(failed(format!("Execution error: {problem}"), &problem.to_string())),
    };
    if code != 0 && error.is_empty() {
        error = format!("Process exited with code {code}");
    }
    let message = match (output.is_empty(), error.is_empty()) {
        (false, false) => format!("{output}\n{error}"),
        _ => format!("{output}{error}"),
    };
    Ok(HttpResponse::json(json!({
        "status": if code == 0 { "success" } else { "error" },
        "message": message,
        "need_more": false,
        "output": output,
        "error": error,
        "return_code": code,
    })))
}

/// `/run_bash_script`: a script for bash, with stderr merged into its output.
pub async fn run_bash_script(State(guest): Shared, JsonBody(request): JsonBody) -> HandlerResult {
    let failed = |status, message: String| {
        let body = json!({"status": "error", "output": message, "error": "", "returncode": -1});
        HttpResponse::Json(status, body)
    };
    let Some(script) = request.get("script").and_then(Value::as_str).filter(|script| !script.is_empty())
    else {
        return Ok(failed(StatusCode::BAD_REQUEST, "Script not supplied!".into()));
    };
    let limit = seconds(&request, "timeout", 100.0)?;
    let folder = request.get("working_dir").and_then(Value::as_str).filter(|folder| !folder.is_empty());
    let folder = folder.map(|folder| PathBuf::from(expanded(folder, &home(), |name| env::var(name).ok())));
    if let Some(missing) = folder.as_deref().filter(|folder| !folder.exists()) {
        let message = format!("Working directory does not exist: {}", missing.display());
        return Ok(failed(StatusCode::BAD_REQUEST, message));
    }
    let file = script_file(script.to_owned(), ".sh").await?;
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let merged = ["exec \"$0\" \"$1\" 2>&1".into(), shell.into(), file.path().to_string_lossy().into()];
    let variables = guest.variables();
    let context = ProcessContext { variables: &variables, folder: folder.as_deref() };
    match run::run(&Command::LineWithArguments(merged.to_vec()), context, limit).await {
        Ok(finished) => {
            let status = if finished.code == 0 { "success" } else { "error" };
            Ok(HttpResponse::json(described(status, &finished)))
        }
        Err(RunError::TimedOut { seconds, .. }) => {
            Ok(failed(FAILED, format!("Script execution timed out after {seconds} seconds")))
        }
        Err(problem) => Ok(failed(FAILED, format!("Failed to execute script: {problem}"))),
    }
}

/// A script in a temporary file, removed when it is dropped.
async fn script_file(text: String, ending: &'static str) -> Result<tempfile::NamedTempFile, HttpResponse> {
    let made = run_blocking(move || {
        let mut file = tempfile::Builder::new().prefix("arpo-desktop-").suffix(ending).tempfile()?;
        file.write_all(text.as_bytes())?;
        Ok::<_, std::io::Error>(file)
    });
    made.await?.map_err(|error| HttpResponse::failure(FAILED, error.to_string()))
}
