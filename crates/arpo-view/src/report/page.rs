//! The page of a report: a template for everything that is text, and the page code of the viewer for curves and pictures.

use super::seeds::{self, SetResult};
use super::trajectories;
use crate::ViewError;
use crate::run::Run;
use crate::run::tasks::{TaskMatrix, TaskQuery, TaskSort, matrix};
use base64::Engine;
use minijinja::{AutoEscape, Environment, context};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Tasks of a run's matrix at most.
const MOST_TASKS: usize = 160;

/// The page code, in an order in which each part only uses earlier ones.
const SCRIPTS: [&str; 5] = [
    include_str!("../../assets/dom.js"),
    include_str!("../../assets/plot.js"),
    include_str!("../../assets/curves.js"),
    include_str!("../../assets/marks.js"),
    include_str!("../../assets/report.js"),
];

/// The report of some runs, as one HTML file. `written` says when it was written.
pub fn html(runs: &mut [Run], written: &str) -> Result<String, ViewError> {
    let script = script();
    let trajectories: Vec<Value> = runs.iter_mut().map(|run| json!(trajectories::chosen(run))).collect();
    let runs = &*runs;
    let data = data(runs, &trajectories);
    let experiments = seeds::experiments(runs);
    let results: Vec<Value> =
        experiments.iter().flat_map(|one| one.results(runs)).map(|result| result_row(&result)).collect();
    let described: Vec<Value> = runs.iter().map(described).collect();
    let template = "report.html";
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let problem =
        |error: minijinja::Error| ViewError::Request(format!("the report cannot be written: {error:#}"));
    environment.add_template(template, include_str!("../../assets/report.html")).map_err(problem)?;
    let page = environment.get_template(template).map_err(problem)?;
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
         form-action 'none'",
        base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script.as_bytes()))
    );
    page.render(context! {
        title => described.iter().filter_map(|run| run["name"].as_str()).collect::<Vec<_>>().join(", "),
        style => include_str!("../../assets/style.css"),
        version => env!("CARGO_PKG_VERSION"),
        written, policy, script, data,
        results => of_json(&json!(results)),
        runs => of_json(&json!(described)),
    })
    .map_err(problem)
}

/// JSON for the template.
fn of_json(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => ().into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(of_json).collect(),
        Value::Object(fields) => {
            minijinja::Value::from_pairs(fields.iter().map(|(name, value)| (name.as_str(), of_json(value))))
        }
    }
}

/// The page code as one script: a file has nothing to import.
fn script() -> String {
    let mut script = String::new();
    for line in SCRIPTS.iter().flat_map(|part| part.lines()) {
        if line.starts_with("import ") || line.starts_with("export {") {
            continue;
        }
        script.push_str(line.strip_prefix("export ").unwrap_or(line));
        script.push('\n');
    }
    script
}

/// The numbers and pictures, as JSON that cannot end the element it is in.
fn data(runs: &[Run], trajectories: &[Value]) -> String {
    let each = runs.iter().zip(trajectories).map(|(run, trajectories)| {
        let metrics = &run.metrics;
        let mut columns = Map::new();
        for name in metrics.names() {
            let values: Vec<Value> = metrics
                .column(name)
                .unwrap_or(&[])
                .iter()
                .map(|value| if value.is_nan() { Value::Null } else { json!(value) })
                .collect();
            columns.insert(name.clone(), values.into());
        }
        json!({
            "id": crate::runs::line(run).name,
            "metrics": {"columns": columns, "rows": metrics.rows(), "started": run.info.started(metrics)},
            "trajectories": trajectories,
        })
    });
    let experiments: Vec<Value> = seeds::experiments(runs)
        .iter()
        .map(|experiment| json!({"name": experiment.name, "runs": experiment.runs}))
        .collect();
    let data = json!({"runs": each.collect::<Vec<_>>(), "experiments": experiments});
    data.to_string().replace('<', "\\u003c")
}

fn result_row(result: &SetResult) -> Value {
    let text = |estimate: &seeds::Estimate| match estimate.interval {
        Some((low, high)) => format!("{:.3} [{low:.3}, {high:.3}]", estimate.mean),
        None => format!("{:.3}", estimate.mean),
    };
    json!({
        "experiment": result.experiment, "seeds": result.seeds, "set": result.set.replace('_', " "),
        "first": text(&result.first), "last": text(&result.last), "best": text(&result.best), "iteration": result.iteration,
    })
}

/// What a run says of itself, its configuration and its tasks.
fn described(run: &Run) -> Value {
    let line = crate::runs::line(run);
    let info = &run.info.run;
    let (failures, count) = run.failures();
    let last_failure =
        failures.take(1).next().and_then(|failure| failure["message"].as_str().map(str::to_owned));
    let matrix = matrix(
        run,
        &TaskQuery {
            source: None,
            columns: 48,
            limit: MOST_TASKS,
            search: String::new(),
            sort: TaskSort::Application,
        },
    );
    json!({
        "name": line.name, "state": line.state.name(), "ending": line.ending, "method": line.method, "seed": line.seed,
        "iteration": line.iteration, "iterations": line.iterations, "arpo": info["arpo"], "device": info["device"],
        "parameters": info["parameters"], "machine": machine(&info["machine"]), "config": run.info.config_text,
        "episodes": run.index().rows.len(), "failures": count, "last_failure": last_failure,
        "bad_lines": run.bad_lines(), "matrix": matrix_rows(&matrix),
    })
}

fn machine(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().map(str::to_owned);
    let count = |name: &str, unit: &str| machine[name].as_f64().map(|value| format!("{value:.0} {unit}"));
    let parts = [text("host"), text("cpu"), count("cores", "cores"), count("memory_gib", "GiB"), text("gpu")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn matrix_rows(matrix: &TaskMatrix) -> Value {
    let row = |row: &crate::run::tasks::TaskRow| {
        let cells: Vec<Value> = row
            .cells
            .iter()
            .zip(&matrix.columns)
            .map(|(cell, column)| {
                let level = cell.map_or("none".into(), |value| format!("level-{:.0}", value * 10.0));
                let said = cell.map_or("not played".into(), |value| format!("{value:.2}"));
                json!({"level": level, "title": format!("iteration {} to {}: {said}", column.from, column.to)})
            })
            .collect();
        json!({"task": row.task, "application": row.application, "mean": format!("{:.2}", row.mean), "cells": cells})
    };
    json!({
        "source": matrix.source, "total": matrix.total, "shown": matrix.rows.len(),
        "rows": matrix.rows.iter().map(row).collect::<Vec<_>>(),
    })
}
