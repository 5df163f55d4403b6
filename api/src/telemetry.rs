//! Logs. Lines go to standard error; standard output belongs to what a command prints.
//!
//! No line ever holds a key, a receipt, a payload or the password of the store: types that hold one print without it.

use crate::config::{LogFormat, StoreConfig};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging. Once per process; later calls change nothing.
///
/// # Errors
/// The filter cannot be understood.
pub fn start(config: &StoreConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.log_level)
        .map_err(|error| format!("--log-level {}: {error}", config.log_level))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match config.log_format {
        LogFormat::Plain => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging has been started already");
    }
    Ok(())
}
