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
            name: "database_read_only",
            fits,
            run: |cluster, chance| Box::pin(read_only(cluster, chance)),
        },
        Kind {
            name: "connection_limit",
            fits,
            run: |cluster, chance| Box::pin(few_connections(cluster, chance)),
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

/// As a standby is, or a server whose disk runs full: it answers, and takes no writes.
async fn read_only(cluster: Arc<Cluster>, chance: StdRng) -> Result<Injected, String> {
    let on = "ALTER ROLE quita SET default_transaction_read_only = on";
    let off = "ALTER ROLE quita RESET default_transaction_read_only";
    for_a_while(&cluster, chance, on, off).await
}

/// Somebody else has nearly all connections.
async fn few_connections(cluster: Arc<Cluster>, chance: StdRng) -> Result<Injected, String> {
    let on = "ALTER ROLE quita CONNECTION LIMIT 2";
    let off = "ALTER ROLE quita CONNECTION LIMIT -1";
    for_a_while(&cluster, chance, on, off).await
}

/// Changes something that counts for new sessions, ends the present ones, and changes it back.
async fn for_a_while(
    cluster: &Cluster,
    mut chance: StdRng,
    on: &str,
    off: &str,
) -> Result<Injected, String> {
    let postgres = postgres(cluster)?;
    let time = chance.random_range(2_000..4_000);
    let end_sessions =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'quita'";
    let run = async |sql: &str| postgres.execute(sql).await.map_err(|e| e.to_string());
    run(on).await?;
    run(end_sessions).await?;
    tokio::time::sleep(Duration::from_millis(time)).await;
    run(off).await?;
    run(end_sessions).await?;
    Ok(Injected::of("postgres", format!("{time} ms")))
}
