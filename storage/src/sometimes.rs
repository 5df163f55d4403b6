//! What fails over and over is said now and then: while a database is away every loop, every batch and every caller meets
//! the same error, and a line for each of them would fill the disk beside the outage.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Least time between two lines of one kind.
const EVERY: Duration = Duration::from_secs(10);

/// One kind of line in the log.
#[derive(Debug, Default)]
pub struct Sometimes(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    said: Option<Instant>,
    unsaid: u64,
}

impl Sometimes {
    /// A kind that was not said yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Kept {
            said: None,
            unsaid: 0,
        }))
    }

    /// How often it was not said since it last was; `None` when it is not to be said now.
    pub fn now(&self) -> Option<u64> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Option<u64> {
        let mut kept = self.0.lock();
        let too_soon = |said| now.saturating_duration_since(said) < EVERY;
        if kept.said.is_some_and(too_soon) {
            kept.unsaid += 1;
            return None;
        }
        kept.said = Some(now);
        Some(std::mem::take(&mut kept.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_and_later_ones_tell_how_many_were_not() {
        let (kind, began) = (Sometimes::new(), Instant::now());
        let at = |ms| kind.at(began + Duration::from_millis(ms));
        assert_eq!(at(0), Some(0));
        for ms in 1..=5 {
            assert_eq!(at(ms), None);
        }
        assert_eq!(at(9_999), None);
        assert_eq!(at(10_000), Some(6));
        assert_eq!(at(10_001), None);
        assert_eq!(at(30_000), Some(1));
    }
}
