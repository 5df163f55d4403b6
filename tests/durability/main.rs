//! What survives: the server's death in the middle of everything, and several servers on one store.

#![expect(clippy::unwrap_used, reason = "a test whose setting fails has to stop")]

mod redrives;
mod replicas;
mod restart;
mod storm;
