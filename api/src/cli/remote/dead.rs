//! `quita dead`: look at dead letters, and decide about one or about many.

use super::Session;
use super::bulk::{self, Decision};
use super::change::ChangeArgs;
use super::client;
use super::decide::{self, Each};
use super::exit::{Exit, Failure, Outcome};
use super::filter::Filter;
use super::fix::{self, FixArgs};
use super::input;
use super::message::{self, SUMMARY, SUMMARY_WITH_QUEUE};
use super::output::talk;
use super::paging::{self, Limits, Listing};
use super::path::{self, Pairs};
use super::start::{BulkArgs, TrialArgs};
use super::story::{Needed, Story};
use super::table::{Column, text, time};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Subcommand)]
pub(in crate::cli) enum DeadCommand {
    /// List dead letters, of one queue or of all
    #[command(after_help = "EXAMPLES
  quita dead list
  quita dead list --queue charges --failure-kind nack --died-after 2h
  quita dead list --queue charges --error-code card_declined --all -o name")]
    List(ListArgs),

    /// Show which failures there are, most frequent first
    #[command(after_help = "EXAMPLES
  quita dead groups
  quita dead groups --queue charges --died-after 1d")]
    Groups(GroupsArgs),

    /// Show a dead letter and all that happened to it
    #[command(after_help = "EXAMPLES
  quita dead show msg_02mx3k8s9qv40")]
    Show {
        /// Its id
        id: String,
    },

    /// Change what a dead letter says, before it is redriven
    #[command(after_help = fix::EXAMPLES)]
    Fix(Box<FixArgs>),

    /// Give up on dead letters, on the record
    #[command(after_help = "EXAMPLES
  quita dead discard msg_02mx3k8s9qv40 --code duplicate --justification 'charged by hand, see TICKET-17'
  quita dead discard --queue charges --group grp_0123456789abcdef --code written_off --justification 'cards of the closed bank'
  quita dead discard --queue charges --died-before 30d --code superseded --justification 'October is closed' --dry-run")]
    Discard(Box<DiscardArgs>),

    /// Give dead letters another round
    #[command(after_help = "EXAMPLES
  quita dead redrive msg_02mx3k8s9qv40
  quita dead redrive --queue charges --error-code gateway_down --dry-run
  quita dead redrive --queue charges --error-code gateway_down --rate 20 --canary 5
  quita dead redrive --queue charges --died-after 2h --yes --expect-count 120 --detach -o name
  quita dead redrive msg_02mx3k8s9qv40 --force --reason 'the bank confirmed that nothing was charged'")]
    Redrive(Box<RedriveArgs>),

    /// Take a discard back, while the payload is kept
    #[command(after_help = "EXAMPLES
  quita dead reopen msg_02mx3k8s9qv40 --reason 'discarded by mistake'")]
    Reopen(ReopenArgs),
}

#[derive(Args)]
pub(in crate::cli) struct ListArgs {
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,

    /// By the time of death
    #[arg(long, value_enum, default_value_t)]
    order: Order,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    filter: Filter,
}

#[derive(Args)]
pub(in crate::cli) struct GroupsArgs {
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,

    /// At most this many [default: 50]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=500), value_name = "N")]
    limit: Option<u32>,

    #[command(flatten)]
    filter: Filter,
}

/// Which ones first.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(super) enum Order {
    #[default]
    Oldest,
    Newest,
}

/// Why a dead letter is given up on.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum DiscardCode {
    /// It never had to be done
    NotApplicable,
    /// It was done by another message
    Duplicate,
    /// Something newer took its place
    Superseded,
    /// It will not be done
    WrittenOff,
}

#[derive(Args)]
pub(in crate::cli) struct DiscardArgs {
    /// Messages, by their ids
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// What kind of decision it is
    #[arg(long, value_enum)]
    code: DiscardCode,

    /// Why; at least 10 characters
    #[arg(long, value_name = "TEXT")]
    justification: String,

    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    bulk: BulkArgs,
}

#[derive(Args)]
pub(in crate::cli) struct RedriveArgs {
    /// Messages, by their ids
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// Also above `max_redrives`, and although a worker has reported the work as done
    #[arg(long, requires = "reason")]
    force: bool,

    /// Why; kept in the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// A new life span from now, for messages past theirs
    #[arg(long, value_name = "SECONDS", conflicts_with = "queue")]
    expires_in: Option<f64>,

    #[command(flatten)]
    change: ChangeArgs,

    #[command(flatten)]
    bulk: BulkArgs,

    #[command(flatten)]
    trial: TrialArgs,
}

#[derive(Args)]
pub(in crate::cli) struct ReopenArgs {
    /// Messages, by their ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// Why; kept in the audit
    #[arg(long, value_name = "TEXT")]
    reason: String,

    #[command(flatten)]
    change: ChangeArgs,
}

/// Groups shown unless it is said how many.
const GROUPS_SHOWN: u32 = 50;

const GROUPS: &[Column] = &[
    Column::number("COUNT", |g| text(&g["count"])),
    Column::firm("GROUP", |g| text(&g["group"])),
    Column::text("QUEUE", |g| text(&g["queue"])),
    Column::firm("KIND", |g| text(&g["failure_kind"])),
    Column::text("CODE", |g| text(&g["error_code"])),
    Column::text("ERROR", |g| text(&g["error_text"])),
    Column::firm("FIRST", |g| time(&g["first_died_at"])),
    Column::firm("LAST", |g| time(&g["last_died_at"])),
    Column::firm("EXAMPLE", |g| text(&g["example_message_id"])),
];

pub(super) fn run(session: &mut Session, command: DeadCommand) -> Outcome {
    match command {
        DeadCommand::List(args) => list(session, &args),
        DeadCommand::Groups(args) => groups(session, &args),
        DeadCommand::Show { id } => show(session, &id),
        DeadCommand::Fix(args) => fix::run(session, &args),
        DeadCommand::Discard(args) => discard(session, &args),
        DeadCommand::Redrive(args) => redrive(session, &args),
        DeadCommand::Reopen(args) => {
            let each = Each {
                action: "/reopen",
                needs: Needed::Discarded,
                members: vec![("reason", args.reason.as_str().into())],
            };
            decide::each(session, &args.ids, &args.change, &each)
        }
    }
}

fn discard(session: &mut Session, args: &DiscardArgs) -> Outcome {
    // Before anybody types a count for a request that is refused.
    if let Some(short) = input::too_short(&args.justification) {
        return Err(Failure::refused(format!("nothing was done: {short}")));
    }
    let code = args.code.to_possible_value();
    let members: Pairs = vec![
        ("code", code.map_or(Value::Null, |c| c.get_name().into())),
        ("justification", args.justification.as_str().into()),
    ];
    if args.ids.is_empty() {
        let action = "discard";
        let decision = Decision { action, members };
        return bulk::run(session, &args.bulk, None, &args.change, decision);
    }
    decide::no_filter(&args.bulk.filter)?;
    let each = Each {
        action: "/discard",
        needs: Needed::Dead,
        members,
    };
    decide::each(session, &args.ids, &args.change, &each)
}

fn redrive(session: &mut Session, args: &RedriveArgs) -> Outcome {
    let mut members: Pairs = vec![
        ("force", if args.force { true.into() } else { Value::Null }),
        ("reason", json!(args.reason)),
    ];
    if args.ids.is_empty() {
        let action = "redrive";
        let decision = Decision { action, members };
        let trial = Some(&args.trial);
        return bulk::run(session, &args.bulk, trial, &args.change, decision);
    }
    decide::no_filter(&args.bulk.filter)?;
    members.push(("expires_in_seconds", json!(args.expires_in)));
    let each = Each {
        action: "/redrive",
        needs: Needed::Dead,
        members,
    };
    decide::each(session, &args.ids, &args.change, &each)
}

fn list(session: &mut Session, args: &ListArgs) -> Outcome {
    let mut query = args.filter.query()?;
    if matches!(args.order, Order::Newest) {
        query.push(("order", "newest".into()));
    }
    let (path, columns) = match &args.queue {
        Some(queue) => (path::queue(queue, "/dead-letters"), SUMMARY),
        None => ("/v1/dead-letters".to_owned(), SUMMARY_WITH_QUEUE),
    };
    let listing = Listing {
        path,
        query,
        member: "messages",
        name: "message_id",
        columns,
        keep: paging::ALL,
        none: "There are no such dead letters.",
    };
    paging::list(session, &listing, args.limits.wanted())
}

/// Groups come in one piece.
fn groups(session: &mut Session, args: &GroupsArgs) -> Outcome {
    #[derive(serde::Deserialize)]
    struct Answer {
        groups: Vec<Box<RawValue>>,
        #[serde(default)]
        more: bool,
    }
    let mut query = args.filter.query()?;
    query.push(("limit", args.limit.unwrap_or(GROUPS_SHOWN).into()));
    let path = match &args.queue {
        Some(queue) => path::queue(queue, "/dead-letters/groups"),
        None => "/v1/dead-letters/groups".to_owned(),
    };
    let answer: Answer = session.client.read(&path::with_query(&path, &query))?;
    let mut rows = session.out.rows("group", GROUPS);
    for group in &answer.groups {
        rows.push(group.get())?;
    }
    rows.end("There are no such dead letters.")?;
    if answer.more && args.limit.is_none() {
        talk("There are more groups: --limit N shows them.");
    }
    Ok(Exit::Done)
}

fn show(session: &mut Session, id: &str) -> Outcome {
    let text = message::read(session, id)?;
    let story: Story = client::parse(&path::message(id), &text)?;
    if story.get("state") != "dead" {
        talk("This is not a dead letter now.");
    }
    message::show(session, id, &text)
}
