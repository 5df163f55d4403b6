//! What a command ends with: an exit code that a script can decide by, and a text for the person who gave it.
//!
//! [`Exit`] is the list of codes, [`for_problem`] the one table from the server's problems to them.

use super::problem::Problem;
use super::visible::visible;
use std::fmt;
use std::process::ExitCode;

/// Exit codes. Stable: scripts decide by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// It failed, and none of the other codes says why; also a redrive that was cancelled.
    Failed = 1,
    /// The command line or a value in it is wrong.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// No key, a wrong key, or a key without the right.
    NotAllowed = 4,
    /// A guard said no: a count that differs, a missing confirmation, a state that forbids it, a redrive that was aborted.
    Refused = 5,
    /// It may work later: overload, a server that does not answer.
    Temporary = 6,
    /// Some of it was done.
    Partly = 7,
    /// Ctrl-C while watching, as shells report it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Problems with status 422 that are guards and not mistakes in a value.
const GUARDS: &[&str] = &[
    "completion_remembered",
    "confirmation_required",
    "count_mismatch",
    "reason_required",
    "redrive_limit",
    "selection_expired",
];

/// The exit code of an answer that is not a success. The first line that fits counts.
pub(super) fn for_problem(status: u16, code: &str) -> Exit {
    match status {
        401 | 403 => Exit::NotAllowed,
        429 if code == "too_many_failed_logins" => Exit::NotAllowed,
        404 => Exit::NotFound,
        408 | 429 | 502 | 503 | 504 | 507 => Exit::Temporary,
        409 | 412 => Exit::Refused,
        422 if GUARDS.contains(&code) => Exit::Refused,
        // A server that is older than the command.
        405 => Exit::Failed,
        400..500 => Exit::Usage,
        _ => Exit::Failed,
    }
}

/// The end of a command that did not do all that was asked for.
#[derive(Debug)]
pub(super) struct Failure {
    /// The exit code.
    pub(super) exit: Exit,
    /// The server's code of the problem; nothing when it was not the server that refused.
    code: String,
    /// What to print; nothing when everything was said before, or when nobody reads it.
    text: String,
}

/// What the parts of a command answer.
pub(super) type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    /// With a text that is safe to print as it is.
    pub(super) fn new(exit: Exit, text: impl Into<String>) -> Self {
        let (code, text) = (String::new(), text.into());
        Self { exit, code, text }
    }

    /// A wrong command line.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(Exit::Usage, text)
    }

    /// A guard of the command line.
    pub(super) fn refused(text: impl Into<String>) -> Self {
        Self::new(Exit::Refused, text)
    }

    /// Something that went wrong here.
    pub(super) fn failed(text: impl Into<String>) -> Self {
        Self::new(Exit::Failed, text)
    }

    /// An answer that is not what the interface promises.
    pub(super) fn strange(path: &str, what: &dyn fmt::Display) -> Self {
        Self::failed(format!(
            "the answer to {} is not one of a quita server: {}",
            visible(path),
            visible(&what.to_string())
        ))
    }

    /// Whether the server's problem has one of these codes.
    pub(super) fn is_one_of(&self, codes: &[&str]) -> bool {
        codes.contains(&self.code.as_str())
    }

    /// Another text and another code, for whoever has found out more; the server's own code is named.
    #[must_use]
    pub(super) fn instead(mut self, exit: Exit, text: &str) -> Self {
        self.exit = exit;
        self.text = format!("{text} ({})", self.code);
        self
    }

    /// With a line more.
    #[must_use]
    pub(super) fn and(mut self, line: &str) -> Self {
        self.text = format!("{}\n  {line}", self.text);
        self
    }

    /// Tells it, unless there is nothing to tell.
    pub(super) fn print(&self) {
        if !self.text.is_empty() {
            super::output::talk(&format!("quita: {}", self.text));
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit = for_problem(problem.status, &problem.code);
        let text = problem.to_string();
        let code = problem.code;
        Self { exit, code, text }
    }
}

/// Writing to standard output failed. A reader that has gone, as `head` does, is not a reason to fail.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::new(Exit::Done, "")
        } else {
            Self::failed(format!("standard output: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Code;

    #[test]
    fn every_problem_has_the_exit_code_of_its_kind() {
        for (status, code, exit) in [
            (400, "malformed_json", Exit::Usage),
            (401, "invalid_key", Exit::NotAllowed),
            (403, "insufficient_scope", Exit::NotAllowed),
            (404, "queue_not_found", Exit::NotFound),
            (404, "", Exit::NotFound),
            (405, "method_not_allowed", Exit::Failed),
            (409, "count_mismatch", Exit::Refused),
            (409, "redrive_limit", Exit::Refused),
            (409, "selection_expired", Exit::Refused),
            (409, "something_new", Exit::Refused),
            (412, "precondition_failed", Exit::Refused),
            (413, "payload_too_large", Exit::Usage),
            (422, "confirmation_required", Exit::Refused),
            (422, "reason_required", Exit::Refused),
            (422, "unknown_field", Exit::Usage),
            (422, "not_patchable", Exit::Usage),
            (429, "queue_full", Exit::Temporary),
            (500, "internal", Exit::Failed),
            (502, "", Exit::Temporary),
            (503, "outcome_unknown", Exit::Temporary),
            (507, "disk_low", Exit::Temporary),
        ] {
            assert_eq!(for_problem(status, code), exit, "{status} {code}");
        }
    }

    #[test]
    fn what_may_be_repeated_later_is_temporary() {
        for code in Code::ALL {
            let row = code.row();
            if for_problem(row.status, row.name) == Exit::Temporary {
                assert!(row.retryable, "{}", row.name);
            } else {
                assert!(!row.retryable || row.status == 500 || row.status == 409);
            }
        }
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let gone = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!((gone.exit, gone.text.as_str()), (Exit::Done, ""));
    }
}
