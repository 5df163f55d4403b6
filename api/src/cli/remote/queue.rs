//! `quita queue`.

use super::Session;
use super::change::{ChangeArgs, Meets};
use super::client::Change;
use super::exit::{Exit, Failure, Outcome};
use super::output::talk;
use super::paging::{self, Limits, Listing};
use super::policy::{self, SetArgs};
use super::table::{self, Column, length, text, time};
use super::visible::visible;
use super::{change, input, path};
use clap::{Args, Subcommand};
use serde_json::Value;

#[derive(Subcommand)]
pub(in crate::cli) enum QueueCommand {
    /// List the queues with their exact numbers
    #[command(after_help = "EXAMPLES
  quita queue list
  quita queue list --all -o json | jq '.[] | select(.counts.dead > 0) | .name'")]
    List(Limits),

    /// Show a queue: state, numbers and policy
    #[command(after_help = "EXAMPLES
  quita queue show charges
  quita queue show charges -o json | jq .policy")]
    Show {
        /// The queue
        queue: String,
    },

    /// Change a queue's policy, field by field
    #[command(after_help = policy::SET_HELP)]
    Set(SetArgs),

    /// Stop handing out messages of a queue
    #[command(after_help = "EXAMPLES
  quita queue pause charges")]
    Pause(NamedArgs),

    /// Hand out messages again
    #[command(after_help = "EXAMPLES
  quita queue resume charges")]
    Resume(NamedArgs),

    /// Take all messages out of a queue, for good
    #[command(after_help = "EXAMPLES
  quita queue purge scratch
  quita queue purge scratch --confirm scratch
  quita queue purge scratch --dead-letters --justification 'load test of Monday, nothing real'
  quita queue purge scratch --dry-run")]
    Purge(PurgeArgs),
}

#[derive(Args)]
pub(in crate::cli) struct NamedArgs {
    /// The queue
    queue: String,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
pub(in crate::cli) struct PurgeArgs {
    /// The queue
    queue: String,

    /// The queue's name once more, instead of being asked for it
    #[arg(long, value_name = "QUEUE")]
    confirm: Option<String>,

    /// Also the dead letters
    #[arg(long, requires = "justification")]
    dead_letters: bool,

    /// Why; at least 10 characters
    #[arg(long, value_name = "TEXT")]
    justification: Option<String>,

    #[command(flatten)]
    change: ChangeArgs,
}

const COLUMNS: &[Column] = &[
    Column::firm("NAME", |q| text(&q["name"])),
    Column::number("READY", |q| text(&q["counts"]["ready"])),
    Column::number("DELAYED", |q| text(&q["counts"]["delayed"])),
    Column::number("LEASED", |q| text(&q["counts"]["leased"])),
    Column::number("DEAD", |q| text(&q["counts"]["dead"])),
    Column::firm("PAUSED", |q| table::mark(&q["paused"])),
    Column::text("OLDEST READY", |q| length(&q["oldest_ready_age_seconds"])),
    Column::text("OLDEST DEAD", |q| length(&q["oldest_dead_age_seconds"])),
];

pub(super) fn run(session: &mut Session, command: QueueCommand) -> Outcome {
    match command {
        QueueCommand::List(limits) => {
            let listing = Listing {
                path: "/v1/queues".into(),
                query: Vec::new(),
                member: "queues",
                name: "name",
                columns: COLUMNS,
                keep: paging::ALL,
                none: "There are no queues.",
            };
            paging::list(session, &listing, limits.wanted())
        }
        QueueCommand::Show { queue } => {
            let text = session.client.get(&path::queue(&queue, ""))?;
            show(session, &text)
        }
        QueueCommand::Set(args) => policy::set(session, &args),
        QueueCommand::Pause(args) => pause(session, &args, "/pause"),
        QueueCommand::Resume(args) => pause(session, &args, "/resume"),
        QueueCommand::Purge(args) => purge(session, &args),
    }
}

fn pause(session: &mut Session, args: &NamedArgs, action: &str) -> Outcome {
    let change = Change::post(path::queue(&args.queue, action), args.change.body(vec![])?);
    if args.change.dry_run {
        return dry_run(session, &change, &args.queue, None);
    }
    let text = change::send(&session.client, &change)?;
    show(session, &text)
}

fn purge(session: &mut Session, args: &PurgeArgs) -> Outcome {
    let change = Change::post(
        path::queue(&args.queue, "/purge"),
        args.change.body(vec![
            ("confirm", args.queue.as_str().into()),
            ("dead_letters", args.dead_letters.into()),
            (
                "justification",
                args.justification.clone().map_or(Value::Null, Value::from),
            ),
        ])?,
    );
    if args.change.dry_run {
        let wrong = args.confirm.as_ref().is_some_and(|c| *c != args.queue);
        let refusal = wrong.then_some("--confirm has to repeat the queue's name");
        let short = args.justification.as_deref().filter(|_| args.dead_letters);
        let refusal = refusal.or_else(|| short.and_then(input::too_short));
        return dry_run(session, &change, &args.queue, refusal);
    }
    match &args.confirm {
        Some(confirm) if *confirm == args.queue => {}
        Some(_) => {
            return Err(Failure::refused(
                "nothing was done: --confirm has to repeat the queue's name",
            ));
        }
        None => {
            let queue: Value = session.client.read(&path::queue(&args.queue, ""))?;
            let counts = &queue["counts"];
            talk(&format!(
                "{} holds {} ready, {} delayed and {} leased messages, which go for good{}.",
                visible(&args.queue),
                text(&counts["ready"]),
                text(&counts["delayed"]),
                text(&counts["leased"]),
                if args.dead_letters {
                    format!(", and {} dead letters, which go too", text(&counts["dead"]))
                } else {
                    format!(". Its {} dead letters stay", text(&counts["dead"]))
                }
            ));
            input::confirm(
                "Type the queue's name to purge it:",
                &args.queue,
                "--confirm QUEUE repeats the queue's name",
            )?;
        }
    }
    let text = change::send(&session.client, &change)?;
    let columns =
        |value: &Value, width| table::fields(&[("purged", table::text(&value["purged"]))], width);
    session.out.one(&text, "purged", columns)?;
    Ok(Exit::Done)
}

fn dry_run(
    session: &mut Session,
    change: &Change,
    queue: &str,
    refusal: Option<&'static str>,
) -> Outcome {
    let mut present: Value = session.client.read(&path::queue(queue, ""))?;
    let fields = numbers(&present);
    if let Some(members) = present.as_object_mut() {
        members.remove("policy");
    }
    let meets = Meets {
        name: queue.to_owned(),
        fields,
        present,
        refusal: refusal.map(str::to_owned),
    };
    session.show_dry_run(change, &meets)
}

/// Prints a queue.
pub(super) fn show(session: &mut Session, text: &str) -> Outcome {
    session.out.one(text, "name", |queue, width| {
        let mut pairs = numbers(queue);
        let totals = queue["totals"].as_object();
        let totals = totals
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{name} {}", table::text(value)));
        pairs.push(("totals", totals.collect::<Vec<_>>().join(", ")));
        pairs.push(("created", time(&queue["created_at"])));
        pairs.push(("version", table::text(&queue["version"])));
        let mut shown = table::fields(&pairs, width) + "\n\npolicy\n";
        let policy: Vec<(&str, String)> = queue["policy"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), policy::bound(value)))
            .collect();
        shown += &table::fields(&policy, width);
        shown
    })?;
    Ok(Exit::Done)
}

/// What a queue holds at present.
fn numbers(queue: &Value) -> Vec<(&'static str, String)> {
    let counts = &queue["counts"];
    vec![
        ("queue", text(&queue["name"])),
        ("paused", text(&queue["paused"])),
        ("ready", text(&counts["ready"])),
        ("delayed", text(&counts["delayed"])),
        ("leased", text(&counts["leased"])),
        ("dead", text(&counts["dead"])),
        ("oldest ready", length(&queue["oldest_ready_age_seconds"])),
        ("oldest dead", length(&queue["oldest_dead_age_seconds"])),
    ]
}
