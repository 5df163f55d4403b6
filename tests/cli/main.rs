//! The operators' command line as a process: what it prints, what it sends, and what it ends with.
//!
//! Against a [`fake`] server that answers what it was told to, so that every guard and every broken answer can be had; and
//! against a server of ours, to see that the two understand each other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod audit;
mod bulk;
mod connection;
mod dead;
mod desk;
mod fake;
mod fix;
mod lists;
mod redrive;
mod run;
mod server;
mod tls;
