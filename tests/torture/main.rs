//! `cargo torture`: load, faults, and a verdict on every promise.
//!
//! Reading order: [`history`] (what is written down) → [`drive`] (the load) → [`cluster`] (the servers) and [`proxy`] →
//! [`nemesis`] (the faults) → [`run`] (all of it together).

#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test that cannot go on has to stop")
)]

mod args;
mod cluster;
mod drive;
mod history;
mod nemesis;
mod proxy;
mod run;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = runtime
        .map_err(|e| e.to_string())
        .and_then(|runtime| runtime.block_on(run::run(&args)));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("torture: {why}");
            ExitCode::from(2)
        }
    }
}
