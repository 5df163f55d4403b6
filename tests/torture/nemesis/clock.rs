//! Faults of a server's clock: it jumps by an hour. PostgreSQL's own is right.

use super::{Fits, Injected, Kind};
use crate::cluster::Cluster;
use rand::Rng;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "clock_jump",
        fits: |cluster| match (&cluster.postgres, &cluster.clocks) {
            // With SQLite the server's clock is the store's.
            (None, _) => Fits::No,
            (_, Ok(_)) => Fits::Yes,
            (_, Err(why)) => Fits::Lacks(why.clone()),
        },
        run: |cluster, chance| Box::pin(jump(cluster, chance)),
    }]
}

async fn jump(cluster: Arc<Cluster>, mut chance: StdRng) -> Result<Injected, String> {
    let clocks = cluster.clocks.as_ref().map_err(Clone::clone)?;
    let which = chance.random_range(0..cluster.replicas.len());
    let (before, by) = (clocks.offset(which), chance.random_range(-5_400..5_400));
    clocks.set(which, by).map_err(|e| e.to_string())?;
    tokio::time::sleep(Duration::from_millis(chance.random_range(2_000..5_000))).await;
    clocks.set(which, before).map_err(|e| e.to_string())?;
    let detail = format!("from {before:+} to {by:+} seconds and back");
    Ok(Injected::of(&format!("replica {which}"), detail))
}
