//! Live updates as server-sent events: for every run that is looked at, how far it has been read, whenever that changes.

use super::Viewer;
use super::api::blocking;
use super::query::Query;
use crate::run::Progress;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at the folders.
const INTERVAL: Duration = Duration::from_secs(1);
/// Looks without news before a sign of life is sent.
const SILENT_LOOKS: u32 = 15;
/// Runs of one page at most.
const MAX_RUNS: usize = 64;

struct Watch {
    viewer: Arc<Viewer>,
    runs: Vec<String>,
    known: BTreeMap<String, Progress>,
    silent: u32,
    first: bool,
}

/// Events until the client goes away.
pub(super) async fn events(State(viewer): State<Arc<Viewer>>, query: RawQuery) -> Response {
    let query = Query::parse(&query.0.unwrap_or_default());
    let runs = query.text("runs").unwrap_or("").split(',').filter(|run| !run.is_empty());
    let runs = runs.take(MAX_RUNS).map(str::to_owned).collect();
    let watch = Watch { viewer, runs, known: BTreeMap::new(), silent: 0, first: true };
    let events = stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await;
        Some((Ok::<_, Infallible>(event), watch))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Watch {
    /// The next event: news, or a sign of life.
    async fn next(&mut self) -> String {
        loop {
            if !std::mem::take(&mut self.first) {
                tokio::time::sleep(INTERVAL).await;
            }
            let (viewer, runs) = (Arc::clone(&self.viewer), self.runs.clone());
            let read = blocking(move || {
                let progress = |run: &String| {
                    let progress = viewer.library.entry(run).ok()?.with(|run| Ok(run.progress())).ok()?;
                    Some((run.clone(), progress))
                };
                Ok(runs.iter().filter_map(progress).collect::<BTreeMap<_, _>>())
            });
            let now = read.await.unwrap_or_default();
            let news: BTreeMap<&String, &Progress> =
                now.iter().filter(|(run, progress)| self.known.get(*run) != Some(progress)).collect();
            if !news.is_empty() {
                let event = format!("data: {}\n\n", json!(news));
                (self.known, self.silent) = (now, 0);
                return event;
            }
            self.silent += 1;
            if self.silent >= SILENT_LOOKS {
                self.silent = 0;
                return ": still here\n\n".into();
            }
        }
    }
}
