//! What goes wrong, as `application/problem+json` (RFC 9457): every answer that is not a success is built here.
//!
//! The table of all codes is in [`super::codes`].

pub use super::codes::{Code, Effect, Row};
use crate::limit::Limit;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// One wrong value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// JSON pointer into the body; or `query:name`, `header:name`, `path:name`.
    pub pointer: String,
    /// What is wrong, as a code.
    pub code: &'static str,
    /// What is wrong, for people. Never what was sent.
    pub detail: Cow<'static, str>,
}

/// What was counted where something else was expected.
#[derive(Clone, Copy, Debug, Serialize)]
struct Counts {
    expected_count: i64,
    actual_count: i64,
}

#[derive(Debug)]
struct Parts {
    code: Code,
    detail: Cow<'static, str>,
    effect: Effect,
    errors: Vec<FieldError>,
    counts: Option<Counts>,
    allow: Option<HeaderValue>,
    limit: Option<Limit>,
    retry_after: Option<Duration>,
    source: Option<String>,
}

/// An answer that is not a success.
#[derive(Debug)]
pub struct Problem(Box<Parts>);

#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    retryable: bool,
    effect: Effect,
    hint: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    errors: &'a [FieldError],
    #[serde(flatten)]
    counts: Option<Counts>,
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        let row = code.row();
        Self(Box::new(Parts {
            code,
            detail: Cow::Borrowed(row.title),
            effect: row.effect,
            errors: Vec::new(),
            counts: None,
            allow: None,
            limit: code.limit(),
            retry_after: None,
            source: None,
        }))
    }
}

impl Problem {
    /// A problem with a text for the caller. Never pass what the caller sent.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut problem = Self::from(code);
        problem.0.detail = detail.into();
        problem
    }

    /// A single wrong value.
    pub fn at(
        code: Code,
        pointer: impl Into<String>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(code, detail).pointing(pointer)
    }

    /// Several wrong values; the first one decides the code.
    pub fn of_fields(code: Code, errors: Vec<FieldError>) -> Self {
        let mut problem = Self::from(code);
        if let Some(first) = errors.first() {
            problem.0.detail.clone_from(&first.detail);
        }
        problem.0.errors = errors;
        problem
    }

    /// Names the value that it is about.
    #[must_use]
    pub fn pointing(mut self, pointer: impl Into<String>) -> Self {
        self.0.errors.push(FieldError {
            pointer: pointer.into(),
            code: self.0.code.as_str(),
            detail: self.0.detail.clone(),
        });
        self
    }

    /// Names the value that it is about, and no other.
    #[must_use]
    pub fn pointing_only(mut self, pointer: impl Into<String>) -> Self {
        self.0.errors.clear();
        self.pointing(pointer)
    }

    /// Tells the caller two numbers that should be one.
    #[must_use]
    pub fn with_counts(mut self, expected: i64, actual: i64) -> Self {
        self.0.counts = Some(Counts {
            expected_count: expected,
            actual_count: actual,
        });
        self
    }

    /// The problem of a part of a request: pointers into the part become pointers into the whole.
    #[must_use]
    pub fn within(mut self, part: &str) -> Self {
        for error in &mut self.0.errors {
            if error.pointer.starts_with('/') {
                error.pointer.insert_str(0, part);
            }
        }
        self
    }

    /// What may have happened, when that is not what the table says.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// The methods for `Allow`.
    #[must_use]
    pub fn allowing(mut self, allow: HeaderValue) -> Self {
        self.0.allow = Some(allow);
        self
    }

    /// The limit that refused it.
    #[must_use]
    pub fn by(mut self, limit: Limit) -> Self {
        self.0.limit = Some(limit);
        self
    }

    /// For `Retry-After`, when that is not what the table says. Rounded up to whole seconds.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// What happened, for the log alone.
    #[must_use]
    pub fn because(mut self, source: impl fmt::Display) -> Self {
        self.0.source = Some(source.to_string());
        self
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The limit that refused it, if one did.
    pub fn limit(&self) -> Option<Limit> {
        self.0.limit
    }

    /// Its HTTP status.
    pub fn status(&self) -> u16 {
        self.0.code.row().status
    }

    fn written<'a>(&'a self, request_id: Option<&'a str>) -> Written<'a> {
        let row = self.0.code.row();
        Written {
            kind: format!("/problems/{}", row.name),
            title: row.title,
            status: row.status,
            detail: &self.0.detail,
            code: row.name,
            retryable: row.retryable,
            effect: self.0.effect,
            hint: row.hint,
            request_id,
            limit: self.0.limit.map(Limit::name),
            errors: &self.0.errors,
            counts: self.0.counts,
        }
    }

    /// As JSON text.
    pub fn to_json(&self, request_id: Option<&str>) -> String {
        // Our own types always serialise.
        serde_json::to_string(&self.written(request_id)).unwrap_or_default()
    }

    /// As an answer. Logged here, once: failures of ours as errors, everything else for those who look for it. What a limit
    /// refuses is counted, and of what fails while something is away a few are said: a line for each would make a flood of
    /// lines of a flood of requests.
    pub fn into_response(self, request_id: &str) -> Response {
        let (code, status) = (self.0.code.as_str(), self.status());
        let source = self.0.source.as_deref().unwrap_or_default();
        let shed = self.0.limit.is_some() || self.0.code == Code::Draining;
        let said = match self.0.code.away() {
            Some(kind) => kind.now(),
            None => Some(0),
        };
        if let (500.., false, Some(unsaid)) = (status, shed, said) {
            let detail = &self.0.detail;
            tracing::error!(request_id, code, status, source, unsaid, "{detail}");
        } else {
            tracing::debug!(request_id, code, status, source, "{}", self.0.detail);
        }
        let mut response = Response::new(Body::from(self.to_json(Some(request_id))));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(challenge) = challenge(self.0.code) {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        let wait = self
            .0
            .retry_after
            .map(|wait| wait.as_secs_f64().ceil() as u32);
        if let Some(seconds) = wait.or(self.0.code.retry_after_seconds()) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.0.allow {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
}

/// As RFC 6750 §3 has it: an error is named only to who sent credentials of the right kind.
fn challenge(code: Code) -> Option<HeaderValue> {
    let challenge = match code {
        Code::MissingCredentials | Code::UnsupportedScheme => "Bearer realm=\"quita\"",
        Code::InvalidKey | Code::InvalidToken | Code::FailedLogins => {
            "Bearer realm=\"quita\", error=\"invalid_token\""
        }
        Code::InsufficientScope => "Bearer realm=\"quita\", error=\"insufficient_scope\"",
        _ => return None,
    };
    Some(HeaderValue::from_static(challenge))
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written(None).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::collections::HashSet;

    #[test]
    fn every_code_is_unique_plain_and_says_what_to_do() {
        let mut names = HashSet::new();
        for code in Code::ALL {
            let row = code.row();
            assert!(names.insert(row.name), "{} is there twice", row.name);
            assert!(
                row.name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
            );
            assert_eq!(Code::parse(row.name), Some(*code));
            assert!(
                !row.title.is_empty() && row.hint.ends_with('.'),
                "{}",
                row.name
            );
            assert!((400..=599).contains(&row.status));
            assert_eq!(
                code.retry_after_seconds().is_some(),
                matches!(row.status, 429 | 503 | 507)
            );
            assert!(row.retryable || row.status < 500);
        }
        let statuses: Vec<u16> = Code::ALL.iter().map(|c| c.row().status).collect();
        assert!(statuses.is_sorted());
    }

    #[tokio::test]
    async fn every_code_becomes_a_complete_answer() {
        for code in Code::ALL {
            let response = Problem::at(*code, "/x", "no \"echo\"").into_response("req-1");
            let row = code.row();
            assert_eq!(response.status().as_u16(), row.status);
            assert_eq!(
                response.headers()["content-type"],
                "application/problem+json"
            );
            let challenge = response.headers().get("www-authenticate");
            let error =
                challenge.map(|challenge| challenge.to_str().unwrap().split("error=").nth(1));
            let named = match row.name {
                "missing_credentials" | "unsupported_scheme" => Some(None),
                "invalid_key" | "invalid_token" | "too_many_failed_logins" => {
                    Some(Some("\"invalid_token\""))
                }
                "insufficient_scope" => Some(Some("\"insufficient_scope\"")),
                _ => None,
            };
            assert_eq!(error, named, "{}", row.name);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(json["type"], format!("/problems/{}", row.name));
            assert_eq!(json["code"], row.name);
            assert_eq!(json["status"], row.status);
            assert_eq!(json["request_id"], "req-1");
            assert_eq!(json["errors"][0]["pointer"], "/x");
            assert_eq!(json["retryable"], row.retryable);
            for member in ["title", "detail", "effect", "hint"] {
                assert!(json[member].is_string(), "{member}");
            }
        }
    }
}
