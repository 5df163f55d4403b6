//! quita beside a bare axum handler, in one run on one machine, as ratios.
//!
//! `cargo run --release -p quita-bench` starts everything itself: the bare handler ([`ceiling`]), quita on a fresh SQLite
//! store, quita on a throw-away PostgreSQL where its programs are installed. Reading order: [`rows`] (what is measured),
//! [`load`] and [`lifecycle`] (how), [`client`] (with what), [`report`] (what is made of it).
//!
//! Absolute figures belong to a machine; the ratio to the bare handler travels. Rows alternate and repeat, the table
//! shows medians. Load and server share the cores: what the load costs is in the table, too.

mod ceiling;
mod client;
mod desk;
mod fill;
mod lifecycle;
mod load;
mod meters;
mod postgres;
mod process;
mod report;
mod rows;
mod server;
mod subject;

use clap::{Parser, Subcommand, ValueEnum};
use report::{Figures, Verdict};
use rows::{Row, Subject};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use subject::Subjects;

/// A bench that fails says why and ends; nobody handles its errors.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "Measures quita beside a bare axum handler", version)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Length of one measurement in seconds; each row is measured once per repetition.
    #[arg(long, default_value_t = 3.0, global = true)]
    seconds: f64,
    /// How often everything is repeated; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Only this store.
    #[arg(long, global = true)]
    only: Option<Store>,
    /// Only rows whose name contains one of these, separated by commas.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// The server to measure; by default it is built here.
    #[arg(long, global = true)]
    server: Option<PathBuf>,
    /// Where stores are made and thrown away; must be a real disk. By default beside this program.
    #[arg(long, global = true)]
    directory: Option<PathBuf>,
}

#[derive(Clone, Copy, Subcommand)]
enum What {
    /// The operators' desk over many dead letters, instead of the table of requests
    Desk {
        /// Dead letters in the deep queue, a multiple of 1,000.
        #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
        depth: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    Sqlite,
    Postgres,
}

fn main() -> ExitCode {
    // The bare handler is this program in another process, so that each has its own CPU meter.
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(subject::CEILING)
        && let Some(address) = words.next()
    {
        return ending(
            ceiling::serve(&address)
                .map(|()| Verdict::Pass)
                .map_err(Into::into),
        );
    }
    ending(run(&Arguments::parse()))
}

fn ending(verdict: Outcome<Verdict>) -> ExitCode {
    match verdict {
        Ok(Verdict::Pass) => ExitCode::SUCCESS,
        Ok(Verdict::Fail) => {
            println!("FAIL: a bound is missed");
            ExitCode::from(1)
        }
        Ok(Verdict::Void) => {
            println!(
                "VOID: the bare handler stayed under {} requests/s at {} connections, so this measured the client",
                rows::CLIENT_FLOOR,
                rows::PROOF_CONNECTIONS
            );
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("quita-bench: {error}");
            ExitCode::from(3)
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn run(arguments: &Arguments) -> Outcome<Verdict> {
    if let Some(What::Desk { depth }) = arguments.what {
        return desk(arguments, depth).await;
    }
    let only = arguments.only.map(|store| match store {
        Store::Sqlite => Subject::Sqlite,
        Store::Postgres => Subject::Postgres,
    });
    let length = Duration::from_secs_f64(arguments.seconds);
    let mut chosen = rows::chosen(only, &arguments.rows);
    if chosen.iter().any(|row| row.subject == Subject::Postgres) && !postgres::is_there().await {
        eprintln!("no PostgreSQL here: its rows are left out");
        chosen.retain(|row| row.subject != Subject::Postgres);
    }
    let program = server::program(arguments.server.clone())?;
    let subjects = Subjects::prepare(program, stores(arguments)?).await?;
    let mut results: Vec<(Row, Vec<Figures>)> =
        chosen.into_iter().map(|row| (row, Vec::new())).collect();
    for repetition in 1..=arguments.repeat {
        for (row, runs) in &mut results {
            let figures = subjects
                .measure(row, length)
                .await
                .map_err(|error| format!("{}: {error}", row.name))?;
            eprintln!(
                "{repetition}/{} {:<22}{figures}",
                arguments.repeat, row.name
            );
            runs.push(figures);
        }
    }
    let lines = report::lines(&results);
    report::print(&lines)?;
    Ok(report::verdict(&lines))
}

/// Where stores are made.
fn stores(arguments: &Arguments) -> Outcome<PathBuf> {
    let directory = arguments
        .directory
        .clone()
        .or_else(|| Some(std::env::current_exe().ok()?.parent()?.to_owned()));
    Ok(directory.ok_or("no directory for stores")?)
}

async fn desk(arguments: &Arguments, depth: u64) -> Outcome<Verdict> {
    let mut wanted = Vec::new();
    if arguments.only != Some(Store::Postgres) {
        wanted.push("sqlite");
    }
    if arguments.only != Some(Store::Sqlite) && postgres::is_there().await {
        wanted.push("postgres");
    }
    let program = server::program(arguments.server.clone())?;
    let length = Duration::from_secs_f64(arguments.seconds);
    desk::run(&program, &stores(arguments)?, depth, length, &wanted).await
}
