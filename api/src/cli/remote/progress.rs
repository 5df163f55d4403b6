//! Progress of what takes long, on standard error: a bar with rate and estimate on a terminal, a line now and then elsewhere.

use super::output::talk;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const QUIET: Duration = Duration::from_secs(10);
/// Between two movements of a spinner.
const TICK: Duration = Duration::from_millis(120);

/// Whether a person sees what is drawn.
pub(super) fn drawn() -> bool {
    std::io::stderr().is_terminal()
}

/// A bar of known length.
pub(super) fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(
        "{bar:30} {human_pos}/{human_len}  {per_sec}  {eta} left  {wide_msg}",
    ) {
        bar.set_style(style.with_key("per_sec", per_second));
    }
    bar
}

/// A bar over the bytes of a file.
pub(super) fn bytes(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(
        "{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left  {wide_msg}",
    ) {
        bar.set_style(style);
    }
    bar
}

/// A count without an end, drawn only when `long`.
pub(super) fn counter(what: &str, long: bool) -> ProgressBar {
    if !long || !drawn() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} {msg}  {per_sec}") {
        bar.set_style(style.with_key("per_sec", per_second));
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

fn per_second(state: &indicatif::ProgressState, to: &mut dyn std::fmt::Write) {
    let _ = write!(to, "{:.0}/s", state.per_sec());
}

/// Lines for whoever has no terminal: when something changed, and every ten seconds.
#[derive(Default)]
pub(super) struct Lines {
    last: Option<(String, Instant)>,
}

impl Lines {
    /// `state` is what makes a line at once when it changes, `line` what it says.
    pub(super) fn say(&mut self, state: &str, line: &str) {
        let due = match &self.last {
            Some((said, at)) => said != state || at.elapsed() >= QUIET,
            None => true,
        };
        if due && !drawn() {
            talk(line);
            self.last = Some((state.to_owned(), Instant::now()));
        }
    }
}
