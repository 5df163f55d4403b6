//! Clocks of servers that go wrong, by libfaketime: the second is an hour ahead, the third an hour behind.

use std::path::{Path, PathBuf};

const PLACES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
];

/// How far each server's clock is off is in a file of its own, which it reads again each second.
pub(crate) struct Clocks {
    library: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    /// For `count` servers, or what is missing.
    pub(crate) fn create(folder: &Path, count: usize) -> Result<Self, String> {
        let library = PLACES
            .into_iter()
            .map(PathBuf::from)
            .find(|at| at.is_file());
        let clocks = Self {
            library: library.ok_or("no libfaketime")?,
            folder: folder.to_owned(),
        };
        for which in 0..count {
            let off = [0, 3_600, -3_600][which % 3];
            clocks.set(which, off).map_err(|e| e.to_string())?;
        }
        Ok(clocks)
    }

    /// What has to be in the environment of a server. Its monotonic clock is right.
    pub(crate) fn environment(&self, which: usize) -> Vec<(String, String)> {
        let file = self.file(which);
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Seconds that a server's clock is off.
    pub(crate) fn offset(&self, which: usize) -> i64 {
        let text = std::fs::read_to_string(self.file(which)).unwrap_or_default();
        text.trim().trim_start_matches('+').parse().unwrap_or(0)
    }

    /// Sets a server's clock wrong by so many seconds.
    pub(crate) fn set(&self, which: usize, seconds: i64) -> std::io::Result<()> {
        // Exchanged as a whole: half a number would be another one.
        let new = self.folder.join(format!("clock-{which}.new"));
        std::fs::write(&new, format!("{seconds:+}\n"))?;
        std::fs::rename(new, self.file(which))
    }

    fn file(&self, which: usize) -> PathBuf {
        self.folder.join(format!("clock-{which}"))
    }
}
