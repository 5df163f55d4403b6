//! Faults of the network: between clients and a server, and between a server and its database.

use super::{Fits, Injected, Kind};
use crate::cluster::Cluster;
use crate::cluster::replica::Replica;
use crate::proxy::{Mode, Proxy};
use futures_util::future::BoxFuture;
use rand::Rng;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (name, run) in FRONT {
        kinds.push(Kind {
            name,
            fits: |_| Fits::Yes,
            run,
        });
    }
    for (name, run) in BACK {
        kinds.push(Kind {
            name,
            fits: |cluster| match cluster.postgres {
                Some(_) => Fits::Yes,
                None => Fits::No,
            },
            run,
        });
    }
    kinds
}

type Run = fn(Arc<Cluster>, StdRng) -> BoxFuture<'static, Result<Injected, String>>;

const FRONT: [(&str, Run); 6] = [
    ("clients_black_hole", |cluster, chance| {
        front(cluster, chance, Mode::BlackHole)
    }),
    ("clients_half_open", |cluster, chance| {
        front(cluster, chance, Mode::HalfOpen)
    }),
    ("clients_reset", |cluster, chance| {
        front(cluster, chance, Mode::Reset)
    }),
    ("clients_answers_lost", |cluster, chance| {
        front(cluster, chance, Mode::LoseAnswers)
    }),
    ("clients_delay", |cluster, chance| {
        front(cluster, chance, Mode::Delay(Duration::from_millis(150)))
    }),
    ("clients_drip", |cluster, chance| {
        front(cluster, chance, Mode::Drip)
    }),
];

const BACK: [(&str, Run); 5] = [
    ("database_black_hole", |cluster, chance| {
        back(cluster, chance, Mode::BlackHole)
    }),
    ("database_half_open", |cluster, chance| {
        back(cluster, chance, Mode::HalfOpen)
    }),
    ("database_reset", |cluster, chance| {
        back(cluster, chance, Mode::Reset)
    }),
    ("database_answers_lost", |cluster, chance| {
        back(cluster, chance, Mode::LoseAnswers)
    }),
    ("database_delay", |cluster, chance| {
        back(cluster, chance, Mode::Delay(Duration::from_millis(40)))
    }),
];

fn front(
    cluster: Arc<Cluster>,
    chance: StdRng,
    mode: Mode,
) -> BoxFuture<'static, Result<Injected, String>> {
    Box::pin(through(
        cluster,
        chance,
        mode,
        "clients of replica",
        |replica| Some(&replica.front),
    ))
}

fn back(
    cluster: Arc<Cluster>,
    chance: StdRng,
    mode: Mode,
) -> BoxFuture<'static, Result<Injected, String>> {
    Box::pin(through(
        cluster,
        chance,
        mode,
        "database of replica",
        |replica| replica.back.as_ref(),
    ))
}

async fn through(
    cluster: Arc<Cluster>,
    mut chance: StdRng,
    mode: Mode,
    target: &str,
    proxy: fn(&Replica) -> Option<&Proxy>,
) -> Result<Injected, String> {
    let replica = &cluster.replicas[chance.random_range(0..cluster.replicas.len())];
    let proxy = proxy(replica).ok_or("there is no such connection")?;
    let time = match mode {
        // Longer than any lease of the load.
        Mode::BlackHole | Mode::HalfOpen => chance.random_range(3_200..4_500),
        Mode::Reset | Mode::LoseAnswers => chance.random_range(200..1_500),
        _ => chance.random_range(1_000..3_000),
    };
    proxy.set(mode);
    tokio::time::sleep(Duration::from_millis(time)).await;
    proxy.set(Mode::Pass);
    Ok(Injected::of(
        &format!("{target} {}", replica.index),
        format!("{time} ms"),
    ))
}
