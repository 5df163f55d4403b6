//! The database's machine is lost for good, and its standby takes over.

use super::{Fits, Injected, Kind};
use crate::cluster::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How far the standby is behind when it happens.
const BEHIND: Duration = Duration::from_secs(1);

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "failover",
        fits: |cluster| match cluster.standby {
            Some(_) => Fits::Yes,
            None => Fits::No,
        },
        run: |cluster, _| Box::pin(failover(cluster)),
    }]
}

async fn failover(cluster: Arc<Cluster>) -> Result<Injected, String> {
    let (Some(postgres), Some(standby)) = (&cluster.postgres, &cluster.standby) else {
        return Err("there is no standby".to_owned());
    };
    let receiver = standby.receiver().await?;
    let receiver = Pid::from_raw(receiver).ok_or("no receiver")?;
    let signal = |signal| kill_process(receiver, signal).map_err(|e| e.to_string());
    // What is answered from now on, the standby does not have.
    signal(Signal::STOP)?;
    tokio::time::sleep(BEHIND).await;
    postgres.kill_all().await?;
    for replica in &cluster.replicas {
        if let Some(back) = &replica.back {
            back.lead_to(SocketAddr::from(([127, 0, 0, 1], standby.port)));
        }
    }
    signal(Signal::KILL)?;
    standby.promote().await?;
    let detail = format!("the standby was {} ms behind", BEHIND.as_millis());
    Ok(Injected::of("postgres", detail))
}
