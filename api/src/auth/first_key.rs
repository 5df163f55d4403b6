//! The first key of a store.
//!
//! Without a key nobody could make one, so the first start on an empty store makes an admin key and leaves it in a file
//! that only its owner may read. Of several replicas that start together exactly one does: the store decides
//! (`Backend::add_key` with `only_first`). The key is in the file before the store has it, under another name, so that a
//! crash between the two steps locks nobody out.

use super::{ApiKey, admin_record};
use quita_storage::backend::{Backend, Call, KeyRecord};
use quita_storage::error::StoreError;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where the holder of the first key finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// In this file.
    File {
        /// Its path.
        path: PathBuf,
        /// This start made it.
        new: bool,
    },
    /// In the environment, where it came from.
    Environment,
    /// Not on this machine: it was made elsewhere, or its file was put away.
    Elsewhere,
    /// Nowhere: callers need none (`--dev-no-auth`).
    NotNeeded,
}

/// Why there is no first key.
#[derive(Debug, thiserror::Error)]
pub enum FirstKeyError {
    /// What was given is not a whole key.
    #[error("{0} does not hold a whole API key; `quita key generate` prints one")]
    NotAKey(String),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// The file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes sure that `backend` has a key. `given` is the text of `QUITA_ADMIN_KEY`; a whole key that already lies at `file`
/// is used before a new one is made.
pub async fn ensure(
    backend: &dyn Backend,
    given: Option<&str>,
    file: &Path,
) -> Result<KeyPlace, FirstKeyError> {
    let given = given
        .map(|text| {
            ApiKey::parse(text.trim())
                .ok_or_else(|| FirstKeyError::NotAKey("QUITA_ADMIN_KEY".into()))
        })
        .transpose()?;
    let keys = backend.keys().await?;
    if !keys.is_empty() {
        return place(&keys, given.as_ref(), file);
    }
    if let Some(key) = given {
        if !backend
            .add_key(&Call::by("server"), admin_record(&key, "first key"), true)
            .await?
        {
            return place(&backend.keys().await?, Some(&key), file);
        }
        return Ok(KeyPlace::Environment);
    }
    if let Some(key) = read(file)? {
        let new = backend
            .add_key(&Call::by("server"), admin_record(&key, "first key"), true)
            .await?;
        return if new {
            Ok(in_file(file, false))
        } else {
            place(&backend.keys().await?, None, file)
        };
    }
    make(backend, file).await
}

async fn make(backend: &dyn Backend, file: &Path) -> Result<KeyPlace, FirstKeyError> {
    let key = ApiKey::generate().ok_or(FirstKeyError::NoRandomness)?;
    let draft = draft_of(file, key.id());
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| FirstKeyError::File { path, error }
    };
    write(&draft, &key).map_err(failed(&draft))?;
    match backend
        .add_key(&Call::by("server"), admin_record(&key, "first key"), true)
        .await
    {
        Ok(true) => {
            fs::rename(&draft, file).map_err(failed(file))?;
            Ok(in_file(file, true))
        }
        Ok(false) => {
            fs::remove_file(&draft).map_err(failed(&draft))?;
            place(&backend.keys().await?, None, file)
        }
        // The commit may have happened: the draft stays, and the next start finds it.
        Err(error) => Err(error.into()),
    }
}

/// Where a key of a store that has some is to be found.
fn place(
    keys: &[KeyRecord],
    given: Option<&ApiKey>,
    file: &Path,
) -> Result<KeyPlace, FirstKeyError> {
    let good = |key: &ApiKey| {
        keys.iter().any(|k| {
            *k.id == *key.id()
                && k.secret_hash == key.secret_hash()
                && k.revoked_at.is_none()
                && k.expires_at
                    .is_none_or(|at| quita_storage::clock::wall() < at)
        })
    };
    if let Some(key) = given {
        if good(key) {
            return Ok(KeyPlace::Environment);
        }
        tracing::warn!(
            key = key.id(),
            "the store has keys already and QUITA_ADMIN_KEY is not a good one of them: it is not used"
        );
    }
    if read(file)?.is_some_and(|key| good(&key)) {
        return Ok(in_file(file, false));
    }
    // A start that crashed between storing its key and naming the file.
    for key in keys.iter().filter(|key| key.revoked_at.is_none()) {
        let draft = draft_of(file, &key.id);
        if !file.exists() && read(&draft)?.is_some_and(|key| good(&key)) {
            fs::rename(&draft, file).map_err(|error| FirstKeyError::File { path: draft, error })?;
            return Ok(in_file(file, false));
        }
    }
    Ok(KeyPlace::Elsewhere)
}

fn in_file(path: &Path, new: bool) -> KeyPlace {
    KeyPlace::File {
        path: path.to_owned(),
        new,
    }
}

fn draft_of(file: &Path, id: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{id}"));
    name.into()
}

fn read(file: &Path) -> Result<Option<ApiKey>, FirstKeyError> {
    match fs::read_to_string(file) {
        Ok(text) => ApiKey::parse(text.trim())
            .map(Some)
            .ok_or_else(|| FirstKeyError::NotAKey(file.display().to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FirstKeyError::File {
            path: file.to_owned(),
            error,
        }),
    }
}

/// A new file of the owner's alone, on disk before this returns.
fn write(file: &Path, key: &ApiKey) -> io::Result<()> {
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    writeln!(out, "{}", key.reveal())?;
    out.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quita_storage::memory;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn the_first_start_leaves_an_admin_key_for_its_owner_alone() {
        let (folder, backend) = (tempfile::tempdir().unwrap(), memory::open());
        let file = folder.path().join("admin.key");
        let first = ensure(&*backend, None, &file).await.unwrap();
        assert_eq!(first, in_file(&file, true));
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let key = read(&file).unwrap().unwrap();
        assert_eq!(*backend.keys().await.unwrap()[0].id, *key.id());
        assert_eq!(
            ensure(&*backend, None, &file).await.unwrap(),
            in_file(&file, false)
        );
    }

    #[tokio::test]
    async fn of_eight_that_start_together_one_makes_the_key_and_leaves_one_file() {
        let backend = memory::open();
        let folder = tempfile::tempdir().unwrap();
        let starts = (0..8).map(|n| {
            let (backend, file) = (backend.clone(), folder.path().join(format!("{n}.key")));
            tokio::spawn(async move { ensure(&*backend, None, &file).await.unwrap() })
        });
        let mut made = 0;
        for start in starts.collect::<Vec<_>>() {
            made += usize::from(matches!(
                start.await.unwrap(),
                KeyPlace::File { new: true, .. }
            ));
        }
        assert_eq!((made, backend.keys().await.unwrap().len()), (1, 1));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_given_key_is_the_first_one_and_no_file_is_written() {
        let (folder, backend) = (tempfile::tempdir().unwrap(), memory::open());
        let (file, key) = (folder.path().join("admin.key"), ApiKey::generate().unwrap());
        let given = format!("{}\n", key.reveal());
        assert_eq!(
            ensure(&*backend, Some(&given), &file).await.unwrap(),
            KeyPlace::Environment
        );
        assert_eq!(
            ensure(&*backend, Some(&given), &file).await.unwrap(),
            KeyPlace::Environment
        );
        assert!(!file.exists());
        assert_eq!(
            ensure(&*backend, None, &file).await.unwrap(),
            KeyPlace::Elsewhere
        );
        assert!(matches!(
            ensure(&*backend, Some("secret"), &file).await,
            Err(FirstKeyError::NotAKey(_))
        ));
    }

    #[tokio::test]
    async fn a_key_that_already_lies_in_the_file_is_used_for_a_new_store() {
        let folder = tempfile::tempdir().unwrap();
        let (file, key) = (folder.path().join("admin.key"), ApiKey::generate().unwrap());
        write(&file, &key).unwrap();
        let backend = memory::open();
        assert_eq!(
            ensure(&*backend, None, &file).await.unwrap(),
            in_file(&file, false)
        );
        assert_eq!(*backend.keys().await.unwrap()[0].id, *key.id());
    }

    #[tokio::test]
    async fn a_crash_between_store_and_file_locks_nobody_out() {
        let (folder, backend) = (tempfile::tempdir().unwrap(), memory::open());
        let (file, key) = (folder.path().join("admin.key"), ApiKey::generate().unwrap());
        write(&draft_of(&file, key.id()), &key).unwrap();
        backend
            .add_key(&Call::by("server"), admin_record(&key, "first key"), true)
            .await
            .unwrap();
        assert_eq!(
            ensure(&*backend, None, &file).await.unwrap(),
            in_file(&file, false)
        );
        assert_eq!(read(&file).unwrap(), Some(key));
    }
}
