//! The servers that are tested, with their proxies and their store.

mod bouncer;
mod clocks;
mod disk;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod replica;
mod watch;

use crate::history::History;
use crate::proxy::Proxy;
use bouncer::Bouncer;
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

/// How the reason begins why a cluster cannot be made on this machine.
pub(crate) const LACKS: &str = "this machine has ";

/// What is different about a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Twist {
    /// Nothing.
    #[default]
    None,
    /// Syncs are not done, so that a power cut must lose something: the harness has to see it.
    Careless,
    /// `PgBouncer` in transaction mode between the servers and PostgreSQL.
    TransactionBouncer,
    /// The same in session mode.
    SessionBouncer,
    /// A standby that has every commit before it is answered.
    SyncStandby,
    /// A standby that has it a moment later.
    AsyncStandby,
}

/// Servers and their store.
pub(crate) struct Cluster {
    /// The servers.
    pub(crate) replicas: Vec<Arc<Replica>>,
    /// Their database.
    pub(crate) postgres: Option<Postgres>,
    /// Its standby.
    pub(crate) standby: Option<Postgres>,
    /// Between them and it. Lives as long as this.
    _bouncer: Option<Bouncer>,
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
        twist: Twist,
        folder: &Path,
        mut setup: Setup,
        history: &History,
    ) -> Result<Self, String> {
        let disk = Disk::create(folder);
        let data = disk.as_ref().map_or(folder, |disk| &disk.mount);
        let clocks = Clocks::create(folder, count);
        let log = |name: &str| folder.join(format!("{name}.log"));
        let careless = twist == Twist::Careless;
        let mut postgres = None;
        if store == Store::Postgres {
            let settings = if careless { "fsync = off\n" } else { "" };
            let home = data.join("postgres");
            postgres = Some(Postgres::create(&home, settings, &log("postgres")).await?);
        } else if careless {
            setup.environment.push(disk::no_syncs()?);
        }
        let standby = match (&postgres, twist) {
            (Some(postgres), Twist::SyncStandby | Twist::AsyncStandby) => {
                let every_commit = twist == Twist::SyncStandby;
                let home = data.join("standby");
                let log = log("standby");
                Some(postgres.standby(&home, &log, every_commit).await?)
            }
            _ => None,
        };
        let bouncer = match (&postgres, twist) {
            (Some(postgres), Twist::TransactionBouncer) => {
                Some(Bouncer::start(postgres, "transaction", folder).await?)
            }
            (Some(postgres), Twist::SessionBouncer) => {
                Some(Bouncer::start(postgres, "session", folder).await?)
            }
            _ => None,
        };
        let mut replicas = Vec::new();
        for index in 0..count {
            let back = match (&bouncer, &postgres) {
                (Some(bouncer), _) => Some(proxy_to(bouncer.port).await?),
                (None, Some(postgres)) => Some(proxy_to(postgres.port).await?),
                (None, None) => None,
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
            replicas,
            postgres,
            standby,
            _bouncer: bouncer,
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

async fn proxy_to(port: u16) -> Result<Proxy, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Proxy::start(address).await.map_err(|e| e.to_string())
}
