//! Closed loops of requests: publishes, lifecycles, batches, sizes.

use super::book::{
    Figure, MESSAGES_PER_SECOND, MIB_PER_SECOND, PSS_MIB, RSS_MIB, WRITTEN, figures,
};
use crate::Outcome;
use crate::client::Request;
use crate::fresh::{Fresh, Store};
use crate::lifecycle::{self, Requests};
use crate::load::{Measured, WARM_UP, closed_loop};
use crate::messages::{self, QUEUE, message, message_of};
use crate::process::{bytes_written, memory_mib};
use sqlx::{Connection, PgConnection};
use std::time::Duration;
use tokio::time::sleep;

/// Connections that publish batches, and messages of mixed sizes.
const FEW: usize = 16;

/// Bytes of a message, and how many of 100 are of that size. The last one is the largest that is taken.
const SIZES: [(usize, usize); 5] = [
    (512, 50),
    (4 << 10, 30),
    (16 << 10, 15),
    (64 << 10, 4),
    (256 << 10, 1),
];

/// One message per request over so many connections.
pub(super) async fn publish(
    fresh: &Fresh,
    connections: usize,
    length: Duration,
) -> Outcome<Vec<Figure>> {
    let request = messages::publish(QUEUE, &message(), Some(&fresh.quita.key));
    let measured = run(fresh, &[request], connections, length).await?;
    with_memory(fresh, &measured, &[])
}

/// Batches of `count` messages.
pub(super) async fn batches(fresh: &Fresh, count: u64, length: Duration) -> Outcome<Vec<Figure>> {
    let request = messages::publish_batch(QUEUE, count, "", Some(&fresh.quita.key));
    let measured = run(fresh, &[request], FEW, length).await?;
    let rate = (measured.requests * count) as f64 / measured.seconds;
    with_memory(fresh, &measured, &[(MESSAGES_PER_SECOND, rate)])
}

/// Messages of mixed sizes, one per request.
pub(super) async fn sizes(fresh: &Fresh, length: Duration) -> Outcome<Vec<Figure>> {
    let key = Some(fresh.quita.key.as_str());
    let request = |bytes: &usize| messages::publish(QUEUE, &message_of(*bytes), key);
    let order = mixed();
    let requests: Vec<Request> = order.iter().map(request).collect();
    let measured = run(fresh, &requests, FEW, length).await?;
    let mean = order.iter().sum::<usize>() as f64 / order.len() as f64;
    let rate = measured.requests as f64 * mean / measured.seconds / f64::from(1 << 20);
    with_memory(fresh, &measured, &[(MIB_PER_SECOND, rate)])
}

/// 100 sizes, spread: each next one is the kind that is most behind its share.
fn mixed() -> Vec<usize> {
    let mut given = [0; SIZES.len()];
    (1..=100)
        .map(|turn| {
            let behind = |kind: &usize| (SIZES[*kind].1 * turn) as i64 - 100 * given[*kind];
            let kind = (0..SIZES.len()).max_by_key(behind).unwrap_or_default();
            given[kind] += 1;
            SIZES[kind].0
        })
        .collect()
}

async fn run(
    fresh: &Fresh,
    requests: &[Request],
    connections: usize,
    length: Duration,
) -> Outcome<Measured> {
    fresh.quita.create(QUEUE).await?;
    closed_loop(
        fresh.quita.address,
        requests,
        connections,
        length,
        &fresh.meters(),
    )
    .await
}

/// Publish, receive and ack. `run` sets its request ids apart from those of other runs on the store.
pub(super) async fn lifecycle(fresh: &Fresh, run: &str, length: Duration) -> Outcome<Vec<Figure>> {
    fresh.quita.create(QUEUE).await?;
    let key = fresh.quita.key.as_str();
    let requests = Requests {
        publish: messages::publish_as(run, QUEUE, &message(), Some(key)),
        receive: messages::receive(QUEUE, 1, Some(key)),
        key: key.into(),
    };
    let meters = fresh.meters();
    let (measured, written) = tokio::join!(
        lifecycle::run(fresh.quita.address, &requests, length, &meters),
        written(fresh, length)
    );
    let measured = measured?;
    let messages = (measured.requests / lifecycle::REQUESTS).max(1) as f64;
    with_memory(
        fresh,
        &measured,
        &[
            (MESSAGES_PER_SECOND, messages / measured.seconds),
            (WRITTEN, written? / messages),
        ],
    )
}

/// Bytes that the store writes while a load that begins now is measured: of PostgreSQL those of its log, of SQLite all that
/// the server sends to the disk.
async fn written(fresh: &Fresh, length: Duration) -> Outcome<f64> {
    let mut sql = match fresh.url() {
        Some(url) => Some(PgConnection::connect(url).await?),
        None => None,
    };
    sleep(WARM_UP).await;
    let before = position(fresh, sql.as_mut()).await?;
    sleep(length).await;
    Ok(position(fresh, sql.as_mut()).await? - before)
}

async fn position(fresh: &Fresh, sql: Option<&mut PgConnection>) -> Outcome<f64> {
    const LOG: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8";
    match sql {
        Some(sql) => Ok(sqlx::query_scalar(LOG).fetch_one(sql).await?),
        None => bytes_written(fresh.quita.id()),
    }
}

/// The figures of a load on `fresh`, and the memory that it left the server with.
pub(super) fn with_memory(
    fresh: &Fresh,
    measured: &Measured,
    more: &[Figure],
) -> Outcome<Vec<Figure>> {
    let mut all = figures(measured, fresh.store == Store::Postgres, more);
    all.extend(memory(fresh)?);
    Ok(all)
}

/// Memory of the server.
pub(super) fn memory(fresh: &Fresh) -> Outcome<[Figure; 2]> {
    let (rss, pss) = memory_mib(fresh.quita.id())?;
    Ok([(RSS_MIB, rss), (PSS_MIB, pss)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_shares_and_are_spread() {
        let order = mixed();
        for (bytes, share) in SIZES {
            assert_eq!(order.iter().filter(|size| **size == bytes).count(), share);
        }
        assert!(order[..50].iter().filter(|size| **size == 512).count() >= 24);
    }
}
