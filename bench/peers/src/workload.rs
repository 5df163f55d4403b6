//! The same work for every queue.

use crate::message;
use crate::process::{cpu_seconds, pss_mib};
use anyhow::Result;
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Producer,
    Consumer,
}

/// A queue that can be driven.
pub trait Peer: Send + Sync + 'static {
    type Client: Client;
    /// Makes the queue empty and durable.
    fn set_up(&self) -> impl Future<Output = Result<()>> + Send;
    fn connect(
        &self,
        role: Role,
        number: usize,
    ) -> impl Future<Output = Result<Self::Client>> + Send;
}

/// One connection with one request under way.
pub trait Client: Send + 'static {
    /// What names a message that was received and is not acked.
    type Handle: Send + 'static;
    /// Publishes all and waits until the queue has confirmed each.
    fn publish(&mut self, messages: &[Vec<u8>]) -> impl Future<Output = Result<()>> + Send;
    /// A message and its age; `None` when none came within about a second.
    fn receive(&mut self) -> impl Future<Output = Result<Option<(Duration, Self::Handle)>>> + Send;
    fn ack(&mut self, handle: Self::Handle) -> impl Future<Output = Result<()>> + Send;
}

/// How much is done.
#[derive(Clone)]
pub struct Extent {
    pub connections: usize,
    pub batch: usize,
    pub warm_up: Duration,
    pub length: Duration,
    /// The server's process.
    pub pid: u32,
}

/// Messages published and not yet acked, at the most.
const WINDOW: usize = 128;

/// What was seen.
#[derive(Default)]
struct Tally {
    messages: u64,
    latencies: Vec<u32>,
}

/// The time that counts.
#[derive(Clone, Copy)]
struct Window {
    start: Instant,
    end: Instant,
}

impl Window {
    fn of(extent: &Extent) -> Self {
        let start = Instant::now() + extent.warm_up;
        Self {
            start,
            end: start + extent.length,
        }
    }

    fn is_open(self) -> bool {
        Instant::now() < self.end
    }
}

impl Tally {
    fn note(&mut self, window: Window, messages: usize, latency: Duration) {
        let now = Instant::now();
        if now >= window.start && now < window.end {
            self.messages += messages as u64;
            self.latencies
                .push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
        }
    }
}

/// Producers only, each with one publish under way.
pub async fn publish<P: Peer>(peer: P, extent: &Extent) -> Result<serde_json::Value> {
    let (peer, go) = (
        Arc::new(peer),
        Arc::new(Barrier::new(extent.connections + 1)),
    );
    let serials = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..extent.connections {
        let (peer, go, serials, extent) =
            (peer.clone(), go.clone(), serials.clone(), extent.clone());
        tasks.spawn(async move {
            let client = peer.connect(Role::Producer, number).await;
            go.wait().await;
            let (mut client, window, mut tally) = (client?, Window::of(&extent), Tally::default());
            while window.is_open() {
                let batch = batch(&serials, extent.batch);
                let begun = Instant::now();
                client.publish(&batch).await?;
                tally.note(window, extent.batch, begun.elapsed());
            }
            Ok(tally)
        });
    }
    watch(extent, &go, tasks).await
}

fn batch(serials: &AtomicU64, count: usize) -> Vec<Vec<u8>> {
    let first = serials.fetch_add(count as u64, Relaxed);
    (first..first + count as u64).map(message::make).collect()
}

/// As many producers as consumers; what is on its way is bounded. Latencies are from making a message to the end of its ack.
pub async fn lifecycle<P: Peer>(peer: P, extent: &Extent) -> Result<serde_json::Value> {
    let (peer, go) = (
        Arc::new(peer),
        Arc::new(Barrier::new(2 * extent.connections + 1)),
    );
    let (serials, pace) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(Semaphore::new(WINDOW)),
    );
    let mut tasks = JoinSet::new();
    for number in 0..extent.connections {
        let (producer, to_go, to_pace, extent_of) =
            (peer.clone(), go.clone(), pace.clone(), extent.clone());
        let serials = serials.clone();
        tasks.spawn(async move {
            let client = producer.connect(Role::Producer, number).await;
            to_go.wait().await;
            let (mut client, window) = (client?, Window::of(&extent_of));
            while window.is_open() {
                let left = window.end.saturating_duration_since(Instant::now());
                let Ok(permit) = tokio::time::timeout(left, to_pace.acquire()).await else {
                    break;
                };
                permit?.forget();
                client.publish(&batch(&serials, 1)).await?;
            }
            Ok(Tally::default())
        });
        let (peer, go, pace, extent) = (peer.clone(), go.clone(), pace.clone(), extent.clone());
        tasks.spawn(async move {
            let client = peer.connect(Role::Consumer, number).await;
            go.wait().await;
            let (mut client, window, mut tally) = (client?, Window::of(&extent), Tally::default());
            while window.is_open() {
                let Some((age, handle)) = client.receive().await? else {
                    continue;
                };
                let begun = Instant::now();
                client.ack(handle).await?;
                pace.add_permits(1);
                tally.note(window, 1, age + begun.elapsed());
            }
            Ok(tally)
        });
    }
    watch(extent, &go, tasks).await
}

/// Starts the clock once all are connected, reads the meters at both ends of the window, and adds up.
async fn watch(
    extent: &Extent,
    go: &Barrier,
    mut tasks: JoinSet<Result<Tally>>,
) -> Result<serde_json::Value> {
    let me = std::process::id();
    let meters = || (cpu_seconds(extent.pid), cpu_seconds(me));
    go.wait().await;
    tokio::time::sleep(extent.warm_up).await;
    let (server, client) = meters();
    tokio::time::sleep(extent.length).await;
    let (server_after, client_after) = meters();
    let mut sum = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        let tally = tally??;
        sum.messages += tally.messages;
        sum.latencies.extend(tally.latencies);
    }
    sum.latencies.sort_unstable();
    let messages = sum.messages.max(1) as f64;
    Ok(json!({
        "messages_per_second": (sum.messages as f64 / extent.length.as_secs_f64()).round(),
        "p50_ms": percentile_ms(&sum.latencies, 0.50), "p99_ms": percentile_ms(&sum.latencies, 0.99),
        "server_cpu_us": micros((server_after - server) / messages),
        "client_cpu_us": micros((client_after - client) / messages),
        "pss_mib": pss_mib(extent.pid).round(),
    }))
}

fn micros(seconds: f64) -> f64 {
    (seconds * 1e7).round() / 10.0
}

fn percentile_ms(sorted_us: &[u32], share: f64) -> f64 {
    let at = (sorted_us.len().saturating_sub(1) as f64 * share) as usize;
    sorted_us
        .get(at)
        .map_or(0.0, |us| (f64::from(*us) / 10.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_rounded_to_what_can_be_told() {
        assert_eq!(
            percentile_ms(&[1_234, 5_678], 0.5).to_bits(),
            1.23_f64.to_bits()
        );
        assert_eq!(percentile_ms(&[], 0.5).to_bits(), 0.0_f64.to_bits());
        assert_eq!(micros(0.000_012_34).to_bits(), 12.3_f64.to_bits());
    }
}
