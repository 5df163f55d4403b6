//! The one place where wall-clock time enters the crate.
//!
//! Every stored or compared time belongs to the store (product rule 4.8): PostgreSQL reads its own clock inside the
//! statement, the embedded stores use [`Monotone`]. Nothing else in the workspace calls `SystemTime::now`.

use crate::model::Millis;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch on this host's wall clock. May run backwards; see [`Monotone`].
pub fn wall() -> Millis {
    #[expect(clippy::disallowed_methods, reason = "the one home of the wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as Millis)
}

/// A wall clock that never runs backwards, and never stands still.
///
/// The highest time ever handed out is a floor; an embedded store persists that floor, so the guarantee also holds over
/// a restart. While the wall clock is behind it, because it was set back or was wrong before, time goes on from there as it
/// passes: a lease of a minute ends in a minute, whatever the date.
#[derive(Debug)]
pub struct Monotone {
    floor: Millis,
    /// What the time was at one moment, the last one at which the wall clock was ahead.
    anchor: (Millis, Instant),
}

impl Default for Monotone {
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl Monotone {
    /// Starts at `floor` or at the wall clock, whichever is later.
    pub fn starting_at(floor: Millis) -> Self {
        Self {
            floor,
            anchor: (floor, Instant::now()),
        }
    }

    /// The present time: `given` when a test supplies it, else the wall clock, never less than any earlier answer.
    pub fn now(&mut self, given: Option<Millis>) -> Millis {
        match given {
            Some(given) => self.ahead(given, Instant::now()),
            None => self.at(wall(), Instant::now()),
        }
    }

    fn at(&mut self, wall: Millis, now: Instant) -> Millis {
        let (time, since) = self.anchor;
        let passed = now.saturating_duration_since(since).as_millis() as Millis;
        let running = time.saturating_add(passed);
        if wall >= running {
            self.ahead(wall, now)
        } else {
            self.floor = self.floor.max(running);
            self.floor
        }
    }

    fn ahead(&mut self, time: Millis, now: Instant) -> Millis {
        if time >= self.floor {
            (self.floor, self.anchor) = (time, (time, now));
        }
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_goes_on_at_its_pace_while_the_wall_clock_is_behind() {
        let began = Instant::now();
        let later = |ms| began + Duration::from_millis(ms);
        let mut clock = Monotone::starting_at(0);
        assert_eq!(clock.at(5_000, later(0)), 5_000);
        // Set back by four seconds; asked more often than once in a millisecond.
        for micros in 0..3_000u64 {
            let now = began + Duration::from_micros(micros);
            let wall = 1_000 + micros as Millis / 1_000;
            assert_eq!(clock.at(wall, now), 5_000 + micros as Millis / 1_000);
        }
        assert_eq!(clock.at(2_000, later(1_000)), 6_000);
        // Set right again, and from there it is the wall clock.
        assert_eq!(clock.at(6_500, later(1_100)), 6_500);
        assert_eq!(clock.at(6_700, later(1_300)), 6_700);
    }

    #[test]
    fn a_jump_ahead_is_taken_and_a_floor_is_never_left() {
        let mut clock = Monotone::starting_at(1_000_000);
        let began = clock.anchor.1;
        assert_eq!(clock.at(5, began + Duration::from_millis(10)), 1_000_010);
        assert_eq!(clock.now(Some(7)), 1_000_010);
        assert_eq!(clock.now(Some(2_000_000)), 2_000_000);
        assert!(clock.at(9_000_000, began + Duration::from_secs(1)) == 9_000_000);
    }
}
