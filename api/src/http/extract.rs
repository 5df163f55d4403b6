//! From a request to what a handler works with: who calls, the body as checked text, names and ids from the path.
//!
//! Everything that can be refused without reading the body is refused first, so that a client which asked for permission
//! (`Expect: 100-continue`) is not told to send what nobody will read.

use super::bodies::Taken;
use super::problem::{Code, Problem};
use super::query::Query;
use super::server::{BodyTooSlow, Connection};
use super::{edge, fields, json};
use crate::AppState;
use crate::auth::Principal;
use crate::auth::bucket::Class;
use crate::service::fingerprint;
use crate::service::queues::Precondition;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt;
use quita_storage::backend::{Call, OperationRefused};
use quita_storage::coalescer::Held;
use quita_storage::dead_letters::SelectionId;
use quita_storage::model::MessageId;
use quita_storage::redrives::RedriveId;
use std::sync::Arc;

/// Largest body of a request about one thing: a message of the largest size in the most wasteful escapes fits.
pub(crate) const MAX_BODY: usize = 2 << 20;
/// Largest body of a batch: 8 MiB (product §5).
pub(crate) const MAX_BATCH_BODY: usize = 8 << 20;

/// One request on its way to its handler.
pub(crate) struct Incoming {
    /// What the server is made of.
    pub(crate) state: Arc<AppState>,
    /// Who calls.
    pub(crate) caller: Principal,
    /// The `Request-Id` of the request.
    pub(crate) request_id: HeaderValue,
    parts: Parts,
    body: Body,
    taken: Taken,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.state.bodies.give_back(&mut self.taken);
    }
}

/// A body: JSON text of the right media type, size and depth.
pub(crate) struct JsonBody(Bytes);

impl JsonBody {
    /// The text. An absent optional body reads as an empty object.
    pub(crate) fn text(&self) -> &str {
        // Checked when it was read; checking again is cheaper than trusting.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// A part of the text as bytes of its own: small ones are copied, so that they do not keep the whole body alive.
    pub(crate) fn part(&self, part: &str) -> Bytes {
        if part.len() <= 16 << 10 {
            Bytes::copy_from_slice(part.as_bytes())
        } else {
            self.0.slice_ref(part.as_bytes())
        }
    }
}

impl Incoming {
    pub(crate) fn new(
        state: Arc<AppState>,
        caller: Principal,
        request_id: HeaderValue,
        (parts, body): (Parts, Body),
        settles: bool,
    ) -> Self {
        let taken = state.bodies.begin(settles);
        Self {
            state,
            caller,
            request_id,
            parts,
            body,
            taken,
        }
    }

    /// The headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The query, of which only `known` parameters are allowed.
    pub(crate) fn query(&self, known: &[&'static str]) -> Query {
        Query::open(self.parts.uri.query(), known)
    }

    /// Refuses any query.
    pub(crate) fn no_query(&self) -> Result<(), Problem> {
        match self.parts.uri.query() {
            None | Some("") => Ok(()),
            Some(query) => Query::open(Some(query), &[]).finish(),
        }
    }

    /// Refuses any body.
    pub(crate) fn no_body(&self) -> Result<(), Problem> {
        if http_body::Body::is_end_stream(&self.body) {
            Ok(())
        } else {
            Err(Code::BodyNotAllowed.into())
        }
    }

    /// Reads the body. Nested at most `levels` deep.
    pub(crate) async fn json(&mut self, limit: usize, levels: usize) -> Result<JsonBody, Problem> {
        self.no_query()?;
        self.check_encoding()?;
        if http_body::Body::is_end_stream(&self.body) {
            return Err(Code::BodyRequired.into());
        }
        self.check_length(limit)?;
        self.check_media_type()?;
        let (bodies, taken) = (&self.state.bodies, &mut self.taken);
        let bytes = read_limited(&mut self.body, limit, |more| bodies.take(taken, more)).await?;
        if bytes.is_empty() {
            return Err(Code::BodyRequired.into());
        }
        if std::str::from_utf8(&bytes).is_err() {
            return Err(Code::InvalidUtf8.into());
        }
        if json::deeper_than(&bytes, levels) {
            return Err(Code::NestingTooDeep.into());
        }
        Ok(JsonBody(bytes))
    }

    /// Reads a body that may be missing.
    pub(crate) async fn optional_json(&mut self) -> Result<JsonBody, Problem> {
        if http_body::Body::is_end_stream(&self.body) {
            self.no_query()?;
            return Ok(JsonBody(Bytes::from_static(b"{}")));
        }
        self.json(MAX_BODY, fields::MAX_NESTING).await
    }

    fn check_encoding(&self) -> Result<(), Problem> {
        match self.parts.headers.get(header::CONTENT_ENCODING) {
            None => Ok(()),
            Some(encoding) if encoding.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(()),
            Some(_) => Err(Code::UnsupportedEncoding.into()),
        }
    }

    fn check_length(&self, limit: usize) -> Result<(), Problem> {
        if http_body::Body::size_hint(&self.body).lower() > limit as u64 {
            return Err(too_large(limit));
        }
        Ok(())
    }

    fn check_media_type(&self) -> Result<(), Problem> {
        let sent = self.parts.headers.get(header::CONTENT_TYPE);
        let json = sent.is_some_and(|sent| {
            sent.as_bytes() == b"application/json" || sent.to_str().is_ok_and(is_json)
        });
        if json {
            Ok(())
        } else {
            Err(Code::UnsupportedMediaType.into())
        }
    }

    async fn parameter(&mut self, name: &str) -> Result<String, Problem> {
        let found = RawPathParams::from_request_parts(&mut self.parts, &()).await;
        let not_utf8 = |_| {
            Problem::at(
                Code::InvalidUnicode,
                format!("path:{name}"),
                "UTF-8 is expected.",
            )
        };
        let parameters = found.map_err(not_utf8)?;
        let found = parameters.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, value)| value.to_owned())
            .ok_or_else(|| Code::NotFound.into())
    }

    /// The queue that the path names.
    pub(crate) async fn queue(&mut self) -> Result<String, Problem> {
        let name = self.parameter("queue").await?;
        if is_queue_name(&name) {
            Ok(name)
        } else {
            Err(Problem::from(Code::InvalidQueueName).pointing("path:queue"))
        }
    }

    /// The message that the path names. What cannot be an id names nothing.
    pub(crate) async fn message_id(&mut self) -> Result<MessageId, Problem> {
        let id = self.parameter("message_id").await?;
        MessageId::parse(&id)
            .ok_or_else(|| Problem::new(Code::NotFound, "There is no message of this id."))
    }

    /// The selection that the path names.
    pub(crate) async fn selection_id(&mut self) -> Result<SelectionId, Problem> {
        let id = self.parameter("selection_id").await?;
        SelectionId::parse(&id).ok_or_else(|| OperationRefused::SelectionNotFound.into())
    }

    /// The redrive that the path names.
    pub(crate) async fn redrive_id(&mut self) -> Result<RedriveId, Problem> {
        let id = self.parameter("redrive_id").await?;
        RedriveId::parse(&id).ok_or_else(|| OperationRefused::RedriveNotFound.into())
    }

    /// The key that the path names. What cannot be an id names nothing.
    pub(crate) async fn key_id(&mut self) -> Result<String, Problem> {
        self.parameter("key_id").await
    }

    /// `If-Match` and `If-None-Match`.
    pub(crate) fn precondition(&self) -> Precondition {
        let if_none_match = self.parts.headers.get(header::IF_NONE_MATCH);
        if if_none_match.is_some_and(|value| value == "*") {
            return Precondition::Absent;
        }
        let Some(if_match) = self.parts.headers.get(header::IF_MATCH) else {
            return Precondition::None;
        };
        let text = if_match.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Precondition::Exists;
        }
        text.strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .and_then(|version| version.parse().ok())
            .map_or(Precondition::Never, Precondition::Version)
    }

    /// What makes an operator's call recognisable when it is repeated.
    pub(crate) fn call(
        &self,
        body: &JsonBody,
        request_id: Option<&str>,
        justification: Option<&str>,
    ) -> Call {
        Call {
            request_id: request_id.map(Into::into),
            fingerprint: fingerprint::of_call(self.parts.uri.path(), &body.0),
            justification: justification.map(Into::into),
            ..self.plain_call()
        }
    }

    /// A call that is made again when it is repeated.
    pub(crate) fn plain_call(&self) -> Call {
        Call {
            actor: self.caller.id.clone(),
            http_request: self.request_id.to_str().ok().map(Into::into),
            ..Call::default()
        }
    }

    /// Charges all items of this request to the caller's key, or refuses it.
    pub(crate) fn admit_items(&self, class: Class, count: usize) -> Result<(), Problem> {
        let admission = &self.state.admission;
        admission.admit_items(&self.caller.id, class, count)
    }

    /// Charges the messages that this receive got to the caller's key.
    pub(crate) fn charge_messages(&self, count: usize) {
        self.state.admission.charge_messages(&self.caller.id, count);
    }

    /// Charges the settles of this request to the caller's key.
    pub(crate) fn charge_settles(&self, count: usize) {
        self.state.admission.charge_settles(&self.caller.id, count);
    }

    /// Counts the refusal of one item of this request.
    pub(crate) fn count(&self, problem: &Problem) {
        edge::count(&self.state.metrics, problem);
    }

    /// Hands leases to the connection: it gives them back unless the whole answer gets through.
    pub(crate) fn hold(&self, held: Option<Held>) {
        let Some(held) = held else { return };
        match self.parts.extensions.get::<Connection>() {
            Some(connection) => connection.hold(held),
            None => held.delivered(),
        }
    }
}

async fn read_limited(
    body: &mut Body,
    limit: usize,
    mut take: impl FnMut(usize) -> Result<(), Problem>,
) -> Result<Bytes, Problem> {
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unreadable(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if all.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Err(too_large(limit));
        }
        take(data.len())?;
        match first.take() {
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(earlier) => {
                all.extend_from_slice(&earlier);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

fn unreadable(error: &axum::Error) -> Problem {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<BodyTooSlow>() {
            return Code::RequestTimeout.into();
        }
        cause = error.source();
    }
    Problem::new(
        Code::MalformedRequest,
        "The body ends early or is framed wrongly.",
    )
    .because(error)
}

fn too_large(limit: usize) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("The limit is {limit} bytes."))
}

/// `application/json`, also with `charset=utf-8`.
fn is_json(media_type: &str) -> bool {
    let mut parts = media_type.split(';').map(str::trim);
    let json = parts
        .next()
        .is_some_and(|t| t.eq_ignore_ascii_case("application/json"));
    json && parts.all(|parameter| {
        parameter.split_once('=').is_some_and(|(name, value)| {
            name.trim().eq_ignore_ascii_case("charset")
                && value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        })
    })
}

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,79}`, no `..` (product §5).
pub(crate) fn is_queue_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=80).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(plain)
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names() {
        let long = "q".repeat(80);
        for name in ["a", "A1", "orders.eu-west_1", "0", &*long] {
            assert!(is_queue_name(name), "{name}");
        }
        let too_long = "q".repeat(81);
        for name in [
            "", ".", "..", "-x", "_x", ".x", "a..b", "a/b", "a b", "ä", "a%2Fb", &*too_long,
        ] {
            assert!(!is_queue_name(name), "{name}");
        }
    }

    #[test]
    fn media_types() {
        for media_type in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
        ] {
            assert!(is_json(media_type), "{media_type}");
        }
        for media_type in [
            "",
            "text/plain",
            "application/jsonp",
            "application/json; charset=latin1",
            "application/json; boundary=x",
            "application/problem+json",
            "multipart/form-data; boundary=x",
        ] {
            assert!(!is_json(media_type), "{media_type}");
        }
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_as_soon_as_it_is() {
        let chunks = |n: usize| {
            Body::new(http_body_util::StreamBody::new(futures_util::stream::iter(
                (0..n).map(|_| {
                    Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(b"abcd")))
                }),
            )))
        };
        let read = async |n| {
            let mut bytes = 0;
            let take = |more| {
                bytes += more;
                Ok(())
            };
            let read = read_limited(&mut chunks(n), 8, take).await;
            (read, bytes)
        };
        for (n, whole) in [(2, "abcdabcd"), (1, "abcd")] {
            let (read, bytes) = read(n).await;
            assert_eq!((read.unwrap(), bytes), (whole.into(), whole.len()));
        }
        let refused = read(usize::MAX).await.0.unwrap_err();
        assert_eq!(refused.code(), Code::BodyTooLarge);
    }
}
