//! quita beside a bare axum handler, in one run on one machine, as ratios.
//!
//! `cargo run --release -p quita-bench` starts everything itself: the bare handler ([`ceiling`]), quita on a fresh SQLite
//! store, quita on a throw-away PostgreSQL where its programs are installed.
//!
//! Reading order: [`fresh`] (who is measured), [`messages`] and [`client`] (with what), [`load`], [`lifecycle`] and [`paced`]
//! (how), [`meters`] and [`stats`] (what is read and made of it). Then what can be asked for: [`rows`] and [`report`] (the
//! short table), [`all`] and [`compare`], [`access`], [`slow`], [`desk`].
//!
//! Absolute figures belong to a machine; the ratio to the bare handler travels. Rows alternate and repeat, the table
//! shows medians. Load and server share the cores: what the load costs is in the table, too.

mod access;
mod all;
mod ceiling;
mod client;
mod compare;
mod desk;
mod fill;
mod fresh;
mod lifecycle;
mod load;
mod messages;
mod meters;
mod paced;
mod postgres;
mod process;
mod report;
mod rows;
mod server;
mod slow;
mod stats;
mod subject;
mod token;

use clap::{Parser, Subcommand};
use fresh::{Ground, Store};
use report::{Figures, Verdict};
use rows::Row;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use subject::{Bare, Subjects};

/// A bench that fails says why and ends; nobody handles its errors.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "Measures quita beside a bare axum handler", version)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Length of one measurement in seconds, once per row and repetition. 3, and 2 of `all`, unless given.
    #[arg(long, global = true)]
    seconds: Option<f64>,
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

#[derive(Clone, Subcommand)]
enum What {
    /// The operators' desk over many dead letters, instead of the table of requests
    Desk {
        /// Dead letters in the deep queue, a multiple of 1,000.
        #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
        depth: u64,
    },
    /// Everything that is said about speed, in 10 to 15 minutes, with its bounds
    All(all::Extent),
    /// Two files of `all` side by side
    Compare {
        /// The earlier one.
        before: PathBuf,
        /// The later one.
        after: PathBuf,
    },
    /// What authentication with limits costs the server, per publish
    Access {
        /// Pairs of measurements; the median of their ratios counts.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
        pairs: u32,
    },
    /// Clients that are slow on purpose: when they are closed, and what others notice
    Slow {
        /// Slow clients of one wave.
        #[arg(long, default_value_t = 500)]
        count: usize,
        /// Waves; between them the others are alone.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
        waves: u32,
    },
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
                "VOID: the bare handler stayed under {} requests/s at {} connections or the client cost too much: this measured the client, or somebody else on this machine",
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
    if let Some(What::Compare { before, after }) = &arguments.what {
        return compare::run(before, after).map(|()| Verdict::Pass);
    }
    let usual = match arguments.what {
        Some(What::All(_)) => 2.0,
        _ => 3.0,
    };
    let length = Duration::from_secs_f64(arguments.seconds.unwrap_or(usual));
    let ground = Ground {
        program: server::program(arguments.server.clone())?,
        directory: directory(arguments)?,
    };
    match &arguments.what {
        Some(What::All(extent)) => {
            let stores = stores(arguments.only).await;
            all::run(&ground, &stores, extent, length).await
        }
        Some(What::Desk { depth }) => {
            let stores = stores(arguments.only).await;
            desk::run(&ground, *depth, length, &stores).await
        }
        Some(What::Access { pairs }) => access::run(&ground, *pairs, length).await,
        Some(What::Slow { count, waves }) => slow::run(&ground, *count, *waves).await,
        _ => table(arguments, ground, length).await,
    }
}

/// Where stores are made.
fn directory(arguments: &Arguments) -> Outcome<PathBuf> {
    let directory = arguments
        .directory
        .clone()
        .or_else(|| Some(std::env::current_exe().ok()?.parent()?.to_owned()));
    Ok(directory.ok_or("no directory for stores")?)
}

/// The stores that are wanted and there.
async fn stores(only: Option<Store>) -> Vec<Store> {
    let mut stores = Store::ALL.to_vec();
    stores.retain(|store| only.is_none_or(|only| only == *store));
    if stores.contains(&Store::Postgres) && !postgres::is_there().await {
        eprintln!("no PostgreSQL here: its rows are left out");
        stores.retain(|store| *store != Store::Postgres);
    }
    stores
}

/// The short table of requests.
async fn table(arguments: &Arguments, ground: Ground, length: Duration) -> Outcome<Verdict> {
    let stores = stores(arguments.only).await;
    let mut results: Vec<(Row, Vec<Figures>)> = rows::chosen(&stores, &arguments.rows)
        .into_iter()
        .map(|row| (row, Vec::new()))
        .collect();
    let subjects = Subjects {
        bare: Bare::start().await?,
        ground,
    };
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
