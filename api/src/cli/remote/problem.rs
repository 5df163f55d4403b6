//! An answer that is not a success, as people read it.

use super::visible::visible;
use serde::Deserialize;
use std::fmt;

/// What the command line can say better than the server, which knows no options.
const HINTS: &[(&str, &str)] = &[
    (
        "client_request_id_conflict",
        "a repeat has to be the same command; another request takes another --request-id",
    ),
    (
        "completion_remembered",
        "discard it, or redrive it with --force --reason if the work must be done again",
    ),
    (
        "confirmation_required",
        "--confirm repeats the queue's name",
    ),
    (
        "count_mismatch",
        "look at the selection again: --dry-run shows it",
    ),
    ("expired", "redrive it by its id, with --expires-in SECONDS"),
    (
        "invalid_key",
        "QUITA_API_KEY or the profile has to hold a key that exists and is not revoked",
    ),
    (
        "missing_credentials",
        "export QUITA_API_KEY, or put api_key into a profile of ~/.config/quita/config.toml (mode 0600)",
    ),
    ("not_patchable", "send the whole new payload with --message"),
    (
        "queue_not_found",
        "quita queue list shows the queues; quita queue set NAME --create makes one",
    ),
    (
        "redrive_finished",
        "select again and begin another one: quita dead redrive --queue NAME",
    ),
    (
        "redrive_limit",
        "find out why it fails, or redrive it with --force --reason",
    ),
    (
        "selection_expired",
        "run the command again: it makes a new selection",
    ),
];
/// Members of requests whose options are named in another way.
const OPTIONS: &[(&str, &str)] = &[
    ("/rate_per_second", "--rate"),
    ("/canary/count", "--canary"),
    ("/canary/wait_seconds", "--canary-wait"),
    ("/abort_if/failed_fraction", "--abort-fraction"),
    ("/abort_if/min_sample", "--abort-min-sample"),
    ("/expected_count", "--expect-count"),
    ("/expires_in_seconds", "--expires-in"),
    ("/client_request_id", "--request-id"),
    ("/max", "--max"),
    ("/code", "--code"),
    ("/reason", "--reason"),
    ("/justification", "--justification"),
    ("/merge_patch", "--merge-patch"),
    ("/headers", "--headers"),
    ("/priority", "--priority"),
    ("query:message_id", "--message"),
    ("query:redrive_id", "--redrive"),
    ("query:page_size", "--limit"),
];
/// Characters shown of a body that is not a problem document.
const SHOWN: usize = 200;

/// A problem document (RFC 9457). Everything has a default: a proxy on the way may have written the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    /// The HTTP status of the answer, whatever the document says.
    #[serde(skip)]
    pub(super) status: u16,
    pub(super) code: String,
    title: String,
    detail: String,
    hint: String,
    effect: String,
    request_id: Option<String>,
    errors: Vec<Fault>,
}

/// One wrong value.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Fault {
    pointer: String,
    detail: String,
}

impl Problem {
    /// From an answer's status and body.
    pub(super) fn read(status: u16, body: &str) -> Self {
        let mut problem: Self = serde_json::from_str(body).unwrap_or_default();
        problem.status = status;
        if problem.title.is_empty() {
            problem.title = format!("The server answered {status}");
            problem.detail = body.trim().chars().take(SHOWN).collect();
        }
        problem
    }
}

impl Problem {
    /// What to do, in the words of the command line.
    fn hint(&self) -> Option<&str> {
        let own = HINTS.iter().find(|(code, _)| *code == self.code);
        let hint = own.map_or(self.hint.as_str(), |(_, hint)| *hint);
        // The errors stand above already.
        let points_up = hint.contains("`errors`") && !self.errors.is_empty();
        (!hint.is_empty() && !points_up).then_some(hint)
    }
}

/// The option that a value came from, where that is known; the pointer itself elsewhere.
fn option(pointer: &str) -> String {
    let known = OPTIONS.iter().find(|(known, _)| *known == pointer);
    if let Some((_, option)) = known {
        return (*option).to_owned();
    }
    let filter = pointer.strip_prefix("query:");
    match filter.or_else(|| pointer.strip_prefix("/filter/")) {
        Some(name) => format!("--{}", name.replace('_', "-")),
        None => pointer.to_owned(),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", visible(&self.title))?;
        if !self.code.is_empty() {
            write!(f, " ({})", visible(&self.code))?;
        }
        let mut line = |text: &str| write!(f, "\n  {}", visible(text));
        let repeated = self.errors.iter().any(|e| e.detail == self.detail);
        if !self.detail.is_empty() && self.detail != self.title && !repeated {
            line(&self.detail)?;
        }
        for Fault { pointer, detail } in &self.errors {
            line(&format!("{}: {detail}", option(pointer)))?;
        }
        if let Some(hint) = self.hint() {
            line(&format!("hint: {hint}"))?;
        }
        match self.effect.as_str() {
            "unknown" => line("Whether it took effect is not known.")?,
            "completion_remembered" => line("The completion of the work is kept.")?,
            _ => {}
        }
        if let Some(id) = &self.request_id {
            line(&format!("request id: {id}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_title_code_detail_values_and_hint() {
        let body = r#"{"type":"/problems/out_of_range","title":"A value is out of range","status":422,"detail":"1 to 1,000.",
            "code":"out_of_range","retryable":false,"effect":"none","hint":"See `errors`.","request_id":"req-1",
            "errors":[{"pointer":"/max_attempts","code":"out_of_range","detail":"1 to 1,000."}],"later":1}"#;
        assert_eq!(
            Problem::read(422, body).to_string(),
            "A value is out of range (out_of_range)\n  /max_attempts: 1 to 1,000.\n  request id: req-1"
        );
    }

    #[test]
    fn values_and_hints_have_the_names_of_the_command_line() {
        let body = r#"{"title":"A value is out of range","code":"out_of_range","hint":"See `errors`.","errors":[
            {"pointer":"/rate_per_second","detail":"0.001 or more."},{"pointer":"/filter/key_prefix","detail":"Too long."}]}"#;
        assert_eq!(
            Problem::read(422, body).to_string(),
            "A value is out of range (out_of_range)\n  --rate: 0.001 or more.\n  --key-prefix: Too long."
        );
        let body = r#"{"title":"No such queue","code":"queue_not_found","hint":"PUT /v1/queues/{queue}."}"#;
        let text = Problem::read(404, body).to_string();
        assert!(
            text.contains("quita queue set NAME --create") && !text.contains("PUT"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_problem_document_is_quoted_and_made_visible() {
        let text = Problem::read(502, "<h1>Bad \u{1b}[31mgateway</h1>").to_string();
        assert_eq!(
            text,
            "The server answered 502\n  <h1>Bad \\x1b[31mgateway</h1>"
        );
    }
}
