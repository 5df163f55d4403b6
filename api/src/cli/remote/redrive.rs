//! `quita redrive`: what was started over many dead letters, and how it goes.

use super::Session;
use super::change::{self, ChangeArgs, Meets};
use super::client::Change;
use super::exit::{Exit, Failure, Outcome};
use super::paging::{self, Limits, Listing};
use super::table::{self, Column, text, time};
use super::{json, path, watch};
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

#[derive(Subcommand)]
pub(in crate::cli) enum RedriveCommand {
    /// List redrives and discards of many, newest first; without dry runs
    #[command(after_help = "EXAMPLES
  quita redrive list
  quita redrive list --dry-runs
  quita redrive list --queue charges --state running -o name")]
    List {
        /// Of this queue
        #[arg(long)]
        queue: Option<String>,
        /// In this state
        #[arg(long, value_enum)]
        state: Option<State>,
        /// Dry runs too
        #[arg(long)]
        dry_runs: bool,
        #[command(flatten)]
        limits: Limits,
    },

    /// Show one, with what it skipped and why
    #[command(after_help = "EXAMPLES
  quita redrive show rdv_02mx3k8s9qv40")]
    Show {
        /// Its id
        id: String,
    },

    /// Follow one to its end, with a progress bar
    ///
    /// Ends with 0 when all were moved, 7 when some were skipped or failed again, 5 when it was aborted, 1 when it was
    /// cancelled. Ctrl-C ends the watching only (130). What fails again is counted for 24 hours more: `quita redrive show`
    /// says how many.
    #[command(after_help = "EXAMPLES
  quita redrive watch rdv_02mx3k8s9qv40
  quita redrive watch $(quita redrive list --state running --limit 1 -o name)")]
    Watch {
        /// Its id
        id: String,
    },

    /// Hold it where it is
    #[command(after_help = "EXAMPLES
  quita redrive pause rdv_02mx3k8s9qv40 --reason 'the gateway is slow'")]
    Pause(SteerArgs),

    /// Let it go on
    #[command(after_help = "EXAMPLES
  quita redrive resume rdv_02mx3k8s9qv40")]
    Resume(SteerArgs),

    /// End it; what was moved stays moved
    #[command(after_help = "EXAMPLES
  quita redrive cancel rdv_02mx3k8s9qv40 --reason 'wrong group'")]
    Cancel(SteerArgs),

    /// Make it slower or faster
    #[command(after_help = "EXAMPLES
  quita redrive rate rdv_02mx3k8s9qv40 5
  quita redrive rate rdv_02mx3k8s9qv40 none")]
    Rate {
        #[command(flatten)]
        steer: SteerArgs,
        /// Messages per second, or `none`
        rate: String,
    },
}

/// Where a redrive is.
#[derive(Clone, Copy, ValueEnum)]
pub(in crate::cli) enum State {
    Running,
    Canary,
    Paused,
    Aborted,
    Cancelled,
    Done,
}

#[derive(Args)]
pub(in crate::cli) struct SteerArgs {
    /// Its id
    id: String,

    /// Why; kept in the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    change: ChangeArgs,
}

const COLUMNS: &[Column] = &[
    Column::firm("REDRIVE", |r| text(&r["redrive_id"])),
    Column::firm("ACTION", |r| text(&r["action"])),
    Column::firm("STATE", state),
    Column::text("QUEUE", |r| text(&r["queue"])),
    Column::number("COUNT", |r| text(&r["count"])),
    Column::number("MOVED", |r| text(&r["moved"])),
    Column::number("SKIPPED", |r| text(&r["skipped"]["total"])),
    Column::number("FAILED", |r| text(&r["failed_again"])),
    Column::firm("CREATED", |r| time(&r["created_at"])),
    Column::text("ACTOR", |r| text(&r["actor"])),
    Column::text("REASON", reason),
];

pub(super) fn run(session: &mut Session, command: RedriveCommand) -> Outcome {
    match command {
        RedriveCommand::List {
            queue,
            state,
            dry_runs,
            limits,
        } => {
            let state = state.and_then(|state| state.to_possible_value());
            let mut query = vec![
                ("queue", queue.map_or(Value::Null, Value::from)),
                ("state", state.map_or(Value::Null, |s| s.get_name().into())),
            ];
            query.retain(|(_, value)| !value.is_null());
            let listing = Listing {
                path: "/v1/redrives".into(),
                query,
                member: "redrives",
                name: "redrive_id",
                columns: COLUMNS,
                keep: if dry_runs {
                    paging::ALL
                } else {
                    |redrive| redrive["dry_run"] != true
                },
                none: if dry_runs {
                    "There are no such redrives."
                } else {
                    "There are no such redrives; --dry-runs shows dry runs too."
                },
            };
            paging::list(session, &listing, limits.wanted())
        }
        RedriveCommand::Show { id } => {
            let text = session.client.get(&path::redrive(&id, ""))?;
            show(session, &text)?;
            Ok(Exit::Done)
        }
        RedriveCommand::Watch { id } => watch::to_its_end(session, &id),
        RedriveCommand::Pause(steer) => post(session, &steer, "/pause"),
        RedriveCommand::Resume(steer) => post(session, &steer, "/resume"),
        RedriveCommand::Cancel(steer) => post(session, &steer, "/cancel"),
        RedriveCommand::Rate { steer, rate } => {
            let wanted = match rate.as_str() {
                "none" => Value::Null,
                number => match number.parse::<f64>() {
                    Ok(number) => json!(number),
                    Err(_) => return Err(Failure::usage("a rate is a number, or `none`")),
                },
            };
            let mut body = steer.body()?;
            body.insert("rate_per_second".into(), json::raw(&wanted));
            let mut change = Change::post(path::redrive(&steer.id, ""), body);
            change.method = Method::PATCH;
            apply(session, &steer, &change)
        }
    }
}

impl SteerArgs {
    fn body(&self) -> Outcome<super::client::Body> {
        let reason = self.reason.clone().map_or(Value::Null, Value::from);
        self.change.body(vec![("reason", reason)])
    }
}

fn post(session: &mut Session, steer: &SteerArgs, action: &str) -> Outcome {
    let change = Change::post(path::redrive(&steer.id, action), steer.body()?);
    apply(session, steer, &change)
}

fn apply(session: &mut Session, steer: &SteerArgs, change: &Change) -> Outcome {
    if steer.change.dry_run {
        let present: Value = session.client.read(&path::redrive(&steer.id, ""))?;
        let finished = present["finished_at"].is_string();
        let meets = Meets {
            name: text(&present["redrive_id"]),
            fields: facts(&present),
            refusal: finished.then(|| "it is over (redrive_finished)".to_owned()),
            present,
        };
        return session.show_dry_run(change, &meets);
    }
    let text = change::send(&session.client, change)?;
    show(session, &text)?;
    Ok(Exit::Done)
}

/// Prints a redrive.
pub(super) fn show(session: &mut Session, redrive: &str) -> Outcome<()> {
    session.out.one(redrive, "redrive_id", |redrive, width| {
        table::fields(&facts(redrive), width)
    })
}

fn state(redrive: &Value) -> String {
    let dry_run = redrive["dry_run"].as_bool().unwrap_or(false);
    let state = text(&redrive["state"]);
    if dry_run {
        format!("{state} (dry run)")
    } else {
        state
    }
}

/// Why, of a redrive or of a discard.
fn reason(redrive: &Value) -> String {
    match &redrive["justification"] {
        Value::Null => text(&redrive["reason"]),
        justification => text(justification),
    }
}

/// What is worth a line; what does not apply has none.
fn facts(redrive: &Value) -> Vec<(&'static str, String)> {
    let skipped = redrive["skipped"].as_object().into_iter().flatten();
    let skipped: Vec<String> = skipped
        .filter(|(name, count)| *name != "total" && count.as_u64() != Some(0))
        .map(|(name, count)| format!("{name} {}", text(count)))
        .collect();
    let total = text(&redrive["skipped"]["total"]);
    let rate = match &redrive["rate_per_second"] {
        Value::Null => "no limit".to_owned(),
        rate => format!("{}/s", text(rate)),
    };
    let discard = redrive["action"] == "discard";
    // What is discarded cannot fail again.
    let only_redrive = |text: String| if discard { "-".to_owned() } else { text };
    let canary = &redrive["canary"];
    let abort = &redrive["abort_if"];
    let stopped = matches!(redrive["state"].as_str(), Some("aborted" | "cancelled"));
    let pairs = [
        (
            if discard { "discard" } else { "redrive" },
            text(&redrive["redrive_id"]),
        ),
        ("selection", text(&redrive["selection_id"])),
        ("queue", text(&redrive["queue"])),
        ("action", text(&redrive["action"])),
        ("state", state(redrive)),
        ("because", text(&redrive["state_reason"])),
        ("count", text(&redrive["count"])),
        ("max", text(&redrive["max"])),
        ("moved", text(&redrive["moved"])),
        (
            "skipped",
            if skipped.is_empty() {
                total
            } else {
                format!("{total} ({})", skipped.join(", "))
            },
        ),
        ("failed again", only_redrive(text(&redrive["failed_again"]))),
        (
            if stopped { "not done" } else { "remaining" },
            text(&redrive["remaining"]),
        ),
        ("rate", rate),
        (
            "canary",
            only_redrive(if canary.is_object() {
                let (count, wait) = (text(&canary["count"]), text(&canary["wait_seconds"]));
                let until = match canary["until"].as_str() {
                    Some(until) => format!(", until {}", time(&until.into())),
                    None => String::new(),
                };
                format!("{count}, then {wait} s{until}")
            } else {
                "none".to_owned()
            }),
        ),
        (
            "aborts",
            only_redrive(if abort.is_object() {
                let fraction = text(&abort["failed_fraction"]);
                let sample = text(&abort["min_sample"]);
                format!("when {fraction} or more of them died again, of at least {sample}")
            } else {
                "never".to_owned()
            }),
        ),
        ("force", table::mark(&redrive["force"])),
        ("code", text(&redrive["code"])),
        ("justification", text(&redrive["justification"])),
        ("reason", text(&redrive["reason"])),
        ("actor", text(&redrive["actor"])),
        ("created", time(&redrive["created_at"])),
        ("finished", time(&redrive["finished_at"])),
        ("ends about", time(&redrive["estimated_end_at"])),
    ];
    pairs
        .into_iter()
        .filter(|(_, value)| value != "-")
        .collect()
}
