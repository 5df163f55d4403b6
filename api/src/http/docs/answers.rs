//! What a route answers: bodies, headers, and where an answer leads.

use super::Describe;
use crate::http::problem::Code;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::openapi::example::Example;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::link::LinkBuilder;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

/// What is answered before the caller and its right are known, and so before its rates are.
const BEFORE_RATES: &[u16] = &[401, 403, 405, 414, 417];

const RATES: [(&str, &str); 2] = [
    (
        "RateLimit",
        "Where the caller has a rate: what is left of it, and in how many seconds all of it is back",
    ),
    (
        "RateLimit-Policy",
        "Where the caller has a rate: how many requests in how many seconds",
    ),
];

/// Headers that so many answers have that the document describes them once.
pub(crate) fn shared_headers() -> impl Iterator<Item = (&'static str, RefOr<Header>)> {
    RATES
        .map(|(name, description)| (name, header(description)))
        .into_iter()
}

impl Describe {
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
            .content("application/json", content);
        self.answers.insert(status, response.build());
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
        self.answers.insert(200, response.build());
        self
    }

    /// A success with something else than JSON, in one of these forms.
    pub(crate) fn plain_answer(mut self, media_types: &[&str], description: &str) -> Self {
        let text = || ContentBuilder::new().schema(Some(String::schema())).build();
        let response = ResponseBuilder::new().description(description);
        let response = media_types.iter().fold(response, |response, media_type| {
            response.content(*media_type, text())
        });
        self.answers.insert(200, response.build());
        self
    }

    /// Every success so far comes also in this form.
    pub(crate) fn also(mut self, media_type: &str) -> Self {
        let text = ContentBuilder::new().schema(Some(String::schema())).build();
        for answer in self.answers.values_mut() {
            answer
                .content
                .insert(media_type.to_owned(), RefOr::T(text.clone()));
        }
        self
    }

    /// What is meant is elsewhere.
    pub(crate) fn elsewhere(mut self, status: u16, description: &str) -> Self {
        let response = ResponseBuilder::new().description(description);
        self.answers.insert(status, response.build());
        self.returns("Location", "Where it is")
    }

    /// Every success so far carries this header.
    pub(crate) fn returns(mut self, name: &str, description: &str) -> Self {
        for answer in self.answers.values_mut() {
            answer.headers.insert(name.to_owned(), header(description));
        }
        self
    }

    /// From every success so far the client may go on to this operation, with these parameters.
    pub(crate) fn leads_to(self, operation: &str, parameters: &[(&str, &str)]) -> Self {
        self.leads(operation, parameters, None)
    }

    /// The same, with a body in which runtime expressions stand for what was answered.
    pub(crate) fn leads_to_with(
        self,
        operation: &str,
        parameters: &[(&str, &str)],
        body: Value,
    ) -> Self {
        self.leads(operation, parameters, Some(body))
    }

    fn leads(mut self, operation: &str, parameters: &[(&str, &str)], body: Option<Value>) -> Self {
        let link = parameters.iter().fold(
            LinkBuilder::new()
                .operation_id(operation)
                .request_body(body),
            |link, (name, expression)| link.parameter(*name, Value::from(*expression)),
        );
        let link = link.build();
        for answer in self.answers.values_mut() {
            answer
                .links
                .insert(operation.to_owned(), RefOr::T(link.clone()));
        }
        self
    }
}

/// The answer with one of these codes.
pub(super) fn problem(status: u16, codes: &[Code]) -> Response {
    let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let examples = codes.iter().map(|code| {
        let place = format!("#/components/examples/{}", code.as_str());
        (code.as_str(), RefOr::<Example>::Ref(Ref::new(place)))
    });
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .examples_from_iter(examples)
        .build();
    let mut response = ResponseBuilder::new()
        .description(format!("`{}`", names.join("`, `")))
        .content("application/problem+json", content)
        .build();
    let own = match status {
        401 => Some(("WWW-Authenticate", "How to say who is calling")),
        405 => Some(("Allow", "The methods that are allowed here")),
        429 | 503 | 507 => Some(("Retry-After", "Seconds after which it may be tried again")),
        _ => None,
    };
    if let Some((name, description)) = own {
        response
            .headers
            .insert(name.to_owned(), header(description));
    }
    response
}

/// Adds the headers that many answers have.
pub(super) fn with_headers(answers: &mut BTreeMap<u16, Response>, repeatable: bool, secured: bool) {
    for (status, answer) in answers {
        let mut add = |name: &str, description: &str| {
            answer.headers.insert(name.to_owned(), header(description));
        };
        add(
            "Request-Id",
            "Names the request in the log; the client's own when that is plain",
        );
        if repeatable && (200..300).contains(status) {
            add(
                "Idempotency-Replayed",
                "`true`: the call was answered before, and nothing was done now",
            );
        }
        if secured && !BEFORE_RATES.contains(status) {
            for (name, _) in RATES {
                let place = format!("#/components/headers/{name}");
                let known = RefOr::Ref(Ref::new(place));
                answer.headers.insert(name.to_owned(), known);
            }
        }
    }
}

fn header(description: &str) -> RefOr<Header> {
    let header = HeaderBuilder::new()
        .schema(Some(String::schema()))
        .description(Some(description));
    RefOr::T(header.build())
}
