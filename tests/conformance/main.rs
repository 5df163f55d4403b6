//! The contract, sentence by sentence, on every store.
//!
//! A case is an async function whose name is a fact and whose first line says which paragraph of the contract it shows.
//! After every case the numbers must balance and equal a recount.

#![expect(clippy::unwrap_used, reason = "a case that cannot go on has to stop")]

mod api_keys;
mod attempts;
mod audit;
mod batches;
mod browse;
mod dead_letters;
mod decisions;
mod diagnostics;
mod keys;
mod late_settle;
mod life;
mod model;
mod operators;
mod order;
mod pause;
mod purge;
mod queues;
mod redrives;
mod reports;
mod request_ids;
mod retention;
mod selections;
mod time;
