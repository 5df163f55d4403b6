//! What answers tell browsers and caches: keep nothing, run nothing, show it in no frame.
//!
//! Nobody's browser should meet the JSON of this server, but somebody may lure one there. What each header is worth, against
//! its bytes on forty thousand answers a second:
//!
//! - on every answer: `X-Content-Type-Options: nosniff` (33 bytes), `Cache-Control: no-store` (25) and a
//!   `Content-Security-Policy` that allows nothing (68), so that what is in a payload can neither run nor be framed nor lie
//!   in a cache;
//! - on pages for people alone: `X-Frame-Options` (the policy's `frame-ancestors` says the same to every browser that is
//!   still in use), `Referrer-Policy` (JSON has no links), `Cross-Origin-Resource-Policy` (what is worth reading needs a
//!   bearer key, which no foreign page can make a browser send). That saves 95 bytes of every other answer.
//!
//! `Strict-Transport-Security`, where it is set, is added by the connection, which alone knows that it has TLS.

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// What is the same for everybody until the next version of the server.
const FOR_AN_HOUR: HeaderValue = HeaderValue::from_static("public, max-age=3600");
const NOTHING: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
/// The page at `/docs`: its own files and its calls to this server. It sets styles in its markup, and has pictures in its
/// style sheet.
const SWAGGER: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const CORP: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Adds what every answer carries, unless the handler said something else.
pub(super) fn guard(headers: &mut HeaderMap) {
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(NOTHING);
}

/// An answer that is the same for everybody and may be kept.
pub(super) fn public(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, FOR_AN_HOUR);
    response
}

/// A file of the page at `/docs`.
pub(super) fn swagger(response: Response) -> Response {
    page(public(response), SWAGGER)
}

/// A page of our own whose only active part is this style sheet.
pub(super) fn styled(response: Response, style: &str) -> Response {
    let hash = STANDARD.encode(Sha256::digest(style));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    // Base64 is always a header's value.
    page(response, HeaderValue::try_from(policy).unwrap_or(NOTHING))
}

fn page(mut response: Response, policy: HeaderValue) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    headers.insert(CORP, HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn what_a_handler_said_is_kept_and_the_rest_is_closed() {
        let mut headers = HeaderMap::new();
        guard(&mut headers);
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], NOTHING);
        assert_eq!(headers.len(), 3);
        let mut response = swagger(Response::new(Body::empty()));
        guard(response.headers_mut());
        assert_eq!(response.headers()[header::CACHE_CONTROL], FOR_AN_HOUR);
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], SWAGGER);
    }

    #[test]
    fn no_page_may_build_code_from_text_or_ask_another_origin() {
        let styled = styled(Response::new(Body::empty()), "a{}");
        let styled = styled.headers()[header::CONTENT_SECURITY_POLICY].clone();
        for policy in [NOTHING, SWAGGER, styled] {
            let policy = policy.to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'; "), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            for open in ["unsafe-eval", "http", "*", "script-src 'unsafe"] {
                assert!(!policy.contains(open), "{open}: {policy}");
            }
        }
    }
}
