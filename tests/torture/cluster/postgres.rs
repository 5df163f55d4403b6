//! A PostgreSQL server that faults happen to.

use super::LACKS;
use super::process::{Process, bound_to_us};
use super::replica::steady_address;
use parking_lot::Mutex;
use quita_tests::postgres::{binaries, unprivileged};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than a start takes, with the repair after a crash.
const START: Duration = Duration::from_secs(30);

/// Name of the database, and of the role that owns it and is nothing more.
const DATABASE: &str = "quita";

/// The superuser, who does what administrators do.
const ADMIN: &str = "admin";

/// A server of our own.
pub(crate) struct Postgres {
    /// Its port on 127.0.0.1.
    pub(crate) port: u16,
    /// Its data.
    pub(crate) data: PathBuf,
    bin: PathBuf,
    user: Option<(u32, u32)>,
    folder: PathBuf,
    log: PathBuf,
    process: Mutex<Option<Arc<Process>>>,
}

impl Postgres {
    /// Makes a server in `folder`, with lines for its configuration, and starts it with an empty database. What it prints goes to
    /// `log`.
    pub(crate) async fn create(folder: &Path, settings: &str, log: &Path) -> Result<Self, String> {
        let made = Self::initialise(folder, settings, log)?;
        made.start().await?;
        for sql in [
            "CREATE ROLE quita LOGIN",
            "CREATE DATABASE quita OWNER quita",
        ] {
            let done = made.execute(sql).await;
            done.map_err(|e| e.to_string())?;
        }
        Ok(made)
    }

    fn initialise(folder: &Path, settings: &str, log: &Path) -> Result<Self, String> {
        let bin = binaries().ok_or(format!(
            "{LACKS}no initdb on PATH or under /usr/lib/postgresql"
        ))?;
        std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
        // Where it is linked from elsewhere, not all of its programs are.
        let bin = bin.join("initdb").canonicalize().ok();
        let bin = bin
            .as_deref()
            .and_then(Path::parent)
            .ok_or("initdb is gone")?;
        let made = Self {
            port: steady_address().port(),
            data: folder.join("data"),
            user: unprivileged(folder),
            bin: bin.to_owned(),
            folder: folder.to_owned(),
            log: log.to_owned(),
            process: Mutex::new(None),
        };
        let mut initdb = made.tool("initdb");
        initdb.args(["-U", ADMIN, "-A", "trust", "-E", "UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "-D"]).arg(&made.data);
        run(&mut initdb)?;
        let common = "listen_addresses = '127.0.0.1'\nmax_connections = 200\nshared_buffers = 64MB\n\
            autovacuum_naptime = 5s\nrestart_after_crash = on\nlog_min_messages = warning\n";
        let file = made.data.join("postgresql.auto.conf");
        std::fs::write(file, format!("{common}{settings}")).map_err(|e| e.to_string())?;
        Ok(made)
    }

    /// One of PostgreSQL's programs, run as the server is.
    pub(crate) fn tool(&self, name: &str) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(self.bin.join(name));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/");
        command
    }

    /// Lets a program run as the server does.
    pub(crate) fn run_as_its_user(&self, command: &mut tokio::process::Command) {
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/");
    }

    /// URL of the database, through this port.
    pub(crate) fn url(port: u16) -> String {
        format!("postgres://{DATABASE}@127.0.0.1:{port}/{DATABASE}")
    }

    /// Starts it, and waits until it takes connections.
    pub(crate) async fn start(&self) -> Result<Duration, String> {
        let began = Instant::now();
        loop {
            let process = self.spawn()?;
            while !process.has_ended() {
                if self.answers().await {
                    return Ok(began.elapsed());
                }
                if began.elapsed() > START {
                    return Err(self.last_words("does not take connections"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // Backends of a killed postmaster hold its memory until they see that it is gone.
            if began.elapsed() > START {
                return Err(self.last_words("ends at its start"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Makes a standby of it in `folder`, and starts it. With `every_commit` the server answers no commit before the standby has
    /// it.
    pub(crate) async fn standby(
        &self,
        folder: &Path,
        log: &Path,
        every_commit: bool,
    ) -> Result<Self, String> {
        std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
        unprivileged(folder);
        let made = Self {
            port: steady_address().port(),
            data: folder.join("data"),
            bin: self.bin.clone(),
            user: self.user,
            folder: folder.to_owned(),
            log: log.to_owned(),
            process: Mutex::new(None),
        };
        let mut copy = made.tool("pg_basebackup");
        let primary = self.port.to_string();
        copy.args(["-h", "127.0.0.1", "-U", ADMIN, "-p", &primary, "-R"]);
        copy.args(["-c", "fast", "-D"]).arg(&made.data);
        run(&mut copy)?;
        made.start().await?;
        if every_commit {
            for sql in [
                "ALTER SYSTEM SET synchronous_standby_names = '*'",
                "SELECT pg_reload_conf()",
            ] {
                self.execute(sql).await.map_err(|e| e.to_string())?;
            }
        }
        Ok(made)
    }

    /// A standby's process that takes what its primary sends.
    pub(crate) async fn receiver(&self) -> Result<i32, String> {
        let began = Instant::now();
        while began.elapsed() < START {
            let sql = "SELECT pid FROM pg_stat_wal_receiver WHERE status = 'streaming'";
            if let Some(pid) = self.pids(sql).await.map_err(|e| e.to_string())?.first() {
                return Ok(*pid);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("the standby receives nothing".to_owned())
    }

    /// Makes a standby the server. It may be starting anew, if its receiver was killed.
    pub(crate) async fn promote(&self) -> Result<(), String> {
        let began = Instant::now();
        while let Err(why) = self.execute("SELECT pg_promote()").await {
            if began.elapsed() > START {
                return Err(format!("the standby is not promoted: {why}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until it takes connections again.
    pub(crate) async fn until_ready(&self) -> Result<(), String> {
        let began = Instant::now();
        while !self.answers().await {
            if began.elapsed() > START {
                return Err(self.last_words("does not take connections"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Arc<Process>, String> {
        let mut command = bound_to_us(&self.bin.join("postgres"));
        command.arg("-D").arg(&self.data);
        command.arg("-k").arg(&self.folder);
        command
            .args(["-p", &self.port.to_string()])
            .current_dir("/");
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        let process = Process::start(command, &self.log, |_| {});
        let process = Arc::new(process.map_err(|e| e.to_string())?);
        *self.process.lock() = Some(process.clone());
        Ok(process)
    }

    async fn answers(&self) -> bool {
        let connecting = self.connect();
        let connected = tokio::time::timeout(Duration::from_secs(2), connecting).await;
        matches!(connected, Ok(Ok(_)))
    }

    async fn connect(&self) -> sqlx::Result<PgConnection> {
        let port = self.port;
        PgConnection::connect(&format!("postgres://{ADMIN}@127.0.0.1:{port}/postgres")).await
    }

    /// Does what an administrator does.
    pub(crate) async fn execute(&self, sql: &str) -> sqlx::Result<()> {
        let mut connection = self.connect().await?;
        let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
        statement.execute(&mut connection).await?;
        connection.close().await
    }

    /// Kills it with everything that belongs to it, as a power cut does.
    pub(crate) async fn kill_all(&self) -> Result<(), String> {
        let process = self.process.lock().clone();
        let process = process.ok_or("PostgreSQL does not run")?;
        let path = format!("/proc/{0}/task/{0}/children", process.pid);
        process.signal(Signal::STOP);
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        for child in children.filter_map(Pid::from_raw) {
            // One that ended meanwhile is gone as wanted.
            let _ = kill_process(child, Signal::KILL);
        }
        process.signal(Signal::KILL);
        let ended = process.end_within(START).await;
        ended.map(drop).ok_or("PostgreSQL does not end".to_owned())
    }

    /// What a power cut leaves, and a start would take for a server that runs.
    pub(crate) fn remove_locks(&self) {
        let port = self.port;
        for name in [
            "data/postmaster.pid".to_owned(),
            format!(".s.PGSQL.{port}"),
            format!(".s.PGSQL.{port}.lock"),
        ] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
    }

    /// Process ids of the backends that serve quita.
    pub(crate) async fn backends(&self) -> sqlx::Result<Vec<i32>> {
        self.pids("SELECT pid FROM pg_stat_activity WHERE datname = 'quita' ORDER BY pid")
            .await
    }

    async fn pids(&self, sql: &'static str) -> sqlx::Result<Vec<i32>> {
        let mut connection = self.connect().await?;
        let pids = sqlx::query_scalar(sql).fetch_all(&mut connection).await?;
        connection.close().await?;
        Ok(pids)
    }

    /// Sends a signal to the postmaster and waits for its end: INT closes connections in order, QUIT and KILL do not.
    pub(crate) async fn stop(&self, signal: Signal) -> bool {
        let process = self.process.lock().clone();
        let Some(process) = process else { return false };
        process.signal(signal) && process.end_within(START).await.is_some()
    }

    fn last_words(&self, what: &str) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.len().saturating_sub(600);
        format!("PostgreSQL {what}: {}", log.get(from..).unwrap_or_default())
    }
}

/// Runs a program to its end, which must be a good one.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|e| format!("{name}: {e}"))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ))
    }
}
