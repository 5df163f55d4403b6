//! The one home of randomness in the operations: where a backoff falls inside its jitter.

use rand::Rng;

/// A number in [0, 1).
pub fn chance() -> f64 {
    rand::rng().random()
}
