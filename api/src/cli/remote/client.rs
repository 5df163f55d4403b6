//! One server, called the way its interface asks for: a key, JSON, and a request id with whatever changes something.

use super::connection::Place;
use super::exit::{Exit, Failure, Outcome};
use super::output::talk;
use super::visible::visible;
use crate::trust;
use http::{HeaderValue, Method, Request, header};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;
use ureq::tls::TlsConfig;
use ureq::{Agent, Error};

/// A network that takes longer to connect is one that does not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer that is taken whole: a page of 500 messages is far below.
const MAX_ANSWER: u64 = 64 << 20;
/// Before each repeat of a request whose answer was lost.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// The members of a body, each JSON text, so that a payload goes as it was given.
pub(super) type Body = BTreeMap<String, Box<RawValue>>;

/// A request that changes something, as it is sent and as `--dry-run` shows it.
pub(super) struct Change {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Body,
    /// Whether sending it twice does no more than sending it once.
    pub(super) repeatable: bool,
    /// `If-None-Match: *`.
    pub(super) only_new: bool,
}

impl Change {
    /// A POST that carries a request id, which makes it repeatable.
    pub(super) fn post(path: impl Into<String>, body: Body) -> Self {
        Self {
            method: Method::POST,
            path: path.into(),
            body,
            repeatable: true,
            only_new: false,
        }
    }

    /// The body as text.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(&self.body).unwrap_or_default()
    }
}

/// Calls one server.
pub(super) struct Client {
    agent: Agent,
    url: String,
    bearer: Option<HeaderValue>,
}

impl Client {
    /// For the server at `place`, which may take `patience` for an answer to begin, and for each part of it. Connects at the
    /// first call.
    pub(super) fn new(place: Place, patience: Duration) -> Outcome<Self> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("quita/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT.min(patience)))
            .timeout_recv_response(Some(patience))
            .timeout_per_read(Some(patience));
        if on_this_machine(&place.url) {
            config = config.proxy(None);
        }
        if place.url.starts_with("https:") {
            config = config.tls_config(believed(place.ca_cert.as_deref())?);
        }
        let bearer = place.key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.reveal()))
                .map_err(|_| Failure::usage("the API key holds characters that no key has"))?;
            value.set_sensitive(true);
            Ok::<_, Failure>(value)
        });
        Ok(Self {
            agent: config.build().new_agent(),
            url: place.url,
            bearer: bearer.transpose()?,
        })
    }

    /// The server's address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The text of a 200.
    pub(super) fn get(&self, path: &str) -> Outcome<String> {
        self.call(&Method::GET, path, None, true, false)
    }

    /// [`Client::get`] with a single try, for whoever looks again anyway.
    pub(super) fn look(&self, path: &str) -> Outcome<String> {
        self.call(&Method::GET, path, None, false, false)
    }

    /// [`Client::get`], read as JSON.
    pub(super) fn read<T: DeserializeOwned>(&self, path: &str) -> Outcome<T> {
        parse(path, &self.get(path)?)
    }

    /// Sends a change; the text of a 2xx.
    pub(super) fn send(&self, change: &Change) -> Outcome<String> {
        let Change {
            method,
            path,
            repeatable,
            only_new,
            ..
        } = change;
        self.call(method, path, Some(&change.text()), *repeatable, *only_new)
    }

    /// A GET whose answer is read as it comes, in this media type.
    pub(super) fn stream(&self, path: &str, media: &'static str) -> Outcome<impl BufRead + use<>> {
        let request = self.request(&Method::GET, path)?;
        let request = request.header(header::ACCEPT, media).body(());
        let request = request.map_err(|error| Failure::usage(error.to_string()))?;
        let response = self
            .agent
            .run(request)
            .map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        if (200..300).contains(&status) {
            return Ok(BufReader::with_capacity(64 << 10, body.into_reader()));
        }
        let text = body.read_to_string().unwrap_or_default();
        Err(super::problem::Problem::read(status, &text).into())
    }

    fn call(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
        repeatable: bool,
        only_new: bool,
    ) -> Outcome<String> {
        let mut pauses = PAUSES.iter();
        loop {
            let lost = match self.once(method, path, body, only_new)? {
                Ok((status, text)) if (200..300).contains(&status) => return Ok(text),
                Ok((status, text)) => {
                    return Err(super::problem::Problem::read(status, &text).into());
                }
                Err(lost) => lost,
            };
            if never_arrived(&lost) {
                return Err(self.unreachable(&lost));
            }
            match pauses.next() {
                Some(pause) if repeatable => {
                    talk(&format!(
                        "No whole answer ({}); the request is sent again.",
                        visible(&lost.to_string())
                    ));
                    std::thread::sleep(*pause);
                }
                _ => {
                    let failure = self.unreachable(&lost);
                    return Err(if body.is_some() {
                        failure.and("Whether it took effect is not known.")
                    } else {
                        failure
                    });
                }
            }
        }
    }

    /// One try. The inner error: no whole answer came.
    fn once(
        &self,
        method: &Method,
        path: &str,
        body: Option<&str>,
        only_new: bool,
    ) -> Outcome<Result<(u16, String), Error>> {
        let mut request = self.request(method, path)?;
        if only_new {
            request = request.header(header::IF_NONE_MATCH, "*");
        }
        let wrong = |error: http::Error| Failure::usage(error.to_string());
        let response = match body {
            None => self.agent.run(request.body(()).map_err(wrong)?),
            Some(text) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                self.agent.run(request.body(text).map_err(wrong)?)
            }
        };
        Ok(response.and_then(|mut response| {
            let status = response.status().as_u16();
            let body = response.body_mut().with_config().limit(MAX_ANSWER);
            Ok((status, body.read_to_string()?))
        }))
    }

    fn request(&self, method: &Method, path: &str) -> Outcome<http::request::Builder> {
        let uri: http::Uri = format!("{}{path}", self.url)
            .parse()
            .map_err(|error| Failure::usage(format!("{}: {error}", visible(path))))?;
        let request = Request::builder().method(method).uri(uri);
        Ok(match &self.bearer {
            Some(bearer) => request.header(header::AUTHORIZATION, bearer),
            None => request,
        })
    }

    /// What it means when no answer came.
    fn unreachable(&self, error: &Error) -> Failure {
        let exit = match error {
            // What came was not HTTP, or the certificate is not trusted.
            Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => Exit::Failed,
            Error::Io(_)
            | Error::Timeout(_)
            | Error::HostNotFound
            | Error::ConnectionFailed
            | Error::Protocol(_)
            | Error::ConnectProxyFailed(_) => Exit::Temporary,
            _ => Exit::Failed,
        };
        Failure::new(
            exit,
            format!(
                "no answer from {}: {}",
                visible(&self.url),
                visible(&error.to_string())
            ),
        )
    }
}

/// Whose certificates count: the authorities of the file alone, or the machine's own.
fn believed(file: Option<&Path>) -> Outcome<TlsConfig> {
    let Some(file) = file else {
        return Ok(trust::machine());
    };
    trust::only(file).map_err(|error| {
        let shown = file.display().to_string();
        Failure::usage(format!("--ca-cert {}: {error}", visible(&shown)))
    })
}

/// Whether the address is of this machine, which no proxy could reach.
fn on_this_machine(url: &str) -> bool {
    let parsed = url.parse::<http::Uri>().ok();
    let host = parsed.as_ref().and_then(http::Uri::host);
    let host = host.unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Surely nothing was sent.
fn never_arrived(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        Error::Timeout(timeout) => {
            matches!(timeout, ureq::Timeout::Resolve | ureq::Timeout::Connect)
        }
        Error::Protocol(_) => false,
        _ => true,
    }
}

/// An answer as a type; `path` says whose, should it not fit.
pub(super) fn parse<T: DeserializeOwned>(path: &str, text: &str) -> Outcome<T> {
    serde_json::from_str(text).map_err(|error| Failure::strange(path, &error))
}

/// Standard input, whole, and with a bound.
pub(super) fn read_all(from: impl Read, limit: u64, what: &str) -> Outcome<String> {
    let mut bytes = Vec::new();
    from.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{what}: {error}")))?;
    if bytes.len() as u64 > limit {
        return Err(Failure::usage(format!("{what}: more than {limit} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{what}: not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_stands_before_this_machine() {
        for own in [
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "http://localhost:1/base",
            "https://[::1]:8080",
        ] {
            assert!(on_this_machine(own), "{own}");
        }
        for other in [
            "http://10.0.0.1",
            "http://localhost.example",
            "http://[2001:db8::1]",
        ] {
            assert!(!on_this_machine(other), "{other}");
        }
    }
}
