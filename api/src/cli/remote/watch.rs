//! Following a redrive to its end.
//!
//! The server does the work; whoever watches may leave. Ctrl-C, a lost connection or a closed laptop stop the watching only.

use super::Session;
use super::exit::{Exit, Failure, Outcome};
use super::output::talk;
use super::progress::{self, Lines};
use super::visible::visible;
use super::{path, redrive, table};
use indicatif::ProgressBar;
use serde_json::Value;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two looks.
const POLL: Duration = Duration::from_millis(500);
/// A server that is restarted is back before.
const PATIENCE: Duration = Duration::from_mins(2);

/// Watches until it has ended and prints what it did. The exit code says how it ended.
pub(super) fn to_its_end(session: &mut Session, id: &str) -> Outcome {
    let interrupted = interrupts()?;
    let path = path::redrive(id, "");
    let mut bar: Option<ProgressBar> = None;
    let mut lines = Lines::default();
    let mut lost: Option<Instant> = None;
    loop {
        match session.client.get(&path) {
            Ok(text) => {
                lost = None;
                let seen: Value = super::client::parse(&path, &text)?;
                let bar = bar.get_or_insert_with(|| begin(&seen));
                move_to(bar, &mut lines, &seen);
                if let Some(exit) = ended(&seen) {
                    bar.finish_and_clear();
                    redrive::show(session, &text)?;
                    return Ok(exit);
                }
            }
            Err(failure) if failure.exit == Exit::Temporary => {
                if lost.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return Err(failure.and(&goes_on(id)));
                }
                if let Some(bar) = &bar {
                    bar.set_message("no answer; trying again");
                }
                lines.say("lost", "no answer; trying again");
            }
            Err(failure) => return Err(failure),
        }
        match interrupted.recv_timeout(POLL) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
            Ok(()) => {
                if let Some(bar) = &bar {
                    bar.finish_and_clear();
                }
                talk(&format!("\n{}", goes_on(id)));
                return Ok(Exit::Interrupted);
            }
        }
    }
}

fn goes_on(id: &str) -> String {
    let id = visible(id);
    format!(
        "{id} goes on without being watched. `quita redrive watch {id}` watches it again, `quita redrive cancel {id}` ends it."
    )
}

/// How a redrive ended; `None` while it has not.
fn ended(redrive: &Value) -> Option<Exit> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let left = number(&redrive["skipped"]["total"]) + number(&redrive["failed_again"]);
    let dry_run = redrive["dry_run"].as_bool().unwrap_or(false);
    match redrive["state"].as_str() {
        Some("done") if left == 0 || dry_run => Some(Exit::Done),
        Some("done") => Some(Exit::Partly),
        Some("aborted") => Some(Exit::Refused),
        Some("cancelled") => Some(Exit::Failed),
        _ => None,
    }
}

/// How many it has decided about, and how many it will.
fn place(redrive: &Value) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let decided = number(&redrive["moved"]) + number(&redrive["skipped"]["total"]);
    let count = number(&redrive["count"]);
    (
        decided,
        redrive["max"].as_u64().map_or(count, |max| max.min(count)),
    )
}

fn begin(redrive: &Value) -> ProgressBar {
    let (decided, length) = place(redrive);
    let bar = progress::bar(length).with_position(decided);
    bar.reset_eta();
    bar
}

fn move_to(bar: &ProgressBar, lines: &mut Lines, redrive: &Value) {
    let (decided, length) = place(redrive);
    bar.set_length(length);
    bar.set_position(decided);
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let state = table::text(&redrive["state"]);
    let mut message = match state.as_str() {
        "canary" => match redrive["canary"]["until"].as_str() {
            Some(until) => format!("canary, until {}", table::time(&until.into())),
            None => "canary".to_owned(),
        },
        "paused" => "paused".to_owned(),
        other => other.to_owned(),
    };
    for (count, what) in [
        (number(&redrive["skipped"]["total"]), "skipped"),
        (number(&redrive["failed_again"]), "failed again"),
    ] {
        if count > 0 {
            message = format!("{message}, {count} {what}");
        }
    }
    let message = visible(&message).into_owned();
    let end = match redrive["estimated_end_at"].as_str() {
        Some(end) => format!(", ends about {}", visible(&table::time(&end.into()))),
        None => String::new(),
    };
    lines.say(
        &state,
        &format!(
            "{decided} of {length}, {message}, {:.0}/s{end}",
            bar.per_sec()
        ),
    );
    bar.set_message(message);
}

/// Says when Ctrl-C was pressed, instead of dying of it.
fn interrupts() -> Outcome<Receiver<()>> {
    let (say, heard) = channel();
    let runtime = crate::cli::small_runtime()
        .map_err(|error| Failure::failed(format!("signals cannot be waited for: {error}")))?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if say.send(()).is_err() {
                    break;
                }
            }
        });
    });
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_exit_code_says_how_it_ended() {
        let redrive = |state: &str, skipped: u64, failed: u64, dry_run: bool| {
            ended(
                &json!({"state": state, "skipped": {"total": skipped}, "failed_again": failed, "dry_run": dry_run}),
            )
        };
        assert_eq!(redrive("done", 0, 0, false), Some(Exit::Done));
        assert_eq!(redrive("done", 1, 0, false), Some(Exit::Partly));
        assert_eq!(redrive("done", 0, 1, false), Some(Exit::Partly));
        assert_eq!(redrive("done", 3, 0, true), Some(Exit::Done));
        assert_eq!(redrive("aborted", 0, 3, false), Some(Exit::Refused));
        assert_eq!(redrive("cancelled", 0, 0, false), Some(Exit::Failed));
        for going in ["running", "canary", "paused", "something_new"] {
            assert_eq!(redrive(going, 0, 0, false), None);
        }
    }

    #[test]
    fn progress_counts_what_was_decided() {
        let redrive = json!({"count": 100, "max": 40, "moved": 10, "skipped": {"total": 2}});
        assert_eq!(place(&redrive), (12, 40));
        assert_eq!(place(&json!({"count": 100, "max": null})), (0, 100));
    }
}
