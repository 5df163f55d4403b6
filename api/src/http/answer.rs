//! Answers that are successes.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// Says that an operator's call was answered before and nothing was done now.
const REPLAYED: http::HeaderName = http::HeaderName::from_static("idempotency-replayed");

/// A JSON text as an answer.
pub(crate) fn text(status: StatusCode, json: Vec<u8>) -> Response {
    typed(status, "application/json", json)
}

/// Anything as an answer.
pub(crate) fn typed(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A value as JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let mut out = Vec::with_capacity(256);
    // Our own types always serialise, and writing to a vector cannot fail.
    let _ = serde_json::to_writer(&mut out, value);
    text(status, out)
}

/// A value as the answer to an operator's call.
pub(crate) fn operated(value: &impl Serialize, repeated: bool) -> Response {
    operated_as(StatusCode::OK, value, repeated)
}

/// A value as the answer to an operator's call, with another status than 200.
pub(crate) fn operated_as(status: StatusCode, value: &impl Serialize, repeated: bool) -> Response {
    let mut response = json(status, value);
    if repeated {
        response
            .headers_mut()
            .insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}
