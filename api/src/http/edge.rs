//! Around every handler: the request id, who calls, panics, and what every answer carries.
//!
//! One function instead of a stack of layers: a publish passes here forty thousand times a second.

use super::admission::Charge;
use super::browser;
use super::cross_origin::Grants;
use super::docs::Route;
use super::extract::Incoming;
use super::problem::{Code, Problem};
use super::rights::Needs;
use super::server::Connection;
use crate::metrics::Metrics;
use crate::{AppState, telemetry};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Names a request in the answer and in the log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Longest request id that is taken over from a client.
const MAX_REQUEST_ID_BYTES: usize = 64;

/// What a handler answers.
pub(crate) type Answered = Result<Response, Problem>;

/// One route.
pub(super) struct Endpoint {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// `None`: it is for everybody.
    pub(super) needs: Option<Needs>,
    pub(super) handler: MethodRouter<Arc<AppState>>,
    pub(super) docs: Route,
}

/// A route for callers with credentials, who have the rights that it needs on some queue.
pub(super) fn secured<F, Fut>(
    method: Method,
    path: &'static str,
    needs: Needs,
    handler: F,
    docs: Route,
) -> Endpoint
where
    F: Fn(Incoming) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Answered> + Send + 'static,
{
    let charge = Charge::of(&method, path);
    let guarded = move |State(state): State<Arc<AppState>>, request: Request| async move {
        let request_id = request_id(request.headers());
        let (parts, body) = request.into_parts();
        let (id, shared) = (request_id.clone(), state.clone());
        let charged = OnceLock::new();
        let answering = async {
            let mut sent = parts.headers.get_all(header::AUTHORIZATION).iter();
            let credentials = sent.next();
            if sent.next().is_some() {
                // A proxy may have looked at the other one.
                let detail = "The request has more than one Authorization.";
                return Err(Problem::new(Code::MalformedRequest, detail));
            }
            let caller = state
                .auth
                .authenticate(credentials)
                .await
                .map_err(|failure| {
                    let connection = parts.extensions.get::<Connection>();
                    let from = connection.map(|connection| connection.peer().ip());
                    state.admission.login_failed(failure, from)
                })?;
            if let Some(class) = state.admission.limited(charge) {
                let _ = charged.set((caller.id.clone(), class));
            }
            let _in_flight = state.admission.enter(charge)?;
            state.admission.admit(&caller.id, charge)?;
            needs.check(&caller)?;
            let settles = charge == Charge::Settle;
            handler(Incoming::new(shared, caller, id, (parts, body), settles)).await
        };
        let mut response = finish(answering, request_id, &state.metrics).await;
        if let Some((key, class)) = charged.get() {
            state.admission.tell(key, *class, &mut response);
        }
        response
    };
    Endpoint {
        handler: on(filter(&method), guarded),
        method,
        path,
        needs: Some(needs),
        docs,
    }
}

/// A route for everybody.
pub(super) fn open<F, Fut>(method: Method, path: &'static str, handler: F, docs: Route) -> Endpoint
where
    F: Fn(Arc<AppState>, Parts) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Answered> + Send + 'static,
{
    let guarded = move |State(state): State<Arc<AppState>>, request: Request| async move {
        let request_id = request_id(request.headers());
        let (parts, body) = request.into_parts();
        let metrics = state.metrics.clone();
        let answering = async move {
            if !http_body::Body::is_end_stream(&body) {
                return Err(Code::BodyNotAllowed.into());
            }
            handler(state, parts).await
        };
        finish(answering, request_id, &metrics).await
    };
    Endpoint {
        handler: on(filter(&method), guarded),
        method,
        path,
        needs: None,
        docs,
    }
}

fn filter(method: &Method) -> MethodFilter {
    // The table of routes names only methods that the router knows.
    MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::TRACE)
}

/// `OPTIONS` is answered with the grants to other origins, of which there are none unless configured; every other method is
/// refused.
pub(super) fn with_other_methods(
    handlers: MethodRouter<Arc<AppState>>,
    allow: &HeaderValue,
    grants: Option<Grants>,
) -> MethodRouter<Arc<AppState>> {
    let (for_options, for_others) = (allow.clone(), allow.clone());
    let handlers = handlers.fallback(
        move |State(state): State<Arc<AppState>>, headers: HeaderMap| {
            let refused = Problem::from(Code::MethodNotAllowed).allowing(for_others.clone());
            std::future::ready(refuse(refused, request_id(&headers), &state.metrics))
        },
    );
    let handlers = match &grants {
        Some(grants) => grants.around(handlers),
        None => handlers,
    };
    // Not under the grants' layer, which would answer in its place.
    handlers
        .options(move |headers: HeaderMap| options(headers, for_options.clone(), grants.clone()))
}

async fn options(asked: HeaderMap, allow: HeaderValue, grants: Option<Grants>) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Some(grants) = grants {
        *response.headers_mut() = grants.answer(&asked).await;
    }
    response.headers_mut().insert(header::ALLOW, allow);
    dress(response, request_id(&asked))
}

/// A refusal before any handler, of a request whose head is known.
pub(super) fn refuse_early(code: Code, headers: &HeaderMap, metrics: &Metrics) -> Response {
    refuse(code.into(), request_id(headers), metrics)
}

/// No such route.
pub(super) async fn not_found(
    State(state): State<Arc<AppState>>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let problem = if method == Method::CONNECT {
        let allow = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS");
        Problem::from(Code::MethodNotAllowed).allowing(allow)
    } else {
        Problem::new(Code::NotFound, "There is no such path.")
    };
    refuse(problem, request_id(&headers), &state.metrics)
}

/// A refusal from outside the router, in the one shape.
pub(crate) fn problem_at_edge(
    status: StatusCode,
    code: &str,
    detail: &'static str,
    metrics: &Metrics,
) -> Response {
    let code = Code::parse(code).unwrap_or(if status.is_server_error() {
        Code::Internal
    } else {
        Code::MalformedRequest
    });
    refuse_at_edge(Problem::new(code, detail), metrics)
}

/// The same, for a problem that says more than its code.
pub(crate) fn refuse_at_edge(problem: Problem, metrics: &Metrics) -> Response {
    refuse(problem, new_request_id(), metrics)
}

async fn finish(
    answering: impl Future<Output = Answered>,
    request_id: HeaderValue,
    metrics: &Metrics,
) -> Response {
    let response = match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(Ok(response)) => dress(response, request_id),
        Ok(Err(problem)) => refuse(problem, request_id, metrics),
        Err(panic) => {
            let problem = Problem::from(Code::Internal).because(said(&*panic));
            refuse(problem, request_id, metrics)
        }
    };
    let (headers, status) = (response.headers(), response.status().as_u16());
    tracing::trace!(request_id = ?headers.get(REQUEST_ID), status, "answered");
    response
}

fn said(panic: &(dyn Any + Send)) -> String {
    format!("panic: {}", telemetry::constant_part(panic))
}

fn refuse(problem: Problem, request_id: HeaderValue, metrics: &Metrics) -> Response {
    count(metrics, &problem);
    let response = problem.into_response(request_id.to_str().unwrap_or_default());
    dress(response, request_id)
}

/// Counts a refusal: of a request, or of one item in it.
pub(super) fn count(metrics: &Metrics, problem: &Problem) {
    metrics.problem(problem.code().as_str());
    if let Some(limit) = problem.limit() {
        metrics.limited(limit);
    }
}

fn dress(mut response: Response, request_id: HeaderValue) -> Response {
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, request_id);
    browser::guard(headers);
    response
}

/// The client's own id, when it is plain; else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(REQUEST_ID) {
        Some(sent) if is_plain(sent.as_bytes()) => sent.clone(),
        _ => new_request_id(),
    }
}

fn is_plain(id: &[u8]) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
        && id
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn new_request_id() -> HeaderValue {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let process = PROCESS.get_or_init(rand::random);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::from_str(&format!("req-{process:08x}-{number:x}"))
        .unwrap_or(HeaderValue::from_static("req"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_request_ids_are_taken_over() {
        let long = "a".repeat(65);
        for (sent, kept) in [
            ("abc-1.2_3", true),
            ("", false),
            ("a b", false),
            ("a\"b", false),
            (&*long, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(sent).unwrap());
            assert_eq!(request_id(&headers) == sent, kept, "{sent}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_panic_becomes_a_problem_whose_effect_is_unknown() {
        let response = finish(
            async { panic!("secret") },
            new_request_id(),
            &Metrics::default(),
        )
        .await;
        assert_eq!(response.status(), 500);
        let body = axum::body::to_bytes(response.into_body(), 1 << 16)
            .await
            .unwrap();
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&json["code"], &json["effect"]),
            (&"internal".into(), &"unknown".into())
        );
        assert!(!json.to_string().contains("secret"));
    }
}
