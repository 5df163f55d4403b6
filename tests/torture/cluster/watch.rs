//! What servers use, second by second, and what they should not have printed.

use super::Cluster;
use super::process::usage;
use crate::history::{Event, Happened, History, Sample};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Looks at every server each second until it is stopped.
pub(crate) async fn watch(cluster: Arc<Cluster>, history: History) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        for replica in &cluster.replicas {
            let Some(process) = replica.running() else {
                continue;
            };
            let Some((rss_kib, fds)) = usage(process.pid) else {
                continue;
            };
            let size = |name: &str| {
                let file = replica.data.join(name);
                std::fs::metadata(file).map_or(0, |data| data.len())
            };
            history.sample(Sample {
                t: history.now(),
                replica: replica.index as u32,
                rss_kib,
                fds,
                wal_bytes: size("quita.db-wal"),
                db_bytes: size("quita.db"),
            });
        }
    }
}

/// Looks in every log for panics, and for lines that hold one of `secrets`; tells the history.
pub(crate) fn scan_logs(cluster: &Cluster, history: &History, secrets: &[String]) {
    for replica in &cluster.replicas {
        let tell = |kind, detail| {
            history.event(Event {
                kind,
                replica: Some(replica.index as u32),
                t: history.now(),
                exit: None,
                detail,
            });
        };
        let (panics, leaks) = scan(&replica.log, secrets);
        for line in panics {
            tell(Happened::Panicked, line);
        }
        for line in leaks {
            tell(Happened::Leaked, line);
        }
        tell(Happened::LogRead, String::new());
    }
}

fn scan(log: &Path, secrets: &[String]) -> (Vec<String>, Vec<String>) {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let short = |line: &str| line.chars().take(300).collect::<String>();
    let panics = text.lines().filter(|line| line.contains("panicked"));
    let leaks = text
        .lines()
        .filter(|line| secrets.iter().any(|secret| line.contains(secret)));
    (panics.map(short).collect(), leaks.map(short).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_secret_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(&log, "thread 'main' panicked at x\nall well\nkey qta_1\n").unwrap();
        let (panics, leaks) = scan(&log, &["qta_1".to_owned()]);
        assert_eq!(panics, ["thread 'main' panicked at x"]);
        assert_eq!(leaks, ["key qta_1"]);
    }
}
