//! `quita audit`: who did what, when and why.

use super::Session;
use super::client;
use super::exit::{Exit, Failure, Outcome};
use super::filter::moment;
use super::output::Format;
use super::paging::{self, Listing, Wanted};
use super::path::{Pairs, with_query};
use super::progress;
use super::table::{Column, text, time};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::io::{BufRead, Read};

pub(super) const EXAMPLES: &str = concat!(
    "EXAMPLES
  quita audit
  quita audit --queue charges --action discard --from 7d
  quita audit --message msg_02mx3k8s9qv40 --order oldest
  quita audit --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z -o jsonl > november.jsonl

ACTIONS
  create_queue  put_queue  delete_queue  pause  resume  purge
  cancel  promote  dead_letter  edit  undo_edit  redrive  discard  reopen
  start_redrive  pause_redrive  resume_redrive  cancel_redrive  change_redrive
  abort_redrive  finish_redrive
  create_key  revoke_key  dead_letter_expired

With -o jsonl all entries are written as they come, oldest first, unless --limit or --order say otherwise.

",
    super::surroundings!()
);

/// Longest line of an export.
const MAX_LINE: u64 = 64 << 20;

#[derive(Args)]
pub(in crate::cli) struct AuditArgs {
    /// At this time or later: a time as in 2026-11-30T15:04:05Z, or how long ago as in `2h` or `3d`
    #[arg(long, value_name = "TIME")]
    from: Option<String>,

    /// Before this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,

    /// By this key or person
    #[arg(long)]
    actor: Option<String>,

    /// Of this kind; the actions are listed below
    #[arg(long)]
    action: Option<String>,

    /// About this queue
    #[arg(long)]
    queue: Option<String>,

    /// About this message
    #[arg(long, value_name = "ID")]
    message: Option<String>,

    /// About this redrive
    #[arg(long, value_name = "ID")]
    redrive: Option<String>,

    /// Which ones first [default: newest; oldest with -o jsonl]
    #[arg(long, value_enum)]
    order: Option<Order>,

    /// At most this many [default: 50; all with -o jsonl]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    limit: Option<u32>,

    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Which ones first.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Order {
    Newest,
    Oldest,
}

const COLUMNS: &[Column] = &[
    Column::firm("AT", |e| time(&e["at"])),
    Column::firm("ACTION", |e| text(&e["action"])),
    Column::text("ACTOR", |e| text(&e["actor"])),
    Column::text("QUEUE", |e| text(&e["queue"])),
    Column::firm("MESSAGE", |e| text(&e["message_id"])),
    Column::text("REASON", |e| text(&e["reason"])),
    Column::firm("REDRIVE", |e| text(&e["redrive_id"])),
    Column::number("ID", |e| text(&e["audit_id"])),
];

pub(super) fn run(session: &mut Session, args: &AuditArgs) -> Outcome {
    let now = Timestamp::from_millisecond(quita_storage::clock::wall()).unwrap_or_default();
    let query = args.query(now)?;
    if session.out.format == Format::Jsonl {
        let limit = args.limit.map(|limit| limit as usize);
        return export(session, &query, limit.unwrap_or(usize::MAX));
    }
    let listing = Listing {
        path: "/v1/audit".into(),
        query,
        member: "entries",
        name: "audit_id",
        columns: COLUMNS,
        keep: paging::ALL,
        none: "There are no such entries.",
    };
    paging::list(session, &listing, Wanted::new(args.limit, args.all))
}

impl AuditArgs {
    fn query(&self, now: Timestamp) -> Outcome<Pairs> {
        let at = |name: &str, text: &Option<String>| match text {
            Some(text) => moment(name, text, now).map(Value::from),
            None => Ok(Value::Null),
        };
        let order = self.order.and_then(|order| order.to_possible_value());
        let mut pairs = vec![
            ("from", at("--from", &self.from)?),
            ("to", at("--to", &self.to)?),
            ("actor", json!(self.actor)),
            ("action", json!(self.action)),
            ("queue", json!(self.queue)),
            ("message_id", json!(self.message)),
            ("redrive_id", json!(self.redrive)),
            ("order", order.map_or(Value::Null, |o| o.get_name().into())),
        ];
        pairs.retain(|(_, value)| !value.is_null());
        Ok(pairs)
    }
}

/// Writes the server's own export line by line. Memory is that of one line.
fn export(session: &mut Session, query: &Pairs, most: usize) -> Outcome {
    let path = with_query("/v1/audit", query);
    let mut from = session.client.stream(&path, "application/x-ndjson")?;
    let bar = progress::counter("entries", session.out.waits());
    let mut rows = session.out.rows("audit_id", COLUMNS);
    while rows.count < most {
        let mut line = String::new();
        let read = (&mut from).take(MAX_LINE).read_line(&mut line);
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                let count = rows.count;
                rows.end("")?;
                return Err(Failure::new(
                    Exit::Temporary,
                    format!("the export broke off after {count} entries: {error}"),
                ));
            }
        }
        if line.trim().is_empty() {
            continue;
        }
        // A line that is cut is not an entry.
        let entry: Box<serde_json::value::RawValue> = client::parse(&path, line.trim())?;
        rows.push(entry.get())?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    rows.end("There are no such entries.")?;
    Ok(Exit::Done)
}
