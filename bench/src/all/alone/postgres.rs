//! PostgreSQL over the same kind of socket as the server's.

use super::{Commits, What, request_id};
use crate::Outcome;
use crate::messages::message;
use crate::postgres;
use sqlx::{Connection, PgConnection};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Connections that insert in bulk, one per core of a small machine. Single rows go over one.
const BULK_CONNECTIONS: i64 = 2;

const TABLES: &str = include_str!("../../../../migrations/postgres/0001_queue.sql");

const ONE: &str = "INSERT INTO message (seq, uid, live_id, created_at, available_at, rank, fingerprint, digest, request_id, payload)
    VALUES ($1, 1, 1, $1, $1, 5, $1, $2, $3, $4)";
const ROWS: &str = "WITH p AS (
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[]) AS p(seq, digest, id, payload))
INSERT INTO message (seq, uid, live_id, created_at, available_at, rank, fingerprint, digest, request_id, payload)
    SELECT seq, 1, 1, seq, seq, 5, seq, digest, id, payload FROM p";
const MESSAGES: &str = "WITH p AS (
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[]) AS p(seq, digest, id, payload)),
r AS (INSERT INTO ready (queue_id, rank, available_at, seq, fence, attempts, expirations, releases, redrives, moved)
    SELECT 1, 5, seq, seq, 0, 0, 0, 0, 0, false FROM p),
d AS (INSERT INTO dedupe (uid, digest, seq, fingerprint, kept_from) SELECT 1, digest, seq, seq, seq FROM p)
INSERT INTO message (seq, uid, live_id, created_at, available_at, rank, fingerprint, digest, request_id, payload)
    SELECT seq, 1, 1, seq, seq, 5, seq, digest, id, payload FROM p";

pub(super) async fn insert(what: What, messages: i64, length: Duration) -> Outcome<Commits> {
    let database = postgres::database().await?;
    let commits = into(&database.url, what, messages, length).await;
    database.drop().await;
    commits
}

async fn into(url: &str, what: What, messages: i64, length: Duration) -> Outcome<Commits> {
    let mut first = PgConnection::connect(url).await?;
    sqlx::raw_sql(TABLES).execute(&mut first).await?;
    first.close().await?;
    let connections = if messages == 1 { 1 } else { BULK_CONNECTIONS };
    let begun = Instant::now();
    let mut hands = JoinSet::new();
    for hand in 0..connections {
        let mut sql = PgConnection::connect(url).await?;
        hands.spawn(async move {
            let payload = message().into_bytes();
            let mut commits = Commits::default();
            while begun.elapsed() < length {
                let start = Instant::now();
                let from = commits.messages * connections + hand * messages;
                commit(&mut sql, what, from..from + messages, &payload).await?;
                commits.note(start, messages);
            }
            sql.close().await?;
            Outcome::Ok(commits)
        });
    }
    let mut all = Commits::default();
    while let Some(commits) = hands.join_next().await {
        let commits = commits??;
        all.took.extend(commits.took);
        all.messages += commits.messages;
    }
    all.seconds = begun.elapsed().as_secs_f64();
    Ok(all)
}

/// One statement, and so one transaction.
async fn commit(
    sql: &mut PgConnection,
    what: What,
    seqs: std::ops::Range<i64>,
    payload: &[u8],
) -> Outcome<()> {
    let ids: Vec<_> = seqs.clone().map(request_id).collect();
    if let [(id, digest)] = &ids[..] {
        let one = sqlx::query(ONE).bind(seqs.start).bind(&digest[..]);
        one.bind(id.as_bytes()).bind(payload).execute(sql).await?;
        return Ok(());
    }
    let many = match what {
        What::Row => ROWS,
        What::Message => MESSAGES,
    };
    let digests: Vec<&[u8]> = ids.iter().map(|(_, digest)| &digest[..]).collect();
    let names: Vec<&[u8]> = ids.iter().map(|(id, _)| id.as_bytes()).collect();
    let many = sqlx::query(many)
        .bind(seqs.collect::<Vec<_>>())
        .bind(digests)
        .bind(names)
        .bind(vec![payload; ids.len()]);
    many.execute(sql).await?;
    Ok(())
}
