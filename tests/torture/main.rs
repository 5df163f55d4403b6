//! `cargo torture`: load, faults, and a verdict on every promise.
//!
//! Reading order: [`history`] (what is written down) → [`check`] (the verdicts) → [`report`] (what is printed).

mod check;
mod history;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let path: Option<PathBuf> = std::env::args_os().nth(2).map(PathBuf::from);
    let Some(path) = path else {
        eprintln!("torture --recheck FILE");
        return ExitCode::from(2);
    };
    match report::Report::of(&path) {
        Ok(report) => {
            print!("{report}");
            ExitCode::from(u8::from(!report.holds()))
        }
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::from(2)
        }
    }
}
