//! The server itself: is it alive, is it ready, how is it used.

use super::answer;
use super::browser;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::Incoming;
use super::problem::{Code, Problem};
use crate::AppState;
use crate::metrics::{Format, Present};
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::json;
use std::sync::{Arc, OnceLock};
use utoipa::ToSchema;

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The server's own state.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok` or `ready`.
    status: &'static str,
}

/// A description of an interface.
#[derive(ToSchema)]
#[schema(as = OpenApiDocument)]
#[expect(dead_code, reason = "describes what is written by its library")]
pub(crate) struct Document {
    /// Version of OpenAPI.
    openapi: String,
}

/// What the files of the page for people are.
const DOCS_TYPES: &[&str] = &["text/html", "text/css", "text/javascript", "image/png"];

pub(crate) async fn healthz(_state: Arc<AppState>, _parts: Parts) -> Answered {
    Ok(answer::json(StatusCode::OK, &Health { status: "ok" }))
}

pub(crate) async fn readyz(state: Arc<AppState>, _parts: Parts) -> Answered {
    if state.drain.is_draining() {
        return Err(Code::Draining.into());
    }
    state.service.check().await?;
    Ok(answer::json(StatusCode::OK, &Health { status: "ready" }))
}

/// Counts of this server, in the format that the collector asks for.
pub(crate) async fn metrics(incoming: Incoming) -> Answered {
    incoming.no_query()?;
    incoming.no_body()?;
    counts(&incoming.state, incoming.headers())
}

/// The same for whoever reaches the inner listener.
pub(crate) async fn inner_metrics(state: Arc<AppState>, parts: Parts) -> Answered {
    counts(&state, &parts.headers)
}

fn counts(state: &AppState, headers: &HeaderMap) -> Answered {
    let accept = headers.get(header::ACCEPT);
    let open = accept.is_some_and(|accept| {
        accept
            .to_str()
            .is_ok_and(|accept| accept.contains("application/openmetrics-text"))
    });
    let (format, media_type) = if open {
        (Format::OpenMetrics, OPEN_METRICS)
    } else {
        (Format::Prometheus, PROMETHEUS)
    };
    let present = Present {
        waiting_receives: state.service.waiting_receives(),
        requests: state.admission.requests(),
        body_bytes: state.bodies.bytes(),
    };
    let text = state.metrics.write(present, format);
    let text = text.map_err(|error| Problem::from(Code::Internal).because(error))?;
    Ok(answer::typed(StatusCode::OK, media_type, text))
}

pub(crate) async fn openapi_json(_state: Arc<AppState>, _parts: Parts) -> Answered {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| super::openapi().to_pretty_json().unwrap_or_default());
    let answer = answer::typed(StatusCode::OK, "application/json", document.as_str());
    Ok(browser::public(answer))
}

pub(crate) async fn docs(_state: Arc<AppState>, parts: Parts) -> Answered {
    static CONFIG: OnceLock<Arc<utoipa_swagger_ui::Config<'static>>> = OnceLock::new();
    let Some(file) = parts.uri.path().strip_prefix("/docs/") else {
        // The page's own references are relative to a folder.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        let location = HeaderValue::from_static("/docs/index.html");
        response.headers_mut().insert(header::LOCATION, location);
        return Ok(response);
    };
    let config = CONFIG.get_or_init(|| {
        Arc::new(utoipa_swagger_ui::Config::from("/openapi.json").validator_url("none"))
    });
    let found = utoipa_swagger_ui::serve(file, config.clone())
        .map_err(|error| Problem::from(Code::Internal).because(error))?;
    let file = found.ok_or(Code::NotFound)?;
    let mut response = Response::new(Body::from(file.bytes.into_owned()));
    if let Ok(media_type) = HeaderValue::from_str(&file.content_type) {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, media_type);
    }
    Ok(browser::swagger(response))
}

pub(crate) fn describe_healthz() -> Route {
    Describe::open("healthz", "server", "Is the process alive?")
        .answer::<Health>(200, "It is", json!({"status": "ok"}))
        .build()
}

pub(crate) fn describe_readyz() -> Route {
    Describe::open("readyz", "server", "May it be sent requests?")
        .text("The store answers and accepts writes, and the server is not stopping. What the store said is good for 500 ms.")
        .answer::<Health>(200, "It may", json!({"status": "ready"}))
        .problems(&[Code::Draining, Code::StorageUnavailable, Code::DiskLow])
        .build()
}

pub(crate) fn describe_metrics() -> Route {
    Describe::new("metrics", "server", "What is counted")
        .text("For Prometheus.")
        .plain_answer(
            &["text/plain", "application/openmetrics-text"],
            "Prometheus text 0.0.4, or OpenMetrics 1.0 if the Accept header names it",
        )
        .build()
}

pub(crate) fn describe_openapi() -> Route {
    Describe::open("openapi", "server", "This document")
        .answer::<Document>(200, "OpenAPI 3.1", json!({"openapi": "3.1.0"}))
        .build()
}

pub(crate) fn describe_docs() -> Route {
    Describe::open("docs", "server", "This document, for people")
        .elsewhere(307, "The page is `/docs/index.html`")
        .build()
}

pub(crate) fn describe_docs_file() -> Route {
    Describe::open("docsFile", "server", "A file of the page for people")
        .path("file", "Its name", "index.html")
        .plain_answer(DOCS_TYPES, "The file")
        .problems(&[Code::NotFound])
        .build()
}
