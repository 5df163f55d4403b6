//! `/problems/{code}`: what a problem's `type` leads to, from the same table.

use super::answer;
use super::browser;
use super::docs::{Describe, ProblemDocument, Route, example};
use super::edge::Answered;
use super::problem::{Code, Effect, Problem};
use crate::AppState;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use utoipa::ToSchema;

/// One kind of problem.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is written from the table")]
struct ProblemKind {
    /// As in a problem's `code`.
    code: String,
    /// The HTTP status.
    status: u16,
    /// What it is.
    title: String,
    /// The same request may succeed later.
    retryable: bool,
    /// `none`, `unknown` or `completion_remembered`, unless the problem itself says otherwise.
    effect: String,
    /// What to do about it.
    hint: String,
    /// What it looks like.
    example: ProblemDocument,
}

/// All kinds of problems.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is written from the table")]
struct Problems {
    /// By status.
    problems: Vec<ProblemKind>,
}

pub(crate) async fn index(_state: Arc<AppState>, parts: Parts) -> Answered {
    let described: Vec<Value> = Code::ALL.iter().map(|code| describe(*code)).collect();
    Ok(kept(if wants_html(&parts.headers) {
        html("Problems", Code::ALL)
    } else {
        answer::json(StatusCode::OK, &json!({ "problems": described }))
    }))
}

pub(crate) async fn page(_state: Arc<AppState>, parts: Parts) -> Answered {
    let name = parts
        .uri
        .path()
        .strip_prefix("/problems/")
        .unwrap_or_default();
    let code = Code::parse(name)
        .ok_or_else(|| Problem::new(Code::NotFound, "There is no problem of this code."))?;
    Ok(kept(if wants_html(&parts.headers) {
        html(code.row().title, &[code])
    } else {
        answer::json(StatusCode::OK, &describe(code))
    }))
}

/// May be kept, each form by itself.
fn kept(mut response: Response) -> Response {
    let vary = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, vary);
    browser::public(response)
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::None => "Nothing changed.",
        Effect::Unknown => {
            "Nobody can say; repeating with the same client_request_id or receipt is safe."
        }
        Effect::CompletionRemembered => "The finished work is kept.",
    }
}

fn describe(code: Code) -> Value {
    let row = code.row();
    json!({
        "code": row.name, "status": row.status, "title": row.title, "retryable": row.retryable,
        "effect": row.effect, "hint": row.hint, "example": example(code),
    })
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}\
code,pre{background:#8881;padding:.1em .3em}pre{padding:1em;overflow:auto}";

/// Everything on the page is ours: nothing needs escaping.
fn html(title: &str, codes: &[Code]) -> Response {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title} · quita</title>\
<style>{STYLE}</style><h1>{title}</h1>"
    );
    for code in codes {
        let row = code.row();
        let example = serde_json::to_string_pretty(&example(*code)).unwrap_or_default();
        let again = if row.retryable {
            "may succeed later"
        } else {
            "will fail again"
        };
        // Writing to a text cannot fail.
        let _ = write!(
            page,
            "<h2 id=\"{0}\"><a href=\"/problems/{0}\"><code>{0}</code></a> ({1})</h2><p>{2}. {3}</p>\
<p>The same request {again}. {4}</p><pre>{example}</pre>",
            row.name,
            row.status,
            row.title,
            row.hint,
            effect(row.effect)
        );
    }
    let answer = answer::typed(StatusCode::OK, "text/html; charset=utf-8", page);
    browser::styled(answer, STYLE)
}

pub(crate) fn describe_index() -> Route {
    Describe::open("problems", "server", "All kinds of problems")
        .answer::<Problems>(
            200,
            "Every code: status, meaning, what to do",
            json!({"problems": [describe(Code::QueueNotFound)]}),
        )
        .also("text/html")
        .build()
}

pub(crate) fn describe_page() -> Route {
    Describe::open("problem", "server", "One kind of problem")
        .text("Where a problem's `type` leads: for people when the request accepts text/html, else JSON.")
        .path("code", "The code", "queue_not_found")
        .answer::<ProblemKind>(
            200,
            "Status, meaning, what to do",
            describe(Code::QueueNotFound),
        )
        .also("text/html")
        .problems(&[Code::NotFound])
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_page() {
        for code in Code::ALL {
            let described = describe(*code);
            assert_eq!(described["code"], code.as_str());
            assert_eq!(described["example"]["status"], described["status"]);
            assert_eq!(
                html("x", &[*code]).headers()["content-type"],
                "text/html; charset=utf-8"
            );
        }
    }
}
