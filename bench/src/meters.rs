//! CPU meters of the three parties that share the machine: server, store, load.

use crate::process::{cpu_seconds, tree_cpu_seconds};
use std::ops::Sub;

/// Whom to meter.
#[derive(Clone, Copy)]
pub(crate) struct Meters {
    /// The server's process.
    pub(crate) server: u32,
    /// The PostgreSQL postmaster, where there is one.
    pub(crate) postgres: Option<u32>,
}

/// CPU seconds.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) server: f64,
    pub(crate) postgres: f64,
    pub(crate) client: f64,
}

impl Meters {
    pub(crate) fn read(&self) -> Spent {
        Spent {
            server: cpu_seconds(self.server),
            postgres: self.postgres.map_or(0.0, tree_cpu_seconds),
            client: cpu_seconds(std::process::id()),
        }
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            server: self.server - before.server,
            postgres: self.postgres - before.postgres,
            client: self.client - before.client,
        }
    }
}
