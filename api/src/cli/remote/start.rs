//! The options of decisions about many, and the request that they make.
//!
//! What was not said is left to the server's defaults; what was switched off is null.

use super::bulk::Decision;
use super::change::ChangeArgs;
use super::client::Change;
use super::exit::Outcome;
use super::filter::Filter;
use super::{input, json};
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
    #[arg(long, conflicts_with = "ids", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Many")]
    pub(super) max: Option<u64>,

    /// Messages per second [default: the server's, 50]
    #[arg(long, conflicts_with_all = ["ids", "no_rate_limit"], value_name = "N", value_parser = input::positive, help_heading = "Many")]
    rate: Option<f64>,

    /// As fast as it goes
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    no_rate_limit: bool,

    /// Do not ask; needs --expect-count
    #[arg(
        long,
        conflicts_with = "ids",
        requires = "expect_count",
        help_heading = "Many"
    )]
    pub(super) yes: bool,

    /// How many dead letters the selection has to hold; another number is refused
    #[arg(long, conflicts_with = "ids", value_name = "N", help_heading = "Many")]
    pub(super) expect_count: Option<u64>,

    /// Follow it to its end, with a progress bar (the default)
    #[arg(long, conflicts_with_all = ["ids", "detach"], help_heading = "Many")]
    watch: bool,

    /// Start it and leave it alone
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    pub(super) detach: bool,
}

/// How a redrive of many finds out early that they fail again. What is discarded cannot.
#[derive(Args, Debug, Default)]
pub(super) struct TrialArgs {
    /// First this many, to see whether they fail again [default: the server's, 10]
    #[arg(long, conflicts_with_all = ["ids", "no_canary"], value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Many")]
    canary: Option<u64>,

    /// How long to wait for them [default: the server's, 60]
    #[arg(long, conflicts_with_all = ["ids", "no_canary"], value_name = "SECONDS", help_heading = "Many")]
    canary_wait: Option<f64>,

    /// All of them at once
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    no_canary: bool,

    /// Stop when this part or more of the redriven ones died again, counted against no smaller number than
    /// --abort-min-sample: 2 stop it at 0.2 of 10. Above 0, at most 1 [default: the server's, 0.2]
    #[arg(long, conflicts_with_all = ["ids", "no_abort"], value_name = "FRACTION", value_parser = input::fraction, help_heading = "Many")]
    abort_fraction: Option<f64>,

    /// The smallest number that the fraction is counted against, however few were redriven by then [default: the server's, 10]
    #[arg(long, conflicts_with_all = ["ids", "no_abort"], value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Many")]
    abort_min_sample: Option<u64>,

    /// Never stop by itself
    #[arg(long, conflicts_with = "ids", help_heading = "Many")]
    no_abort: bool,
}

/// What the server does where nothing is said, as the help has it.
const DEFAULT_RATE: f64 = 50.0;
const DEFAULT_CANARY: (u64, f64) = (10, 60.0);
const DEFAULT_ABORT: (f64, u64) = (0.2, 10);

/// Rate, canary and limits of a decision, in one line, for whoever is about to confirm it.
pub(super) fn limits(bulk: &BulkArgs, trial: Option<&TrialArgs>) -> String {
    let rate = if bulk.no_rate_limit {
        "as fast as it goes".to_owned()
    } else {
        format!("{} per second", bulk.rate.unwrap_or(DEFAULT_RATE))
    };
    let Some(trial) = trial else {
        return rate;
    };
    let canary = if trial.no_canary {
        "no canary".to_owned()
    } else {
        let count = trial.canary.unwrap_or(DEFAULT_CANARY.0);
        let wait = trial.canary_wait.unwrap_or(DEFAULT_CANARY.1);
        format!("{count} first, then up to {wait} s of waiting")
    };
    let abort = if trial.no_abort {
        "never stops by itself".to_owned()
    } else {
        let part = trial.abort_fraction.unwrap_or(DEFAULT_ABORT.0);
        let sample = trial.abort_min_sample.unwrap_or(DEFAULT_ABORT.1);
        format!("stops when {part} of them or more died again, of at least {sample}")
    };
    format!("{rate}; {canary}; {abort}")
}

/// The request that starts it.
pub(super) fn request(
    bulk: &BulkArgs,
    trial: Option<&TrialArgs>,
    change: &ChangeArgs,
    decision: Decision,
    selected: &Value,
) -> Outcome<Change> {
    let default = TrialArgs::default();
    let trial = trial.unwrap_or(&default);
    let mut members = vec![
        ("selection_id", selected["selection_id"].clone()),
        ("action", decision.action.into()),
        ("expected_count", selected["count"].clone()),
        ("max", json!(bulk.max)),
        ("rate_per_second", json!(bulk.rate)),
        (
            "canary",
            some_of([
                ("count", json!(trial.canary)),
                ("wait_seconds", json!(trial.canary_wait)),
            ]),
        ),
        (
            "abort_if",
            some_of([
                ("failed_fraction", json!(trial.abort_fraction)),
                ("min_sample", json!(trial.abort_min_sample)),
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
        (trial.no_canary, "canary"),
        (trial.no_abort, "abort_if"),
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
        trial: TrialArgs,
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
        let change = request(
            &line.bulk,
            Some(&line.trial),
            &line.change,
            decision,
            &selected,
        )
        .unwrap();
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
    fn the_limits_are_told_in_one_line() {
        let told = |line: &str| {
            let words = ["x", "--queue", "q"].into_iter();
            let line = Line::try_parse_from(words.chain(line.split_whitespace())).unwrap();
            limits(&line.bulk, Some(&line.trial))
        };
        assert_eq!(
            told(""),
            "50 per second; 10 first, then up to 60 s of waiting; stops when 0.2 of them or more died again, of at least 10"
        );
        assert_eq!(
            told("--no-rate-limit --no-canary --no-abort"),
            "as fast as it goes; no canary; never stops by itself"
        );
        assert_eq!(
            told("--rate 0.5 --canary 3 --canary-wait 5 --abort-fraction 1 --abort-min-sample 4"),
            "0.5 per second; 3 first, then up to 5 s of waiting; stops when 1 of them or more died again, of at least 4"
        );
    }

    #[test]
    fn what_contradicts_itself_is_no_command() {
        for line in [
            "--queue q --yes",
            "--queue q msg_1",
            "--max 3 msg_1",
            "--queue q --rate 1 --no-rate-limit",
            "--queue q --rate 0",
            "--queue q --abort-fraction 0",
            "--queue q --abort-fraction 1.1",
            "--queue q --canary 0",
            "--queue q --canary 1 --no-canary",
            "--queue q --watch --detach",
        ] {
            let words = ["x"].into_iter().chain(line.split_whitespace());
            assert!(Line::try_parse_from(words).is_err(), "{line}");
        }
    }
}
