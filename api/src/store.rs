//! Opens the store that the settings name.

use crate::config::StoreConfig;
use quita_storage::backend::Backend;
use quita_storage::error::StoreError;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A folder could not be made.
    #[error("{}: {error}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens the store, with its folder and its tables made when they are not there.
pub async fn open(config: &StoreConfig) -> Result<Arc<dyn Backend>, OpenError> {
    if let Some(file) = config.sqlite_file() {
        private_folder_of(&file)?;
    }
    Ok(quita_storage::open(&config.url()).await?)
}

/// Makes the folder of `file`, for its owner alone. One that is there is left as it is.
pub fn private_folder_of(file: &Path) -> Result<(), OpenError> {
    let Some(folder) = file.parent().filter(|f| !f.as_os_str().is_empty()) else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| OpenError::Folder {
            path: folder.to_owned(),
            error,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_data_folder_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/quita.db");
        private_folder_of(&file).unwrap();
        private_folder_of(&file).unwrap();
        for made in ["a", "a/b"] {
            let mode = std::fs::metadata(folder.path().join(made))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        private_folder_of(Path::new("quita.db")).unwrap();
    }
}
