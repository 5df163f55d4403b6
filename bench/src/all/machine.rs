//! The machine that the figures belong to.

use crate::Outcome;
use crate::fresh::Store;
use crate::postgres;
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use std::fs::read_to_string;
use std::path::Path;

/// Settings of PostgreSQL that the figures depend on.
const SETTINGS: [&str; 8] = [
    "server_version",
    "fsync",
    "synchronous_commit",
    "wal_sync_method",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "max_connections",
];

#[derive(Serialize)]
pub(super) struct Machine {
    cpu: String,
    cores: usize,
    memory_mib: u64,
    kernel: String,
    file_system: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    postgres: Vec<(&'static str, String)>,
}

impl Machine {
    /// Looks at this machine. `directory` is where stores are made.
    pub(super) async fn look(directory: &Path, stores: &[Store]) -> Outcome<Self> {
        let memory_kib = field(&read_to_string("/proc/meminfo")?, "MemTotal");
        let mut postgres = Vec::new();
        if stores.contains(&Store::Postgres) {
            let database = postgres::database().await?;
            let mut connection = PgConnection::connect(&database.url).await?;
            for name in SETTINGS {
                let value = sqlx::query_scalar("SELECT current_setting($1)")
                    .bind(name)
                    .fetch_one(&mut connection)
                    .await?;
                postgres.push((name, value));
            }
            connection.close().await?;
            database.drop().await;
        }
        Ok(Self {
            cpu: field(&read_to_string("/proc/cpuinfo")?, "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism()?.get(),
            memory_mib: memory_kib
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            kernel: read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            file_system: file_system(
                &read_to_string("/proc/self/mounts")?,
                &directory.canonicalize()?,
            ),
            postgres,
        })
    }

    /// A list in Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut lines = vec![
            format!(
                "- {}, {} cores, {} MiB of memory, Linux {}, stores on {}",
                self.cpu, self.cores, self.memory_mib, self.kernel, self.file_system
            ),
            "- load and server share the machine".to_owned(),
        ];
        if !self.postgres.is_empty() {
            let setting = |(name, value): &(&str, String)| format!("`{name}` {value}");
            let settings: Vec<String> = self.postgres.iter().map(setting).collect();
            lines.push(format!(
                "- PostgreSQL over TCP on the loopback interface: {}",
                settings.join(", ")
            ));
        }
        lines.join("\n") + "\n"
    }
}

/// The text behind the first `name` and a colon.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Kind and options of the file system that holds `path`: the mount with the longest path above it, the last of several.
fn file_system(mounts: &str, path: &Path) -> String {
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, at, kind, options) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        path.starts_with(at)
            .then(|| (at.len(), format!("{kind} ({device}, {options})")))
    });
    mounted
        .max_by_key(|(length, _)| *length)
        .map_or_else(String::new, |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/b /srv xfs rw,noatime 0 0\n/dev/c /srv/other btrfs rw 0 0\n";
        let of = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(of("/srv/quita"), "xfs (/dev/b, rw,noatime)");
        assert_eq!(of("/home"), "ext4 (/dev/a, rw)");
    }
}
