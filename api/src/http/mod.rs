//! stand-in

pub mod server;

use crate::AppState;
use axum::Router;
use axum::body::Body;
use http::{Response, StatusCode};

/// The routes.
pub fn router(state: AppState) -> Router {
    use axum::routing::get;
    let drain = state.drain.clone();
    Router::new()
        .route("/healthz", get(|| async { "{}" }))
        .route(
            "/readyz",
            get(move || {
                let draining = drain.is_draining();
                async move {
                    if draining {
                        StatusCode::SERVICE_UNAVAILABLE
                    } else {
                        StatusCode::OK
                    }
                }
            }),
        )
}

/// The description of the interface.
pub fn openapi() -> serde_json::Value {
    serde_json::json!({})
}

pub(crate) fn problem_at_edge(status: StatusCode, code: &str, detail: &str) -> Response<Body> {
    let text = serde_json::json!({"type": format!("/problems/{code}"), "title": code, "status": status.as_u16(), "detail": detail,
        "code": code, "retryable": false, "effect": "none"});
    let mut answer = Response::new(Body::from(text.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/problem+json"),
    );
    answer
}
