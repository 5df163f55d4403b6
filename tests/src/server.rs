//! A server to test: inside the test's own process, or as a process of its own.

use crate::wire::{Answer, Wire};
use quita_api::Server;
use quita_api::auth::ApiKey;
use quita_api::config::Config;
use quita_storage::backend::Backend;
use quita_storage::memory;
use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// Longer than a start or a stop takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// File in which a process leaves what it prints.
const SAID: &str = "said";

/// A server in this process, on a port of its own.
pub struct TestServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// A key that may everything.
    pub key: String,
    /// Its store.
    pub backend: Arc<dyn Backend>,
    server: Server,
    _data: TempDir,
}

impl TestServer {
    /// On an empty memory store.
    pub async fn start() -> Self {
        Self::start_with(memory::open(), |_| {}).await
    }

    /// On this store, with settings changed by `change`.
    pub async fn start_with(backend: Arc<dyn Backend>, change: impl FnOnce(&mut Config)) -> Self {
        let data = TempDir::new().unwrap();
        let key = ApiKey::generate().unwrap().reveal().to_owned();
        let mut config = Config::default();
        config.store.data_dir = data.path().to_owned();
        config.admin_key = Some(key.clone());
        // Every test comes from one address, and many show wrong keys.
        config.limits.rate_failed_logins = 0;
        change(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let checked = quita_api::check(config, listener.local_addr().unwrap()).unwrap();
        let server = Server::start(checked, backend.clone(), listener)
            .await
            .unwrap();
        let address = server.address;
        Self {
            address,
            key,
            backend,
            server,
            _data: data,
        }
    }

    /// A new connection.
    pub async fn wire(&self) -> Wire {
        Wire::to(self.address).await
    }

    /// A POST of JSON on a connection of its own.
    pub async fn post(&self, path: &str, body: &str) -> Answer {
        let mut wire = self.wire().await;
        wire.request("POST", path, &json_headers(&self.key), body)
            .await;
        wire.answer().await
    }

    /// A GET on a connection of its own.
    pub async fn get(&self, path: &str) -> Answer {
        let mut wire = self.wire().await;
        wire.send(format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
            self.key
        ))
        .await;
        wire.answer().await
    }

    /// Stops it in order.
    pub async fn stop(self) {
        self.server.stop().await;
    }

    /// Stops it in order while the test goes on; the address and the key stay good for as long.
    pub fn stop_meanwhile(self) -> tokio::task::JoinHandle<()> {
        tokio::spawn(self.stop())
    }
}

/// Headers of a request with a JSON body.
pub fn json_headers(key: &str) -> String {
    format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\n")
}

/// The binary as a process of its own. Killed when dropped.
pub struct Process {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    said: PathBuf,
}

impl Process {
    /// Starts it on a free port with its data in `folder`, and waits until it is ready.
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, |_| {})
    }

    /// The same, with all that it prints in the file `said` of the folder.
    pub fn start_heard(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, |command| {
            let said = File::create(folder.join(SAID)).unwrap();
            command.stdout(said.try_clone().unwrap()).stderr(said);
        })
    }

    /// The same, with these variables in its environment.
    pub fn start_where(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_with(folder, arguments, |command| {
            command.envs(variables.iter().copied());
        })
    }

    /// The same, with the command changed by `change` before it runs.
    fn start_with(folder: &Path, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let address = free_address();
        let mut command = command(folder);
        command
            .arg("--listen")
            .arg(address.to_string())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        change(&mut command);
        let child = command.spawn().unwrap();
        let mut process = Self {
            address,
            child,
            said: folder.join(SAID),
        };
        let tls = arguments.contains(&"--tls-cert");
        let began = Instant::now();
        while !(if tls { healthy } else { ready })(address) {
            assert!(
                process.child.try_wait().unwrap().is_none(),
                "the server ended at its start"
            );
            assert!(began.elapsed() < PATIENCE, "the server did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, as `kill` takes it.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args(["-s", name, &self.id().to_string()])
            .status()
            .unwrap();
        assert!(done.success());
    }

    /// What it has printed, if it was started to be heard.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    /// Waits until it has printed this so many times.
    pub async fn says(&self, text: &str, times: usize) {
        let began = Instant::now();
        while self.said().matches(text).count() < times {
            assert!(
                began.elapsed() < PATIENCE,
                "{text:?} is not in\n{}",
                self.said()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the server did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary, with its data in `folder` and nothing in its environment that names another store.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(binary());
    command
        .env_clear()
        .env("QUITA_DATA_DIR", folder.join("data"))
        .current_dir(folder);
    command
}

/// [`ready`], of a server with TLS.
fn healthy(address: SocketAddr) -> bool {
    let mut health = Command::new(binary());
    let address = address.to_string();
    health
        .env_clear()
        .args(["health", "--tls-cert", "on", "--listen", &address]);
    health.output().unwrap().status.success()
}

fn ready(address: SocketAddr) -> bool {
    let Ok(mut stream) = std::net::TcpStream::connect(address) else {
        return false;
    };
    let mut answer = String::new();
    let asked = write!(
        stream,
        "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
}

/// An address that was free a moment ago.
pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Builds the binary, once per test process, and says where it is.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build(&[]))
}

/// Builds a binary that can have the known bugs and says where it is. Call it before [`binary`], which takes its place.
pub fn binary_with_bugs() -> std::io::Result<PathBuf> {
    let built = build(&["--features", "quita-api/known-bugs"]);
    let folder = built.with_file_name("known-bugs");
    std::fs::create_dir_all(&folder)?;
    let kept = folder.join("quita");
    // A link would be changed by the next build.
    let _ = std::fs::remove_file(&kept);
    std::fs::copy(built, &kept)?;
    Ok(kept)
}

fn build(more: &[&str]) -> PathBuf {
    // target/<profile>/deps/<this test>, or target/<profile>/<this program>
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        // The same packages as the tests were built with, so that nothing is compiled twice.
        "--workspace",
        "--bin",
        "quita",
    ]);
    build.args(more);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    // What cargo tells a test about its own package would make build scripts run again, and everything after them.
    for (name, _) in std::env::vars_os() {
        let own = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_CRATE_",
            "CARGO_PRIMARY_",
            "CARGO_BIN_",
        ];
        if own
            .iter()
            .any(|own| name.to_string_lossy().starts_with(own))
        {
            build.env_remove(name);
        }
    }
    assert!(
        build.status().unwrap().success(),
        "the server could not be built"
    );
    folder.join("quita")
}
