//! How a route describes itself for the OpenAPI document, next to its handler.

use super::problem::{Code, Effect};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::path::{
    Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{
    ContentBuilder, Ref, RefOr, Required, ResponseBuilder, Schema, example::Example,
};
use utoipa::{PartialSchema, ToSchema};

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
    Code::RateLimited,
    Code::Internal,
    Code::Overloaded,
    Code::StorageUnavailable,
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
}

/// Builds a [`Route`].
pub(crate) struct Describe {
    builder: OperationBuilder,
    schemas: Vec<(String, RefOr<Schema>)>,
    codes: Vec<Code>,
}

impl Describe {
    /// A route for callers with credentials.
    pub(crate) fn new(id: &str, tag: &str, summary: &str) -> Self {
        let mut this = Self::open(id, tag, summary);
        this.builder = this
            .builder
            .security(SecurityRequirement::new("bearer", Vec::<String>::new()));
        this.problems(COMMON)
    }

    /// A route for everybody.
    pub(crate) fn open(id: &str, tag: &str, summary: &str) -> Self {
        Self {
            builder: OperationBuilder::new()
                .operation_id(Some(id))
                .tag(tag)
                .summary(Some(summary)),
            schemas: Vec::new(),
            codes: Vec::new(),
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
        let schema = self.know::<T>();
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

    /// A success.
    pub(crate) fn answer<T: ToSchema>(
        mut self,
        status: u16,
        description: &str,
        example: Value,
    ) -> Self {
        let schema = self.know::<T>();
        let content = ContentBuilder::new()
            .schema(Some(schema))
            .example(Some(example))
            .build();
        let response = ResponseBuilder::new()
            .description(description)
            .content("application/json", content)
            .build();
        self.builder = self.builder.response(status.to_string(), response);
        self
    }

    /// A success with JSON, or with a line of it for each entry.
    pub(crate) fn answer_or_lines<T: ToSchema, Line: ToSchema>(
        mut self,
        description: &str,
        example: Value,
        media_type: &str,
    ) -> Self {
        let (whole, line) = (self.know::<T>(), self.know::<Line>());
        let content = ContentBuilder::new()
            .schema(Some(whole))
            .example(Some(example));
        let lines = ContentBuilder::new().schema(Some(line));
        let response = ResponseBuilder::new()
            .description(description)
            .content("application/json", content.build())
            .content(media_type, lines.build());
        self.builder = self.builder.response("200", response.build());
        self
    }

    /// A success with something else than JSON.
    pub(crate) fn plain_answer(mut self, status: u16, media_type: &str, description: &str) -> Self {
        let content = ContentBuilder::new().schema(Some(String::schema())).build();
        let response = ResponseBuilder::new()
            .description(description)
            .content(media_type, content)
            .build();
        self.builder = self.builder.response(status.to_string(), response);
        self
    }

    /// A parameter of the path.
    pub(crate) fn path(self, name: &str, description: &str, example: &str) -> Self {
        self.parameter(
            ParameterIn::Path,
            Required::True,
            name,
            description,
            String::schema(),
            &json!(example),
        )
    }

    /// The queue in the path.
    pub(crate) fn queue(self) -> Self {
        self.path("queue", "The queue's name", "orders")
            .problems(&[Code::InvalidQueueName, Code::QueueNotFound])
    }

    /// The message in the path.
    pub(crate) fn message(self) -> Self {
        self.path("message_id", "The message's id", "msg_02mx3k8s9qv40")
            .problems(&[Code::NotFound])
    }

    /// The selection in the path.
    pub(crate) fn selection(self) -> Self {
        self.path("selection_id", "The selection's id", "sel_0000000000007")
            .problems(&[Code::NotFound])
    }

    /// The redrive in the path.
    pub(crate) fn redrive(self) -> Self {
        self.path("redrive_id", "The redrive's id", "rdv_0000000000003")
            .problems(&[Code::NotFound])
    }

    /// The key in the path.
    pub(crate) fn key(self) -> Self {
        self.path("key_id", "The key's id: its public part", "k7f2mx3q5sv4")
            .problems(&[Code::NotFound])
    }

    /// A parameter of the query.
    pub(crate) fn query(
        self,
        name: &str,
        description: &str,
        schema: RefOr<Schema>,
        example: &Value,
    ) -> Self {
        self.parameter(
            ParameterIn::Query,
            Required::False,
            name,
            description,
            schema,
            example,
        )
    }

    /// A request header.
    pub(crate) fn header(self, name: &str, description: &str, example: &str) -> Self {
        self.parameter(
            ParameterIn::Header,
            Required::False,
            name,
            description,
            String::schema(),
            &json!(example),
        )
    }

    /// The parameters of a paged listing.
    pub(crate) fn paged(self) -> Self {
        self.query(
            "page_size",
            "At most this many, 1 to 500",
            i32::schema(),
            &json!(50),
        )
        .query(
            "page_token",
            "`next_page_token` of the page before",
            String::schema(),
            &json!("AQ"),
        )
        .problems(&[
            Code::InvalidPageToken,
            Code::OutOfRange,
            Code::WrongType,
            Code::InvalidValue,
            Code::InvalidUnicode,
            Code::BodyNotAllowed,
        ])
    }

    fn parameter(
        mut self,
        place: ParameterIn,
        required: Required,
        name: &str,
        description: &str,
        schema: RefOr<Schema>,
        example: &Value,
    ) -> Self {
        let parameter: Parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(place)
            .required(required)
            .description(Some(description))
            .schema(Some(schema))
            .example(Some(example.clone()))
            .build();
        self.builder = self.builder.parameter(parameter);
        self
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
        if !self.codes.is_empty() {
            self.know::<ProblemDocument>();
        }
        let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
        for code in &self.codes {
            by_status.entry(code.row().status).or_default().push(*code);
        }
        for (status, codes) in by_status {
            let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
            let examples = codes.iter().map(|code| {
                let place = format!("#/components/examples/{}", code.as_str());
                (code.as_str(), RefOr::<Example>::Ref(Ref::new(place)))
            });
            let content = ContentBuilder::new()
                .schema(Some(Ref::from_schema_name("Problem")))
                .examples_from_iter(examples)
                .build();
            let response = ResponseBuilder::new()
                .description(format!("`{}`", names.join("`, `")))
                .content("application/problem+json", content)
                .build();
            self.builder = self.builder.response(status.to_string(), response);
        }
        Route {
            operation: self.builder.build(),
            schemas: self.schemas,
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
