//! One process of ours, known by its id from its start to its end.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::watch;

/// A process. Killed with this value, or with us.
pub(crate) struct Process {
    /// Its id.
    pub(crate) pid: u32,
    ended: watch::Receiver<Option<ExitStatus>>,
    _alive: tokio::sync::oneshot::Sender<()>,
}

impl Process {
    /// Starts it; what it prints is added to `log`. `on_end` is called once, with how it ended.
    pub(crate) fn start(
        mut command: Command,
        log: &Path,
        on_end: impl FnOnce(ExitStatus) + Send + 'static,
    ) -> io::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let mut child = command.kill_on_drop(true).spawn()?;
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        let (tell, ended) = watch::channel(None);
        let (alive, dropped) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(async move {
            let status = tokio::select! {
                status = child.wait() => status,
                _ = dropped => {
                    let _ = child.start_kill();
                    child.wait().await
                }
            };
            if let Ok(status) = status {
                on_end(status);
                tell.send_replace(Some(status));
            }
        });
        Ok(Self {
            pid,
            ended,
            _alive: alive,
        })
    }

    /// Sends a signal, unless it has ended: its id may be somebody else's by then.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        if self.has_ended() {
            return false;
        }
        let pid = Pid::from_raw(self.pid as i32);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Whether it is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Waits for its end; `None` when it does not come in time.
    pub(crate) async fn end_within(&self, patience: Duration) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        let waited = tokio::time::timeout(patience, ended.wait_for(Option::is_some)).await;
        waited.ok()?.ok().and_then(|status| *status)
    }
}

/// A command for a program that must not outlive us, even if we are killed. The id is that of the program itself.
pub(crate) fn bound_to_us(program: &Path) -> Command {
    let tied = Path::new("/usr/bin/setpriv");
    if tied.is_file() {
        let mut command = Command::new(tied);
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// A program by its name, on PATH or where Debian puts those of administrators.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "where programs are is read here alone"
    )]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from));
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Memory in KiB and open files of a process.
pub(crate) fn usage(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let rss = line.split_whitespace().nth(1)?.parse().ok()?;
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some((rss, files as u64))
}
