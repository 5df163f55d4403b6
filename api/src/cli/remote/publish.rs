//! `quita publish`: one message, or one per line of standard input.

use super::Session;
use super::change::{self, ChangeArgs};
use super::client::{self, Body, Change};
use super::exit::{Exit, Failure, Outcome};
use super::output::{Format, talk};
use super::problem::Problem;
use super::visible::visible;
use super::{input, json, progress, table};
use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read};

pub(super) const EXAMPLES: &str = concat!(
    "EXAMPLES
  quita publish charges '{\"amount\":1250}' --key cob-sub_0412-2026-10
  quita publish charges @charge.json --delay 60 --priority 9 --header source=cron
  jq -c '.[]' charges.json | quita publish charges --lines --request-id-prefix import-2026-10

",
    super::surroundings!()
);

/// Most entries of a batch.
const MAX_ENTRIES: usize = 1_000;
/// Bytes of a batch; the server takes 8 MiB.
const MAX_BATCH: usize = 6 << 20;
/// Bytes of a line; the server takes 256 KiB.
const MAX_LINE: u64 = 1 << 20;

#[derive(Args)]
pub(in crate::cli) struct PublishArgs {
    /// The queue
    queue: String,

    /// The message: JSON, @FILE or - for standard input
    #[arg(
        required_unless_present = "lines",
        conflicts_with = "lines",
        allow_negative_numbers = true
    )]
    message: Option<String>,

    /// Names the business operation
    #[arg(long, conflicts_with = "lines")]
    key: Option<String>,

    /// The message becomes ready this much later
    #[arg(long, value_name = "SECONDS")]
    delay: Option<f64>,

    /// 0 to 9, higher first
    #[arg(long, value_name = "N")]
    priority: Option<u8>,

    /// It is dead-lettered unless it is done this soon
    #[arg(long, value_name = "SECONDS")]
    expires_in: Option<f64>,

    /// Its own limit instead of the queue's
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,

    /// A header; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::pair)]
    header: Vec<(String, String)>,

    /// One message per line of standard input
    #[arg(long, conflicts_with_all = ["dry_run", "request_id"])]
    lines: bool,

    /// With `--lines`: line N has the request id PREFIX-N, so that the same input with the same prefix may be sent again
    /// [default: a new one]
    #[arg(long, requires = "lines", value_name = "PREFIX")]
    request_id_prefix: Option<String>,

    #[command(flatten)]
    change: ChangeArgs,
}

pub(super) fn run(session: &mut Session, args: &PublishArgs) -> Outcome {
    if args.lines {
        return lines(session, args);
    }
    let message = args.message.as_deref().unwrap_or("-");
    let message = input::json_from("the message", message)?;
    let mut members = args.members();
    members.push(("queue", args.queue.as_str().into()));
    members.push(("key", json!(args.key)));
    let mut body = args.change.body(members)?;
    body.insert("message".into(), message);
    let change = Change::post("/v1/queue/publish", body);
    if args.change.dry_run {
        let path = super::path::queue(&args.queue, "");
        let present = match session.client.read::<Value>(&path) {
            Ok(queue) => vec![("ready", table::text(&queue["counts"]["ready"]))],
            Err(absent) if absent.exit == Exit::NotFound => vec![("exists", "no".to_owned())],
            Err(failure) => return Err(failure),
        };
        return session.show_dry_run(&change, &present);
    }
    let answer = change::send(&session.client, &change)?;
    let published: Value = client::parse(&change.path, &answer)?;
    if published["deduplicated"] == true {
        let state = table::text(&published["state"]);
        let same = match published["same_body"].as_bool() {
            Some(false) => "with another body, ",
            _ => "",
        };
        talk(&format!(
            "It was published before, {same}and is {} now; nothing was stored.",
            visible(&state)
        ));
    }
    session.out.one(&answer, "message_id", |published, _| {
        visible(&table::text(&published["message_id"])).into_owned()
    })?;
    Ok(Exit::Done)
}

impl PublishArgs {
    /// What all messages of the command have in common.
    fn members(&self) -> Vec<(&'static str, Value)> {
        let headers: serde_json::Map<String, Value> = self
            .header
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        vec![
            ("delay_seconds", json!(self.delay)),
            ("priority", json!(self.priority)),
            ("expires_in_seconds", json!(self.expires_in)),
            ("max_attempts", json!(self.max_attempts)),
            (
                "headers",
                if headers.is_empty() {
                    Value::Null
                } else {
                    headers.into()
                },
            ),
        ]
    }
}

/// What a batch answers.
#[derive(Deserialize)]
struct Answer {
    results: Vec<Box<RawValue>>,
}

/// One result of a batch.
#[derive(Deserialize)]
struct Entry {
    index: usize,
    status: u16,
    #[serde(default)]
    error: Option<Box<RawValue>>,
}

/// What came of the lines so far.
#[derive(Default)]
struct Tally {
    stored: u64,
    duplicates: u64,
    refused: u64,
    /// The exit code of the first refusal.
    first: Option<Exit>,
}

impl Tally {
    fn refuse(&mut self, line: u64, failure: &Failure) {
        talk(&format!("line {line}:"));
        failure.print();
        self.refused += 1;
        self.first.get_or_insert(failure.exit);
    }
}

/// Publishes standard input line by line, in batches, in order. Memory is that of one batch.
fn lines(session: &mut Session, args: &PublishArgs) -> Outcome {
    let prefix = match &args.request_id_prefix {
        Some(prefix) => prefix.clone(),
        None => change::new_request_id()?,
    };
    let stdin = io::stdin();
    let size = rustix::fs::fstat(&stdin)
        .ok()
        .filter(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file())
        .map(|stat| stat.st_size as u64);
    let bar = match size {
        // Ids and a bar on one terminal would write over each other.
        _ if session.out.width.is_some() => progress::counter("", false),
        Some(size) => progress::bytes(size),
        None => progress::counter("lines", true),
    };
    let mut from = stdin.lock();
    let (mut tally, mut line, mut end) = (Tally::default(), 0, false);
    while !end {
        let mut batch: Vec<(u64, Box<RawValue>)> = Vec::new();
        let (mut bytes, mut read) = (0, 0);
        while batch.len() < MAX_ENTRIES && bytes < MAX_BATCH {
            let mut text = Vec::new();
            let got = (&mut from).take(MAX_LINE).read_until(b'\n', &mut text);
            let got = got.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
            if got == 0 {
                end = true;
                break;
            }
            line += 1;
            read += got as u64;
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let whole = got as u64 != MAX_LINE || text.ends_with(b"\n");
            if !whole {
                return Err(Failure::usage(format!("line {line} is too long")));
            }
            match entry(args, &prefix, line, &text) {
                Ok(entry) => {
                    bytes += entry.get().len();
                    batch.push((line, entry));
                }
                Err(failure) => tally.refuse(line, &failure),
            }
        }
        if !batch.is_empty() {
            let sent = send(session, args, &batch, &mut tally);
            sent.map_err(|failure| {
                failure.and(&format!(
                    "hint: {} lines are stored; the same input with --request-id-prefix {} goes on without storing any twice",
                    tally.stored + tally.duplicates,
                    visible(&prefix)
                ))
            })?;
        }
        bar.inc(if size.is_some() {
            read
        } else {
            batch.len() as u64
        });
    }
    bar.finish_and_clear();
    session.out.flush()?;
    talk(&format!(
        "{} published, {} published before, {} refused",
        tally.stored, tally.duplicates, tally.refused
    ));
    Ok(match tally.first {
        None => Exit::Done,
        Some(_) if tally.stored + tally.duplicates > 0 => Exit::Partly,
        Some(first) => first,
    })
}

/// One entry of a batch.
fn entry(args: &PublishArgs, prefix: &str, line: u64, text: &[u8]) -> Outcome<Box<RawValue>> {
    let text = std::str::from_utf8(text).map_err(|_| Failure::usage("it is not UTF-8"))?;
    let message =
        json::check(text).map_err(|error| Failure::usage(format!("it is not JSON: {error}")))?;
    let id = format!("{prefix}-{line}");
    let members = args.members().into_iter();
    let mut body: Body = members
        .chain([("client_request_id", id.into())])
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), json::raw(&value)))
        .collect();
    body.insert("message".into(), message);
    serde_json::value::to_raw_value(&body).map_err(|error| Failure::usage(error.to_string()))
}

fn send(
    session: &mut Session,
    args: &PublishArgs,
    batch: &[(u64, Box<RawValue>)],
    tally: &mut Tally,
) -> Outcome<()> {
    let entries: Vec<&RawValue> = batch.iter().map(|(_, entry)| &**entry).collect();
    let entries = serde_json::value::to_raw_value(&entries);
    let entries = entries.map_err(|error| Failure::usage(error.to_string()))?;
    let body = [
        ("queue".to_owned(), json::raw(&args.queue.as_str().into())),
        ("messages".to_owned(), entries),
    ];
    let change = Change::post("/v1/queue/publish-batch", body.into_iter().collect());
    let answer: Answer = client::parse(&change.path, &session.client.send(&change)?)?;
    for result in &answer.results {
        let entry: Entry = client::parse(&change.path, result.get())?;
        let line = batch.get(entry.index).map_or(0, |(line, _)| *line);
        if let Some(error) = &entry.error {
            let problem = Problem::read(entry.status, error.get());
            tally.refuse(line, &problem.into());
            continue;
        }
        if entry.status == 201 {
            tally.stored += 1;
        } else {
            tally.duplicates += 1;
        }
        match session.out.format {
            Format::Json | Format::Jsonl => session.out.line(&json::compact(result.get()))?,
            Format::Table | Format::Name => {
                let id = table::text(&json::value(result.get())["message_id"]);
                session.out.line(&visible(&id))?;
            }
        }
    }
    session.out.flush()
}
