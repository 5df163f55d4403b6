//! # quita-storage: the queue itself
//!
//! Reading order: [`model`] (the nouns) → [`rules`] (what may happen to a message, as pure functions) → [`backend`] (what
//! a store must do, in plural operations) → [`coalescer`] (how many requests become one commit) → [`wakeup`] (who waits for
//! which queue) → [`memory`] (the smallest complete store: the specification) → [`sqlite`] and [`postgres`], file by file
//! beside each other.
//!
//! One publish: `coalescer::Coalescer::publish` puts it in the intake → a lane takes everything that waits →
//! `Backend::apply` makes it durable in one commit → the outcome goes back → [`wakeup`] wakes as many waiting receives as
//! messages became ready.
//!
//! This crate never mentions HTTP or status codes.

pub mod backend;
pub mod clock;
pub mod coalescer;
pub mod error;
pub mod memory;
pub mod model;
pub mod receipt;
pub mod rules;
pub mod timer;
pub mod wakeup;
