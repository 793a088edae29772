//! The programs of the display, and their session bus.
//!
//! The bus is found where a session may publish it: in the variable `DBUS_SESSION_BUS_ADDRESS`, else as the socket
//! `/run/user/UID/bus`, else in the file `dbus-address` of `$XDG_RUNTIME_DIR` (`/run/user/UID` without it), whose one
//! line is the address. The file is for a session script that starts its own bus after this program.

use crate::x11::Connection;
use crate::x11::windows::Windows;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BUS_VARIABLE: &str = "DBUS_SESSION_BUS_ADDRESS";
const POLL: Duration = Duration::from_millis(50);
/// A display without a panel is ready this long after it could be opened.
const PANEL_WITHIN: Duration = Duration::from_secs(20);

/// The address of the session's bus, where there is one.
pub fn bus_address() -> Option<String> {
    let user = rustix::process::getuid().as_raw();
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    bus_from(env::var(BUS_VARIABLE).ok(), Path::new(&format!("/run/user/{user}")), runtime.as_deref())
}

fn bus_from(variable: Option<String>, user: &Path, runtime: Option<&Path>) -> Option<String> {
    let socket = user.join("bus");
    let file = runtime.unwrap_or(user).join("dbus-address");
    variable
        .filter(|address| !address.is_empty())
        .or_else(|| socket.exists().then(|| format!("unix:path={}", socket.display())))
        .or_else(|| {
            let text = fs::read_to_string(file).ok()?;
            let address = text.lines().next()?.trim();
            (!address.is_empty()).then(|| address.to_owned())
        })
}

/// Environment variables of commands besides those of this process.
pub fn variables(display: &str) -> Vec<(String, String)> {
    let display = ("DISPLAY".to_owned(), display.to_owned());
    let bus = bus_address().map(|address| (BUS_VARIABLE.to_owned(), address));
    [Some(display), bus].into_iter().flatten().collect()
}

/// Starts the session's program; the caller waits for it.
pub fn start(program: &Path, display: &str) -> io::Result<tokio::process::Child> {
    tokio::process::Command::new(program).env("DISPLAY", display).process_group(0).spawn()
}

/// Waits until the display can be opened.
pub async fn wait_for_display(display: &str) {
    wait_until(display, |display| Connection::open(display).is_ok()).await;
}

/// Waits for the panel, but not for ever; returns whether it is there.
pub async fn wait_for_panel(display: &str) -> bool {
    let has_panel =
        |display: &str| Windows::open(display).and_then(|windows| windows.has_panel()).unwrap_or(false);
    tokio::time::timeout(PANEL_WITHIN, wait_until(display, has_panel)).await.is_ok()
}

async fn wait_until(display: &str, holds: fn(&str) -> bool) {
    loop {
        let name = display.to_owned();
        if tokio::task::spawn_blocking(move || holds(&name)).await.unwrap_or(false) {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_is_looked_for_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (user, runtime) = (folder.path().join("user"), folder.path().join("runtime"));
        fs::create_dir_all(&user).unwrap();
        fs::create_dir_all(&runtime).unwrap();
        assert_eq!(bus_from(None, &user, Some(&runtime)), None);
        fs::write(user.join("dbus-address"), "unix:path=/one\n").unwrap();
        assert_eq!(bus_from(None, &user, None).unwrap(), "unix:path=/one");
        assert_eq!(bus_from(None, &user, Some(&runtime)), None);
        fs::write(runtime.join("dbus-address"), "unix:path=/two,guid=1\nmore\n").unwrap();
        assert_eq!(bus_from(None, &user, Some(&runtime)).unwrap(), "unix:path=/two,guid=1");
        fs::write(user.join("bus"), "").unwrap();
        assert_eq!(
            bus_from(Some(String::new()), &user, Some(&runtime)).unwrap(),
            format!("unix:path={}/bus", user.display())
        );
        assert_eq!(bus_from(Some("unix:path=/three".into()), &user, None).unwrap(), "unix:path=/three");
    }
}
