//! Faults: which there are, when they happen, and that each is undone.

mod clock;
mod crowd;
mod database;
mod disk;
mod failover;
mod network;
mod process;

use crate::cluster::Cluster;
use crate::history::{Fault, History};
use futures_util::future::BoxFuture;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a fault was, once it is undone: whom it hit, and figures.
pub(crate) struct Injected {
    target: String,
    detail: String,
    /// From when on it could be felt, unless that was at once.
    felt: Option<std::time::Instant>,
}

impl Injected {
    fn of(target: &str, detail: String) -> Self {
        Self {
            target: target.to_owned(),
            detail,
            felt: None,
        }
    }
}

/// A kind of fault.
pub(crate) struct Kind {
    /// Its name in the history.
    pub(crate) name: &'static str,
    /// Why it cannot happen here; a kind that makes no sense for the store is left out without a word.
    fits: fn(&Cluster) -> Fits,
    run: fn(Arc<Cluster>, StdRng) -> BoxFuture<'static, Result<Injected, String>>,
}

/// Whether a fault can happen.
pub(crate) enum Fits {
    /// Yes.
    Yes,
    /// It makes no sense with this store.
    No,
    /// It would, but something is missing.
    Lacks(String),
}

/// All kinds.
pub(crate) fn kinds() -> Vec<Kind> {
    let families = [
        process::kinds(),
        network::kinds(),
        database::kinds(),
        disk::kinds(),
        clock::kinds(),
        crowd::kinds(),
        failover::kinds(),
    ];
    families.into_iter().flatten().collect()
}

/// Which faults, and how often.
pub(crate) struct Plan {
    /// Only these; empty for all.
    pub(crate) only: Vec<String>,
    /// From one to the next, on average.
    pub(crate) every: Duration,
    /// No more than this.
    pub(crate) most: usize,
    /// When it ends.
    pub(crate) until: Instant,
    /// What chance follows from.
    pub(crate) seed: u64,
}

/// Lets faults happen, one after the other, every kind as often as the others.
pub(crate) async fn run(
    cluster: &Arc<Cluster>,
    history: &History,
    plan: Plan,
) -> Result<(), String> {
    let mut chance = StdRng::seed_from_u64(plan.seed ^ 0x6e65_6d65);
    let kinds = possible(cluster, history, &plan.only)?;
    let mut round = Vec::new();
    for _ in 0..plan.most {
        let pause = plan.every.mul_f64(chance.random_range(0.5..1.5));
        if kinds.is_empty() || Instant::now() + pause >= plan.until {
            break;
        }
        tokio::time::sleep(pause).await;
        if round.is_empty() {
            round = (0..kinds.len()).collect();
            round.shuffle(&mut chance);
        }
        let Some(kind) = round.pop().and_then(|at| kinds.get(at)) else {
            break;
        };
        let own = StdRng::seed_from_u64(chance.random());
        let t_begin = history.now();
        let injected = (kind.run)(cluster.clone(), own).await;
        let injected = injected.map_err(|why| format!("{}: {why}", kind.name))?;
        history.fault(Fault {
            kind: kind.name.to_owned(),
            target: injected.target,
            t_begin: injected.felt.map_or(t_begin, |felt| history.at(felt)),
            t_end: history.now(),
            detail: injected.detail,
            skipped: false,
        });
    }
    tokio::time::sleep_until(plan.until).await;
    Ok(())
}

/// The kinds that can happen here. One that lacks something is said and counted.
fn possible(cluster: &Cluster, history: &History, only: &[String]) -> Result<Vec<Kind>, String> {
    let all = kinds();
    let unknown = only
        .iter()
        .find(|name| *name != "none" && !all.iter().any(|kind| kind.name == *name));
    if let Some(name) = unknown {
        let names: Vec<_> = all.iter().map(|kind| kind.name).collect();
        return Err(format!(
            "no fault {name:?}; there are: {}",
            names.join(", ")
        ));
    }
    let mut possible = Vec::new();
    for kind in all {
        if !only.is_empty() && !only.iter().any(|name| name == kind.name) {
            continue;
        }
        match (kind.fits)(cluster) {
            Fits::Yes => possible.push(kind),
            Fits::No => {}
            Fits::Lacks(what) => {
                let now = history.now();
                println!("SKIPPED {}: {what}", kind.name);
                history.fault(Fault {
                    kind: kind.name.to_owned(),
                    t_begin: now,
                    t_end: now,
                    detail: what,
                    skipped: true,
                    ..Fault::default()
                });
            }
        }
    }
    Ok(possible)
}
