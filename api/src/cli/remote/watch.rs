//! Following a redrive to its end.
//!
//! The server does the work; whoever watches may leave. Ctrl-C, a lost connection or a closed laptop stop the watching only.

use super::Session;
use super::exit::{Exit, Failure, Outcome};
use super::output::talk;
use super::progress::{self, Lines, Speed};
use super::visible::visible;
use super::{path, redrive, table};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::fmt::Write;
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
    let mut view = View::default();
    let mut lost: Option<Instant> = None;
    loop {
        match session.client.look(&path) {
            Ok(text) => {
                lost = None;
                let seen: Value = super::client::parse(&path, &text)?;
                view.see(&seen, Instant::now());
                if let Some(exit) = ended(&seen) {
                    view.clear();
                    redrive::show(session, &text)?;
                    return Ok(exit);
                }
            }
            Err(failure) if failure.exit == Exit::Temporary => {
                if lost.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return Err(failure.and(&goes_on(id)));
                }
                view.lost();
            }
            Err(failure) => return Err(failure),
        }
        match interrupted.recv_timeout(POLL) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
            Ok(()) => {
                view.clear();
                // Behind the terminal's own `^C`.
                talk("");
                if !view.last.is_empty() {
                    talk(&view.last);
                }
                talk(&goes_on(id));
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

/// What a person sees of it.
#[derive(Default)]
struct View {
    bar: Option<ProgressBar>,
    lines: Lines,
    speed: Speed,
    /// What was said last, as a line of its own.
    last: String,
}

impl View {
    /// It is like this now.
    fn see(&mut self, redrive: &Value, at: Instant) {
        let (decided, length) = place(redrive);
        let state = table::text(&redrive["state"]);
        // A canary that waits and one that is paused stand still on purpose.
        if state == "running" {
            self.speed.see(at, decided);
        } else {
            self.speed.forget();
        }
        let rate = self.speed.per_second();
        let mut message = visible(&how(redrive)).into_owned();
        if let Some(rate) = rate {
            let _ = write!(message, ", {}/s", rounded(rate));
        }
        let end = match redrive["estimated_end_at"].as_str() {
            Some(end) if state != "paused" && ended(redrive).is_none() => {
                format!(", ends about {}", visible(&table::time(&end.into())))
            }
            _ => String::new(),
        };
        self.last = format!("{decided} of {length}, {message}{end}");
        self.lines.say(&state, &self.last);
        let left = rate.filter(|rate| *rate > 0.0);
        if let Some(rate) = left.filter(|_| ended(redrive).is_none()) {
            let seconds = (length.saturating_sub(decided) as f64 / rate).ceil();
            let _ = write!(message, ", {} left", table::length(&json!(seconds)));
        }
        let bar = self.bar.get_or_insert_with(|| progress::plain_bar(length));
        bar.set_length(length);
        bar.set_position(decided);
        bar.set_message(message);
    }

    /// No answer came.
    fn lost(&mut self) {
        self.speed.forget();
        if let Some(bar) = &self.bar {
            bar.set_message("no answer; trying again");
        }
        self.lines.say("lost", "no answer; trying again");
    }

    /// Takes the bar away.
    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A rate in as few digits as say something.
fn rounded(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

/// State and losses, in words.
fn how(redrive: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let state = table::text(&redrive["state"]);
    let mut message = match (state.as_str(), redrive["canary"]["until"].as_str()) {
        ("canary", Some(until)) => format!("canary, until {}", table::time(&until.into())),
        _ => state,
    };
    for (count, what) in [
        (number(&redrive["skipped"]["total"]), "skipped"),
        (number(&redrive["failed_again"]), "failed again"),
    ] {
        if count > 0 {
            let _ = write!(message, ", {count} {what}");
        }
    }
    message
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
    fn a_rate_is_told_after_two_looks_and_no_estimate_while_it_is_held() {
        let began = Instant::now();
        let mut view = View::default();
        let mut told = |state: &str, moved: u64, second: u64| {
            let redrive = json!({"state": state, "count": 1_000, "max": null, "moved": moved, "skipped": {"total": 0},
                "estimated_end_at": "2026-11-30T10:00:00.000Z"});
            view.see(&redrive, began + Duration::from_secs(second));
            let bar = view.bar.as_ref().map(ProgressBar::message);
            (view.last.clone(), bar.unwrap_or_default())
        };
        let (line, bar) = told("running", 500, 0);
        assert_eq!(
            line,
            "500 of 1000, running, ends about 2026-11-30T10:00:00Z"
        );
        assert_eq!(bar, "running");
        let (line, bar) = told("running", 600, 2);
        assert!(line.starts_with("600 of 1000, running, 50/s"), "{line}");
        assert_eq!(bar, "running, 50/s, 8 s left");
        let (line, bar) = told("paused", 600, 4);
        assert_eq!(
            (line.as_str(), bar.as_str()),
            ("600 of 1000, paused", "paused")
        );
        let (line, _) = told("running", 601, 5);
        assert!(!line.contains("/s"), "{line}");
        let (line, bar) = told("done", 1_000, 6);
        assert_eq!(
            (line.as_str(), bar.as_str()),
            ("1000 of 1000, done", "done")
        );
    }

    #[test]
    fn progress_counts_what_was_decided() {
        let redrive = json!({"count": 100, "max": 40, "moved": 10, "skipped": {"total": 2}});
        assert_eq!(place(&redrive), (12, 40));
        assert_eq!(place(&json!({"count": 100, "max": null})), (0, 100));
    }
}
