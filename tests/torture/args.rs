//! The command line.

use crate::cluster::Store;
use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;

/// Load and faults on real servers, written down, and a verdict on every promise.
#[derive(Clone, Debug, Parser)]
#[command(name = "torture")]
pub(crate) struct Args {
    /// What the servers stand on
    #[arg(long, value_enum, default_value = "sqlite")]
    pub(crate) store: Store,
    /// Servers; on SQLite there is one
    #[arg(long, default_value_t = 3)]
    pub(crate) replicas: usize,
    /// Length of the load in minutes
    #[arg(long, default_value_t = 1.0)]
    pub(crate) minutes: f64,
    /// Everything random follows from it; without it, another one each time
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Seconds from one fault to the next, on average
    #[arg(long, default_value_t = 6.0)]
    pub(crate) every: f64,
    /// Only these kinds of faults, several with commas; `none` for none
    #[arg(long, value_delimiter = ',')]
    pub(crate) faults: Vec<String>,
    /// No more faults than this
    #[arg(long)]
    pub(crate) max_faults: Option<usize>,
    /// The server to test; without it, the workspace's, built first
    #[arg(long)]
    pub(crate) quita: Option<PathBuf>,
    /// Folder for histories, logs and data; PostgreSQL's user must be able to reach it
    #[arg(long, default_value = "/tmp/quita-torture")]
    pub(crate) out: PathBuf,
    /// Runs with a name, several with commas, `all` for all of them; each says what has to come out
    #[arg(long, value_delimiter = ',')]
    pub(crate) scenario: Vec<String>,
    /// The known bugs, each put back in a server: every one has to be found
    #[arg(long)]
    pub(crate) controls: bool,
    /// Only these of the known bugs, several with commas
    #[arg(long, value_delimiter = ',', requires = "controls")]
    pub(crate) only: Vec<String>,
    /// A run with each of these for every known bug
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    pub(crate) seeds: Vec<u64>,
    /// A server built with the feature `known-bugs`; without it, it is built
    #[arg(long)]
    pub(crate) quita_with_bugs: Option<PathBuf>,
    /// The bug that the server has, which has to be built with it
    #[arg(long)]
    pub(crate) known_bug: Option<String>,
    /// No load: the verdict on this history
    #[arg(long)]
    pub(crate) recheck: Option<PathBuf>,
}

impl Args {
    /// Length of the load.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs_f64(self.minutes.max(0.0) * 60.0)
    }

    /// How many servers there are.
    pub(crate) fn servers(&self) -> usize {
        match self.store {
            Store::Sqlite => 1,
            Store::Postgres => self.replicas.max(1),
        }
    }
}
