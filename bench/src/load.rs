//! A closed loop of requests: n connections, each with one request under way, all the time.

use crate::Outcome;
use crate::client::{Connection, Request};
use crate::meters::{Meters, Spent};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Runs before the clock counts: connections are open, caches and plans warm.
pub(crate) const WARM_UP: Duration = Duration::from_millis(700);

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

/// Sends `requests`, one after the other and over again, over `connections` connections for `length` and expects a success
/// each time. Each connection begins with another one of them.
pub(crate) async fn closed_loop(
    address: SocketAddr,
    requests: &[Request],
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
        let mut requests = requests.to_vec();
        let turn = index % requests.len();
        requests.rotate_left(turn);
        tasks.spawn(send(connection, requests, first_serial(index), window));
    }
    let spent = window.watch(meters).await;
    collect(tasks, window, spent).await
}

async fn send(
    mut connection: Connection,
    mut requests: Vec<Request>,
    first: u64,
    window: Window,
) -> std::io::Result<Tally> {
    let mut tally = Tally::default();
    let mut begun = Instant::now();
    for serial in first.. {
        let turn = (serial - first) as usize % requests.len();
        let request = &mut requests[turn];
        request.number(serial, serial);
        let answer = connection.call(request.bytes()).await?;
        if answer.status / 100 != 2 {
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
