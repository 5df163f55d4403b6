//! What goes wrong, as `application/problem+json` (RFC 9457): every answer that is not a success is built here.
//!
//! [`codes!`] is the one table. It feeds the answers, `/problems/{code}`, the OpenAPI examples and the documentation.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// What may have happened although the answer is a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Surely nothing changed.
    None,
    /// Nobody can say; repeating with the same request id or receipt is safe.
    Unknown,
    /// Nothing changed but one thing: the completion of the work is kept, and takes effect by itself.
    CompletionRemembered,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As written in `code`.
    pub name: &'static str,
    /// HTTP status.
    pub status: u16,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What may have happened, unless the problem itself knows better.
    pub effect: Effect,
    /// What it is, in a few words; the same for every problem of this code.
    pub title: &'static str,
    /// What to do about it.
    pub hint: &'static str,
}

macro_rules! codes {
    ($($variant:ident = $name:literal, $status:literal, $retry:ident, $effect:ident, $title:literal, $hint:literal;)+) => {
        /// A kind of problem. Stable: clients decide by it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $title] $variant),+ }

        impl Code {
            /// All codes, by status.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// What the table says about this code.
            pub const fn row(self) -> Row {
                match self {
                    $(Self::$variant => Row {
                        name: $name, status: $status, retryable: codes!(@$retry), effect: Effect::$effect, title: $title, hint: $hint,
                    }),+
                }
            }

            /// Back from the written form.
            pub fn parse(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
    (@retry) => { true };
    (@never) => { false };
}

codes! {
    MalformedRequest = "malformed_request", 400, never, None, "The request is not valid HTTP", "Repair the request line, the Host header or the framing of the body.";
    BodyRequired = "body_required", 400, never, None, "A body is required", "Send a JSON object.";
    BodyNotAllowed = "body_not_allowed", 400, never, None, "This request takes no body", "Send it without a body; parameters of a GET go into the query.";
    MalformedJson = "malformed_json", 400, never, None, "The body is not JSON", "Send one JSON document as RFC 8259 describes it, without comments and trailing commas.";
    InvalidUtf8 = "invalid_utf8", 400, never, None, "The body is not UTF-8", "Encode the body as UTF-8; binary data goes as base64 in a JSON string.";
    DuplicateField = "duplicate_field", 400, never, None, "A field is given twice", "Give each field once. Inside `message` repeated names are allowed.";
    NestingTooDeep = "nesting_too_deep", 400, never, None, "The JSON is nested too deeply", "Nest at most 64 levels, and 128 inside `message`.";
    MissingCredentials = "missing_credentials", 401, never, None, "Credentials are missing", "Send `Authorization: Bearer` and an API key. Keys are never read from the URL.";
    UnsupportedScheme = "unsupported_scheme", 401, never, None, "The authentication scheme is not supported", "Use the scheme `Bearer`.";
    InvalidKey = "invalid_key", 401, never, None, "The API key is not valid", "Use a key that exists and is not revoked.";
    InsufficientScope = "insufficient_scope", 403, never, None, "The key may not do this anywhere", "Use a key with this right.";
    NotFound = "not_found", 404, never, None, "There is nothing here", "Check the path or the id. What belongs to others looks absent.";
    QueueNotFound = "queue_not_found", 404, never, None, "No such queue", "Check the name, or create the queue with PUT /v1/queues/{queue}.";
    MethodNotAllowed = "method_not_allowed", 405, never, None, "The method is not allowed here", "Use a method that the Allow header names.";
    RequestTimeout = "request_timeout", 408, retry, None, "The body did not arrive in time", "Send the whole body within 30 seconds.";
    AlreadyDead = "already_dead", 409, never, None, "The message is a dead letter already", "Redrive or discard it.";
    CompletionRemembered = "completion_remembered", 409, never, None, "A worker has reported the work as done", "Discard the dead letter, or redrive it with `force` if the work must be done again.";
    CountMismatch = "count_mismatch", 409, never, None, "The selection has another number of messages", "Look at the selection again, and repeat with its `count` as `expected_count`.";
    Expired = "expired", 409, never, None, "The message is past its `expires_at`", "Redrive with a new `expires_in_seconds`.";
    KeysNotUnique = "keys_not_unique", 409, never, None, "Live messages share a key", "Settle, cancel or discard the repeated ones before switching `unique_key` on.";
    KeyTaken = "key_taken", 409, never, None, "Another message has this key by now", "Leave it discarded: the key must be unique, and its new message counts.";
    LeaseExpired = "lease_expired", 409, never, None, "The lease is over", "Stop working on it: the message comes again or is a dead letter.";
    LeaseSuperseded = "lease_superseded", 409, never, None, "Another delivery has the message", "Stop working on it. If the effect is `completion_remembered`, the finished work counts.";
    MessageGone = "message_gone", 409, never, None, "The message is gone", "Nothing to do: it was settled or taken out meanwhile.";
    NotDead = "not_dead", 409, never, None, "The message is not a dead letter", "Only dead letters can be redriven or discarded.";
    NotDelayed = "not_delayed", 409, never, None, "The message is not delayed", "Only delayed messages can be promoted.";
    NotDiscarded = "not_discarded", 409, never, None, "The message is not discarded", "Only discarded dead letters can be re-opened.";
    NotEdited = "not_edited", 409, never, None, "Nobody has changed it since it died", "There is nothing to undo.";
    NotWaiting = "not_waiting", 409, never, None, "The message is not waiting", "Only ready and delayed messages can be cancelled.";
    PayloadGone = "payload_gone", 409, never, None, "The payload is not kept any more", "A discard can be taken back for 7 days. Publish the work again if it must be done.";
    QueueNotEmpty = "queue_not_empty", 409, never, None, "The queue holds messages", "Purge it first, or delete it with `?force=true`.";
    ReceiptFromBeforeRestore = "receipt_from_before_restore", 409, never, None, "The receipt is from before the store was restored", "Stop working on it: the message comes again. Check whether the work was done.";
    ReceiptSpent = "receipt_spent", 409, never, None, "The delivery was settled otherwise before", "Nothing to do: the first settle counts.";
    RedriveFinished = "redrive_finished", 409, never, None, "The redrive is over", "Make a new selection and begin another one.";
    RedriveLimit = "redrive_limit", 409, never, None, "The message was redriven too often", "Find out why it fails, or redrive it with `force`.";
    RevisionConflict = "revision_conflict", 409, retry, None, "Somebody else has changed it meanwhile", "Read the message again, and repeat the change if it is still wanted.";
    RevisionLimit = "revision_limit", 409, never, None, "It was changed too often", "Redrive or discard it, or publish a new message.";
    SelectionExpired = "selection_expired", 409, never, None, "The selection is too old", "Make a new one, and look at it.";
    TakenByOperator = "taken_by_operator", 409, never, None, "An operator took the message out", "Stop working on it. If the effect is `completion_remembered`, the finished work is noted on the dead letter.";
    PreconditionFailed = "precondition_failed", 412, never, None, "The queue is in another version", "Read it again and repeat with its present ETag.";
    BodyTooLarge = "body_too_large", 413, never, None, "The body is too large", "Send less, or fewer entries at once.";
    PayloadTooLarge = "payload_too_large", 413, never, None, "The message is too large", "Store the data elsewhere and send a reference.";
    UriTooLong = "uri_too_long", 414, never, None, "The path is too long", "Shorten the path and its query.";
    UnsupportedMediaType = "unsupported_media_type", 415, never, None, "The media type is not supported", "Send `Content-Type: application/json`.";
    UnsupportedEncoding = "unsupported_encoding", 415, never, None, "The content encoding is not supported", "Send the body without Content-Encoding.";
    ExpectationFailed = "expectation_failed", 417, never, None, "The expectation is not supported", "Send no Expect header, or `100-continue`.";
    BatchSize = "batch_size", 422, never, None, "Too few or too many entries", "Send 1 to 1,000 entries.";
    ClientRequestIdConflict = "client_request_id_conflict", 422, never, None, "The `client_request_id` was used for something else", "Use a new id for a new request, and the same body when you repeat one.";
    ConfirmationRequired = "confirmation_required", 422, never, None, "A confirmation is required", "Give the queue's name in `confirm`.";
    ControlCharacter = "control_character", 422, never, None, "A text contains a control character", "Remove it.";
    ExpectedObject = "expected_object", 422, never, None, "The body is not a JSON object", "Send a JSON object.";
    InvalidPageToken = "invalid_page_token", 422, never, None, "The page token is not valid", "Use `next_page_token` of the page before, with the same parameters.";
    InvalidQueueName = "invalid_queue_name", 422, never, None, "The queue name is not valid", "Use 1 to 80 of A-Z a-z 0-9 . _ -, beginning with a letter or digit, without two dots in a row.";
    InvalidReceipt = "invalid_receipt", 422, never, None, "The receipt is not valid", "Send the receipt exactly as it was received.";
    InvalidUnicode = "invalid_unicode", 422, never, None, "A text is not valid Unicode", "Replace lone surrogates.";
    InvalidValue = "invalid_value", 422, never, None, "A value is not one of the allowed ones", "See `errors`.";
    KeyRequired = "key_required", 422, never, None, "This queue wants a key with every message", "Give `key`, or a string member `idempotency_key` in the message.";
    MissingField = "missing_field", 422, never, None, "A field is missing", "See `errors`.";
    MutuallyExclusive = "mutually_exclusive", 422, never, None, "Two values contradict each other", "Give one of them.";
    NotPatchable = "not_patchable", 422, never, None, "A patch would change more than it says", "Send the whole new value as `message`.";
    OutOfRange = "out_of_range", 422, never, None, "A value is out of range", "See `errors`.";
    ReasonRequired = "reason_required", 422, never, None, "A justification is required", "Say why, in at least 10 characters that are not spaces.";
    TooLong = "too_long", 422, never, None, "A text is too long", "See `errors`.";
    UnknownField = "unknown_field", 422, never, None, "A field is not known", "See `errors` for the nearest known name.";
    UnknownParameter = "unknown_parameter", 422, never, None, "A query parameter is not known", "See `errors` for the nearest known name.";
    WrongType = "wrong_type", 422, never, None, "A value has the wrong type", "See `errors`.";
    QueueFull = "queue_full", 429, retry, None, "The queue is full", "Repeat later, or raise `max_depth`.";
    RateLimited = "rate_limited", 429, retry, None, "Too many requests", "Repeat after the time in Retry-After.";
    Internal = "internal", 500, retry, Unknown, "The server failed", "Repeat with the same client_request_id or receipt, and report the request id.";
    Draining = "draining", 503, retry, None, "The server is stopping", "Repeat: another one, or the next one, answers.";
    OutcomeUnknown = "outcome_unknown", 503, retry, Unknown, "Whether the request took effect is not known", "Repeat with the same client_request_id or receipt.";
    Overloaded = "overloaded", 503, retry, None, "Too much is waiting already", "Repeat after the time in Retry-After.";
    StorageUnavailable = "storage_unavailable", 503, retry, None, "The store does not answer", "Repeat after the time in Retry-After.";
    DiskLow = "disk_low", 507, retry, None, "There is too little disk space for new messages", "Free space. Settles still work.";
}

impl Code {
    /// As written in `code`.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Seconds for `Retry-After`, where the status asks for it.
    pub const fn retry_after_seconds(self) -> Option<u32> {
        match self.row().status {
            507 => Some(30),
            429 | 503 => Some(1),
            _ => None,
        }
    }
}

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

#[derive(Debug)]
struct Parts {
    code: Code,
    detail: Cow<'static, str>,
    effect: Effect,
    errors: Vec<FieldError>,
    allow: Option<HeaderValue>,
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
    errors: &'a [FieldError],
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        let row = code.row();
        Self(Box::new(Parts {
            code,
            detail: Cow::Borrowed(row.title),
            effect: row.effect,
            errors: Vec::new(),
            allow: None,
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
            errors: &self.0.errors,
        }
    }

    /// As JSON text.
    pub fn to_json(&self, request_id: Option<&str>) -> String {
        // Our own types always serialise.
        serde_json::to_string(&self.written(request_id)).unwrap_or_default()
    }

    /// As an answer. Logged here, once: failures of ours as errors, everything else for those who look for it.
    pub fn into_response(self, request_id: &str) -> Response {
        let (code, status) = (self.0.code.as_str(), self.status());
        let source = self.0.source.as_deref().unwrap_or_default();
        if status >= 500 {
            tracing::error!(request_id, code, status, source, "{}", self.0.detail);
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
        if status == 401 {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"quita\""),
            );
        }
        if let Some(seconds) = self.0.code.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.0.allow {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
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
            assert_eq!(
                row.status == 401,
                response.headers().contains_key("www-authenticate")
            );
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
