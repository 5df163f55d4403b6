//! Decisions about many dead letters: select, show, ask, start, watch.
//!
//! What is decided about is a selection that the server has frozen, and its count goes along with the decision. Nothing starts
//! before a person has typed that count, or `--yes --expect-count` has named it.

use super::Session;
use super::change::ChangeArgs;
use super::client::{Change, parse};
use super::exit::{Exit, Failure, Outcome};
use super::filter::Filter;
use super::output::{columns, talk};
use super::path::Pairs;
use super::start::{self, BulkArgs, TrialArgs};
use super::visible::visible;
use super::{input, json, progress, redrive, selection, watch};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Most bytes of a request id.
const MAX_ID: usize = 128;

/// What is decided.
pub(super) struct Decision {
    /// `redrive` or `discard`.
    pub(super) action: &'static str,
    /// Members of the request that belong to the action.
    pub(super) members: Pairs,
}

/// Does it.
pub(super) fn run(
    session: &mut Session,
    bulk: &BulkArgs,
    trial: Option<&TrialArgs>,
    change: &ChangeArgs,
    decision: Decision,
) -> Outcome {
    let Some(queue) = &bulk.queue else {
        return Err(Failure::usage("name messages by ID, or many with --queue"));
    };
    let action = decision.action;
    let waiting = progress::counter("selecting", true);
    let selected = select(session, queue, &bulk.filter, change);
    waiting.finish_and_clear();
    let selected = selected?;
    let server = session.client.url();
    talk(&selection::shown(&selected, server, stderr_width()));
    let count = selected["count"].as_u64().unwrap_or(0);
    if let Some(expected) = bulk.expect_count.filter(|expected| *expected != count) {
        return Err(Failure::refused(format!(
            "nothing was started: {expected} dead letters were expected, and the selection holds {count}"
        )));
    }
    if count == 0 {
        talk("Nothing to do.");
        return Ok(Exit::Done);
    }
    if !bulk.yes && !change.dry_run {
        let many = bulk.max.map_or(count, |max| max.min(count));
        let what = if many == count {
            format!("{action} them")
        } else {
            format!("{action} {many} of them (the oldest first)")
        };
        talk(&format!(
            "\n{} on {server}: {}",
            visible(queue),
            start::limits(bulk, trial)
        ));
        input::confirm(
            &format!("Type {count} to {what}:"),
            &count.to_string(),
            "--dry-run shows what would happen; --yes --expect-count N does it, if the selection holds N",
        )?;
    }
    let request = start::request(bulk, trial, change, decision, &selected)?;
    let text = session.client.send(&request).map_err(|failure| {
        if failure.exit == Exit::Temporary {
            let queue = visible(queue);
            failure.and(&format!(
                "hint: quita redrive list --queue {queue} shows whether it was started"
            ))
        } else {
            failure
        }
    })?;
    if bulk.detach {
        redrive::show(session, &text)?;
        return Ok(Exit::Done);
    }
    let started: Value = parse(&request.path, &text)?;
    let id = super::table::text(&started["redrive_id"]);
    watch::to_its_end(session, &id)
}

/// Freezes a selection. A repeat without a request id makes another one, which changes nothing; with the same request id it
/// gets the first one again, and so decides about the same messages.
fn select(session: &Session, queue: &str, filter: &Filter, change: &ChangeArgs) -> Outcome<Value> {
    let mut members = vec![
        ("queue".to_owned(), json::raw(&queue.into())),
        ("filter".to_owned(), json::raw(&filter.members()?.into())),
    ];
    if let Some(id) = &change.request_id {
        let id = json::raw(&selection_id(id).into());
        members.push(("client_request_id".to_owned(), id));
    }
    let select = Change::post("/v1/dead-letters/selections", members.into_iter().collect());
    let text = session.client.send(&select).map_err(|failure| {
        if failure.is_one_of(&["client_request_id_conflict"]) {
            failure.and("A time such as `2h` counts back from now; a repeat needs the same full time, as in 2026-11-30T15:04:05Z.")
        } else {
            failure
        }
    })?;
    parse(&select.path, &text)
}

/// The request id of the selection that goes with this one of a decision.
fn selection_id(id: &str) -> String {
    let derived = format!("{id}-selection");
    if derived.len() <= MAX_ID {
        return derived;
    }
    let digest = Sha256::digest(id.as_bytes());
    let mut derived = String::with_capacity(MAX_ID);
    for byte in digest {
        let _ = write!(derived, "{byte:02x}");
    }
    derived + "-selection"
}

fn stderr_width() -> Option<usize> {
    let terminal = console::Term::stderr();
    terminal.is_term().then(|| columns(&terminal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_has_a_request_id_of_its_own_that_fits() {
        assert_eq!(selection_id("incident-77"), "incident-77-selection");
        let (one, other) = ("x".repeat(128), "x".repeat(127) + "y");
        assert!(selection_id(&one).len() <= MAX_ID);
        assert_ne!(selection_id(&one), selection_id(&other));
        assert_eq!(selection_id(&one), selection_id(&one));
    }
}
