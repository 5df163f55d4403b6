//! An answer that is not a success, as people read it.

use super::visible::visible;
use serde::Deserialize;
use std::fmt;

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
            line(&format!("{pointer}: {detail}"))?;
        }
        if !self.hint.is_empty() {
            line(&format!("hint: {}", self.hint))?;
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
            "A value is out of range (out_of_range)\n  /max_attempts: 1 to 1,000.\n  hint: See `errors`.\n  request id: req-1"
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
