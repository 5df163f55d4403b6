//! quita as it is deployed: its own program, its default settings, a store of its own.

use crate::Outcome;
use crate::client::{Connection, Request};
use crate::process::{Owned, free_address};
use serde_json::Value;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that is not ready by then never will be.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A running server with an empty store; both end with this value.
pub(crate) struct Quita {
    process: Owned,
    pub(crate) address: SocketAddr,
    /// The administrator's API key; empty where none is needed.
    pub(crate) key: String,
    data: TempDir,
}

impl Quita {
    /// Starts it with its data under `directory`, on PostgreSQL when there is a URL, and waits until it is ready.
    pub(crate) async fn start(
        program: &Path,
        directory: &Path,
        database_url: Option<&str>,
    ) -> Outcome<Self> {
        Self::start_with(program, directory, database_url, &[]).await
    }

    /// The same with settings that are not the default.
    pub(crate) async fn start_with(
        program: &Path,
        directory: &Path,
        database_url: Option<&str>,
        settings: &[&str],
    ) -> Outcome<Self> {
        let data = tempfile::Builder::new()
            .prefix("quita-bench-")
            .tempdir_in(directory)?;
        let address = free_address()?;
        let key_file = data.path().join("admin.key");
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            // What is measured are the defaults, whatever is set in this environment.
            if name.to_string_lossy().starts_with("QUITA_") {
                command.env_remove(name);
            }
        }
        command
            .arg("serve")
            .arg("--listen")
            .arg(address.to_string());
        command
            .arg("--data-dir")
            .arg(data.path())
            .arg("--admin-key-file")
            .arg(&key_file)
            .args(settings);
        if let Some(url) = database_url {
            command.arg("--database-url").arg(url);
        }
        let log = data.path().join("server.log");
        let output = std::fs::File::create(&log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut process = Owned::start(&mut command)?;
        let start = Instant::now();
        while !is_ready(address).await {
            if process.ended() || start.elapsed() > READY_WITHIN {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{} does not become ready\n{log}", program.display()).into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let key = match std::fs::read_to_string(&key_file) {
            Ok(key) => key.trim().to_owned(),
            // A second server on one store gets its key from who started it; an open one has none.
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            process,
            address,
            key,
            data,
        })
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.data.path()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Makes a queue with the default policy.
    pub(crate) async fn create(&self, queue: &str) -> Outcome<()> {
        self.call("PUT", &format!("/v1/queues/{queue}"), "{}")
            .await?;
        Ok(())
    }

    /// One request as the administrator; its answer must be a success.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> Outcome<Value> {
        let key = (!self.key.is_empty()).then_some(self.key.as_str());
        let request = Request::new(method, path, key, body);
        let mut connection = Connection::open(self.address).await?;
        let answer = connection.call(request.bytes()).await?;
        if answer.status / 100 != 2 {
            return Err(answer.unexpected().into());
        }
        Ok(serde_json::from_slice(answer.body)?)
    }
}

async fn is_ready(address: SocketAddr) -> bool {
    let Ok(mut connection) = Connection::open(address).await else {
        return false;
    };
    let request = Request::new("GET", "/readyz", None, "");
    connection
        .call(request.bytes())
        .await
        .is_ok_and(|answer| answer.status == 200)
}

/// The server to measure: `given`, or the release build of this workspace, brought up to date where there is a workspace
/// and a cargo, else as it lies beside this program.
pub(crate) fn program(given: Option<PathBuf>) -> Outcome<PathBuf> {
    if let Some(program) = given {
        return Ok(program);
    }
    let myself = std::env::current_exe()?;
    let beside = myself
        .parent()
        .and_then(Path::parent)
        .ok_or("no target directory")?
        .join("release/quita");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    if manifest.exists() {
        eprintln!("building the server");
        let mut cargo = Command::new("cargo");
        // With this crate selected as well, features are those of the present build and nothing is compiled twice.
        cargo.args([
            "build",
            "--quiet",
            "--release",
            "-p",
            "quita-api",
            "-p",
            "quita-bench",
            "--bin",
            "quita",
        ]);
        match cargo.arg("--manifest-path").arg(manifest).status() {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("cargo build: {status}").into()),
            Err(error) if beside.exists() => {
                eprintln!("no cargo ({error}): taking {}", beside.display());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(beside)
}
