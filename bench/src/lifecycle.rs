//! The whole life of a message under load: publish, receive, ack, one message per request.
//!
//! 64 producers are paced to 64 consumers: at most [`WINDOW`] messages are published and not yet acked, so the backlog
//! stays short and the figure is the pace at which messages pass through.

use crate::Outcome;
use crate::client::{Answer, Connection, Request};
use crate::load::{Measured, Tally, Window, collect, first_serial};
use crate::meters::Meters;
use std::io::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Producers, and as many consumers.
const PAIRS: usize = 64;
/// Messages on their way at the most.
const WINDOW: usize = 128;
/// Requests in a message's life.
pub(crate) const REQUESTS: u64 = 3;

/// The two requests that can be built before.
pub(crate) struct Requests {
    pub(crate) publish: Request,
    pub(crate) receive: Request,
    pub(crate) key: Arc<str>,
}

/// Runs producers and consumers for `length`. Latencies are from the publish to the answer of the ack.
pub(crate) async fn run(
    address: SocketAddr,
    requests: &Requests,
    length: Duration,
    meters: &Meters,
) -> Outcome<Measured> {
    let mut open = Vec::with_capacity(2 * PAIRS);
    for _ in 0..2 * PAIRS {
        open.push(Connection::open(address).await?);
    }
    let pace = Arc::new(Semaphore::new(WINDOW));
    let clock = Instant::now();
    let window = Window::after_warm_up(length);
    let mut tasks = JoinSet::new();
    for (index, producer) in open.drain(..PAIRS).enumerate() {
        tasks.spawn(produce(
            producer,
            requests.publish.clone(),
            first_serial(index),
            clock,
            Arc::clone(&pace),
        ));
    }
    for connection in open {
        let consumer = Consumer {
            connection,
            receive: requests.receive.clone(),
            key: Arc::clone(&requests.key),
            gone: Arc::clone(&pace),
            window,
        };
        tasks.spawn(consumer.run(Some(clock)));
    }
    let spent = window.watch(meters).await;
    pace.close();
    collect(tasks, window, spent).await
}

/// Publishes whenever the pace allows; ends when it is closed.
async fn produce(
    mut connection: Connection,
    mut publish: Request,
    first: u64,
    clock: Instant,
    pace: Arc<Semaphore>,
) -> Result<Tally> {
    for serial in first.. {
        let Ok(permit) = pace.acquire().await else {
            break;
        };
        permit.forget();
        publish.number(serial, clock.elapsed().as_micros() as u64);
        let answer = connection.call(publish.bytes()).await?;
        if answer.status != 201 {
            return Err(answer.unexpected());
        }
    }
    Ok(Tally::default())
}

/// Who receives and acks, one message at a time.
pub(crate) struct Consumer {
    pub(crate) connection: Connection,
    pub(crate) receive: Request,
    pub(crate) key: Arc<str>,
    /// Gets a permit for each message that is gone.
    pub(crate) gone: Arc<Semaphore>,
    pub(crate) window: Window,
}

impl Consumer {
    /// Receives and acks until the window is over. With the clock that stamped the messages, latencies are from their publish
    /// and three requests are counted for each; without one, latencies are from sending the receive and two are counted.
    pub(crate) async fn run(mut self, clock: Option<Instant>) -> Result<Tally> {
        let mut tally = Tally::default();
        loop {
            let asked = Instant::now();
            if asked > self.window.end {
                return Ok(tally);
            }
            let answer = self.connection.call(self.receive.bytes()).await?;
            if answer.status != 200 {
                return Err(answer.unexpected());
            }
            let Some(receipt) = answer.text_after("\"receipt\":\"") else {
                continue;
            };
            let begun = match clock {
                Some(clock) => clock + stamp(&answer)?,
                None => asked,
            };
            let ack = Request::new(
                "POST",
                "/v1/queue/ack",
                Some(&self.key),
                &format!("{{\"receipt\":\"{receipt}\"}}"),
            );
            let answer = self.connection.call(ack.bytes()).await?;
            if answer.status != 200 {
                return Err(answer.unexpected());
            }
            self.gone.add_permits(1);
            let requests = if clock.is_some() {
                REQUESTS
            } else {
                REQUESTS - 1
            };
            tally.note(self.window, requests, begun, Instant::now());
        }
    }
}

/// When the message was sent, on the producers' clock.
fn stamp(answer: &Answer<'_>) -> Result<Duration> {
    let digits = answer.text_after("\"sent\":\"");
    let micros = digits.and_then(|digits| digits.parse().ok());
    micros
        .map(Duration::from_micros)
        .ok_or_else(|| Error::other("a message without its stamp"))
}
