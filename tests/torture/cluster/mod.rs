//! The servers that are tested, with their proxies and their store.

mod clocks;
mod disk;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod replica;
mod watch;

use crate::history::History;
use crate::proxy::Proxy;
use clocks::Clocks;
use disk::Disk;
use postgres::Postgres;
use replica::{Replica, Setup};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use watch::{scan_logs, watch};

/// What the servers stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    /// One server and its file.
    Sqlite,
    /// Several servers and one database.
    Postgres,
}

/// Servers and their store.
pub(crate) struct Cluster {
    /// What they stand on.
    pub(crate) store: Store,
    /// The servers.
    pub(crate) replicas: Vec<Arc<Replica>>,
    /// Their database.
    pub(crate) postgres: Option<Postgres>,
    /// The key of all calls.
    pub(crate) key: String,
    /// Where everything lies but data.
    pub(crate) folder: PathBuf,
    /// Clocks that can be wrong, or what is missing for that.
    pub(crate) clocks: Result<Clocks, String>,
    /// Where data lies: a disk whose power can be cut, or what is missing for that. Goes last.
    pub(crate) disk: Result<Disk, String>,
}

impl Cluster {
    /// Starts `count` servers on an empty store in `folder`.
    pub(crate) async fn start(
        store: Store,
        count: usize,
        folder: &Path,
        setup: Setup,
        history: &History,
    ) -> Result<Self, String> {
        let disk = Disk::create(folder);
        let data = disk.as_ref().map_or(folder, |disk| &disk.mount);
        let clocks = Clocks::create(folder, count);
        let postgres = match store {
            Store::Sqlite => None,
            Store::Postgres => {
                let (home, log) = (data.join("postgres"), folder.join("postgres.log"));
                Some(Postgres::create(&home, "", &log).await?)
            }
        };
        if let Ok(disk) = &disk {
            disk.sync()?;
        }
        let mut replicas = Vec::new();
        for index in 0..count {
            let back = match &postgres {
                None => None,
                Some(postgres) => Some(proxy_to(postgres).await?),
            };
            let store = back.as_ref().map(|back| Postgres::url(back.address.port()));
            let mut setup = setup.clone();
            if let (Some(_), Ok(clocks)) = (&postgres, &clocks) {
                setup.environment.extend(clocks.environment(index));
            }
            let made = Replica::new(index, folder, data, setup, store, back, history.clone());
            replicas.push(Arc::new(made.await.map_err(|e| e.to_string())?));
        }
        let cluster = Self {
            store,
            replicas,
            postgres,
            key: setup.key,
            folder: folder.to_owned(),
            clocks,
            disk,
        };
        for replica in &cluster.replicas {
            replica.start().await?;
        }
        Ok(cluster)
    }

    /// Where clients find the servers.
    pub(crate) fn fronts(&self) -> Vec<SocketAddr> {
        let fronts = self.replicas.iter().map(|replica| replica.front.address);
        fronts.collect()
    }

    /// Undoes what faults may have left: proxies pass, who was stopped goes on, who is dead is started.
    pub(crate) async fn heal(&self) -> Result<(), String> {
        for replica in &self.replicas {
            replica.heal();
            replica.signal(Signal::CONT);
            if replica.running().is_none() {
                replica.start().await?;
            }
            replica.until_ready().await?;
        }
        Ok(())
    }
}

async fn proxy_to(postgres: &Postgres) -> Result<Proxy, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], postgres.port));
    Proxy::start(address).await.map_err(|e| e.to_string())
}
