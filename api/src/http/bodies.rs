//! How many bytes of bodies are in memory: one bound for all requests, whoever sends them.
//!
//! Bytes are counted as they come. A length that is only announced holds nothing, and a body without one cannot hide. They
//! are given back with the request: when it was answered, when it was refused, and when its client hung up.

use super::problem::{Code, Problem};
use crate::limit::Limit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bytes of all bodies.
#[derive(Debug)]
pub struct Bodies {
    bytes: AtomicUsize,
    max: usize,
}

/// What one request has taken. Its owner gives it back ([`Bodies::give_back`]).
#[derive(Debug)]
pub(super) struct Taken {
    bytes: usize,
    max: usize,
}

impl Bodies {
    /// At most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            max,
        }
    }

    /// Bytes that are held now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Nothing yet. What settles may go on when others may not: what has been worked must be able to end.
    pub(super) fn begin(&self, settles: bool) -> Taken {
        let max = self.max.saturating_mul(1 + usize::from(settles));
        Taken { bytes: 0, max }
    }

    /// `more` bytes have come.
    pub(super) fn take(&self, taken: &mut Taken, more: usize) -> Result<(), Problem> {
        let before = self.bytes.fetch_add(more, Relaxed);
        taken.bytes += more;
        if before.saturating_add(more) <= taken.max {
            return Ok(());
        }
        Err(Problem::new(
            Code::Overloaded,
            "Too many bytes of bodies are being read and worked on.",
        )
        .by(Limit::BodiesInFlight))
    }

    /// The request is over.
    pub(super) fn give_back(&self, taken: &mut Taken) {
        let bytes = std::mem::take(&mut taken.bytes);
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_bounded_and_settles_come_last() {
        let bodies = Bodies::new(10);
        let (mut first, mut second) = (bodies.begin(false), bodies.begin(false));
        assert!(bodies.take(&mut first, 6).is_ok());
        let refused = bodies.take(&mut second, 5).unwrap_err();
        assert_eq!(
            (refused.code(), refused.limit()),
            (Code::Overloaded, Some(Limit::BodiesInFlight))
        );
        bodies.give_back(&mut second);
        assert!(bodies.take(&mut first, 4).is_ok());
        let mut settle = bodies.begin(true);
        assert!(bodies.take(&mut settle, 10).is_ok());
        assert!(bodies.take(&mut settle, 1).is_err());
        assert_eq!(bodies.bytes(), 21);
        for taken in [&mut first, &mut settle] {
            bodies.give_back(taken);
            // Once more gives nothing more.
            bodies.give_back(taken);
        }
        assert_eq!(bodies.bytes(), 0);
    }
}
