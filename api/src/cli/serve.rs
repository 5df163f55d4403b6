//! `quita serve`.

use super::{Done, greeting, say};
use crate::config::{Config, LogFormat};
use crate::{Server, store, telemetry};
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell reports for a process that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;

pub(super) fn run(config: Config) -> Done {
    telemetry::start(&config.store)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.worker_threads {
        runtime.worker_threads(threads as usize);
    }
    let runtime = runtime.enable_all().build()?;
    let done = runtime.block_on(serve(config));
    // Whatever had to end has ended; a file that is still being read is nothing to wait for.
    runtime.shutdown_background();
    done
}

async fn serve(config: Config) -> Done {
    // From here on a signal is ours: one that comes while the store opens stops the server as soon as it has started.
    let mut signals = Signals::new()?;
    let shown = config.clone();
    let checked = crate::check(config, shown.listen)?;
    let backend = store::open(&shown.store).await?;
    let listener = listen(shown.listen)
        .map_err(|error| format!("could not listen on {}: {error}", shown.listen))?;
    let server = Server::start(checked, backend, listener).await?;
    if shown.store.log_format == LogFormat::Plain {
        say(&greeting::text(&shown, server.address, &server.key));
    }
    // Not inside the line of the log: what is not logged is not waited for either.
    let signal = loop {
        match signals.next().await {
            HANG_UP if server.reads_again() => server.reload(),
            HANG_UP if signals.outlives_its_terminal => {}
            signal => break signal,
        }
    };
    tracing::info!(signal, "a signal to stop");
    tokio::select! {
        () = server.stop() => Ok(()),
        signal = signals.next_to_stop() => {
            tracing::warn!(signal, "a second signal: ending at once");
            std::process::exit(EXIT_INTERRUPTED)
        }
    }
}

/// Connections that wait to be accepted. When more come at once, the kernel drops their first packet and the client sends it
/// again a second later.
const BACKLOG: u32 = 1024;

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// With TLS it asks to read the certificate again. Without, there is nothing to read, and it means what it always did: the
/// terminal is gone.
const HANG_UP: &str = "HUP";

/// The signals that somebody sends to a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// `nohup`, or whoever else started this process, has it ignore the signal.
    outlives_its_terminal: bool,
}

impl Signals {
    fn new() -> io::Result<Self> {
        // Looked at before a handler of ours is there instead.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Ok(Self {
            outlives_its_terminal: ignores_hang_ups(&status),
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "TERM",
            _ = self.interrupt.recv() => "INT",
            _ = self.hang_up.recv() => HANG_UP,
        }
    }

    async fn next_to_stop(&mut self) -> &'static str {
        loop {
            match self.next().await {
                HANG_UP => {}
                signal => return signal,
            }
        }
    }
}

/// Whether Linux says so of a process (`SigIgn`, a bit for each signal in hexadecimal digits). Other systems say nothing.
fn ignores_hang_ups(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_set_is_seen() {
        for (status, ignores) in [
            ("Name:\tquita\nSigIgn:\t0000000000000001\n", true),
            ("SigIgn:\t0000000000001001\nSigCgt:\t0\n", true),
            ("SigIgn:\t0000000000001000\nSigCgt:\t1\n", false),
            ("SigIgn:\tnonsense\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hang_ups(status), ignores, "{status}");
        }
    }
}
