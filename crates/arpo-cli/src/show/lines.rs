//! Single lines: the start of a run, an iteration, a notice. An iteration's line drops its least important fields to fit
//! the terminal.

use super::paint::{Paint, Style};
use arpo_core::statistics::Success;
use arpo_train::collect::{DesktopFailure, FailureKind};
use arpo_train::run::events::{IterationDone, Notice, RunStarted};

/// Separator between fields.
const GAP: &str = "  ";

/// A field of a line. Where the line is too long, fields with higher ranks are dropped first.
struct Field {
    rank: u8,
    label: String,
    value: String,
    /// A shorter value to try before the field is dropped.
    shorter: Option<String>,
    style: Style,
}

impl Field {
    fn new(rank: u8, label: &str, value: impl Into<String>) -> Self {
        Self { rank, label: label.to_owned(), value: value.into(), shorter: None, style: Style::Plain }
    }

    fn or(self, shorter: impl Into<String>) -> Self {
        Self { shorter: Some(shorter.into()), ..self }
    }

    fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }

    fn width(&self) -> usize {
        let space = usize::from(!self.label.is_empty());
        self.label.chars().count() + space + self.value.chars().count()
    }

    fn painted(&self, paint: Paint) -> String {
        let value = paint.style(self.style, &self.value);
        if self.label.is_empty() {
            value
        } else {
            format!("{} {value}", paint.style(Style::Dim, &self.label))
        }
    }
}

/// The first lines of a run.
pub(super) fn started(started: &RunStarted, paint: Paint) -> Vec<String> {
    let RunStarted { folder, resumed_at, iterations, method, parameters, device, tasks, desktops, seed } =
        started;
    let verb = match resumed_at {
        None => format!("{iterations} iterations"),
        Some(done) => format!("resumed after iteration {done} of {iterations}"),
    };
    let size = format_count(*parameters);
    let tasks = if *tasks == 0 { "endless".to_owned() } else { tasks.to_string() };
    vec![
        format!("{}  {verb}, seed {seed}", paint.style(Style::Bold, method)),
        format!("{size} parameters on {device}, {tasks} tasks, {desktops} desktops"),
        format!("{} {}", paint.style(Style::Dim, "in"), folder.display()),
    ]
}

/// An iteration in one line.
pub(super) fn iteration(done: &IterationDone, columns: usize, paint: Paint) -> String {
    let IterationDone { iteration, of, .. } = done;
    let digits = of.to_string().len();
    let mut fields = vec![Field::new(0, "", format!("{iteration:digits$}/{of}")).styled(Style::Bold)];
    let has_played = *iteration > 0;
    if has_played {
        fields.push(Field::new(1, "success", format!("{:.2}", done.success)));
    }
    if let Some(evaluation) = &done.evaluation {
        let style = if evaluation.best { Style::Good } else { Style::Plain };
        for (index, (name, success)) in evaluation.suites.iter().enumerate() {
            let best = if evaluation.best && index == 0 { " best" } else { "" };
            let value = format!("{}{best}", with_interval(*success));
            let shorter = format!("{:.2}{best}", success.mean);
            fields.push(Field::new(2, name, value).or(shorter).styled(style));
        }
    }
    if done.environment_errors > 0 {
        let count = done.environment_errors.to_string();
        fields.push(Field::new(4, "errors", count).styled(Style::Warning));
    }
    let (informative, groups) = done.informative;
    if has_played {
        fields.extend([
            Field::new(5, "reward", format!("{:5.2}", done.reward)),
            Field::new(8, "entropy", format!("{:.2}", done.entropy)),
            Field::new(7, "groups", format!("{informative}/{groups}")),
            Field::new(9, "informative/s", format!("{:.1}", done.informative_per_second)),
            Field::new(6, "replay", done.replayed.to_string()),
            Field::new(10, "kl", format!("{:.3}", done.kl)),
            Field::new(3, "", format!("{} s", format_seconds(done.seconds))).styled(Style::Dim),
        ]);
    }
    while width(&fields) > columns {
        let Some(least) = fields.iter().map(|field| field.rank).max().filter(|&rank| rank > 1) else { break };
        // of equal ranks the last one first
        let last = |fields: &[Field], is_long: fn(&Field) -> bool| {
            fields.iter().rposition(|field| field.rank == least && is_long(field))
        };
        if let Some(index) = last(&fields, |field| field.shorter.is_some()) {
            fields[index].value = fields[index].shorter.take().unwrap_or_default();
        } else if let Some(index) = last(&fields, |_| true) {
            fields.remove(index);
        }
    }
    let painted: Vec<String> = fields.iter().map(|field| field.painted(paint)).collect();
    painted.join(GAP)
}

fn width(fields: &[Field]) -> usize {
    let gaps = fields.len().saturating_sub(1) * GAP.len();
    fields.iter().map(Field::width).sum::<usize>() + gaps
}

/// A notice for the user.
pub(super) fn notice(notice: &Notice, paint: Paint) -> String {
    format!("{} {}", paint.style(Style::Warning, "note:"), notice.message)
}

/// A failure in one line: the desktop or task, the reason, and the remedy.
pub(super) fn failure(failure: &DesktopFailure, paint: Paint) -> String {
    let DesktopFailure { desktop, task, kind, reason, remedy } = failure;
    let what = match task {
        Some(task) if *kind == FailureKind::BadTask => format!("task {task}"),
        Some(task) if *kind == FailureKind::NoResponse => format!("episode of {task}"),
        Some(task) => format!("desktop {desktop} on {task}"),
        None => format!("desktop {desktop}"),
    };
    let reason = reason.replace('\n', " ");
    format!("{} {kind}: {reason}; {remedy}", paint.style(Style::Warning, &format!("{what}:")))
}

/// A success rate and the half-width of its interval (the larger side).
pub(super) fn with_interval(success: Success) -> String {
    let half = (success.high - success.mean).max(success.mean - success.low).max(0.0);
    format!("{:.2} ±{half:.2}", success.mean)
}

/// A duration as hours and minutes, minutes and seconds, or seconds.
pub(super) fn format_duration(seconds: f64) -> String {
    let whole = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

fn format_seconds(seconds: f64) -> String {
    if seconds < 99.95 { format!("{seconds:.1}") } else { format!("{seconds:.0}") }
}

fn format_count(count: u64) -> String {
    let count = count as f64;
    match count {
        _ if count < 1e6 => format!("{:.0} k", count / 1e3),
        _ if count < 1e9 => format!("{:.1} M", count / 1e6),
        _ => format!("{:.1} B", count / 1e9),
    }
}
