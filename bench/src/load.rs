//! A closed loop of requests: n connections, each with one request under way, all the time.

use crate::Outcome;
use crate::client::{Connection, Request, SERIAL, STAMP};
use crate::meters::{Meters, Spent};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Size of the message that is published, in bytes: a charge with some baggage.
const MESSAGE_BYTES: usize = 1024;

/// Runs before the clock counts: connections are open, caches and plans warm.
const WARM_UP: Duration = Duration::from_millis(700);

/// What one run of one row showed.
pub(crate) struct Measured {
    /// Requests answered as expected inside the window.
    pub(crate) requests: u64,
    /// Length of the window.
    pub(crate) seconds: f64,
    /// Microseconds per request, or per message in a lifecycle; sorted.
    pub(crate) latencies: Vec<u32>,
    /// CPU that the window took.
    pub(crate) spent: Spent,
}

/// The time that counts.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

impl Window {
    pub(crate) fn after_warm_up(length: Duration) -> Self {
        let start = Instant::now() + WARM_UP;
        Self {
            start,
            end: start + length,
        }
    }

    /// Sleeps through the window and reads the meters at both its ends.
    pub(crate) async fn watch(self, meters: &Meters) -> Spent {
        tokio::time::sleep_until(self.start.into()).await;
        let before = meters.read();
        tokio::time::sleep_until(self.end.into()).await;
        meters.read() - before
    }
}

/// What one connection saw.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) latencies: Vec<u32>,
}

impl Tally {
    /// Counts `requests` that were finished at `done`, begun at `begun`, if that is inside the window.
    pub(crate) fn note(&mut self, window: Window, requests: u64, begun: Instant, done: Instant) {
        if done >= window.start && done <= window.end {
            self.requests += requests;
            self.latencies
                .push(u32::try_from((done - begun).as_micros()).unwrap_or(u32::MAX));
        }
    }
}

/// Sends `request` over `connections` connections for `length` and expects a 201 each time.
pub(crate) async fn closed_loop(
    address: SocketAddr,
    request: &Request,
    connections: usize,
    length: Duration,
    meters: &Meters,
) -> Outcome<Measured> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(Connection::open(address).await?);
    }
    let window = Window::after_warm_up(length);
    let mut tasks = JoinSet::new();
    for (index, connection) in open.into_iter().enumerate() {
        tasks.spawn(send(
            connection,
            request.clone(),
            first_serial(index),
            window,
        ));
    }
    let spent = window.watch(meters).await;
    collect(tasks, window, spent).await
}

async fn send(
    mut connection: Connection,
    mut request: Request,
    first: u64,
    window: Window,
) -> std::io::Result<Tally> {
    let mut tally = Tally::default();
    let mut begun = Instant::now();
    for serial in first.. {
        request.number(serial, serial);
        let answer = connection.call(request.bytes()).await?;
        if answer.status != 201 {
            return Err(answer.unexpected());
        }
        let done = Instant::now();
        tally.note(window, 1, begun, done);
        if done > window.end {
            break;
        }
        begun = done;
    }
    Ok(tally)
}

/// Serial numbers of different connections never meet: each has 10^10 of its own.
pub(crate) fn first_serial(connection: usize) -> u64 {
    connection as u64 * 10_000_000_000
}

/// Adds up what the tasks saw. The first error is the run's.
pub(crate) async fn collect(
    mut tasks: JoinSet<std::io::Result<Tally>>,
    window: Window,
    spent: Spent,
) -> Outcome<Measured> {
    let mut sum = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        let tally = tally??;
        sum.requests += tally.requests;
        sum.latencies.extend(tally.latencies);
    }
    sum.latencies.sort_unstable();
    let seconds = (window.end - window.start).as_secs_f64();
    Ok(Measured {
        requests: sum.requests,
        seconds,
        latencies: sum.latencies,
        spent,
    })
}

/// A JSON object of [`MESSAGE_BYTES`] that no compressor shrinks, with a [`SERIAL`] and a [`STAMP`] in it.
pub(crate) fn message() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(MESSAGE_BYTES);
    let _ = write!(
        text,
        "{{\"id\":\"{SERIAL}\",\"sent\":\"{STAMP}\",\"subscription\":\"sub_0412\",\"customer\":\"Padaria Bom Grao\",\
         \"amount\":18990,\"competence\":\"2026-10\",\"pad\":\""
    );
    // Marsaglia's xorshift64: repeatable noise.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    while text.len() + 2 < MESSAGE_BYTES {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        text.push(char::from(ALPHABET[(noise & 63) as usize]));
    }
    text + "\"}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_json_of_the_stated_size() {
        let text = message();
        assert_eq!(text.len(), MESSAGE_BYTES);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
