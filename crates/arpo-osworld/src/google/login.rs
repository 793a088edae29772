//! The login at Google in the desktop's browser: its page is filled in through the debugging port, as OSWorld does it.

use super::{GoogleError, Login};
use crate::error::GuestError;
use crate::guest::{Guest, quoted};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The page that asks for the login, and is there after it.
pub const ADDRESS: &str = "https://drive.google.com/drive/my-drive";

/// Every part of the page is waited for so long.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(500);

const EMAIL: &str = "input[type='email']";
const AFTER_EMAIL: &str = "#identifierNext > div > button";
const PASSWORD: &str = "input[type='password']";
const AFTER_PASSWORD: &str = "#passwordNext > div > button";
/// True on the page after the login; an error page of the browser is elsewhere.
const IS_IN: &str = "location.hostname === 'drive.google.com' || null";
/// Where the login stopped; the query of the address may hold secrets.
const PLACE: &str = "[location.hostname + location.pathname, document.title]";

/// Logs in, in a tab that has opened [`ADDRESS`].
///
/// OSWorld goes on where the page is not as expected; here that is an error: an agent without the account could only fail.
pub fn log_in(guest: &dyn Guest, tab: &str, login: &Login, deadline: Instant) -> Result<(), GoogleError> {
    let page = Page { guest, tab, deadline };
    page.wait_for("a field for the e-mail address", &filled(EMAIL, &login.email))?;
    page.click("a button after the e-mail address", AFTER_EMAIL)?;
    page.wait_for("a field for the password", &filled(PASSWORD, &login.password))?;
    page.click("a button after the password", AFTER_PASSWORD)?;
    page.wait_for("a page after the login", IS_IN)
}

struct Page<'a> {
    guest: &'a dyn Guest,
    tab: &'a str,
    deadline: Instant,
}

impl Page<'_> {
    /// Evaluates an expression until it is neither null nor an error: a page that is just being left refuses.
    fn wait_for(&self, what: &str, expression: &str) -> Result<(), GoogleError> {
        self.evaluate_until(what, expression, |answer| matches!(answer, Ok(value) if !value.is_null()))
    }

    /// Clicks once. An answer may be lost because the click leaves the page: what comes next shows whether it did.
    fn click(&self, what: &str, selector: &str) -> Result<(), GoogleError> {
        self.evaluate_until(what, &clicked(selector), |answer| !matches!(answer, Ok(Value::Null)))
    }

    fn evaluate_until(
        &self,
        what: &str,
        expression: &str,
        is_done: impl Fn(&Result<Value, GuestError>) -> bool,
    ) -> Result<(), GoogleError> {
        let end = Instant::now() + PATIENCE;
        let mut waited = Duration::ZERO;
        loop {
            if is_done(&self.guest.browser().evaluate(self.tab, expression)) {
                return Ok(());
            }
            let now = Instant::now();
            if now >= self.deadline {
                return Err(GoogleError::Late { call: format!("waiting for {what}") });
            }
            // the pauses count, too: a guest may take none
            if now >= end || waited >= PATIENCE {
                return Err(self.unexpected(what));
            }
            self.guest.pause(POLL);
            waited += POLL;
        }
    }

    /// Says what is there instead. The expression itself is not shown: it may hold the password.
    fn unexpected(&self, what: &str) -> GoogleError {
        let place = self.guest.browser().evaluate(self.tab, PLACE).unwrap_or(Value::Null);
        let part = |index: usize| place[index].as_str().unwrap_or("unknown").to_owned();
        GoogleError::Login(format!(
            "no {} within {} s at {} ({:?}); expected an account that asks for nothing but its password, and whose \
             password is right",
            what.strip_prefix("a ").unwrap_or(what),
            PATIENCE.as_secs(),
            part(0),
            part(1)
        ))
    }
}

/// The first element that a selector finds and that can be seen: there is also a hidden field for a password.
fn visible(selector: &str) -> String {
    let selector = quoted(selector);
    format!(
        "Array.from(document.querySelectorAll({selector})).find(one => {{ \
         const box = one.getBoundingClientRect(); \
         return box.width > 0 && box.height > 0 && one.getAttribute('aria-hidden') !== 'true'; }})"
    )
}

/// The value is set as typing sets it, past what the page's scripts put in between.
fn filled(selector: &str, text: &str) -> String {
    format!(
        "(one => {{ if (!one) return null; one.focus(); \
         Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(one, {}); \
         for (const name of ['input', 'change']) one.dispatchEvent(new Event(name, {{bubbles: true}})); \
         return true; }})({})",
        quoted(text),
        visible(selector)
    )
}

fn clicked(selector: &str) -> String {
    format!("(one => one ? (one.click(), true) : null)({})", visible(selector))
}
