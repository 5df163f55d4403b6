//! Requests at a steady pace, whatever the server does: what ordinary callers notice.
//!
//! A request is due at a fixed time. If the one before it was answered too late, its latency counts from when it was due, so
//! that a server which stops answering is not asked less.

use crate::Outcome;
use crate::client::{Connection, Request};
use crate::load::first_serial;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How many, how often, how long.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) connections: u32,
    pub(crate) per_second: u32,
    pub(crate) length: Duration,
}

/// Sends `request` at this pace. `first` sets the request ids apart from those of other runs on the store: it is the number of
/// connections so far. Answers when each request was due and its latency in µs.
pub(crate) async fn run(
    address: SocketAddr,
    request: &Request,
    pace: Pace,
    first: u64,
) -> Outcome<Vec<(Instant, u32)>> {
    let every = Duration::from_secs(1) * pace.connections / pace.per_second;
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for index in 0..pace.connections {
        tasks.spawn(keep_pace(
            Connection::open(address).await?,
            request.clone(),
            first_serial(first as usize + index as usize),
            begin + every * index / pace.connections,
            every,
            begin + pace.length,
        ));
    }
    let mut all = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        all.extend(latencies??);
    }
    Ok(all)
}

async fn keep_pace(
    mut connection: Connection,
    mut request: Request,
    serials: u64,
    mut due: Instant,
    every: Duration,
    end: Instant,
) -> Outcome<Vec<(Instant, u32)>> {
    let mut latencies = Vec::new();
    for serial in serials.. {
        if due >= end {
            break;
        }
        let late = Instant::now() > due;
        tokio::time::sleep_until(due.into()).await;
        // A timer is up to a millisecond late, which is not the server's.
        let begun = if late { due } else { Instant::now() };
        request.number(serial, serial);
        let answer = connection.call(request.bytes()).await?;
        if answer.status / 100 != 2 {
            return Err(answer.unexpected().into());
        }
        let took = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
        latencies.push((due, took));
        due += every;
    }
    Ok(latencies)
}
