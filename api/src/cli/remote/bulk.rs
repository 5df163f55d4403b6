//! Decisions about many dead letters: select, show, ask, start, watch.
//!
//! What is decided about is a selection that the server has frozen, and its count goes along with the decision. Nothing starts
//! before a person has typed that count, or `--yes --expect-count` has named it.

use super::Session;
use super::change::ChangeArgs;
use super::client::{Change, parse};
use super::exit::{Exit, Failure, Outcome};
use super::filter::Filter;
use super::output::talk;
use super::path::Pairs;
use super::visible::visible;
use super::{input, json, progress, redrive, selection, watch};
use clap::Args;
use serde_json::{Value, json};

/// Which ones, how fast, and how much of a question. None of it goes with ids.
#[derive(Args, Debug)]
pub(super) struct BulkArgs {
    /// Many at once: the dead letters of this queue that the filter lets through
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    pub(super) queue: Option<String>,

    #[command(flatten)]
    pub(super) filter: Filter,

    /// At most this many of the selection, oldest first
    #[arg(long, conflicts_with = "ids", value_name = "N", help_heading = "Many")]
    max: Option<u64>,

    /// Messages per second [default: the server's, 50]
    #[arg(long, conflicts_with_all = ["ids", "no_rate_limit"], value_name = "N", help_heading = "Many")]
    rate: Option<f64>,

    /// As fast as it goes
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    no_rate_limit: bool,

    /// First this many, to see whether they fail again [default: the server's, 10]
    #[arg(long, conflicts_with_all = ["ids", "no_canary"], value_name = "N", help_heading = "Many")]
    canary: Option<u64>,

    /// How long to wait for them [default: the server's, 60]
    #[arg(long, conflicts_with_all = ["ids", "no_canary"], value_name = "SECONDS", help_heading = "Many")]
    canary_wait: Option<f64>,

    /// All of them at once
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    no_canary: bool,

    /// Stop when more than this fraction fails again, 0 to 1 [default: the server's, 0.2]
    #[arg(long, conflicts_with_all = ["ids", "no_abort"], value_name = "FRACTION", help_heading = "Many")]
    abort_fraction: Option<f64>,

    /// Judge the fraction only from this many on [default: the server's, 10]
    #[arg(long, conflicts_with_all = ["ids", "no_abort"], value_name = "N", help_heading = "Many")]
    abort_min_sample: Option<u64>,

    /// Never stop by itself
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    no_abort: bool,

    /// Do not ask
    #[arg(
        long,
        conflicts_with = "ids",
        requires = "expect_count",
        help_heading = "Many"
    )]
    yes: bool,

    /// How many dead letters the selection has to hold; another number is refused
    #[arg(long, conflicts_with = "ids", value_name = "N", help_heading = "Many")]
    expect_count: Option<u64>,

    /// Follow it to its end, with a progress bar (the default)
    #[arg(long, conflicts_with_all = ["ids", "detach"], help_heading = "Many")]
    watch: bool,

    /// Start it and leave it alone
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    detach: bool,
}

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
    change: &ChangeArgs,
    decision: Decision,
) -> Outcome {
    let Some(queue) = &bulk.queue else {
        return Err(Failure::usage(
            "name messages by their ids, or many with --queue",
        ));
    };
    let action = decision.action;
    bulk.fits(action)?;
    let waiting = progress::counter("selecting", true);
    let selected = select(session, queue, &bulk.filter);
    waiting.finish_and_clear();
    let selected = selected?;
    talk(&selection::shown(&selected, stderr_width()));
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
            format!("{action} {many} of them")
        };
        input::confirm(
            &format!("\nType {count} to {what}:"),
            &count.to_string(),
            "--dry-run shows what would happen; --yes --expect-count N does it, if the selection holds N",
        )?;
    }
    let request = request(bulk, change, decision, &selected)?;
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

impl BulkArgs {
    /// Whether the flags belong to the action. The server would say so too, but only after somebody has typed the count.
    fn fits(&self, action: &str) -> Outcome<()> {
        let canary = self.canary.is_some() || self.canary_wait.is_some();
        let abort = self.abort_fraction.is_some() || self.abort_min_sample.is_some();
        if action == "discard" && (canary || abort) {
            return Err(Failure::usage(
                "what is discarded cannot fail again: --canary and --abort go with redrive",
            ));
        }
        Ok(())
    }
}

/// Freezes a selection. A repeat makes another one, which changes nothing.
fn select(session: &Session, queue: &str, filter: &Filter) -> Outcome<Value> {
    let members = [
        ("queue".to_owned(), json::raw(&queue.into())),
        ("filter".to_owned(), json::raw(&filter.members()?.into())),
    ];
    let select = Change::post("/v1/dead-letters/selections", members.into_iter().collect());
    parse(&select.path, &session.client.send(&select)?)
}

/// The request that starts it. What was not said is left to the server's defaults; what was switched off is null.
fn request(
    bulk: &BulkArgs,
    change: &ChangeArgs,
    decision: Decision,
    selected: &Value,
) -> Outcome<Change> {
    let mut members = vec![
        ("selection_id", selected["selection_id"].clone()),
        ("action", decision.action.into()),
        ("expected_count", selected["count"].clone()),
        ("max", json!(bulk.max)),
        ("rate_per_second", json!(bulk.rate)),
        (
            "canary",
            some_of([
                ("count", json!(bulk.canary)),
                ("wait_seconds", json!(bulk.canary_wait)),
            ]),
        ),
        (
            "abort_if",
            some_of([
                ("failed_fraction", json!(bulk.abort_fraction)),
                ("min_sample", json!(bulk.abort_min_sample)),
            ]),
        ),
    ];
    if change.dry_run {
        members.push(("dry_run", true.into()));
    }
    members.extend(decision.members);
    let mut body = change.body(members)?;
    for (off, name) in [
        (bulk.no_rate_limit, "rate_per_second"),
        (bulk.no_canary, "canary"),
        (bulk.no_abort, "abort_if"),
    ] {
        if off {
            body.insert(name.to_owned(), json::raw(&Value::Null));
        }
    }
    Ok(Change::post("/v1/redrives", body))
}

/// An object of the members that have a value; null when none has.
fn some_of<const N: usize>(members: [(&str, Value); N]) -> Value {
    let given: serde_json::Map<String, Value> = members
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    if given.is_empty() {
        Value::Null
    } else {
        Value::Object(given)
    }
}

fn stderr_width() -> Option<usize> {
    let size = console::Term::stderr().size_checked();
    size.map(|(_, columns)| usize::from(columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        ids: Vec<String>,
        #[command(flatten)]
        bulk: BulkArgs,
        #[command(flatten)]
        change: ChangeArgs,
    }

    fn body(line: &str) -> Value {
        let words = ["x", "--queue", "q", "--request-id", "r-1"];
        let words = words.into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).unwrap();
        let decision = Decision {
            action: "redrive",
            members: vec![("force", false.into()), ("reason", Value::Null)],
        };
        let selected = json!({"selection_id": "sel_1", "count": 7});
        let change = request(&line.bulk, &line.change, decision, &selected).unwrap();
        serde_json::from_str(&change.text()).unwrap()
    }

    #[test]
    fn what_is_not_said_is_left_to_the_server() {
        let plain = json!({"selection_id": "sel_1", "action": "redrive", "expected_count": 7, "force": false,
            "client_request_id": "r-1"});
        assert_eq!(body(""), plain);
        assert_eq!(body("--watch --yes --expect-count 7"), plain);
    }

    #[test]
    fn flags_become_members_and_what_is_switched_off_is_null() {
        let slow = body(
            "--max 5 --rate 0.5 --canary 3 --abort-fraction 0.5 --abort-min-sample 4 --dry-run",
        );
        assert_eq!(slow["max"], 5);
        assert_eq!(slow["rate_per_second"], 0.5);
        assert_eq!(slow["canary"], json!({"count": 3}));
        assert_eq!(
            slow["abort_if"],
            json!({"failed_fraction": 0.5, "min_sample": 4})
        );
        assert_eq!(slow["dry_run"], true);
        let fast = body("--no-rate-limit --no-canary --no-abort");
        for name in ["rate_per_second", "canary", "abort_if"] {
            assert_eq!(fast.get(name), Some(&Value::Null), "{name}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_no_command() {
        for line in [
            "--queue q --yes",
            "--queue q msg_1",
            "--max 3 msg_1",
            "--queue q --rate 1 --no-rate-limit",
            "--queue q --canary 1 --no-canary",
            "--queue q --watch --detach",
        ] {
            let words = ["x"].into_iter().chain(line.split_whitespace());
            assert!(Line::try_parse_from(words).is_err(), "{line}");
        }
    }
}
