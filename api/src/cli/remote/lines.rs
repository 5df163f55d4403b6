//! `quita publish --lines`: one message per line of standard input, in batches.

use super::Session;
use super::change;
use super::client::{self, Body, Change};
use super::exit::{Exit, Failure, Outcome};
use super::output::{Format, talk};
use super::problem::Problem;
use super::publish::PublishArgs;
use super::visible::visible;
use super::{json, progress, table};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::{self, BufRead, Read};

/// Most entries of a batch.
const MAX_ENTRIES: usize = 1_000;
/// Bytes of a batch; the server takes 8 MiB.
const MAX_BATCH: usize = 6 << 20;
/// Bytes of a line; the server takes 256 KiB.
const MAX_LINE: u64 = 1 << 20;

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

impl Session {
    /// Writes what waits of the results so far, as a whole document.
    fn end_lines(&mut self, tally: &Tally) -> Outcome<()> {
        self.out.end_of_list(tally.printed())?;
        self.out.flush()
    }
}

/// A result whose `index` is the number of its line; in its batch it is another one.
fn numbered(result: &RawValue, line: u64) -> Outcome<String> {
    let mut members: Body = client::parse("/v1/queue/publish-batch", result.get())?;
    members.insert("index".into(), json::raw(&line.into()));
    serde_json::to_string(&members).map_err(|error| Failure::failed(error.to_string()))
}

impl Tally {
    /// How many results were printed.
    fn printed(&self) -> usize {
        (self.stored + self.duplicates) as usize
    }

    fn refuse(&mut self, line: u64, failure: &Failure) {
        talk(&format!("line {line}:"));
        failure.print();
        self.refused += 1;
        self.first.get_or_insert(failure.exit);
    }
}

/// Publishes standard input line by line, in batches, in order. Memory is that of one batch.
pub(super) fn publish(session: &mut Session, args: &PublishArgs) -> Outcome {
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
                session.end_lines(&tally)?;
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
            sent.or_else(|failure| {
                session.end_lines(&tally)?;
                Err(failure)
            })
            .map_err(|failure| {
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
    session.end_lines(&tally)?;
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
        let before = tally.printed();
        if entry.status == 201 {
            tally.stored += 1;
        } else {
            tally.duplicates += 1;
        }
        match session.out.format {
            Format::Json | Format::Jsonl => {
                session.out.element(&numbered(result, line)?, before)?;
            }
            Format::Table | Format::Name => {
                let id = table::text(&json::value(result.get())["message_id"]);
                session.out.line(&visible(&id))?;
            }
        }
    }
    session.out.flush()
}
