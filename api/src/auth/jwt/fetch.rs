//! Getting a document by HTTP(S).
//!
//! A trait, so that tests need no network. The real one follows no redirect: where the keys of an issuer lie is a setting,
//! and what answers there must not be able to change it.

use super::shown;
use http::Uri;
use std::net::IpAddr;
use std::time::Duration;
use ureq::{Agent, Error};

/// For everything: names, connection, and the last byte of the answer.
pub const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest set of keys in bytes.
pub const MAX_JWKS_BYTES: u64 = 256 << 10;

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Another status than 200.
    #[error("it answered {0}")]
    Status(u16),
    /// More than [`MAX_JWKS_BYTES`].
    #[error("it is larger than {MAX_JWKS_BYTES} bytes")]
    TooLarge,
    /// Not all of it came in [`FETCH_TIMEOUT`].
    #[error("it took longer than {} s", FETCH_TIMEOUT.as_secs())]
    TimedOut,
    /// Anything else.
    #[error("{0}")]
    Failed(Box<str>),
}

/// Gets documents. Blocks; called where that is allowed.
pub trait Fetch: Send + Sync {
    /// The document at `url`, of at most [`MAX_JWKS_BYTES`].
    fn fetch(&self, url: &str) -> Result<Vec<u8>, FetchError>;
}

/// Gets them over the network.
pub struct Network {
    outside: Agent,
    loopback: Agent,
}

impl Network {
    /// Trusts the machine's own authorities, so that a company's own one counts; Mozilla's where the machine has none.
    pub fn new() -> Self {
        Self::within(FETCH_TIMEOUT)
    }

    pub(super) fn within(timeout: Duration) -> Self {
        let tls = crate::trust::machine();
        Self {
            outside: config(timeout)
                .https_only(true)
                .tls_config(tls.clone())
                .build()
                .new_agent(),
            // Never through a proxy: without TLS it could answer what it likes.
            loopback: config(timeout)
                .proxy(None)
                .tls_config(tls)
                .build()
                .new_agent(),
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

fn config(timeout: Duration) -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("quita/", env!("CARGO_PKG_VERSION")))
        .accept("application/jwk-set+json, application/json")
        .max_idle_connections(0)
        .timeout_global(Some(timeout))
}

impl Fetch for Network {
    fn fetch(&self, url: &str) -> Result<Vec<u8>, FetchError> {
        let agent = match check_url(url) {
            Ok(Place::Outside) => &self.outside,
            Ok(Place::Loopback) => &self.loopback,
            Err(why) => return Err(FetchError::Failed(why.into())),
        };
        let mut answer = agent.get(url).call().map_err(failed)?;
        match answer.status().as_u16() {
            200 => {}
            status => return Err(FetchError::Status(status)),
        }
        let body = answer.body_mut().with_config().limit(MAX_JWKS_BYTES);
        body.read_to_vec().map_err(failed)
    }
}

fn failed(error: Error) -> FetchError {
    match error {
        Error::BodyExceedsLimit(_) => FetchError::TooLarge,
        Error::Timeout(_) => FetchError::TimedOut,
        Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => FetchError::TimedOut,
        other => FetchError::Failed(shown(&other.to_string())),
    }
}

/// Where a URL leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Outside,
    /// This machine, where nobody in between can change an answer.
    Loopback,
}

/// https, or http to this machine; no user, no fragment.
pub(super) fn check_url(url: &str) -> Result<Place, &'static str> {
    let uri: Uri = url.parse().map_err(|_| "it is not a URL")?;
    let host = uri.host().ok_or("it is not a URL with a host")?;
    if uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err("a user in the URL of keys is not sent");
    }
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    let here = host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback());
    match uri.scheme_str() {
        Some("https" | "http") if here => Ok(Place::Loopback),
        Some("https") => Ok(Place::Outside),
        Some("http") => Err("http is taken to this machine only; elsewhere it must be https"),
        _ => Err("it must begin with https://"),
    }
}
