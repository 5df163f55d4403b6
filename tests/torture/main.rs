//! `cargo torture`: load, faults, and a verdict on every promise.
//!
//! Reading order: [`history`] (what is written down) → [`drive`] (the load) → [`cluster`] (the servers) and [`proxy`] →
//! [`nemesis`] (the faults) → [`run`] (all of it together) → [`check`] (the verdicts, from the history alone) → [`report`]
//! (what is printed).

#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test that cannot go on has to stop")
)]

mod args;
mod check;
mod cluster;
mod drive;
mod history;
mod nemesis;
mod proxy;
mod report;
mod run;

use clap::Parser;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let done = match &args.recheck {
        Some(file) => verdict(file),
        None => tortured(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("torture: {why}");
            ExitCode::from(2)
        }
    }
}

fn tortured(args: &args::Args) -> Result<bool, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let history = runtime.block_on(run::run(args))?;
    verdict(&history)
}

/// Prints the verdict; whether every promise was kept.
fn verdict(history: &Path) -> Result<bool, String> {
    let report = report::Report::of(history);
    let report = report.map_err(|e| format!("{}: {e}", history.display()))?;
    print!("{report}");
    Ok(report.holds())
}
