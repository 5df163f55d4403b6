//! Runs with a name: one kind of fault each, or one thing that is different.

use crate::args::Args;
use crate::cluster::{Store, Twist};

/// A run with a name.
pub(crate) struct Scenario {
    /// Its name.
    pub(crate) name: &'static str,
    /// What the servers stand on.
    pub(crate) store: Store,
    /// What is different.
    pub(crate) twist: Twist,
    /// What has to come out.
    pub(crate) expected: Expected,
    faults: &'static [&'static str],
    /// Seconds of load, and from one fault to the next.
    seconds: (u32, u32),
    most: usize,
}

/// What has to come out of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Every promise is kept.
    Kept,
    /// Messages are lost, and it is seen.
    Lost,
    /// The server does not start, and says this.
    Refused(&'static str),
}

use Expected::{Kept, Lost, Refused};
use Store::{Postgres, Sqlite};
use Twist::{
    AsyncStandby, Careless, None as Plain, SessionBouncer, SyncStandby, TransactionBouncer,
};

/// All of them.
pub(crate) const ALL: &[Scenario] = &[
    on(Sqlite, "power-cut-sqlite", &["power_cut"], 20, 5),
    on(Postgres, "power-cut-postgres", &["power_cut"], 20, 5),
    lost(Sqlite, "power-cut-sqlite-without-syncs", 12, 5),
    lost(Postgres, "power-cut-postgres-without-syncs", 12, 5),
    on(Sqlite, "failed-syncs", &["fsync_error"], 20, 5),
    on(Sqlite, "full-disk", &["disk_full"], 20, 5),
    on(Postgres, "clocks", &["clock_jump"], 20, 3),
    on(Sqlite, "pause-sqlite", &["pause"], 20, 5),
    on(Postgres, "pause-postgres", &["pause"], 20, 5),
    on(
        Postgres,
        "half-open",
        &["clients_half_open", "database_half_open"],
        25,
        5,
    ),
    on(
        Sqlite,
        "crowd-sqlite",
        &["slow_clients", "vanishing_clients"],
        20,
        4,
    ),
    on(
        Postgres,
        "crowd-postgres",
        &["slow_clients", "vanishing_clients"],
        20,
        4,
    ),
    on(
        Postgres,
        "database-restarts",
        &["database_restart", "database_crash", "postmaster_kill"],
        25,
        4,
    ),
    on(
        Postgres,
        "backends",
        &["backend_kill", "backend_terminated"],
        20,
        3,
    ),
    on(Postgres, "read-only", &["database_read_only"], 20, 5),
    on(Postgres, "few-connections", &["connection_limit"], 20, 5),
    on(Sqlite, "graceful-stop", &["term"], 15, 3),
    on(Postgres, "rolling-restart", &["rolling_restart"], 25, 4),
    with(
        TransactionBouncer,
        "pgbouncer-in-transaction-mode",
        &["kill"],
        Refused("use its session mode"),
    ),
    with(
        SessionBouncer,
        "pgbouncer-in-session-mode",
        &["backend_terminated"],
        Kept,
    ),
    with(SyncStandby, "failover-to-sync-standby", &["failover"], Kept),
    with(
        AsyncStandby,
        "failover-to-async-standby",
        &["failover"],
        Lost,
    ),
];

const fn on(
    store: Store,
    name: &'static str,
    faults: &'static [&'static str],
    seconds: u32,
    every: u32,
) -> Scenario {
    Scenario {
        name,
        store,
        twist: Plain,
        expected: Kept,
        faults,
        seconds: (seconds, every),
        most: usize::MAX,
    }
}

/// A control: where nothing is synced, a power cut must lose something.
const fn lost(store: Store, name: &'static str, seconds: u32, every: u32) -> Scenario {
    Scenario {
        twist: Careless,
        expected: Lost,
        ..on(store, name, &["power_cut"], seconds, every)
    }
}

const fn with(
    twist: Twist,
    name: &'static str,
    faults: &'static [&'static str],
    expected: Expected,
) -> Scenario {
    Scenario {
        twist,
        expected,
        // A standby takes over once.
        most: 1,
        ..on(Postgres, name, faults, 15, 5)
    }
}

impl Scenario {
    /// The arguments of its run; seed, binary and folder are those given.
    pub(crate) fn args(&self, given: &Args) -> Args {
        let (seconds, every) = self.seconds;
        Args {
            store: self.store,
            minutes: f64::from(seconds) / 60.0,
            every: f64::from(every),
            faults: self
                .faults
                .iter()
                .map(|fault| (*fault).to_owned())
                .collect(),
            max_faults: Some(self.most),
            out: given.out.join(self.name),
            ..given.clone()
        }
    }
}

/// Those that are named, `all` for all of them.
pub(crate) fn named(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    let mut found = Vec::new();
    for name in names {
        let of: Vec<_> = ALL
            .iter()
            .filter(|scenario| name == "all" || scenario.name == name)
            .collect();
        if of.is_empty() {
            let known: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
            return Err(format!(
                "no scenario {name:?}; there are: {}",
                known.join(", ")
            ));
        }
        found.extend(of);
    }
    Ok(found)
}
