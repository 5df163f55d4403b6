//! Whether there is disk left for new messages.
//!
//! An embedded store that meets a full disk can neither take a message nor record an ack. So publishes stop while there is
//! still room for settles (product 4.15).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the free space is read. Publishes fill 64 MiB, the default reserve, in no less time than this at 60 MB/s.
const GLANCE: Duration = Duration::from_secs(1);

/// Says whether the disk is low. A default one never is.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    low: Arc<AtomicBool>,
}

impl Disk {
    /// Too little is left for new messages.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Watches the disk that `file` is on. Never returns.
    pub async fn watch(self, file: PathBuf, min_free_bytes: u64) {
        loop {
            self.glance(&file, min_free_bytes);
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Reads the free space now.
    fn glance(&self, file: &Path, min_free_bytes: u64) {
        let folder = file
            .parent()
            .filter(|f| !f.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // A disk that cannot be asked says so at the next write.
        let Ok(space) = rustix::fs::statvfs(folder) else {
            return;
        };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let low = free < min_free_bytes;
        if low != self.low.swap(low, Ordering::Relaxed) {
            if low {
                tracing::error!(
                    free,
                    min_free_bytes,
                    "the disk is low: publishes are refused"
                );
            } else {
                tracing::info!(free, "there is disk space again: publishes are taken");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_decides() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, file) = (Disk::default(), folder.path().join("quita.db"));
        disk.glance(&file, u64::MAX);
        assert!(disk.is_low());
        disk.glance(&file, 0);
        assert!(!disk.is_low());
        disk.glance(Path::new("/nowhere/quita.db"), u64::MAX);
        assert!(!disk.is_low());
    }
}
