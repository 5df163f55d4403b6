//! The contract, sentence by sentence, on every store.
//!
//! A case is an async function whose name is a fact and whose first line says which paragraph of the contract it shows.
//! After every case the numbers must balance and equal a recount.

mod attempts;
mod keys;
mod late_settle;
mod life;
mod request_ids;
