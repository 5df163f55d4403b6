//! CORS: which pages of other origins may call the API from a browser. None, unless the operator names them.
//!
//! A grant is about one exact origin. Credentials are never allowed: nothing here reads cookies, and the key that a page
//! sends it must have itself.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodRouter;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use std::convert::Infallible;
use std::time::Duration;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;

/// How long a browser may remember an answer to its question: as long as Chromium does at most.
const REMEMBERED: Duration = Duration::from_hours(2);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The grants of one path.
#[derive(Clone)]
pub(super) struct Grants {
    layer: CorsLayer,
}

impl Grants {
    /// `None` when no origin is allowed.
    pub(super) fn new(origins: &[HeaderValue], methods: &[Method]) -> Option<Self> {
        if origins.is_empty() {
            return None;
        }
        let layer = CorsLayer::new()
            .allow_origin(origins.to_vec())
            .allow_methods(methods.to_vec())
            .allow_headers([
                header::AUTHORIZATION,
                header::CONTENT_TYPE,
                header::IF_MATCH,
                header::IF_NONE_MATCH,
                IDEMPOTENCY_KEY,
                super::edge::REQUEST_ID,
            ])
            .expose_headers([
                header::ALLOW,
                header::ETAG,
                header::LOCATION,
                header::RETRY_AFTER,
                header::WWW_AUTHENTICATE,
                REPLAYED,
                HeaderName::from_static("ratelimit"),
                HeaderName::from_static("ratelimit-policy"),
                super::edge::REQUEST_ID,
            ])
            .max_age(REMEMBERED);
        Some(Self { layer })
    }

    /// The answers of these handlers, with the grants in them.
    pub(super) fn around<S: Clone + Send + Sync + 'static>(
        &self,
        handlers: MethodRouter<S>,
    ) -> MethodRouter<S> {
        handlers.layer(self.layer.clone())
    }

    /// The headers that answer the question of a browser (`OPTIONS`); none for an origin that is not allowed.
    pub(super) async fn answer(&self, asked: &HeaderMap) -> HeaderMap {
        let inside = service_fn(|_: Request| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
        });
        let mut request = Request::new(Body::empty());
        *request.method_mut() = Method::OPTIONS;
        request.headers_mut().clone_from(asked);
        let Ok(answer) = self.layer.layer(inside).oneshot(request).await;
        let granted = answer.into_parts().0.headers;
        if granted.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
            return granted;
        }
        let vary = granted.get(header::VARY).cloned();
        vary.map(|vary| (header::VARY, vary)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(origin: &'static str) -> HeaderMap {
        let allowed = ["https://a.example", "http://localhost:3000"];
        let allowed = allowed.map(HeaderValue::from_static);
        let grants = Grants::new(&allowed, &[Method::GET, Method::POST]).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        grants.answer(&headers).await
    }

    #[tokio::test]
    async fn an_allowed_origin_is_named_and_never_with_credentials() {
        let headers = asked("https://a.example").await;
        assert_eq!(headers["access-control-allow-origin"], "https://a.example");
        assert_eq!(headers["access-control-allow-methods"], "GET,POST");
        assert!(!headers.contains_key("access-control-allow-credentials"));
        assert!(headers["vary"].to_str().unwrap().contains("origin"));
    }

    #[tokio::test]
    async fn another_origin_learns_nothing() {
        for origin in [
            "https://b.example",
            "http://a.example",
            "https://a.example:8443",
            "https://a.example.evil",
            "https://A.example",
            "null",
        ] {
            let headers = asked(origin).await;
            assert!(
                headers.keys().all(|name| name == "vary"),
                "{origin}: {headers:?}"
            );
        }
        assert!(Grants::new(&[], &[Method::GET]).is_none());
    }
}
