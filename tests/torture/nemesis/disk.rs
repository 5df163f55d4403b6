//! Faults of the disk: power cuts, failing syncs, no space.

use super::{Fits, Injected, Kind};
use crate::cluster::Cluster;
use crate::cluster::process::{Process, bound_to_us, program};
use crate::cluster::replica::Replica;
use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::Signal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For a sync to fail under load.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn kinds() -> Vec<Kind> {
    fn disk(cluster: &Cluster) -> Fits {
        match &cluster.disk {
            Ok(_) => Fits::Yes,
            Err(why) => Fits::Lacks(why.clone()),
        }
    }
    // PostgreSQL treats both on its own: it panics and repairs itself, or waits for its operator.
    fn on_sqlite(cluster: &Cluster, fits: Fits) -> Fits {
        match cluster.postgres {
            Some(_) => Fits::No,
            None => fits,
        }
    }
    vec![
        Kind {
            name: "power_cut",
            fits: disk,
            run: |cluster, chance| Box::pin(power_cut(cluster, chance)),
        },
        Kind {
            name: "power_cut_when_busy",
            fits: disk,
            run: |cluster, chance| Box::pin(power_cut_when_busy(cluster, chance)),
        },
        Kind {
            name: "disk_full",
            fits: |cluster| on_sqlite(cluster, disk(cluster)),
            run: |cluster, chance| Box::pin(disk_full(cluster, chance)),
        },
        Kind {
            name: "fsync_error",
            fits: |cluster| {
                let strace = match program("strace") {
                    Some(_) => Fits::Yes,
                    None => Fits::Lacks("no strace".to_owned()),
                };
                on_sqlite(cluster, strace)
            },
            run: |cluster, _| Box::pin(fsync_error(cluster)),
        },
    ]
}

/// The machine with the data loses its power: the server's with SQLite, the database's with PostgreSQL.
async fn power_cut(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let disk = cluster.disk.as_ref().map_err(Clone::clone)?;
    disk.cut()?;
    let off = Duration::from_millis(chance.random_range(0..300));
    match &cluster.postgres {
        None => {
            for replica in &cluster.replicas {
                replica.kill().await;
            }
            disk.power_on()?;
            tokio::time::sleep(off).await;
            for replica in &cluster.replicas {
                replica.start().await?;
            }
        }
        Some(postgres) => {
            postgres.kill_all().await?;
            disk.power_on()?;
            tokio::time::sleep(off).await;
            postgres.remove_locks();
            postgres.start().await?;
        }
    }
    let target = match cluster.postgres {
        None => "replica 0",
        Some(_) => "postgres",
    };
    Ok(Injected::of(
        target,
        format!("off for {} ms", off.as_millis()),
    ))
}

/// Somebody else writes so much that every sync takes long: much is on its way when the power goes.
async fn power_cut_when_busy(
    cluster: Arc<Cluster>,
    mut chance: StdRng,
) -> Result<Injected, String> {
    let disk = cluster.disk.as_ref().map_err(Clone::clone)?;
    let busy = disk.keep_busy()?;
    tokio::time::sleep(Duration::from_millis(chance.random_range(300..600))).await;
    let injected = power_cut(cluster.clone(), chance).await;
    drop(busy);
    injected
}

async fn disk_full(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let disk = cluster.disk.as_ref().map_err(Clone::clone)?;
    let filled = disk.fill()?;
    let time = chance.random_range(1_500..3_000);
    tokio::time::sleep(Duration::from_millis(time)).await;
    drop(filled);
    Ok(Injected::of("replica 0", format!("{time} ms")))
}

/// Every sync fails for a moment; then they succeed again, but the process must not: what the kernel has is unknown.
async fn fsync_error(cluster: Arc<Cluster>) -> Result<Injected, String> {
    let replica = &cluster.replicas[0];
    let (felt, count) = fail_syncs(replica, &cluster.folder).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    replica.kill().await;
    replica.start().await?;
    let mut injected = Injected::of("replica 0", format!("{count} syncs failed"));
    injected.felt = Some(felt);
    Ok(injected)
}

async fn fail_syncs(replica: &Replica, folder: &Path) -> Result<(Instant, usize), String> {
    let server = replica.running().ok_or("the server does not run")?;
    let strace = program("strace").ok_or("no strace")?;
    let heard = folder.join("strace.out");
    let mut command = bound_to_us(&strace);
    command.args(["-f", "-p", &server.pid.to_string(), "-o"]);
    command.arg(&heard);
    command.args(["-e", "trace=fsync,fdatasync"]);
    command.args(["-e", "inject=fsync,fdatasync:error=EIO"]);
    let tracer = Process::start(command, &folder.join("strace.log"), |_| {});
    let tracer = tracer.map_err(|e| e.to_string())?;
    let failed = || {
        let text = std::fs::read_to_string(&heard).unwrap_or_default();
        text.matches("INJECTED").count()
    };
    let began = Instant::now();
    while failed() == 0 {
        if began.elapsed() > PATIENCE || tracer.has_ended() {
            return Err("no sync failed: may this user trace?".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let felt = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let count = failed();
    tracer.signal(Signal::INT);
    tracer.end_within(PATIENCE).await;
    // It is read anew by the next one.
    let _ = std::fs::remove_file(&heard);
    Ok((felt, count))
}
