//! Progress of what takes long, on standard error: a bar with rate and estimate on a terminal, a line now and then elsewhere.

use super::output::talk;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const QUIET: Duration = Duration::from_secs(10);
/// What a rate is an average of.
const WINDOW: Duration = Duration::from_secs(10);
/// The shortest span that says anything about a rate.
const LEAST_SPAN: Duration = Duration::from_secs(1);
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

/// A bar of known length that says of itself only where it is; rate and estimate come with its message.
pub(super) fn plain_bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len}  {wide_msg}")
    {
        bar.set_style(style);
    }
    bar
}

/// How fast something goes that is looked at now and then: over the last seconds, and never over a span too short to tell.
#[derive(Default)]
pub(super) struct Speed {
    seen: VecDeque<(Instant, u64)>,
}

impl Speed {
    /// It is at `place` now.
    pub(super) fn see(&mut self, at: Instant, place: u64) {
        self.seen.push_back((at, place));
        // The first one that is old enough stays, so that the span is never shorter than it has to be.
        while self
            .seen
            .get(1)
            .is_some_and(|(next, _)| at - *next >= WINDOW)
        {
            self.seen.pop_front();
        }
    }

    /// It stands still on purpose: what it did before says nothing about what it will do.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
    }

    /// Per second; nothing until two looks are far enough from one another.
    pub(super) fn per_second(&self) -> Option<f64> {
        let (first, from) = self.seen.front()?;
        let (last, to) = self.seen.back()?;
        let span = *last - *first;
        (span >= LEAST_SPAN).then(|| to.saturating_sub(*from) as f64 / span.as_secs_f64())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_a_span_and_forgets_what_is_long_ago() {
        let began = Instant::now();
        let at = |millis: u64| began + Duration::from_millis(millis);
        let mut speed = Speed::default();
        assert_eq!(speed.per_second(), None);
        // What was done before anybody looked does not count.
        speed.see(at(0), 5_000);
        assert_eq!(speed.per_second(), None);
        speed.see(at(999), 5_100);
        assert_eq!(speed.per_second(), None);
        speed.see(at(2_000), 5_100);
        assert_eq!(speed.per_second(), Some(50.0));
        speed.see(at(12_000), 5_100);
        assert_eq!(speed.per_second(), Some(0.0));
        speed.forget();
        speed.see(at(13_000), 5_200);
        assert_eq!(speed.per_second(), None);
    }
}
