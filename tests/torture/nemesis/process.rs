//! Faults of a server's process.

use super::{Fits, Injected, Kind};
use crate::cluster::Cluster;
use futures_util::future::BoxFuture;
use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;

/// From SIGTERM to the exit, more than is promised.
const STOP: Duration = Duration::from_secs(25);

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind {
            name: "kill",
            fits: |_| Fits::Yes,
            run: |cluster, chance| Box::pin(kill(cluster, chance)),
        },
        Kind {
            name: "term",
            fits: |_| Fits::Yes,
            run: |cluster, chance| Box::pin(term(cluster, chance)),
        },
        Kind {
            name: "pause",
            fits: |_| Fits::Yes,
            run: |cluster, chance| Box::pin(pause(cluster, chance)),
        },
        Kind {
            name: "rolling_restart",
            fits: |cluster| match cluster.replicas.len() {
                1 => Fits::No,
                _ => Fits::Yes,
            },
            run: rolling_restart,
        },
    ]
}

async fn kill(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let replica = &cluster.replicas[chance.random_range(0..cluster.replicas.len())];
    replica.kill().await;
    tokio::time::sleep(Duration::from_millis(chance.random_range(0..400))).await;
    let took = replica.start().await?;
    Ok(Injected::of(
        &format!("replica {}", replica.index),
        format!("ready after {} ms", took.as_millis()),
    ))
}

async fn term(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let which = chance.random_range(0..cluster.replicas.len());
    let detail = restart(&cluster, which).await?;
    Ok(Injected::of(&format!("replica {which}"), detail))
}

async fn restart(cluster: &Cluster, which: usize) -> Result<String, String> {
    let replica = &cluster.replicas[which];
    let began = tokio::time::Instant::now();
    let status = replica.stop(STOP).await;
    let status = status.ok_or(format!("replica {which} does not stop"))?;
    let stopped = began.elapsed();
    let started = replica.start().await?;
    Ok(format!(
        "{status} after {} ms, ready after {} ms",
        stopped.as_millis(),
        started.as_millis()
    ))
}

/// Longer than any lease of the load.
async fn pause(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let replica = &cluster.replicas[chance.random_range(0..cluster.replicas.len())];
    replica.signal(Signal::STOP);
    let time = Duration::from_millis(chance.random_range(3_200..4_500));
    tokio::time::sleep(time).await;
    replica.signal(Signal::CONT);
    Ok(Injected::of(
        &format!("replica {}", replica.index),
        format!("{} ms", time.as_millis()),
    ))
}

fn rolling_restart(
    cluster: Arc<Cluster>,
    _: StdRng,
) -> BoxFuture<'static, Result<Injected, String>> {
    Box::pin(async move {
        let mut details = Vec::new();
        for which in 0..cluster.replicas.len() {
            details.push(restart(&cluster, which).await?);
        }
        Ok(Injected::of("every replica", details.join("; ")))
    })
}
