//! How a route describes itself for the OpenAPI document, next to its handler.
//!
//! Reading order: [`Describe`] (what every route says) → `parameters` → `answers` (with their headers, and the links that lead
//! on from them) → [`closed`] (what a request may not contain).

pub(crate) mod answers;
pub(crate) mod closed;
mod parameters;

use super::problem::{Code, Effect};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, OperationBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, Response, Schema};

/// Problems that every route with credentials may answer.
const COMMON: &[Code] = &[
    Code::MalformedRequest,
    Code::MissingCredentials,
    Code::UnsupportedScheme,
    Code::InvalidKey,
    Code::InvalidToken,
    Code::IssuerUnavailable,
    Code::InsufficientScope,
    Code::MethodNotAllowed,
    Code::ExpectationFailed,
    Code::UnknownParameter,
    Code::UriTooLong,
    Code::RateLimited,
    Code::Internal,
    Code::Overloaded,
    Code::StorageUnavailable,
];
/// Problems that every route for everybody may answer.
const OPEN: &[Code] = &[
    Code::MalformedRequest,
    Code::BodyNotAllowed,
    Code::MethodNotAllowed,
    Code::ExpectationFailed,
    Code::UriTooLong,
    Code::Internal,
    Code::Overloaded,
];
/// What a call that carries a request id may answer.
const REPEATABLE: &[Code] = &[
    Code::OutOfRange,
    Code::ClientRequestIdConflict,
    Code::OutcomeUnknown,
];
/// Problems that every route with a body may answer.
const BODY: &[Code] = &[
    Code::MalformedJson,
    Code::InvalidUtf8,
    Code::DuplicateField,
    Code::NestingTooDeep,
    Code::RequestTimeout,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::UnsupportedEncoding,
    Code::ExpectedObject,
    Code::UnknownField,
    Code::WrongType,
    Code::InvalidUnicode,
];

/// One wrong value of a problem.
#[derive(Serialize, ToSchema)]
pub struct ProblemError {
    /// JSON pointer into the body; or `query:name`, `header:name`, `path:name`.
    #[schema(example = "/delay_seconds")]
    pub pointer: String,
    /// What is wrong, as a code.
    #[schema(example = "out_of_range")]
    pub code: String,
    /// What is wrong, for people.
    pub detail: String,
}

/// A problem as RFC 9457 describes it. Decide by `code`, `retryable` and `effect`.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemDocument {
    /// `/problems/{code}`, served by this server.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened here.
    pub detail: String,
    /// The kind of problem.
    pub code: String,
    /// The same request may succeed later.
    pub retryable: bool,
    /// `none`: nothing changed. `unknown`: nobody can say; repeat with the same `client_request_id` or receipt.
    /// `completion_remembered`: the finished work is kept.
    pub effect: String,
    /// What to do about it.
    pub hint: String,
    /// As in the header `Request-Id`.
    pub request_id: Option<String>,
    /// The limit that refused it, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The wrong values.
    pub errors: Vec<ProblemError>,
    /// With `count_mismatch`: what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_count: Option<i64>,
    /// With `count_mismatch`: what there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_count: Option<i64>,
}

/// The description of one route.
pub(crate) struct Route {
    pub(crate) operation: Operation,
    pub(crate) schemas: Vec<(String, RefOr<Schema>)>,
    /// Names of the schemas that its requests are made of.
    pub(crate) taken: Vec<String>,
}

/// Builds a [`Route`].
pub(crate) struct Describe {
    builder: OperationBuilder,
    schemas: Vec<(String, RefOr<Schema>)>,
    taken: Vec<String>,
    answers: BTreeMap<u16, Response>,
    codes: Vec<Code>,
    repeatable: bool,
    /// Its callers have credentials.
    secured: bool,
}

impl Describe {
    /// A route for callers with credentials.
    pub(crate) fn new(id: &str, tag: &str, summary: &str) -> Self {
        let mut this = Self::bare(id, tag, summary);
        this.builder = this
            .builder
            .security(SecurityRequirement::new("bearer", Vec::<String>::new()));
        this.secured = true;
        this.problems(COMMON)
    }

    /// A route for everybody.
    pub(crate) fn open(id: &str, tag: &str, summary: &str) -> Self {
        Self::bare(id, tag, summary).problems(OPEN)
    }

    fn bare(id: &str, tag: &str, summary: &str) -> Self {
        Self {
            builder: OperationBuilder::new()
                .operation_id(Some(id))
                .tag(tag)
                .summary(Some(summary)),
            schemas: Vec::new(),
            taken: Vec::new(),
            answers: BTreeMap::new(),
            codes: Vec::new(),
            repeatable: false,
            secured: false,
        }
    }

    /// More than the summary says.
    pub(crate) fn text(mut self, description: &str) -> Self {
        self.builder = self.builder.description(Some(description));
        self
    }

    fn know<T: ToSchema>(&mut self) -> Ref {
        let name = T::name();
        self.schemas.push((name.to_string(), T::schema()));
        T::schemas(&mut self.schemas);
        Ref::from_schema_name(name)
    }

    fn with_body<T: ToSchema>(mut self, required: Required, example: Value) -> Self {
        let before = self.schemas.len();
        let schema = self.know::<T>();
        let taken = self.schemas[before..].iter().map(|(name, _)| name.clone());
        self.taken.extend(taken);
        let content = ContentBuilder::new()
            .schema(Some(schema))
            .example(Some(example))
            .build();
        let body = RequestBodyBuilder::new()
            .content("application/json", content)
            .required(Some(required))
            .build();
        self.builder = self.builder.request_body(Some(body));
        self.problems(BODY)
    }

    /// The body that it takes.
    pub(crate) fn body<T: ToSchema>(self, example: Value) -> Self {
        self.with_body::<T>(Required::True, example)
            .problems(&[Code::BodyRequired])
    }

    /// The body that it may take.
    pub(crate) fn optional_body<T: ToSchema>(self, example: Value) -> Self {
        self.with_body::<T>(Required::False, example)
    }

    /// It carries a request id: its repeat gives the first answer again.
    pub(crate) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self.problems(REPEATABLE)
    }

    /// Problems that it may answer.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.codes.extend(codes);
        self
    }

    /// The description.
    pub(crate) fn build(mut self) -> Route {
        self.codes.sort_unstable();
        self.codes.dedup();
        self.know::<ProblemDocument>();
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in &self.codes {
            by_status.entry(code.row().status).or_default().push(*code);
        }
        for (status, codes) in by_status {
            self.answers
                .insert(status, answers::problem(status, &codes));
        }
        answers::with_headers(&mut self.answers, self.repeatable, self.secured);
        for (status, answer) in self.answers {
            self.builder = self.builder.response(status.to_string(), answer);
        }
        Route {
            operation: self.builder.build(),
            schemas: self.schemas,
            taken: self.taken,
        }
    }
}

/// What a problem of this code looks like.
pub(crate) fn example(code: Code) -> Value {
    let row = code.row();
    let effect = match row.effect {
        Effect::None => "none",
        Effect::Unknown => "unknown",
        Effect::CompletionRemembered => "completion_remembered",
    };
    json!({
        "type": format!("/problems/{}", row.name),
        "title": row.title,
        "status": row.status,
        "detail": row.title,
        "code": row.name,
        "retryable": row.retryable,
        "effect": effect,
        "hint": row.hint,
        "request_id": "req-5f3a9c-1",
        "errors": [],
    })
}
