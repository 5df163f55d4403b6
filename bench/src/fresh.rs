//! quita on a store that nobody has used.

use crate::Outcome;
use crate::meters::Meters;
use crate::postgres;
use crate::server::Quita;
use clap::ValueEnum;
use quita_tests::postgres::Database;
use serde::Serialize;
use std::path::PathBuf;

/// Where messages are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

impl Store {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// What is needed to start one.
#[derive(Clone)]
pub(crate) struct Ground {
    /// The server.
    pub(crate) program: PathBuf,
    /// Where stores are made.
    pub(crate) directory: PathBuf,
}

/// A running server with a store of its own.
pub(crate) struct Fresh {
    pub(crate) quita: Quita,
    pub(crate) store: Store,
    database: Option<Database>,
}

impl Ground {
    pub(crate) async fn start(&self, store: Store) -> Outcome<Fresh> {
        self.settle()?;
        let database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(postgres::database().await?),
        };
        let url = database.as_ref().map(|database| database.url.as_str());
        let quita = Quita::start(&self.program, &self.directory, url).await?;
        Ok(Fresh {
            quita,
            store,
            database,
        })
    }

    /// Commits what was removed before. A file system that discards freed blocks does so at its next commit, and that would be
    /// the first one that is measured.
    pub(crate) fn settle(&self) -> Outcome<()> {
        Ok(std::fs::File::open(&self.directory)?.sync_all()?)
    }

    /// Another server on the same database.
    pub(crate) async fn replica(&self, of: &Fresh) -> Outcome<Quita> {
        let url = of.url().ok_or("only PostgreSQL has replicas")?;
        let mut replica = Quita::start(&self.program, &self.directory, Some(url)).await?;
        replica.key.clone_from(&of.quita.key);
        Ok(replica)
    }
}

impl Fresh {
    pub(crate) fn meters(&self) -> Meters {
        Meters {
            server: self.quita.id(),
            postgres: self.database.as_ref().and_then(|_| postgres::postmaster()),
        }
    }

    pub(crate) fn url(&self) -> Option<&str> {
        Some(self.database.as_ref()?.url.as_str())
    }

    /// Stops the server and removes its store.
    pub(crate) async fn end(self) {
        drop(self.quita);
        if let Some(database) = self.database {
            database.drop().await;
        }
    }
}
