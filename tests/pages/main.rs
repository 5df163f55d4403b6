//! Pages whose commands must work as they stand.

#![expect(clippy::unwrap_used, reason = "a test whose setting fails has to stop")]

mod operating;
mod security;
