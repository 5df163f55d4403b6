//! What the stores cost by themselves, without a server: the floor under every row.
//!
//! One commit writes one row of `message`, the table that holds what was published, made by the migrations of the project.
//! SQLite is opened as the server opens it; PostgreSQL is asked over the same kind of socket. A publish writes more than this
//! row: its place in the queue, its request id, the queue's numbers.

use super::book::{Figure, MESSAGES_PER_SECOND, P50_MS, P99_MS};
use crate::Outcome;
use crate::fresh::{Ground, Store};
use crate::messages::message;
use crate::postgres;
use crate::stats::percentile_ms;
use rusqlite::params;
use sqlx::{Connection, PgConnection};
use std::path::Path;
use std::time::{Duration, Instant};

/// Rows of one transaction of the bulk insert.
const BULK: i64 = 1_000;
/// Connections that insert into PostgreSQL in bulk, one per core of a small machine.
const BULK_CONNECTIONS: i64 = 2;

const SQLITE_TABLES: &str = include_str!("../../../migrations/sqlite/0001_queue.sql");
const POSTGRES_TABLES: &str = include_str!("../../../migrations/postgres/0001_queue.sql");

/// What commits took, in µs, and how many rows came in what time.
#[derive(Default)]
struct Commits {
    took: Vec<u32>,
    rows: i64,
    seconds: f64,
}

impl Commits {
    /// Commits `rows` at a time, as `commit` does from the given number on, until `length` is over.
    fn note(&mut self, begun: Instant, rows: i64) {
        self.took
            .push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
        self.rows += rows;
    }

    fn figures(mut self) -> Vec<Figure> {
        self.took.sort_unstable();
        vec![
            (MESSAGES_PER_SECOND, self.rows as f64 / self.seconds),
            (P50_MS, percentile_ms(&self.took, 0.50)),
            (P99_MS, percentile_ms(&self.took, 0.99)),
        ]
    }
}

/// Commits of one row, one after the other.
pub(super) async fn commit(
    ground: &Ground,
    store: Store,
    length: Duration,
) -> Outcome<Vec<Figure>> {
    insert(ground, store, 1, 1, length).await
}

/// Commits of 1,000 rows.
pub(super) async fn bulk(ground: &Ground, store: Store, length: Duration) -> Outcome<Vec<Figure>> {
    insert(ground, store, BULK, BULK_CONNECTIONS, length).await
}

async fn insert(
    ground: &Ground,
    store: Store,
    rows: i64,
    connections: i64,
    length: Duration,
) -> Outcome<Vec<Figure>> {
    let commits = match store {
        Store::Sqlite => {
            let directory = ground.directory.clone();
            tokio::task::spawn_blocking(move || into_sqlite(&directory, rows, length)).await??
        }
        Store::Postgres => {
            let database = postgres::database().await?;
            let commits = into_postgres(&database.url, rows, connections, length).await;
            database.drop().await;
            commits?
        }
    };
    Ok(commits.figures())
}

fn into_sqlite(directory: &Path, rows: i64, length: Duration) -> Outcome<Commits> {
    let folder = tempfile::Builder::new()
        .prefix("quita-bench-")
        .tempdir_in(directory)?;
    let mut sql = rusqlite::Connection::open(folder.path().join("alone.db"))?;
    for (name, value) in [
        ("journal_mode", "WAL"),
        ("synchronous", "FULL"),
        ("cache_size", "-32768"),
        ("mmap_size", "0"),
        // The log begins anew every 64 MiB of 4 KiB pages, as the server's does.
        ("wal_autocheckpoint", "16384"),
    ] {
        sql.pragma_update_and_check(None, name, value, |_| Ok(()))
            .or_else(|error| match error {
                rusqlite::Error::QueryReturnedNoRows => Ok(()),
                error => Err(error),
            })?;
    }
    sql.execute_batch(SQLITE_TABLES)?;
    let payload = message().into_bytes();
    let mut commits = Commits::default();
    let begun = Instant::now();
    while begun.elapsed() < length {
        let start = Instant::now();
        let transaction = sql.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO message (seq, uid, created_at, available_at, rank, fingerprint, digest, request_id, payload)
                 VALUES (?, 1, ?, ?, 5, ?, ?, ?, ?)",
            )?;
            for seq in commits.rows..commits.rows + rows {
                let id = format!("{seq:016}-0");
                insert.execute(params![
                    seq,
                    seq,
                    seq,
                    seq,
                    &id.as_bytes()[..16],
                    id.as_bytes(),
                    payload
                ])?;
            }
        }
        transaction.commit()?;
        commits.note(start, rows);
    }
    commits.seconds = begun.elapsed().as_secs_f64();
    Ok(commits)
}

async fn into_postgres(
    url: &str,
    rows: i64,
    connections: i64,
    length: Duration,
) -> Outcome<Commits> {
    let mut first = PgConnection::connect(url).await?;
    sqlx::raw_sql(POSTGRES_TABLES).execute(&mut first).await?;
    first.close().await?;
    let begun = Instant::now();
    let mut hands = tokio::task::JoinSet::new();
    for hand in 0..connections {
        let mut sql = PgConnection::connect(url).await?;
        hands.spawn(async move {
            let payload = message().into_bytes();
            let mut commits = Commits::default();
            while begun.elapsed() < length {
                let start = Instant::now();
                let from = commits.rows * connections + hand * rows;
                into_message(&mut sql, from, rows, &payload).await?;
                commits.note(start, rows);
            }
            sql.close().await?;
            Outcome::Ok(commits)
        });
    }
    let mut all = Commits::default();
    while let Some(commits) = hands.join_next().await {
        let commits = commits??;
        all.took.extend(commits.took);
        all.rows += commits.rows;
    }
    all.seconds = begun.elapsed().as_secs_f64();
    Ok(all)
}

/// One statement, and so one transaction.
async fn into_message(sql: &mut PgConnection, from: i64, rows: i64, payload: &[u8]) -> Outcome<()> {
    const ONE: &str = "INSERT INTO message (seq, uid, live_id, created_at, available_at, rank, fingerprint, digest, request_id, payload)
        VALUES ($1, 1, 1, $1, $1, 5, $1, $2, $3, $4)";
    const MANY: &str = "INSERT INTO message (seq, uid, live_id, created_at, available_at, rank, fingerprint, digest, request_id, payload)
        SELECT seq, 1, 1, seq, seq, 5, seq, digest, id, payload
        FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[]) AS p(seq, digest, id, payload)";
    let ids: Vec<Vec<u8>> = (from..from + rows)
        .map(|seq| format!("{seq:016}-0").into_bytes())
        .collect();
    if rows == 1 {
        let one = sqlx::query(ONE)
            .bind(from)
            .bind(&ids[0][..16])
            .bind(&ids[0])
            .bind(payload);
        one.execute(sql).await?;
        return Ok(());
    }
    let seqs: Vec<i64> = (from..from + rows).collect();
    let digests: Vec<&[u8]> = ids.iter().map(|id| &id[..16]).collect();
    let many = sqlx::query(MANY)
        .bind(seqs)
        .bind(digests)
        .bind(&ids)
        .bind(vec![payload; ids.len()]);
    many.execute(sql).await?;
    Ok(())
}
