//! What the pages ask for, as JSON and PNG.

use super::query::Query;
use super::{Viewer, rows};
use crate::ViewError;
use crate::library::Entry;
use crate::run::metrics::Metrics;
use crate::run::tasks::{TaskQuery, TaskSort, matrix};
use crate::run::{Run, replay, screens};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};
use std::sync::Arc;

type Shared = State<Arc<Viewer>>;

pub(super) fn routes() -> Router<Arc<Viewer>> {
    Router::new()
        .route("/api/runs", get(runs))
        .route("/api/runs/{run}/metrics", get(metrics))
        .route("/api/runs/{run}/status", get(status))
        .route("/api/runs/{run}/tasks", get(tasks))
        .route("/api/runs/{run}/task", get(task))
        .route("/api/runs/{run}/episodes", get(episodes))
        .route("/api/runs/{run}/episode", get(episode))
        .route("/api/runs/{run}/divergence", get(divergence))
        .route("/screens/{run}/{digest}", get(screen))
        .route("/live/{run}/{desktop}", get(live))
}

/// Reads files on a thread that may wait.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ViewError> + Send + 'static,
) -> Result<T, ViewError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(ViewError::Request(format!("the request failed: {error}"))))
}

/// JSON of a run as it is now.
async fn of_run(
    viewer: Arc<Viewer>,
    run: String,
    work: impl FnOnce(&mut Run) -> Result<Value, ViewError> + Send + 'static,
) -> Response {
    let done = blocking(move || viewer.library.entry(&run)?.with(work)).await;
    done.map_or_else(IntoResponse::into_response, |value| json_response(&value))
}

fn json_response(value: &Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Body::from(value.to_string())).into_response()
}

fn parsed(query: RawQuery) -> Query {
    Query::parse(&query.0.unwrap_or_default())
}

async fn runs(State(viewer): Shared) -> Response {
    let list = blocking(move || {
        viewer.library.rescan();
        let described = |entry: &Entry| {
            let known = entry.with(|run| Ok(summary(run)));
            let mut line = known.unwrap_or_else(|error| json!({"error": error.to_string()}));
            line["id"] = json!(entry.id);
            line
        };
        let runs: Vec<Value> = viewer.library.entries().iter().map(described).collect();
        Ok(json!({"runs": runs, "grows": viewer.library.grows()}))
    });
    list.await.map_or_else(IntoResponse::into_response, |list| json_response(&list))
}

/// A run in short.
pub(crate) fn summary(run: &Run) -> Value {
    let line = crate::runs::line(run);
    let mut value = serde_json::to_value(&line).unwrap_or_default();
    value["machine"] = run.info.run["machine"].clone();
    value["arpo"] = run.info.run["arpo"].clone();
    value["device"] = run.info.run["device"].clone();
    value["parameters"] = run.info.run["parameters"].clone();
    value["episodes"] = json!(run.index().rows.len());
    value["bad_lines"] = json!(run.bad_lines());
    value
}

async fn metrics(State(viewer): Shared, Path(run): Path<String>, query: RawQuery) -> Response {
    let query = parsed(query);
    of_run(viewer, run, move |run| {
        let metrics = &run.metrics;
        // what the page has is still true only if the file has not begun anew
        let known = query.number("generation")? == Some(metrics.generation());
        let from = if known { query.number("from")?.unwrap_or(0).min(metrics.rows()) } else { 0 };
        Ok(json!({
            "generation": metrics.generation(), "from": from, "rows": metrics.rows(),
            "started": run.info.started(metrics), "columns": columns(metrics, from),
        }))
    })
    .await
}

/// Columns from a row on. Columns without a value there are left out.
fn columns(metrics: &Metrics, from: usize) -> Map<String, Value> {
    let mut columns = Map::new();
    for name in metrics.names() {
        let values = metrics.column(name).and_then(|column| column.get(from..)).unwrap_or(&[]);
        if values.iter().any(|value| !value.is_nan()) {
            let values: Vec<Value> = values.iter().map(|&value| short(value)).collect();
            columns.insert(name.clone(), values.into());
        }
    }
    columns
}

/// A number with the digits that a plot can show; null for NaN.
fn short(value: f64) -> Value {
    let whole = value.fract() == 0.0 && value.abs() < 1e15;
    let rounded = if whole { value } else { format!("{value:.6e}").parse().unwrap_or(value) };
    // times need all their digits
    if value.abs() >= 1e8 { json!(value) } else { json!(rounded) }
}

async fn status(State(viewer): Shared, Path(run): Path<String>) -> Response {
    of_run(viewer, run, |run| {
        let (last, count) = run.failures();
        let last: Vec<&Value> = last.take(50).collect();
        Ok(json!({
            "run": run.info.run, "status": run.info.status, "state": run.state(), "now": crate::run::info::now(),
            "failures": last, "failure_count": count, "config": run.info.config_text, "summary": summary(run),
            "progress": run.progress(), "unfinished_bytes": run.metrics.unfinished_bytes(),
        }))
    })
    .await
}

async fn tasks(State(viewer): Shared, Path(run): Path<String>, query: RawQuery) -> Response {
    let query = parsed(query);
    of_run(viewer, run, move |run| {
        let sort = match query.text("sort") {
            None | Some("task") => TaskSort::Task,
            Some("difficulty") => TaskSort::Difficulty,
            Some("gain") => TaskSort::Gain,
            Some("application") => TaskSort::Application,
            Some(other) => {
                let expected = "task, difficulty, gain or application";
                return Err(ViewError::Request(format!("sort={other:?}: expected {expected}")));
            }
        };
        let wanted = TaskQuery {
            source: query.text("source").map(str::to_owned),
            columns: query.number("columns")?.unwrap_or(60).clamp(1, 400),
            limit: query.number("limit")?.unwrap_or(300).min(2000),
            search: query.text("search").unwrap_or("").to_owned(),
            sort,
        };
        Ok(json!(matrix(run, &wanted)))
    })
    .await
}

async fn task(State(viewer): Shared, Path(run): Path<String>, query: RawQuery) -> Response {
    let query = parsed(query);
    of_run(viewer, run, move |run| {
        let name = query.needed("task")?;
        let mut curves = Map::new();
        let collected: Vec<(f64, f64)> = run
            .metrics
            .tasks()
            .iter()
            .enumerate()
            .filter_map(|(row, tasks)| Some((run.metrics.iteration(row), *tasks.get(name)?)))
            .collect();
        if !collected.is_empty() {
            curves.insert(crate::run::tasks::TRAINING.into(), json!(collected));
        }
        for (iteration, sets) in &run.evaluations.by_iteration {
            for (set, results) in sets {
                if let Some(mean) = results.iter().find(|result| result.task == name).and_then(|one| one.mean) {
                    let points = curves.entry(set.clone()).or_insert_with(|| json!([]));
                    points.as_array_mut().into_iter().for_each(|points| points.push(json!([iteration, mean])));
                }
            }
        }
        let index = run.index();
        let names = index.known_task(name).map(|number| &index.tasks[number as usize]);
        let episodes = rows::page(run, &query)?;
        if curves.is_empty() && names.is_none() {
            return Err(ViewError::Missing(format!("this run has no task {name:?}")));
        }
        let stored = replay::of_task(run, name);
        Ok(json!({
            "task": name, "curves": curves, "episodes": episodes,
            "instruction": names.and_then(|names| names.instruction.as_deref()),
            "application": names.and_then(|names| names.application.as_deref()),
            "replay": stored.map(|(iteration, successes)| json!({"iteration": iteration, "successes": successes})),
        }))
    })
    .await
}

async fn episodes(State(viewer): Shared, Path(run): Path<String>, query: RawQuery) -> Response {
    let query = parsed(query);
    of_run(viewer, run, move |run| rows::page(run, &query)).await
}

async fn episode(State(viewer): Shared, Path(run): Path<String>, query: RawQuery) -> Response {
    let query = parsed(query);
    of_run(viewer, run, move |run| {
        let (row, episode) = run.episode(query.needed("file")?, query.needed("id")?)?;
        Ok(json!({
            "row": rows::shown(run, &row), "episode": episode, "group": rows::group(run, &row),
        }))
    })
    .await
}

async fn divergence(State(viewer): Shared, Path(run): Path<String>, query: RawQuery) -> Response {
    let query = parsed(query);
    of_run(viewer, run, move |run| {
        let file = query.needed("file")?;
        let (_, one) = run.episode(file, query.needed("id")?)?;
        let (_, two) = run.episode(query.text("other_file").unwrap_or(file), query.needed("other")?)?;
        Ok(json!({"turn": one.divergence(&two)}))
    })
    .await
}

async fn screen(
    State(viewer): Shared,
    Path((run, digest)): Path<(String, String)>,
    query: RawQuery,
) -> Response {
    let query = parsed(query);
    let read = blocking(move || {
        let digest = digest.strip_suffix(".png").unwrap_or(&digest).to_owned();
        let missing = || ViewError::Missing("this screenshot is not kept".into());
        let path =
            viewer.library.entry(&run)?.with_known(|run| run.screen_path(&digest))?.ok_or_else(missing)?;
        screens::png(&path, query.number("width")?)
    });
    // a digest is always the same image
    read.await.map_or_else(IntoResponse::into_response, |png| {
        png_response(png, "private, max-age=86400, immutable")
    })
}

async fn live(State(viewer): Shared, Path((run, desktop)): Path<(String, String)>) -> Response {
    let read = blocking(move || {
        let wrong = || ViewError::Request("expected the number of a desktop".into());
        let number = desktop.trim_end_matches(".png").parse().map_err(|_| wrong())?;
        let path = viewer.library.entry(&run)?.with_known(|run| Ok(run.live_path(number)))?;
        let missing = || ViewError::Missing("this desktop has no screenshot".into());
        if path.is_file() { screens::png(&path, None) } else { Err(missing()) }
    });
    read.await.map_or_else(IntoResponse::into_response, |png| png_response(png, "no-store"))
}

fn png_response(png: Vec<u8>, cache: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("image/png")),
        (header::CACHE_CONTROL, HeaderValue::from_static(cache)),
    ];
    (headers, Body::from(png)).into_response()
}
