//! Faults of PostgreSQL itself.

use super::{Fits, Injected, Kind};
use crate::cluster::Cluster;
use crate::cluster::postgres::Postgres;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rustix::process::{Pid, Signal, kill_process};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn kinds() -> Vec<Kind> {
    fn fits(cluster: &Cluster) -> Fits {
        match cluster.postgres {
            Some(_) => Fits::Yes,
            None => Fits::No,
        }
    }
    vec![
        Kind {
            name: "backend_terminated",
            fits,
            run: |cluster, chance| Box::pin(backend(cluster, chance, Signal::TERM)),
        },
        Kind {
            name: "backend_kill",
            fits,
            run: |cluster, chance| Box::pin(backend(cluster, chance, Signal::KILL)),
        },
        Kind {
            name: "database_restart",
            fits,
            run: |cluster, chance| Box::pin(restart(cluster, chance, Signal::INT)),
        },
        Kind {
            name: "database_crash",
            fits,
            run: |cluster, chance| Box::pin(restart(cluster, chance, Signal::QUIT)),
        },
        Kind {
            name: "postmaster_kill",
            fits,
            run: |cluster, chance| Box::pin(restart(cluster, chance, Signal::KILL)),
        },
    ]
}

fn postgres(cluster: &Cluster) -> Result<&Postgres, String> {
    cluster
        .postgres
        .as_ref()
        .ok_or("there is no PostgreSQL".to_owned())
}

/// Ends some of the backends that serve quita. One that is killed takes all others with it: PostgreSQL starts anew.
async fn backend(
    cluster: Arc<Cluster>,
    mut chance: StdRng,
    signal: Signal,
) -> Result<Injected, String> {
    let postgres = postgres(&cluster)?;
    let backends = postgres.backends().await.map_err(|e| e.to_string())?;
    let count = chance.random_range(1..=3);
    let chosen: Vec<i32> = backends
        .choose_multiple(&mut chance, count)
        .copied()
        .collect();
    for pid in chosen.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // One that ended meanwhile is gone as wanted.
        let _ = kill_process(pid, signal);
    }
    if signal == Signal::KILL {
        // It notices within moments; from then on it takes no connections until it is repaired.
        tokio::time::sleep(Duration::from_millis(100)).await;
        postgres.until_ready().await?;
    }
    Ok(Injected::of(
        "postgres",
        format!("{} of {} backends", chosen.len(), backends.len()),
    ))
}

async fn restart(
    cluster: Arc<Cluster>,
    mut chance: StdRng,
    signal: Signal,
) -> Result<Injected, String> {
    let postgres = postgres(&cluster)?;
    if !postgres.stop(signal).await {
        return Err("PostgreSQL does not stop".to_owned());
    }
    tokio::time::sleep(Duration::from_millis(chance.random_range(0..500))).await;
    let took = postgres.start().await?;
    Ok(Injected::of(
        "postgres",
        format!("ready after {} ms", took.as_millis()),
    ))
}
