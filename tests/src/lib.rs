//! # quita-tests: the harness that the tests stand on
//!
//! Reading order: [`fixture`] (one store with a clock that only the test moves, and short words for what a test does) →
//! [`store`] (which stores there are, and how a case runs on each) → [`postgres`] (a throw-away PostgreSQL server) → [`relay`] (a network before it that fails) →
//! [`server`] (a server inside the test or as a process of its own) → [`served`] (a client that speaks JSON, and a case on
//! each kind of store) → [`wire`] (a client that can also send nonsense) →
//! [`certificates`] (for both, when they speak TLS).
//!
//! The tests themselves: `conformance/` says the contract sentence by sentence and runs on every store; `http/` knocks at
//! the socket; `reports/` tries what went wrong elsewhere.

#![expect(
    clippy::unwrap_used,
    reason = "a harness that cannot do its work has to stop the test"
)]

pub mod certificates;
pub mod client;
pub mod fixture;
pub mod postgres;
pub mod relay;
pub mod served;
pub mod server;
pub mod store;
pub mod wire;

pub use fixture::{Fixture, Hand, TestQueue};
pub use store::{Store, run};
