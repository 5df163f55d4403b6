//! # quita-storage: the queue itself
//!
//! Reading order: [`model`] (the nouns) → [`rules`] (what may happen to a message, as pure functions) → [`backend`] (what
//! a store must do, in plural operations; [`dead_letters`], [`redrives`] and [`audit`] have the nouns of the operators' desk) →
//! [`coalescer`] (how many requests become one commit) → [`wakeup`] (who waits for
//! which queue) → [`memory`] (the smallest complete store: the specification) → [`sqlite`] and [`postgres`], file by file
//! beside each other.
//!
//! One publish: `coalescer::Coalescer::publish` puts it in the intake → a lane takes everything that waits →
//! `Backend::apply` makes it durable in one commit → the outcome goes back → [`wakeup`] wakes as many waiting receives as
//! messages became ready.
//!
//! This crate never mentions HTTP or status codes.

use backend::Backend;
use error::{Result, StoreError};
use std::path::Path;
use std::sync::Arc;

pub mod audit;
pub mod backend;
pub mod clock;
pub mod coalescer;
pub mod dead_letters;
pub mod error;
pub mod known_bug;
pub mod memory;
pub mod model;
pub mod postgres;
pub mod receipt;
pub mod redrives;
pub mod rules;
pub mod sometimes;
pub mod sqlite;
pub mod timer;
pub mod wakeup;

/// Opens a store by its URL: `sqlite://PATH`, `postgres://…` or `memory:`. The only place that names a backend.
///
/// # Errors
/// [`StoreError::Unavailable`] when the store cannot be reached or refuses, [`StoreError::Internal`] for an unknown scheme.
pub async fn open(url: &str) -> Result<Arc<dyn Backend>> {
    if let Some(path) = url.strip_prefix("sqlite://") {
        return sqlite::open(Path::new(path)).await;
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return postgres::open(url).await;
    }
    if url.starts_with("memory:") {
        return Ok(memory::open());
    }
    // What was given is not repeated: without its scheme, a URL begins with the password.
    Err(StoreError::internal(
        "no store has such a URL: sqlite://PATH or postgres://… is expected",
    ))
}
