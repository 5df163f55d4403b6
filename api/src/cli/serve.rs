//! `quita serve`.

use super::{Done, greeting, say};
use crate::config::{Config, LogFormat};
use crate::{Server, store, telemetry};
use std::io;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a shell reports for a process that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;

pub(super) fn run(config: Config) -> Done {
    telemetry::start(&config.store)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.worker_threads {
        runtime.worker_threads(threads as usize);
    }
    runtime.enable_all().build()?.block_on(serve(config))
}

async fn serve(config: Config) -> Done {
    // From here on a signal is ours: one that comes while the store opens stops the server as soon as it has started.
    let mut signals = Signals::new()?;
    crate::check(&config, config.listen)?;
    let backend = store::open(&config.store).await?;
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("could not listen on {}: {error}", config.listen))?;
    let shown = config.clone();
    let server = Server::start(config, backend, listener).await?;
    if shown.store.log_format == LogFormat::Plain {
        say(&greeting::text(&shown, server.address, &server.key));
    }
    // Not inside the line of the log: what is not logged is not waited for either.
    let signal = loop {
        match signals.next().await {
            HANG_UP => server.reload(),
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

/// The one that asks to read files again. Handled from the beginning, so that it ends nothing, whatever the settings are.
const HANG_UP: &str = "HUP";

/// The signals that somebody sends to a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
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
