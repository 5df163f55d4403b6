//! Which stores there are, and how a case runs on each.

use crate::fixture::Fixture;
use crate::postgres;
use quita_storage::backend::Backend;
use std::sync::Arc;
use tempfile::TempDir;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The specification.
    Memory,
    /// A file of its own.
    Sqlite,
    /// A database of its own.
    Postgres,
}

impl Store {
    /// Every kind, the specification first.
    pub const ALL: &'static [Self] = &[Self::Memory, Self::Sqlite, Self::Postgres];
}

/// An open, empty store and what must live as long as it does.
pub struct Opened {
    /// The store.
    pub backend: Arc<dyn Backend>,
    /// Where it is.
    pub url: String,
    directory: Option<TempDir>,
    database: Option<postgres::Database>,
}

impl Opened {
    /// Closes the store and removes what it stood on.
    pub async fn close(self) {
        self.backend.close().await;
        drop(self.backend);
        drop(self.directory);
        if let Some(database) = self.database {
            database.drop().await;
        }
    }
}

/// Opens an empty store; `None` when this machine has none of the kind, which was said.
pub async fn open(store: Store) -> Option<Opened> {
    let (mut directory, mut database) = (None, None);
    let url = match store {
        Store::Memory => "memory:".to_owned(),
        Store::Sqlite => {
            let home = directory.insert(tempfile::tempdir().unwrap());
            format!("sqlite://{}", home.path().join("quita.db").display())
        }
        Store::Postgres => database.insert(postgres::database().await?).url.clone(),
    };
    let backend = quita_storage::open(&url).await.unwrap();
    Some(Opened {
        backend,
        url,
        directory,
        database,
    })
}

/// Runs one case on a store of its own, and checks afterwards what holds after every case: see [`Fixture::audit`].
pub fn run(store: Store, case: &impl AsyncFn(&Fixture)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let Some(opened) = open(store).await else {
            return;
        };
        let fixture = Fixture::new(opened.backend.clone());
        case(&fixture).await;
        fixture.audit().await;
        drop(fixture);
        opened.close().await;
    });
}

/// Makes each named case a test on every store: `a_fact::memory`, `a_fact::sqlite`, …
#[macro_export]
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => { $(
        mod $case {
            #[test]
            fn memory() {
                $crate::run($crate::Store::Memory, &super::$case);
            }

            #[test]
            fn sqlite() {
                $crate::run($crate::Store::Sqlite, &super::$case);
            }

            #[test]
            fn postgres() {
                $crate::run($crate::Store::Postgres, &super::$case);
            }
        }
    )+ };
}
