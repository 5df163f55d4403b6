//! What survives: the server's death in the middle of everything, and several servers on one store.

mod replicas;
mod storm;
