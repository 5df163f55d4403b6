//! With `--dev-no-auth` a request needs nothing that only its sender has, so a page that somebody opens in a browser on this
//! machine could be an admin. Here requests are refused that may come from such a page:
//!
//! - at another name than one of this machine: a page of `evil.example` whose name turns into 127.0.0.1 meanwhile has the
//!   server's own origin (DNS rebinding), but its requests name `evil.example`;
//! - from another origin, also those that a browser sends without asking first, such as a POST without a body;
//! - from another site, where a browser names no origin but says that much.
//!
//! What is no browser says none of this, and may do everything: it runs here anyway.

use super::edge;
use super::problem::Code;
use crate::AppState;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets nobody else's pages through.
pub(super) async fn only(
    State(state): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    if may_call(&parts, &state.config.cors.cors_allow_origin) {
        return next.run(Request::from_parts(parts, body)).await;
    }
    edge::refuse_early(Code::UntrustedOrigin, &parts.headers, &state.metrics)
}

fn may_call(parts: &Parts, allowed: &[HeaderValue]) -> bool {
    // A request line may name a host as well (RFC 9112 §3.2.2).
    if parts.uri.authority().is_some_and(|named| !is_here(named)) {
        return false;
    }
    let Some(host) = host(&parts.headers).filter(is_here) else {
        return false;
    };
    let mut origins = parts.headers.get_all(header::ORIGIN).iter().peekable();
    if origins.peek().is_some() {
        return origins.all(|origin| allowed.contains(origin) || is_own(origin, &host));
    }
    let site = parts.headers.get(SEC_FETCH_SITE);
    site.is_none_or(|site| site != "cross-site")
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    headers.get(header::HOST)?.to_str().ok()?.parse().ok()
}

/// Whether no name server has a say in where this leads.
fn is_here(authority: &Authority) -> bool {
    let host = authority.host().to_ascii_lowercase();
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    let address = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inside) => inside.parse::<Ipv6Addr>().map(IpAddr::from).ok(),
        None => host.parse().ok(),
    };
    address.is_some_and(|address| address.to_canonical().is_loopback())
}

/// Whether a page has this origin that the server itself has sent.
fn is_own(origin: &HeaderValue, host: &Authority) -> bool {
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    let written = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    written.is_some_and(|written| written.eq_ignore_ascii_case(host.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri("/v1/queues");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let desk = HeaderValue::from_static("https://desk.example.com");
        may_call(&request.body(()).unwrap().into_parts().0, &[desk])
    }

    #[test]
    fn the_host_must_be_a_name_of_this_machine() {
        for (host, taken) in [
            ("localhost", true),
            ("LocalHost:8080", true),
            ("quita.localhost:1", true),
            ("127.0.0.1:8080", true),
            ("127.9.9.9", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:8080", false),
            ("notlocalhost", false),
            ("10.0.0.1:8080", false),
            ("0.0.0.0:8080", false),
            ("[::]:8080", false),
            ("[::2]", false),
            ("", false),
        ] {
            assert_eq!(may(&[("host", host)]), taken, "{host}");
        }
        assert!(!may(&[]));
        let absolute = Request::builder().uri("http://evil.example/v1/queues");
        let absolute = absolute.header("host", "localhost").body(()).unwrap();
        assert!(!may_call(&absolute.into_parts().0, &[]));
    }

    #[test]
    fn an_origin_must_be_the_servers_own_or_one_that_is_named() {
        const DESK: &str = "https://desk.example.com";
        for (origin, site, taken) in [
            (Some("http://localhost:8080"), None, true),
            (Some("http://localhost:8080"), Some("same-origin"), true),
            (Some("https://localhost:8080"), None, true),
            (Some(DESK), Some("cross-site"), true),
            (Some("http://localhost:3000"), Some("same-site"), false),
            (Some("http://localhost"), None, false),
            (Some("http://127.0.0.1:8080"), None, false),
            (Some("https://evil.example"), None, false),
            (Some("null"), None, false),
            (Some("localhost:8080"), None, false),
            (None, Some("cross-site"), false),
            (None, Some("same-origin"), true),
            (None, Some("none"), true),
            (None, None, true),
        ] {
            let mut headers = vec![("host", "localhost:8080")];
            headers.extend(origin.map(|origin| ("origin", origin)));
            headers.extend(site.map(|site| ("sec-fetch-site", site)));
            assert_eq!(may(&headers), taken, "{origin:?} {site:?}");
        }
        let two = [("host", "localhost"), ("origin", DESK), ("origin", "null")];
        assert!(!may(&two));
    }
}
