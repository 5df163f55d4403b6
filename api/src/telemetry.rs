//! Logs. Lines go to standard error; standard output belongs to what a command prints.
//!
//! No line ever holds a key, a token, a receipt, a page token, a password, or anything that a message consists of, whatever
//! the filter says: types that hold one print without it, problems name values and never repeat them, and a panic is logged
//! without what its text was made of. Names of queues, ids, and a client's own `Request-Id` are logged.

use crate::config::{LogFormat, StoreConfig};
use std::any::Any;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Libraries that see keys, tokens, payloads or passwords in the clear, and whose finest lines are written for people who
/// want to see bytes. They say nothing below `info`, whatever is asked for.
const CAPPED: [&str; 10] = [
    "h2",
    "hyper",
    "hyper_util",
    "rustls",
    "sqlx_core",
    "sqlx_postgres",
    "sqlx_sqlite",
    "tokio_rustls",
    "ureq",
    "ureq_proto",
];

/// Starts logging, panics included. Once per process; later calls change nothing.
///
/// # Errors
/// The filter cannot be understood.
pub fn start(config: &StoreConfig) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.log_level)
        .map_err(|error| format!("--log-level {}: {error}", config.log_level))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let filter = filter.and(capped());
    let registry = tracing_subscriber::registry();
    let started = match config.log_format {
        LogFormat::Plain => registry.with(lines.with_filter(filter)).try_init(),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            registry.with(lines.with_filter(filter)).try_init()
        }
    };
    if started.is_err() {
        tracing::debug!("logging has been started already");
    } else {
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(())
}

fn capped() -> Targets {
    let cap = CAPPED.map(|target| (target, LevelFilter::INFO));
    Targets::new()
        .with_default(LevelFilter::TRACE)
        .with_targets(cap)
}

/// Where it was, and why as far as that is certain to be ours: the text of a failed look into a text, for one, repeats it.
fn log_panic(info: &PanicHookInfo<'_>) {
    let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    let why = constant_part(info.payload());
    tracing::error!(file, line, thread, "a panic: {why}");
}

/// The text of a panic, if it was in the program as it stands; one that was put together may hold anything.
pub(crate) fn constant_part(panic: &(dyn Any + Send)) -> &'static str {
    let constant = panic.downcast_ref::<&'static str>();
    constant.copied().unwrap_or("its text is not shown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use tracing::Level;

    #[test]
    fn of_a_panic_only_constant_text_is_told() {
        let told = |panics: fn()| constant_part(&*catch_unwind(panics).unwrap_err());
        assert_eq!(told(|| panic!("a constant text")), "a constant text");
        let hidden = "its text is not shown";
        assert_eq!(
            told(|| panic!("{}", std::hint::black_box("geheim"))),
            hidden
        );
        assert_eq!(
            told(|| {
                let payload = std::hint::black_box("geheim ä");
                let _ = &payload[..payload.len() - 1];
            }),
            hidden
        );
        assert_eq!(told(|| std::panic::panic_any(7)), hidden);
    }

    #[test]
    fn what_sees_bytes_in_the_clear_is_capped_and_we_are_not() {
        let cap = capped();
        for target in [
            "hyper",
            "hyper::proto::h1::io",
            "sqlx_core::pool",
            "rustls::client",
        ] {
            assert!(!cap.would_enable(target, &Level::DEBUG), "{target}");
            assert!(cap.would_enable(target, &Level::INFO), "{target}");
        }
        for target in ["quita_api::http", "quita_storage", "sqlx::query"] {
            assert!(cap.would_enable(target, &Level::TRACE), "{target}");
        }
    }
}
