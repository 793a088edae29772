//! Routes, authorisation, and the way of a request: read, parse, wait for memory, decode, tokenise, compute, answer.

use crate::answer::{Answer, now};
use crate::choice::Choices;
use crate::error::ApiError;
use crate::images::ImageStore;
use crate::metrics::Metrics;
use crate::prepare::{Parsed, Prepared, parse_chat, parse_tokens};
use crate::worker::{Job, Worker, WorkerStatus};
use crate::{Limits, ServedModel};
use arpo_engine::{Engine, EngineLoad, Request as EngineRequest};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Longest wait for the next bytes of a body, and for all of it.
const BODY_PAUSE: Duration = Duration::from_secs(15);
const BODY_TOTAL: Duration = Duration::from_mins(5);
/// All bodies that are read or parsed at a time take at most this many times the largest one.
const BODIES: usize = 8;
const CHAT: &str = "/v1/chat/completions";
const GENERATE: &str = "/inference/v1/generate";

/// What all connections share.
pub struct Server {
    model: Arc<ServedModel>,
    pub(crate) limits: Limits,
    key: Option<[u8; 32]>,
    worker: Worker,
    images: ImageStore,
    metrics: Arc<Metrics>,
    /// Places for choices that run or wait.
    places: Arc<Semaphore>,
    /// KiB of bodies.
    bodies: Arc<Semaphore>,
    /// KiB of decoded images.
    decoded: Arc<Semaphore>,
    /// Threads that decode images and tokenise.
    preparing: Arc<Semaphore>,
    started: u64,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("model", &self.model.name).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts the engine's thread. With a key, every request but `/health` must carry it.
    pub fn start(
        engine: Engine,
        model: ServedModel,
        mut limits: Limits,
        key: Option<&str>,
    ) -> io::Result<Arc<Self>> {
        limits.context_tokens = limits.context_tokens.min(engine.cache_tokens());
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let largest = limits.image_pixels.saturating_mul(3 * limits.images as u64);
        let decoded = limits.decoded_bytes.max(usize::try_from(largest).unwrap_or(usize::MAX));
        let decoded = decoded.div_ceil(1024).min(Semaphore::MAX_PERMITS);
        Ok(Arc::new(Self {
            model: Arc::new(model),
            key: key.map(digest),
            worker: Worker::start(engine)?,
            images: ImageStore::default(),
            metrics: Arc::default(),
            places: Arc::new(Semaphore::new(limits.choices)),
            bodies: Arc::new(Semaphore::new(BODIES * limits.body_bytes.div_ceil(1024))),
            decoded: Arc::new(Semaphore::new(decoded)),
            preparing: Arc::new(Semaphore::new(threads)),
            limits,
            started: now(),
        }))
    }

    /// What the engine holds at the moment.
    pub fn load(&self) -> EngineLoad {
        self.worker.status().load
    }

    /// Places that are free for choices.
    pub fn free_places(&self) -> usize {
        self.places.available_permits()
    }

    /// Fails open requests; new ones are refused.
    pub fn stop(&self) {
        self.worker.stop();
    }

    /// Waits for the engine's thread, which ends after its current pass.
    pub fn join(&self) {
        self.worker.join();
    }

    fn is_authorised(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.key else { return true };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(given) = given.and_then(|value| value.strip_prefix("Bearer ")) else { return false };
        // digests, so that the time tells neither the length nor a part of the key
        digest(given.trim()).iter().zip(key).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }

    /// The bytes of a body, and their share of the memory for bodies.
    async fn body(&self, request: Request) -> Result<(Vec<u8>, OwnedSemaphorePermit), ApiError> {
        // browsers send this type only where the server allows it, so that no web page can use a local server
        let media_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !media_type.is_some_and(|value| value.trim_start().starts_with("application/json")) {
            return Err(ApiError::with_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "expected a JSON body with the header `Content-Type: application/json`",
            ));
        }
        let limit = self.limits.body_bytes;
        let too_large = || {
            let message = format!("the body has more than {limit} bytes");
            ApiError::with_status(StatusCode::PAYLOAD_TOO_LARGE, message)
        };
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok()).unwrap_or(limit);
        if length > limit {
            return Err(too_large());
        }
        let kib = u32::try_from(length.div_ceil(1024)).map_err(|_| too_large())?;
        let share = Arc::clone(&self.bodies).try_acquire_many_owned(kib);
        let share = share.map_err(|_| ApiError::unavailable("too many large requests at a time"))?;
        let mut bytes = Vec::new();
        let mut stream = request.into_body().into_data_stream();
        let read = async {
            while let Some(chunk) =
                tokio::time::timeout(BODY_PAUSE, stream.next()).await.map_err(|_| slow())?
            {
                let chunk: Bytes =
                    chunk.map_err(|error| ApiError::bad(format!("the body cannot be read: {error}")))?;
                if bytes.len() + chunk.len() > limit {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&chunk);
            }
            Ok(())
        };
        tokio::time::timeout(BODY_TOTAL, read).await.map_err(|_| slow())??;
        Ok((bytes, share))
    }

    /// A share of the memory for decoded images, once there is enough of it.
    async fn image_memory(&self, bytes: u64) -> Result<Option<Arc<OwnedSemaphorePermit>>, ApiError> {
        if bytes == 0 {
            return Ok(None);
        }
        let busy = || {
            let seconds = self.limits.image_wait.as_secs_f64();
            ApiError::busy(format!(
                "there was no memory for {} MiB of decoded images for {seconds} s: other requests have it",
                bytes >> 20
            ))
        };
        let kib = u32::try_from(bytes.div_ceil(1024)).map_err(|_| busy())?;
        let share = Arc::clone(&self.decoded).acquire_many_owned(kib);
        let share = tokio::time::timeout(self.limits.image_wait, share).await.map_err(|_| busy())?;
        Ok(Some(Arc::new(share.map_err(|error| unprepared(&error))?)))
    }

    /// Work on a thread that may compute for a while; there are as many as processors.
    async fn on_a_thread<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(&self.preparing).acquire_owned().await;
        let permit = permit.map_err(|error| unprepared(&error))?;
        let server = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&server);
            drop(permit);
            done
        });
        done.await.map_err(|error| unprepared(&error))?
    }

    /// Queues the choices of a request.
    async fn submit(
        &self,
        prepared: Prepared,
        images: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Result<(Choices, Answer), ApiError> {
        let Prepared { prompt, screenshots, params, output, shape, id } = prepared;
        let max_tokens = self.max_tokens(prompt.tokens.len(), params.max_tokens)?;
        let (sender, events) = mpsc::unbounded_channel();
        let mut jobs = Vec::with_capacity(params.choices);
        for index in 0..params.choices {
            jobs.push(Job {
                request: EngineRequest {
                    tokens: prompt.tokens.clone(),
                    screenshots: screenshots.clone(),
                    sampling: params.sampling(index, max_tokens, self.model.end_token),
                    forced: vec![],
                },
                index,
                events: sender.clone(),
                abandoned: Arc::default(),
                place: self.place()?,
                images: images.clone(),
            });
        }
        let abandoned = jobs.iter().map(|job| Arc::clone(&job.abandoned)).collect();
        let (length, metrics) = (prompt.tokens.len(), Arc::clone(&self.metrics));
        let mut choices = Choices::new(&self.model, &params, length, events, abandoned, metrics);
        self.worker.submit(jobs)?;
        // without this one the channel ends with the jobs
        drop(sender);
        choices.accepted().await?;
        self.metrics.prompt(length);
        let answer = Answer {
            shape,
            output,
            with_logprobs: params.logprobs.is_some(),
            id,
            model: Arc::clone(&self.model),
            prompt,
            created: now(),
        };
        Ok((choices, answer))
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| full(self.limits.choices))
    }

    /// The longest response to a prompt.
    fn max_tokens(&self, prompt: usize, asked: Option<usize>) -> Result<usize, ApiError> {
        let context = self.limits.context_tokens;
        let left = context.saturating_sub(prompt);
        match asked {
            Some(asked) if asked <= left => Ok(asked),
            None if left > 0 => Ok(left.min(self.limits.response_tokens)),
            asked => {
                let asked = asked.unwrap_or(1);
                Err(ApiError::too_long(format!(
                    "a prompt of {prompt} tokens and a response of {asked}: expected at most {context} together"
                )))
            }
        }
    }
}

fn unprepared(error: &dyn fmt::Display) -> ApiError {
    ApiError::internal(format!("the request cannot be prepared: {error}"))
}

fn full(choices: usize) -> ApiError {
    ApiError::busy(format!(
        "{choices} responses are being computed or wait, which is as many as there may be"
    ))
}

fn slow() -> ApiError {
    ApiError::with_status(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Every route.
pub fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route(CHAT, post(chat_completions))
        .route(GENERATE, post(generate_tokens))
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(async || ApiError::with_status(StatusCode::NOT_FOUND, "there is nothing at this address"))
        .method_not_allowed_fallback(async || {
            ApiError::with_status(StatusCode::METHOD_NOT_ALLOWED, "this address takes another method")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&server), observe))
        .with_state(server)
}

/// Checks the key, and counts the response.
async fn observe(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let route = match request.uri().path() {
        CHAT => CHAT,
        GENERATE => GENERATE,
        "/v1/models" => "/v1/models",
        "/health" => "/health",
        "/metrics" => "/metrics",
        _ => "other",
    };
    let response = if route == "/health" || server.is_authorised(request.headers()) {
        next.run(request).await
    } else {
        ApiError::unauthorised().into_response()
    };
    server.metrics.response(route, response.status().as_u16());
    response
}

/// Parses a body, and finds out how large its images are.
type Parse = fn(&[u8], &ServedModel, &Limits, &ImageStore) -> Result<Parsed, ApiError>;

async fn chat_completions(State(server): State<Arc<Server>>, request: Request) -> Result<Response, ApiError> {
    respond(server, request, parse_chat).await
}

async fn generate_tokens(State(server): State<Arc<Server>>, request: Request) -> Result<Response, ApiError> {
    respond(server, request, parse_tokens).await
}

async fn respond(server: Arc<Server>, request: Request, parse: Parse) -> Result<Response, ApiError> {
    if server.free_places() == 0 {
        return Err(full(server.limits.choices));
    }
    let (body, share) = server.body(request).await?;
    let parsed =
        server.on_a_thread(move |server| parse(&body, &server.model, &server.limits, &server.images));
    let parsed = parsed.await?;
    let images = server.image_memory(parsed.decoded_bytes()).await?;
    let prepared = server.on_a_thread(move |server| {
        let prepared = parsed.prepare(&server.model, &server.images);
        // the encoded images are gone
        drop(share);
        prepared
    });
    let (mut choices, answer) = server.submit(prepared.await?, images).await?;
    if answer.output.stream.is_some() {
        return Ok(streamed(choices, answer));
    }
    while let Some(delta) = choices.next().await {
        delta?;
    }
    Ok(Json(answer.whole(&choices)).into_response())
}

/// Server-sent events: a chunk for every token, at the end the usage if it is asked for, then `[DONE]`.
fn streamed(choices: Choices, answer: Answer) -> Response {
    let opening = answer.opening(&choices).map(|chunk| event(&chunk)).unwrap_or_default();
    let chunks = stream::unfold(Some((choices, answer)), |state| async {
        let (mut choices, answer) = state?;
        loop {
            match choices.next().await {
                Some(Ok(delta)) => {
                    if let Some(chunk) = answer.chunk(&choices, &delta) {
                        return Some((event(&chunk), Some((choices, answer))));
                    }
                }
                // the status is sent already: the error is the last event
                Some(Err(error)) => return Some((event(&error.json()), None)),
                None => {
                    let closing = answer.closing(&choices).map(|chunk| event(&chunk)).unwrap_or_default();
                    return Some((format!("{closing}data: [DONE]\n\n"), None));
                }
            }
        }
    });
    let events = stream::iter([opening]).chain(chunks).map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

impl Server {
    fn described(&self) -> Value {
        json!({
            "id": self.model.name, "object": "model", "created": self.started, "owned_by": "arpo",
            "max_model_len": self.limits.context_tokens,
        })
    }
}

async fn models(State(server): State<Arc<Server>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [server.described()]}))
}

async fn model(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    if name != server.model.name {
        return Err(ApiError::no_such_model(&name, &server.model.name));
    }
    Ok(Json(server.described()))
}

async fn health(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    if server.worker.is_alive() {
        Ok(Json(json!({"status": "ok"})))
    } else {
        Err(ApiError::unavailable("the engine has ended"))
    }
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let status: WorkerStatus = server.worker.status();
    let text = server.metrics.text(&status);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
