//! SQLite in this process, opened as the server opens it.

use super::{Commits, What, request_id};
use crate::Outcome;
use crate::messages::message;
use rusqlite::{Connection, Transaction, params};
use std::path::Path;
use std::time::{Duration, Instant};

const TABLES: &str = include_str!("../../../../migrations/sqlite/0001_queue.sql");

/// The server's; except that its log, which begins anew every 64 MiB of 4 KiB pages, does so by itself here.
const PRAGMAS: [(&str, &str); 5] = [
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("cache_size", "-32768"),
    ("mmap_size", "0"),
    ("wal_autocheckpoint", "16384"),
];

const ROW: &str = "INSERT INTO message (seq, uid, created_at, available_at, rank, fingerprint, digest, request_id, payload)
    VALUES (?1, 1, ?1, ?1, 5, ?1, ?2, ?3, ?4)";
const PLACE: &str = "INSERT INTO ready VALUES (1, 5, ?1, ?1, 0, 0, 0, 0, 0, 0)";
const REQUEST_ID: &str = "INSERT INTO dedupe_young (seq, uid, digest, fingerprint, kept_from) VALUES (?1, 1, ?2, ?1, ?1)";

pub(super) fn insert(
    directory: &Path,
    what: What,
    messages: i64,
    length: Duration,
) -> Outcome<Commits> {
    let folder = tempfile::Builder::new()
        .prefix("quita-bench-")
        .tempdir_in(directory)?;
    let mut sql = Connection::open(folder.path().join("alone.db"))?;
    for (name, value) in PRAGMAS {
        sql.pragma_update(None, name, value)?;
    }
    sql.execute_batch(TABLES)?;
    let payload = message().into_bytes();
    let mut commits = Commits::default();
    let begun = Instant::now();
    while begun.elapsed() < length {
        let start = Instant::now();
        let transaction = sql.transaction()?;
        for seq in commits.messages..commits.messages + messages {
            one(&transaction, what, seq, &payload)?;
        }
        transaction.commit()?;
        commits.note(start, messages);
    }
    commits.seconds = begun.elapsed().as_secs_f64();
    Ok(commits)
}

fn one(sql: &Transaction<'_>, what: What, seq: i64, payload: &[u8]) -> rusqlite::Result<()> {
    let (id, digest) = request_id(seq);
    sql.prepare_cached(ROW)?
        .execute(params![seq, digest, id.as_bytes(), payload])?;
    if what == What::Message {
        sql.prepare_cached(PLACE)?.execute([seq])?;
        sql.prepare_cached(REQUEST_ID)?
            .execute(params![seq, digest])?;
    }
    Ok(())
}
