//! The one home of randomness in the operations: where a backoff falls inside its jitter.

use rand::Rng;

/// A number in [0, 1).
#[expect(
    clippy::disallowed_methods,
    reason = "the one home of chance: the rules are given a number"
)]
pub fn chance() -> f64 {
    rand::rng().random()
}
