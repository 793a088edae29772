//! `arpo curve`: plots a metric of one or more runs over their iterations. Runs under one name are seeds of the same
//! experiment: their mean is plotted, with its 95 % interval.

use crate::Failure;
use arpo_chart::{Chart, Series};
use arpo_train::run::metrics;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The arguments of `arpo curve`.
#[derive(Args)]
pub(crate) struct CurveArguments {
    /// A name for the legend, and the folders of its runs
    #[arg(required = true, value_name = "NAME=RUN[,RUN...]", value_parser = curve)]
    curves: Vec<(String, Vec<PathBuf>)>,
    /// The PNG file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The metric to plot, a key of metrics.jsonl
    #[arg(long, value_name = "KEY", default_value = "evaluation/training")]
    key: String,
    /// Title of the plot
    #[arg(long, default_value = "")]
    title: String,
}

fn curve(text: &str) -> Result<(String, Vec<PathBuf>), String> {
    let (name, runs) = text.split_once('=').ok_or("expected NAME=RUN[,RUN...], like ARPO=runs/arpo-001")?;
    Ok((name.to_owned(), runs.split(',').map(PathBuf::from).collect()))
}

pub(crate) fn run(arguments: &CurveArguments, out: &mut impl Write) -> Result<(), Failure> {
    let CurveArguments { curves, out: path, key, title } = arguments;
    let series = curves
        .iter()
        .map(|(name, runs)| {
            let runs = runs.iter().map(|run| run_series(name, run, key)).collect::<Result<Vec<_>, _>>()?;
            Ok(if let [one] = runs.as_slice() { one.clone() } else { Series::mean_of(name, &runs) })
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut chart = Chart::of_success(title, series);
    if !key.starts_with("evaluation/") {
        chart.y_range = None;
        chart.y_label.clone_from(key);
    }
    std::fs::write(path, chart.png())
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    writeln!(out, "written: {}", path.display())?;
    Ok(())
}

/// One run's curve, with the interval from its metrics, if there is one.
fn run_series(name: &str, run: &Path, key: &str) -> Result<Series, Failure> {
    let file = run.join("metrics.jsonl");
    let lines = metrics::read(&file).map_err(Failure::failed)?;
    let (low, high) = (format!("{key}/low"), format!("{key}/high"));
    let series = Series::of_metrics_with_band(name, &lines, "iteration", key, (&low, &high));
    if series.points.is_empty() {
        return Err(Failure::failed(format!("{}: no line has `{key}`", file.display())));
    }
    Ok(series)
}
