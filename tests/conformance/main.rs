//! The contract, sentence by sentence, on every store.
//!
//! A case is an async function whose name is a fact and whose first line says which paragraph of the contract it shows.

mod life;
