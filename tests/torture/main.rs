//! `cargo torture`: load, faults, and a verdict on every promise.

#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test that cannot go on has to stop")
)]

mod history;

fn main() {}
