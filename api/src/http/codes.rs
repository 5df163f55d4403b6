//! The one table of what goes wrong. It feeds the answers, `/problems/{code}`, the OpenAPI examples and the documentation.

use crate::limit::Limit;
use quita_storage::sometimes::Sometimes;
use serde::Serialize;

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
    TlsRequired = "tls_required", 400, never, None, "The request came without TLS", "Use a URL that begins with https://.";
    MissingCredentials = "missing_credentials", 401, never, None, "Credentials are missing", "Send `Authorization: Bearer` and an API key or a token. They are never read from the URL.";
    UnsupportedScheme = "unsupported_scheme", 401, never, None, "The authentication scheme is not supported", "Use the scheme `Bearer`.";
    InvalidKey = "invalid_key", 401, never, None, "The API key is not valid", "Use a key that exists, is not revoked and has not expired.";
    InvalidToken = "invalid_token", 401, never, None, "The token is not valid", "Get a new token from your issuer. Whoever runs this server can see why with `quita token check`.";
    InsufficientScope = "insufficient_scope", 403, never, None, "The key may not do this anywhere", "Use a key with this right.";
    UntrustedOrigin = "untrusted_origin", 403, never, None, "The request may come from a page of somebody else", "A server with `--dev-no-auth` answers at localhost, 127.0.0.1 and [::1], and pages of its own or of an origin in `--cors-allow-origin`.";
    WiderThanCaller = "wider_than_caller", 403, never, None, "The key allows more than yours does", "Ask for scopes that your own key has, or use a wider key.";
    NotFound = "not_found", 404, never, None, "There is nothing here", "Check the path or the id. What belongs to others looks absent.";
    QueueNotFound = "queue_not_found", 404, never, None, "No such queue", "Check the name, or create the queue with PUT /v1/queues/{queue}.";
    MethodNotAllowed = "method_not_allowed", 405, never, None, "The method is not allowed here", "Use a method that the Allow header names.";
    RequestTimeout = "request_timeout", 408, retry, None, "The body did not arrive in time", "Send the whole body within 30 seconds.";
    AlreadyDead = "already_dead", 409, never, None, "The message is a dead letter already", "Redrive or discard it.";
    CompletionRemembered = "completion_remembered", 409, never, None, "A worker has reported the work as done", "Discard the dead letter, or redrive it with `force` if the work must be done again.";
    CountMismatch = "count_mismatch", 409, never, None, "The selection has another number of messages", "Look at the selection again, and repeat with its `count` as `expected_count`.";
    Expired = "expired", 409, never, None, "The message is past its `expires_at`", "Redrive with a new `expires_in_seconds`.";
    KeysNotUnique = "keys_not_unique", 409, never, None, "Live messages share a key", "Settle, cancel or discard the repeated ones before switching `unique_key` on.";
    KeyEnded = "key_ended", 409, never, None, "The API key is revoked or has expired", "Make a new key.";
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
    FailedLogins = "too_many_failed_logins", 429, never, None, "Too many wrong keys and tokens from here", "Sending the same credentials again does not help: get good ones.";
    RateLimited = "rate_limited", 429, retry, None, "Too many requests", "Repeat after the time in Retry-After.";
    Internal = "internal", 500, retry, Unknown, "The server failed", "Repeat with the same client_request_id or receipt, and report the request id.";
    Draining = "draining", 503, retry, None, "The server is stopping", "Repeat: another one, or the next one, answers.";
    IssuerUnavailable = "issuer_unavailable", 503, retry, None, "The keys of the token's issuer cannot be had", "Repeat after the time in Retry-After, or use an API key.";
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

    /// What every caller gets while the store or an issuer is away, as a kind of line in the log.
    pub(super) fn away(self) -> Option<&'static Sometimes> {
        static STORE: Sometimes = Sometimes::new();
        static OUTCOME: Sometimes = Sometimes::new();
        static ISSUER: Sometimes = Sometimes::new();
        match self {
            Self::StorageUnavailable => Some(&STORE),
            Self::OutcomeUnknown => Some(&OUTCOME),
            Self::IssuerUnavailable => Some(&ISSUER),
            _ => None,
        }
    }

    /// Seconds for `Retry-After`, where the status asks for it.
    pub const fn retry_after_seconds(self) -> Option<u32> {
        match self.row().status {
            507 => Some(30),
            429 | 503 => Some(1),
            _ => None,
        }
    }

    /// The limit that this code is always about.
    pub const fn limit(self) -> Option<Limit> {
        match self {
            Self::QueueFull => Some(Limit::QueueDepth),
            Self::DiskLow => Some(Limit::FreeDisk),
            Self::PayloadTooLarge => Some(Limit::PayloadSize),
            Self::BodyTooLarge => Some(Limit::BodySize),
            Self::UriTooLong => Some(Limit::TargetSize),
            Self::RequestTimeout => Some(Limit::BodyTime),
            Self::FailedLogins => Some(Limit::FailedLogins),
            _ => None,
        }
    }
}
