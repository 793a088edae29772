//! `arpo report`: runs in one HTML file that needs nothing else, and their numbers as CSV and as a picture.
//!
//! | to change | look in |
//! |---|---|
//! | what the page says | `assets/report.html`, `assets/report.js`; what goes into it: [`page`] |
//! | which runs are seeds of one experiment, and their table | [`seeds`] |
//! | which episodes are shown | [`trajectories`] |

pub mod page;
pub mod seeds;
pub mod trajectories;

use crate::run::Run;
use crate::run::metrics::ITERATION;
use arpo_chart::Chart;
use jiff::Timestamp;
use std::fmt::Write;

/// Every line of metrics of the runs as comma-separated values, with the run in the first column.
pub fn csv(runs: &[Run]) -> String {
    let mut names: Vec<&String> = vec![];
    for name in runs.iter().flat_map(|run| run.metrics.names()) {
        if name != ITERATION && !names.contains(&name) {
            names.push(name);
        }
    }
    let mut text = String::from("run,iteration");
    for name in &names {
        text.push(',');
        text.push_str(&quoted(name));
    }
    text.push('\n');
    for run in runs {
        let label = quoted(&crate::runs::line(run).name);
        for row in 0..run.metrics.rows() {
            let _ = write!(text, "{label},{}", run.metrics.iteration(row));
            for name in &names {
                let value = run.metrics.column(name).map_or(f64::NAN, |column| column[row]);
                text.push(',');
                if !value.is_nan() {
                    let _ = write!(text, "{value}");
                }
            }
            text.push('\n');
        }
    }
    text
}

/// A field of a line of comma-separated values. One that a spreadsheet would take for a formula is text there too.
fn quoted(field: &str) -> String {
    let guard = if field.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{guard}{}\"", field.replace('"', "\"\""))
    } else {
        format!("{guard}{field}")
    }
}

/// The time now, as a report says it.
pub fn written_now() -> String {
    Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// The success of the runs over their iterations as a PNG: a curve for each experiment, with its interval.
pub fn png(runs: &[Run]) -> Vec<u8> {
    let series = seeds::experiments(runs).iter().filter_map(|experiment| experiment.success(runs)).collect();
    Chart::of_success("", series).png()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stay_fields() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=HYPERLINK(1)"), "'=HYPERLINK(1)");
    }
}
