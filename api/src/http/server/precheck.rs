//! Requests that the HTTP library lets through and nobody should: each is refused before the router sees it, and the
//! connection is closed, since nobody can say where the next request would begin.

use crate::http::problem_at_edge;
use crate::metrics::Metrics;
use axum::body::Body;
use http::header::{CONNECTION, EXPECT, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, Version};

/// Longest path with query, in bytes. The longest one of ours is a listing with a page token: well below 4 KiB.
const MAX_TARGET: usize = 8 << 10;

/// The refusal, if there is one.
pub(super) fn refuse<B>(
    request: &Request<B>,
    bare_line_feed: bool,
    metrics: &Metrics,
) -> Option<Response<Body>> {
    let (status, code, detail) = fault(request, bare_line_feed)?;
    let mut answer = problem_at_edge(status, code, detail, metrics);
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    Some(answer)
}

fn fault<B>(
    request: &Request<B>,
    bare_line_feed: bool,
) -> Option<(StatusCode, &'static str, &'static str)> {
    const MALFORMED: &str = "malformed_request";
    if bare_line_feed {
        return Some((
            StatusCode::BAD_REQUEST,
            MALFORMED,
            "A line of the request's head ends without a carriage return.",
        ));
    }
    if let Err(detail) = host(request) {
        return Some((StatusCode::BAD_REQUEST, MALFORMED, detail));
    }
    // The library takes any list that ends in `chunked` and would hand on a body that is still compressed.
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next()
        && (codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        let detail = "The only transfer coding of this server is chunked, applied once.";
        return Some((StatusCode::BAD_REQUEST, MALFORMED, detail));
    }
    let mut expectations = request.headers().get_all(EXPECT).iter();
    if expectations.any(|e| !e.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        let detail = "The only expectation that this server meets is 100-continue.";
        return Some((StatusCode::EXPECTATION_FAILED, "expectation_failed", detail));
    }
    let target = request
        .uri()
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    if target > MAX_TARGET {
        return Some((
            StatusCode::URI_TOO_LONG,
            "uri_too_long",
            "The path with its query is longer than 8,192 bytes.",
        ));
    }
    None
}

/// Exactly one Host with HTTP/1.1, and it is a host (RFC 9112 §3.2).
fn host<B>(request: &Request<B>) -> Result<(), &'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Err("The request has more than one Host."),
        (None, _) if request.version() < Version::HTTP_11 => Ok(()),
        (None, _) => Err("The request has no Host."),
        (Some(host), None) => match host.to_str().ok().map(str::parse::<Authority>) {
            Some(Ok(authority)) if !authority.as_str().contains('@') => Ok(()),
            _ => Err("The request's Host is not a host."),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(request: &Request<()>) -> Option<Response<Body>> {
        refuse(request, false, &Metrics::default())
    }

    fn code(headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().uri("/readyz");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refused(&request.body(()).unwrap()).map(|answer| answer.status().as_u16())
    }

    #[test]
    fn host_must_be_there_once_and_be_a_host() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"] {
            assert_eq!(code(&[("host", host)]), None, "{host}");
        }
        for host in ["", "a/b", "a b", "u@h", "http://a", "a?b"] {
            assert_eq!(code(&[("host", host)]), Some(400), "{host}");
        }
        assert_eq!(code(&[]), Some(400));
        assert_eq!(code(&[("host", "a"), ("host", "a")]), Some(400));
        let old = Request::builder()
            .version(Version::HTTP_10)
            .body(())
            .unwrap();
        assert!(refused(&old).is_none());
    }

    #[test]
    fn only_chunked_once_is_decoded() {
        let with = |codings: &[&str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(codings.iter().map(|c| ("transfer-encoding", *c)));
            code(&headers)
        };
        assert_eq!(with(&["chunked"]), None);
        assert_eq!(with(&["Chunked"]), None);
        assert_eq!(with(&["gzip, chunked"]), Some(400));
        assert_eq!(with(&["gzip", "chunked"]), Some(400));
        assert_eq!(with(&["chunked", "chunked"]), Some(400));
    }

    #[test]
    fn other_expectations_fail_and_long_targets_are_refused() {
        assert_eq!(code(&[("host", "a"), ("expect", "100-Continue")]), None);
        assert_eq!(code(&[("host", "a"), ("expect", "200-ok")]), Some(417));
        let long = Request::builder()
            .uri(format!("/{}", "x".repeat(9_000)))
            .header("host", "a");
        let answer = refused(&long.body(()).unwrap()).unwrap();
        assert_eq!(answer.status(), StatusCode::URI_TOO_LONG);
        assert_eq!(answer.headers()[CONNECTION], "close");
    }
}
