//! `cargo torture`: load, faults, and a verdict on every promise.
//!
//! Reading order: [`history`] (what is written down) → [`drive`] (the load) → [`cluster`] (the servers) and [`proxy`] →
//! [`nemesis`] (the faults) → [`run`] (all of it together) → [`check`] (the verdicts, from the history alone) → [`report`]
//! (what is printed). [`scenario`] and [`controls`] are runs with a purpose.

mod args;
mod check;
mod cluster;
mod controls;
mod drive;
mod history;
mod nemesis;
mod proxy;
mod report;
mod run;
mod scenario;

use args::Args;
use clap::Parser;
use cluster::Twist;
use report::Report;
use scenario::Expected;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.recheck {
        Some(file) => verdict(file).map(|report| report.holds()),
        None if args.controls => controls::all(&args),
        None if args.scenario.is_empty() => {
            tortured(&args, Twist::None).map(|report| report.holds())
        }
        None => scenarios(&args),
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

fn tortured(args: &Args, twist: Twist) -> Result<Report, String> {
    verdict(&history_of(args, twist)?)
}

/// Does one run; where its history is.
fn history_of(args: &Args, twist: Twist) -> Result<PathBuf, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    runtime.block_on(run::run(args, twist))
}

/// Prints the verdict.
fn verdict(history: &Path) -> Result<Report, String> {
    let report = Report::of(history);
    let report = report.map_err(|e| format!("{}: {e}", history.display()))?;
    print!("{report}");
    Ok(report)
}

/// Whether all scenarios came out as they have to. What one lacks is said, and counted.
fn scenarios(args: &Args) -> Result<bool, String> {
    let mut lines = Vec::new();
    let mut right = true;
    for scenario in scenario::named(&args.scenario)? {
        println!("\n== {}", scenario.name);
        let report = tortured(&scenario.args(args), scenario.twist);
        let (as_expected, word) = match (&report, scenario.expected) {
            (Ok(report), _) if !report.had_faults() => (
                report.holds(),
                "SKIPPED (no fault could happen here)".to_owned(),
            ),
            (Ok(report), Expected::Lost) => {
                let lost = report.lost();
                (lost > 0, format!("lost {lost}, as it must"))
            }
            (Ok(report), Expected::Kept) => (report.holds(), format!("lost {}", report.lost())),
            (Ok(_), Expected::Refused(_)) => (false, "it runs".to_owned()),
            (Err(why), expected) => match (why.strip_prefix(cluster::LACKS), expected) {
                (Some(what), _) => (true, format!("SKIPPED ({what})")),
                (None, Expected::Refused(word)) if why.contains(word) => {
                    (true, format!("refused: {word}"))
                }
                (None, _) => (false, why.clone()),
            },
        };
        right &= as_expected;
        let verdict = if as_expected { "" } else { "NOT AS EXPECTED: " };
        lines.push(format!("{:<36}{verdict}{word}", scenario.name));
    }
    println!("\n{}", lines.join("\n"));
    Ok(right)
}
