//! Every setting: meaning, unit, default and bounds. The doc comments here are what `quita serve --help` prints.
//!
//! A setting comes from the command line or from the environment, never from anywhere else, and is read once at the start.

#![expect(
    clippy::doc_markdown,
    reason = "the help on a terminal shows back-quotes and brackets as they are"
)]

mod cors;
pub mod dev;
mod limits;
pub mod tls;

pub use cors::CorsConfig;
pub use limits::LimitConfig;

use crate::open_files;
use clap::{ArgAction, Args, ValueEnum};
use quita_storage::backend::Keep;
use quita_storage::coalescer::Limits;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Connections that are open at once unless the operating system allows less.
const MOST_CONNECTIONS: usize = 10_000;
/// Descriptors kept for the store, its pool, logs and the answers to connections over the cap.
const OTHER_DESCRIPTORS: u64 = 256;

/// Which store, and how to log: what every subcommand needs.
#[derive(Args, Clone)]
pub struct StoreConfig {
    /// Folder for the SQLite file and the first key. Made with mode 0700 when it is not there
    #[arg(
        long,
        env = "QUITA_DATA_DIR",
        default_value = "./quita-data",
        value_name = "FOLDER"
    )]
    pub data_dir: PathBuf,

    /// The store: postgres://user:password@host/database or sqlite://path. Without it, quita.db in the data folder
    #[arg(
        long,
        env = "QUITA_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub database_url: Option<String>,

    /// What is logged: error, warn, info, debug, trace, or a list such as info,quita_api=debug. No level shows keys, tokens,
    /// receipts or messages; libraries that see them (hyper, rustls, sqlx_core and the like) log info and above at most
    #[arg(
        long,
        env = "QUITA_LOG_LEVEL",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log_level: String,

    /// How it is logged, always to standard error
    #[arg(long, env = "QUITA_LOG_FORMAT", default_value = "plain", value_enum)]
    pub log_format: LogFormat,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Plain,
    /// One JSON object per line
    Json,
}

/// Settings of the server.
#[derive(Args, Clone)]
pub struct Config {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "QUITA_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,

    /// Address and port of a second listener with /healthz, /readyz and /metrics alone, plain HTTP and without a key: for
    /// probes and collectors, where callers do not reach it. It answers until the server has stopped
    #[arg(long, env = "QUITA_INNER_LISTEN", value_name = "ADDRESS")]
    pub inner_listen: Option<SocketAddr>,

    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would take a comment here for the help of the whole group"
    )]
    pub tls: tls::TlsSettings,

    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would take a comment here for the help of the whole group"
    )]
    pub store: StoreConfig,

    /// Where the first admin key is written at the first start on an empty store, with mode 0600; a key that already lies
    /// there is used instead of a new one. Without it, admin.key in the data folder
    #[arg(long, env = "QUITA_ADMIN_KEY_FILE", value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,

    /// The first admin key of an empty store, as `quita key generate` prints it; no file is written then. Give it in the
    /// environment: a command line can be read by others
    #[arg(
        long,
        env = "QUITA_ADMIN_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub admin_key: Option<String>,

    /// File with the issuers whose tokens (JWT) are taken beside API keys: TOML, or JSON with the ending .json. Without it
    /// no token is taken. `quita token check` tells why one is refused
    #[arg(long, env = "QUITA_JWT_ISSUERS", value_name = "FILE")]
    pub jwt_issuers: Option<PathBuf>,

    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would take a comment here for the help of the whole group"
    )]
    pub cors: CorsConfig,

    /// Publishing to an unknown queue creates it
    #[arg(long, env = "QUITA_AUTO_CREATE_QUEUES", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub auto_create_queues: bool,

    /// Connections open at once, 1 to 1,000,000; beyond them a connection is answered 503 `overloaded` and closed. Without
    /// it, 10,000 or what the limit on open files leaves
    #[arg(long, env = "QUITA_MAX_CONNECTIONS", value_parser = count(1, 1_000_000), value_name = "NUMBER")]
    pub max_connections: Option<u64>,

    /// Receives that may wait at once, 1 to 1,000,000; beyond them one is answered 503 `overloaded`
    #[arg(long, env = "QUITA_MAX_WAITING_RECEIVES", default_value_t = 10_000, value_parser = count(1, 1_000_000), value_name = "NUMBER")]
    pub max_waiting_receives: u64,

    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would take a comment here for the help of the whole group"
    )]
    pub limits: LimitConfig,

    /// Publishes, and receives, that may wait for a commit, 1 to 1,000,000; settles may be four times as many. Beyond them
    /// a request is answered 503 `overloaded`
    #[arg(long, env = "QUITA_MAX_WAITING_ITEMS", default_value_t = 10_000, value_parser = count(1, 1_000_000), value_name = "NUMBER")]
    pub max_waiting_items: u64,

    /// Bytes that may wait for a commit, 16 MiB to 64 GiB
    #[arg(long, env = "QUITA_MAX_WAITING_BYTES", default_value_t = 256 << 20, value_parser = count(16 << 20, 64 << 30), value_name = "BYTES")]
    pub max_waiting_bytes: u64,

    /// Disk space below which a publish is answered 507 `disk_low`, 0 to 1 TiB
    #[arg(long, env = "QUITA_MIN_FREE_BYTES", default_value_t = 64 << 20, value_parser = count(0, 1 << 40), value_name = "BYTES")]
    pub min_free_bytes: u64,

    /// Seconds in which the head of a request must have come, 0.05 to 3,600; then the connection is closed
    #[arg(long, env = "QUITA_HEADER_TIMEOUT_SECONDS", default_value = "10", value_parser = seconds::<50>, value_name = "SECONDS")]
    pub header_timeout_seconds: Duration,

    /// Seconds in which the body of a request must have come, 0.05 to 3,600
    #[arg(long, env = "QUITA_BODY_TIMEOUT_SECONDS", default_value = "30", value_parser = seconds::<50>, value_name = "SECONDS")]
    pub body_timeout_seconds: Duration,

    /// Seconds that a connection may rest between two requests, 0.05 to 3,600
    #[arg(long, env = "QUITA_IDLE_TIMEOUT_SECONDS", default_value = "75", value_parser = seconds::<50>, value_name = "SECONDS")]
    pub idle_timeout_seconds: Duration,

    /// Seconds that a client may take nothing of an answer, 0.05 to 3,600; then the connection is closed and messages in
    /// that answer are given back
    #[arg(long, env = "QUITA_WRITE_STALL_SECONDS", default_value = "30", value_parser = seconds::<50>, value_name = "SECONDS")]
    pub write_stall_seconds: Duration,

    /// Header lines of a request, 10 to 1,000; more are answered 431
    #[arg(long, env = "QUITA_MAX_HEADERS", default_value_t = 100, value_parser = count(10, 1_000), value_name = "NUMBER")]
    pub max_headers: u64,

    /// Bytes of a request's line and headers together, 8 KiB to 1 MiB; more are answered 431
    #[arg(long, env = "QUITA_MAX_HEADER_BYTES", default_value_t = 64 << 10, value_parser = count(8 << 10, 1 << 20), value_name = "BYTES")]
    pub max_header_bytes: u64,

    /// Seconds between the signal to stop and the end of accepting, 0 to 3,600: the time that load balancers need to see
    /// that /readyz says 503. 5 is good in Kubernetes
    #[arg(long, env = "QUITA_DRAIN_DELAY_SECONDS", default_value = "0", value_parser = seconds::<0>, value_name = "SECONDS")]
    pub drain_delay_seconds: Duration,

    /// Seconds that requests in flight have to finish after that, 0.05 to 3,600
    #[arg(long, env = "QUITA_DRAIN_DEADLINE_SECONDS", default_value = "20", value_parser = seconds::<50>, value_name = "SECONDS")]
    pub drain_deadline_seconds: Duration,

    /// Days that the audit trail is kept, and with it redrives that are over and what is left of discarded dead letters, 1
    /// to 3,650
    #[arg(long, env = "QUITA_AUDIT_RETENTION_DAYS", default_value_t = 400, value_parser = count(1, 3_650), value_name = "DAYS")]
    pub audit_retention_days: u64,

    /// Threads that serve requests, 1 to 1,024. Without it, one per core
    #[arg(long, env = "QUITA_WORKER_THREADS", value_parser = count(1, 1_024), value_name = "NUMBER")]
    pub worker_threads: Option<u64>,

    #[command(flatten)]
    #[allow(
        missing_docs,
        reason = "clap would take a comment here for the help of the whole group"
    )]
    pub dev: dev::DevSettings,
}

impl StoreConfig {
    /// The URL of the store.
    pub fn url(&self) -> String {
        self.database_url
            .clone()
            .unwrap_or_else(|| format!("sqlite://{}", self.data_dir.join("quita.db").display()))
    }

    /// The URL without its password.
    pub fn shown_url(&self) -> String {
        mask(&self.url())
    }

    /// The SQLite file, when the store is one.
    pub fn sqlite_file(&self) -> Option<PathBuf> {
        let url = self.url();
        let path = url.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        Some(path.split('?').next().unwrap_or(path).into())
    }
}

impl Config {
    /// Where the first key is written.
    pub fn key_file(&self) -> PathBuf {
        self.admin_key_file
            .clone()
            .unwrap_or_else(|| self.store.data_dir.join("admin.key"))
    }

    /// Connections that may be open at once. Raises the soft limit on open files as far as the hard one lets it.
    pub fn connection_cap(&self) -> usize {
        let wanted = self
            .max_connections
            .map_or(MOST_CONNECTIONS, |n| n as usize);
        let needed = wanted as u64 + OTHER_DESCRIPTORS;
        let cap = open_files::raise_to(needed)
            .saturating_sub(OTHER_DESCRIPTORS)
            .max(16) as usize;
        if cap < wanted && self.max_connections.is_some() {
            tracing::warn!(
                wanted,
                cap,
                "the limit on open files allows fewer connections"
            );
        }
        wanted.min(cap)
    }

    /// Bounds of what may wait for a commit.
    pub fn waiting(&self) -> Limits {
        Limits {
            items: self.max_waiting_items as usize,
            bytes: self.max_waiting_bytes as usize,
        }
    }

    /// How long records are kept.
    pub fn keep(&self) -> Keep {
        Keep {
            audit_ms: self.audit_retention_days as i64 * 86_400_000,
        }
    }

    /// A URL at which this machine reaches a server that listens on `bound`, with TLS or without.
    pub fn local_url(bound: SocketAddr, tls: bool) -> String {
        let ip = match bound.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        let scheme = if tls { "https" } else { "http" };
        format!("{scheme}://{}", SocketAddr::new(ip, bound.port()))
    }
}

impl Default for Config {
    /// What a command line without arguments and an empty environment say.
    fn default() -> Self {
        use clap::{Command, FromArgMatches};
        let command =
            Self::augment_args(Command::new("quita")).mut_args(|arg| arg.env(None::<&str>));
        let matches = command.get_matches_from(["quita"]);
        #[expect(clippy::expect_used, reason = "every setting has a default")]
        Self::from_arg_matches(&matches).expect("every setting has a default")
    }
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("data_dir", &self.data_dir)
            .field("database_url", &self.shown_url())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// A URL with its password replaced, wherever it stands.
fn mask(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut shown = match (base.find("://"), base.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            let user = base[scheme + 3..at].split(':').next().unwrap_or_default();
            let secret = if base[scheme + 3..at].contains(':') {
                ":***"
            } else {
                ""
            };
            format!("{}{user}{secret}{}", &base[..scheme + 3], &base[at..])
        }
        // No URL that anything understands; what stands before the host may be a password all the same.
        (_, Some(at)) => format!("***{}", &base[at..]),
        _ => base.to_owned(),
    };
    if !query.is_empty() {
        let parts: Vec<String> = query
            .split('&')
            .map(|part| match part.split_once('=') {
                Some((name, _)) if name.to_ascii_lowercase().contains("password") => {
                    format!("{name}=***")
                }
                _ => part.to_owned(),
            })
            .collect();
        shown.push('?');
        shown.push_str(&parts.join("&"));
    }
    shown
}

fn count(least: u64, most: u64) -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(least..=most)
}

/// Seconds, decimals allowed, from `LEAST_MS` milliseconds to an hour.
fn seconds<const LEAST_MS: u64>(text: &str) -> Result<Duration, String> {
    let least = LEAST_MS as f64 / 1e3;
    match text.parse::<f64>() {
        Ok(n) if n >= least && n <= 3_600.0 => Ok(Duration::from_secs_f64(n)),
        _ => Err(format!(
            "a number of seconds from {least} to 3600 is needed"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_contract() {
        let config = Config::default();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.store.url(), "sqlite://./quita-data/quita.db");
        assert_eq!(config.key_file(), PathBuf::from("./quita-data/admin.key"));
        assert_eq!(config.header_timeout_seconds, Duration::from_secs(10));
        assert_eq!(config.drain_delay_seconds, Duration::ZERO);
        assert_eq!(config.min_free_bytes, 67_108_864);
        assert_eq!(config.keep(), Keep::default());
        assert!(config.auto_create_queues && config.connection_cap() >= 16);
    }

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("postgres://u:p%40@h/db", "postgres://u:***@h/db"),
            ("postgres://u:p@ss@h:5432/db", "postgres://u:***@h:5432/db"),
            (
                "postgres://h/db?user=u&password=p",
                "postgres://h/db?user=u&password=***",
            ),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("sqlite://./x.db", "sqlite://./x.db"),
            ("u:p@h/db", "***@h/db"),
            ("postgres:u:p@h/db", "***@h/db"),
        ] {
            assert_eq!(mask(url), shown);
        }
        let mut config = Config::default();
        config.store.database_url = Some("postgres://u:geheim@h/db".into());
        config.admin_key = Some("qta_geheim".into());
        assert!(!format!("{config:?}").contains("geheim"));
    }

    #[test]
    fn a_time_out_has_bounds_and_takes_decimals() {
        assert_eq!(seconds::<50>("0.2"), Ok(Duration::from_millis(200)));
        for text in ["0", "-1", "NaN", "3601", "10s", ""] {
            assert!(seconds::<50>(text).is_err());
        }
    }

    #[test]
    fn the_sqlite_file_is_read_from_its_url() {
        let mut config = Config::default();
        assert_eq!(
            config.store.sqlite_file(),
            Some("./quita-data/quita.db".into())
        );
        config.store.database_url = Some("sqlite:///var/lib/q.db?mode=rwc".into());
        assert_eq!(config.store.sqlite_file(), Some("/var/lib/q.db".into()));
        config.store.database_url = Some("postgres://h/db".into());
        assert_eq!(config.store.sqlite_file(), None);
    }

    #[test]
    fn a_listener_on_every_address_is_reached_on_the_local_one() {
        for (listen, tls, url) in [
            ("0.0.0.0:80", false, "http://127.0.0.1:80"),
            ("[::]:80", false, "http://[::1]:80"),
            ("0.0.0.0:443", true, "https://127.0.0.1:443"),
        ] {
            assert_eq!(Config::local_url(listen.parse().unwrap(), tls), url);
        }
    }
}
