//! Single lines: how a run began, an iteration, a notice. A line of an iteration keeps to the columns there are by
//! leaving out what matters least.

use super::paint::{Ink, Paint};
use arpo_core::statistics::Success;
use arpo_train::collect::{DesktopFailure, FailureKind};
use arpo_train::run::events::{IterationDone, Notice, RunStarted};

/// Between fields of a line.
const GAP: &str = "  ";

/// A part of a line, and how soon it is left out where there is no room: higher ranks go first.
struct Field {
    rank: u8,
    label: String,
    value: String,
    /// What may stand for the value before the field is left out.
    shorter: Option<String>,
    ink: Ink,
}

impl Field {
    fn new(rank: u8, label: &str, value: impl Into<String>) -> Self {
        Self { rank, label: label.to_owned(), value: value.into(), shorter: None, ink: Ink::Plain }
    }

    fn or(self, shorter: impl Into<String>) -> Self {
        Self { shorter: Some(shorter.into()), ..self }
    }

    fn inked(self, ink: Ink) -> Self {
        Self { ink, ..self }
    }

    fn width(&self) -> usize {
        let space = usize::from(!self.label.is_empty());
        self.label.chars().count() + space + self.value.chars().count()
    }

    fn painted(&self, paint: Paint) -> String {
        let value = paint.ink(self.ink, &self.value);
        if self.label.is_empty() { value } else { format!("{} {value}", paint.ink(Ink::Dim, &self.label)) }
    }
}

/// How a run begins.
pub(super) fn started(started: &RunStarted, paint: Paint) -> Vec<String> {
    let RunStarted { folder, resumed_at, iterations, method, parameters, device, tasks, desktops, seed } =
        started;
    let verb = match resumed_at {
        None => format!("{iterations} iterations"),
        Some(done) => format!("goes on after iteration {done} of {iterations}"),
    };
    let size = in_millions(*parameters);
    let tasks = if *tasks == 0 { "endless".to_owned() } else { tasks.to_string() };
    vec![
        format!("{}  {verb}, seed {seed}", paint.ink(Ink::Bold, method)),
        format!("{size} parameters on {device}, {tasks} tasks, {desktops} desktops"),
        format!("{} {}", paint.ink(Ink::Dim, "in"), folder.display()),
    ]
}

/// An iteration in one line.
pub(super) fn iteration(done: &IterationDone, columns: usize, paint: Paint) -> String {
    let IterationDone { iteration, of, .. } = done;
    let digits = of.to_string().len();
    let mut fields = vec![Field::new(0, "", format!("{iteration:digits$}/{of}")).inked(Ink::Bold)];
    let has_played = *iteration > 0;
    if has_played {
        fields.push(Field::new(1, "success", format!("{:.2}", done.success)));
    }
    if let Some(evaluation) = &done.evaluation {
        let ink = if evaluation.best { Ink::Good } else { Ink::Plain };
        for (place, (name, success)) in evaluation.suites.iter().enumerate() {
            let best = if evaluation.best && place == 0 { " best" } else { "" };
            let value = format!("{}{best}", with_interval(*success));
            let shorter = format!("{:.2}{best}", success.mean);
            fields.push(Field::new(2, name, value).or(shorter).inked(ink));
        }
    }
    if done.environment_errors > 0 {
        let count = done.environment_errors.to_string();
        fields.push(Field::new(4, "errors", count).inked(Ink::Warning));
    }
    let (informative, groups) = done.informative;
    if has_played {
        fields.extend([
            Field::new(5, "reward", format!("{:5.2}", done.reward)),
            Field::new(8, "entropy", format!("{:.2}", done.entropy)),
            Field::new(7, "groups", format!("{informative}/{groups}")),
            Field::new(6, "replay", done.replayed.to_string()),
            Field::new(10, "kl", format!("{:.3}", done.kl)),
            Field::new(3, "", format!("{} s", in_seconds(done.seconds))).inked(Ink::Dim),
        ]);
    }
    while width(&fields) > columns {
        let Some(least) = fields.iter().map(|field| field.rank).max().filter(|&rank| rank > 1) else { break };
        // of equal ones the last
        let last = |fields: &[Field], is_long: fn(&Field) -> bool| {
            fields.iter().rposition(|field| field.rank == least && is_long(field))
        };
        if let Some(place) = last(&fields, |field| field.shorter.is_some()) {
            fields[place].value = fields[place].shorter.take().unwrap_or_default();
        } else if let Some(place) = last(&fields, |_| true) {
            fields.remove(place);
        }
    }
    let words: Vec<String> = fields.iter().map(|field| field.painted(paint)).collect();
    words.join(GAP)
}

fn width(fields: &[Field]) -> usize {
    let gaps = fields.len().saturating_sub(1) * GAP.len();
    fields.iter().map(Field::width).sum::<usize>() + gaps
}

/// Something a person should know.
pub(super) fn notice(notice: &Notice, paint: Paint) -> String {
    format!("{} {}", paint.ink(Ink::Warning, "note:"), notice.message)
}

/// A failure in one line: which desktop or task, what, what is done.
pub(super) fn failure(failure: &DesktopFailure, paint: Paint) -> String {
    let DesktopFailure { desktop, task, kind, reason, remedy } = failure;
    let what = match task {
        Some(task) if *kind == FailureKind::BadTask => format!("task {task}"),
        Some(task) => format!("desktop {desktop} on {task}"),
        None => format!("desktop {desktop}"),
    };
    let reason = reason.replace('\n', " ");
    format!("{} {kind}: {reason}; {remedy}", paint.ink(Ink::Warning, &format!("{what}:")))
}

/// A share and half of its interval, as wide as its wider side.
pub(super) fn with_interval(success: Success) -> String {
    let half = (success.high - success.mean).max(success.mean - success.low).max(0.0);
    format!("{:.2} ±{half:.2}", success.mean)
}

/// Hours and minutes, minutes and seconds, or seconds.
pub(super) fn in_words(seconds: f64) -> String {
    let whole = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

fn in_seconds(seconds: f64) -> String {
    if seconds < 99.95 { format!("{seconds:.1}") } else { format!("{seconds:.0}") }
}

fn in_millions(count: u64) -> String {
    let count = count as f64;
    match count {
        _ if count < 1e6 => format!("{:.0} k", count / 1e3),
        _ if count < 1e9 => format!("{:.1} M", count / 1e6),
        _ => format!("{:.1} B", count / 1e9),
    }
}
