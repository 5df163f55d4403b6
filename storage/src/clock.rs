//! The one place where wall-clock time enters the crate.
//!
//! Every stored or compared time belongs to the store (product rule 4.8): PostgreSQL reads its own clock inside the
//! statement, the embedded stores use [`Monotone`]. Nothing else in the workspace calls `SystemTime::now`.

use crate::model::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch on this host's wall clock. May run backwards; see [`Monotone`].
pub fn wall() -> Millis {
    #[expect(clippy::disallowed_methods, reason = "the one home of the wall clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as Millis)
}

/// A wall clock that never runs backwards.
///
/// The highest time ever handed out is a floor; an embedded store persists that floor, so the guarantee also holds over
/// a restart.
#[derive(Debug, Default)]
pub struct Monotone {
    floor: Millis,
}

impl Monotone {
    /// Starts at `floor` or at the wall clock, whichever is later.
    pub fn starting_at(floor: Millis) -> Self {
        Self { floor }
    }

    /// The present time: `given` when a test supplies it, else the wall clock, never less than any earlier answer.
    pub fn now(&mut self, given: Option<Millis>) -> Millis {
        self.floor = self.floor.max(given.unwrap_or_else(wall));
        self.floor
    }
}
