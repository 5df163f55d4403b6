//! One server: its address, its proxies, its process and its log, over many lives.

use super::process::{self, Process};
use crate::history::{Event, Happened, History};
use crate::proxy::{Mode, Proxy};
use parking_lot::Mutex;
use rustix::process::Signal;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than a start takes that succeeds at all.
pub(crate) const START: Duration = Duration::from_secs(30);

/// What a server is started with.
#[derive(Clone)]
pub(crate) struct Setup {
    /// The binary.
    pub(crate) quita: PathBuf,
    /// Its arguments, apart from address and store.
    pub(crate) arguments: Vec<String>,
    /// The first admin key.
    pub(crate) key: String,
    /// A program that runs the binary, such as `faketime` or `strace`, with its arguments.
    pub(crate) wrapper: Vec<String>,
    /// Variables of its environment.
    pub(crate) environment: Vec<(String, String)>,
}

/// A server.
pub(crate) struct Replica {
    /// From 0.
    pub(crate) index: usize,
    /// Where it listens itself.
    pub(crate) direct: SocketAddr,
    /// Between clients and it.
    pub(crate) front: Proxy,
    /// Between it and PostgreSQL.
    pub(crate) back: Option<Proxy>,
    /// Where its data lies.
    pub(crate) data: PathBuf,
    /// Everything that it printed in all its lives.
    pub(crate) log: PathBuf,
    setup: Setup,
    store: Option<String>,
    folder: PathBuf,
    process: Mutex<Option<Arc<Process>>>,
    history: History,
}

impl Replica {
    /// A server that does not run yet. Without the URL of a store it has a file of its own.
    pub(crate) async fn new(
        index: usize,
        folder: &Path,
        data: &Path,
        setup: Setup,
        store: Option<String>,
        back: Option<Proxy>,
        history: History,
    ) -> std::io::Result<Self> {
        let direct = steady_address();
        Ok(Self {
            index,
            direct,
            front: Proxy::start(direct).await?,
            back,
            data: data.join(format!("data-{index}")),
            log: folder.join(format!("replica-{index}.log")),
            setup,
            store,
            folder: folder.to_owned(),
            process: Mutex::new(None),
            history,
        })
    }

    /// Starts it, and waits until it is ready; answers how long that took.
    pub(crate) async fn start(&self) -> Result<Duration, String> {
        let began = Instant::now();
        self.spawn()?;
        self.until_ready().await?;
        let took = began.elapsed();
        self.tell(Happened::Ready, &format!("{} ms", took.as_millis()));
        Ok(took)
    }

    /// Waits until it is ready.
    pub(crate) async fn until_ready(&self) -> Result<(), String> {
        let began = Instant::now();
        while !is_ready(self.direct).await {
            if self.running().is_none() {
                return Err(format!(
                    "replica {} has ended: {}",
                    self.index,
                    self.last_line()
                ));
            }
            if began.elapsed() > START {
                return Err(format!(
                    "replica {} is not ready after {START:?}",
                    self.index
                ));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Starts it, and does not wait.
    pub(crate) fn spawn(&self) -> Result<Arc<Process>, String> {
        let setup = self.setup.clone();
        let mut command = match setup.wrapper.split_first() {
            None => process::bound_to_us(&setup.quita),
            Some((program, arguments)) => {
                let mut command = process::bound_to_us(Path::new(program));
                command.args(arguments).arg(&setup.quita);
                command
            }
        };
        command
            .env_clear()
            .env("QUITA_DATA_DIR", &self.data)
            .env("QUITA_ADMIN_KEY", &setup.key)
            .envs(setup.environment)
            .args(["--listen", &self.direct.to_string()])
            .args(&setup.arguments)
            .current_dir(&self.folder);
        if let Some(store) = &self.store {
            command.args(["--database-url", store]);
        }
        let (history, index) = (self.history.clone(), self.index);
        let process = Process::start(command, &self.log, move |status| {
            history.event(Event {
                kind: Happened::Exited,
                replica: Some(index as u32),
                t: history.now(),
                exit: status.code(),
                detail: status.to_string(),
            });
        });
        let process = Arc::new(process.map_err(|e| format!("{}: {e}", setup.quita.display()))?);
        self.tell(Happened::Started, &format!("pid {}", process.pid));
        *self.process.lock() = Some(process.clone());
        Ok(process)
    }

    fn last_line(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }

    /// Its process, if it was started and has not ended.
    pub(crate) fn running(&self) -> Option<Arc<Process>> {
        let process = self.process.lock().clone();
        process.filter(|process| !process.has_ended())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        self.running().is_some_and(|process| process.signal(signal))
    }

    /// Kills it with signal 9 and waits for its end.
    pub(crate) async fn kill(&self) {
        let Some(process) = self.running() else {
            return;
        };
        self.tell(Happened::Killed, "");
        process.signal(Signal::KILL);
        process.end_within(START).await;
    }

    /// Asks it to stop in order, and waits for its end.
    pub(crate) async fn stop(&self, patience: Duration) -> Option<ExitStatus> {
        let process = self.running()?;
        self.tell(Happened::Termed, "");
        process.signal(Signal::TERM);
        process.end_within(patience).await
    }

    /// Heals its proxies.
    pub(crate) fn heal(&self) {
        self.front.set(Mode::Pass);
        if let Some(back) = &self.back {
            back.set(Mode::Pass);
        }
    }

    fn tell(&self, kind: Happened, detail: &str) {
        self.history.event(Event {
            kind,
            replica: Some(self.index as u32),
            t: self.history.now(),
            exit: None,
            detail: detail.to_owned(),
        });
    }
}

/// Whether the server at this address says that it is ready.
pub(crate) async fn is_ready(address: SocketAddr) -> bool {
    let asked = tokio::time::timeout(Duration::from_secs(2), status(address, "/readyz"));
    matches!(asked.await, Ok(Ok(200)))
}

/// The status that a GET of `path` is answered with.
pub(crate) async fn status(address: SocketAddr, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    code.ok_or(std::io::ErrorKind::InvalidData.into())
}

/// An address that is free, with a port that no outgoing connection takes while the server is down.
pub(crate) fn steady_address() -> SocketAddr {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let base = 15_000 + u64::from(std::process::id() % 500) * 32;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 0, 0, 1], port as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
