//! The processes of the demo: this program again, as the server and as workers.

use super::Outcome;
use super::worker::Report;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// A server that is not ready by then never will be.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Longer than a worker's last long poll and its last charge.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// The queue server as a child process.
pub(super) struct Server {
    data: PathBuf,
    database_url: Option<String>,
    address: SocketAddr,
    child: Child,
    key: String,
}

impl Server {
    /// Starts it on a free port with its data in `data`, and waits until it is ready.
    pub(super) async fn start(data: &Path, database_url: Option<&str>) -> Outcome<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        // A database may have keys already, and then the server makes none.
        let made_key = match database_url {
            Some(url) => manage_keys(data, url, &["create", "--description", "quita demo"]).await?,
            None => String::new(),
        };
        let mut server = Self {
            data: data.to_owned(),
            database_url: database_url.map(str::to_owned),
            address,
            child: launch(data, database_url, address)?,
            key: made_key,
        };
        server.ready().await?;
        if database_url.is_none() {
            let written = std::fs::read_to_string(key_file(data))?;
            server.key.push_str(written.trim());
        }
        Ok(server)
    }

    /// Base URL.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// An API key with every right.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// kill −9.
    pub(super) async fn kill(&mut self) -> Outcome<()> {
        Ok(self.child.kill().await?)
    }

    /// Starts it again on the same store and the same port.
    pub(super) async fn restart(&mut self) -> Outcome<()> {
        self.child = launch(&self.data, self.database_url.as_deref(), self.address)?;
        self.ready().await
    }

    /// Stops it as an operator would, and revokes a key that was made for it.
    pub(super) async fn stop(mut self) -> Outcome<()> {
        terminate(&mut self.child).await?;
        if let Some(url) = &self.database_url {
            // A key's second word is its id, which may be shown.
            let id = self.key.split('_').nth(1).unwrap_or_default();
            manage_keys(&self.data, url, &["revoke", id]).await?;
        }
        Ok(())
    }

    async fn ready(&mut self) -> Outcome<()> {
        let start = Instant::now();
        let client = super::client::Client::new(&self.url(), None)?;
        while start.elapsed() < READY_WITHIN && self.child.try_wait()?.is_none() {
            let reply = client
                .once(http::Method::GET, "/readyz", &serde_json::Value::Null)
                .await;
            if reply.is_ok_and(|reply| reply.status.is_success()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let log = std::fs::read_to_string(log_file(&self.data)).unwrap_or_default();
        Err(format!("the server does not come up:\n{log}").into())
    }
}

fn launch(data: &Path, database_url: Option<&str>, address: SocketAddr) -> Outcome<Child> {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(log_file(data))?;
    let mut command = program(database_url)?;
    command
        .arg("serve")
        .arg("--listen")
        .arg(address.to_string());
    command
        .arg("--data-dir")
        .arg(data)
        .arg("--admin-key-file")
        .arg(key_file(data));
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true);
    Ok(command.spawn()?)
}

async fn manage_keys(data: &Path, database_url: &str, words: &[&str]) -> Outcome<String> {
    let mut command = program(Some(database_url))?;
    command.arg("key").args(words).arg("--data-dir").arg(data);
    let output = command.output().await?;
    if !output.status.success() {
        return Err(format!("quita key: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// This program, on the database of the demo and without the settings of a real server that may be set around it.
fn program(database_url: Option<&str>) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUITA_") {
            command.env_remove(name);
        }
    }
    if let Some(url) = database_url {
        // Not an argument: the URL may hold a password, and arguments can be read by everybody on the machine.
        command.env("QUITA_DATABASE_URL", url);
    }
    Ok(command)
}

fn key_file(data: &Path) -> PathBuf {
    data.join("admin.key")
}

fn log_file(data: &Path) -> PathBuf {
    data.join("server.log")
}

/// What the workers reported so far, added up over all of them.
#[derive(Debug, Default)]
pub(super) struct Reports([AtomicU64; Report::ALL.len()]);

impl Reports {
    pub(super) fn count(&self, report: Report) -> u64 {
        self.0[report as usize].load(Ordering::Relaxed)
    }
}

/// How to start a worker.
pub(super) struct Recipe {
    pub(super) server: String,
    pub(super) gateway: String,
    pub(super) queue: String,
    pub(super) key: String,
    pub(super) slots: u32,
    pub(super) reports: Arc<Reports>,
}

/// A worker process.
pub(super) struct WorkerProcess {
    pub(super) name: String,
    child: Child,
    reader: JoinHandle<()>,
}

impl WorkerProcess {
    /// Starts the n-th worker.
    pub(super) fn start(recipe: &Recipe, number: u32) -> Outcome<Self> {
        let name = format!("worker-{number}");
        let mut command = program(None)?;
        command
            .arg("demo-worker")
            .args(["--server", &recipe.server, "--gateway", &recipe.gateway]);
        command.args([
            "--queue",
            &recipe.queue,
            "--name",
            &name,
            "--slots",
            &recipe.slots.to_string(),
        ]);
        command.env("QUITA_DEMO_KEY", &recipe.key);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(
            child
                .stdout
                .take()
                .ok_or("a worker without standard output")?,
        )
        .lines();
        let reports = Arc::clone(&recipe.reports);
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(report) = Report::parse(&line) {
                    reports.0[report as usize].fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self {
            name,
            child,
            reader,
        })
    }

    /// kill −9: everything it holds stays leased. What it reported before is counted.
    pub(super) async fn kill(mut self) -> Outcome<()> {
        self.child.kill().await?;
        Ok(self.reader.await?)
    }

    /// SIGTERM, without waiting.
    pub(super) fn ask_to_stop(&self) -> Outcome<()> {
        send_terminate(&self.child)
    }

    /// SIGTERM, and waits for the end, which must be a success.
    pub(super) async fn stop(mut self) -> Outcome<()> {
        let status = terminate(&mut self.child).await?;
        self.reader.await?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{} ended with {status}", self.name).into())
        }
    }
}

fn send_terminate(child: &Child) -> Outcome<()> {
    let pid = child
        .id()
        .and_then(|id| Pid::from_raw(id.cast_signed()))
        .ok_or("a process ended early")?;
    Ok(kill_process(pid, Signal::TERM)?)
}

async fn terminate(child: &mut Child) -> Outcome<std::process::ExitStatus> {
    if child.try_wait()?.is_none() {
        send_terminate(child)?;
    }
    let ended = tokio::time::timeout(STOP_WITHIN, child.wait()).await;
    Ok(ended.map_err(|_| "a process does not stop")??)
}
