//! `quita demo`: a month of subscription charges on a bad day, with real processes over real HTTP.
//!
//! A payment gateway that fails, a server that is killed, workers that die or are told to go, a producer that runs twice.
//! At the end the books of queue, workers and gateway must agree: every charge made exactly once, every message
//! accounted for. Reading order: [`scene`] (what happens), [`gateway`], [`worker`], [`children`] (who takes part),
//! [`account`] (whether it came out right), [`table`] (how it is shown).
//!
//! Everything that must agree is checked against at least two of the parties, never against the demo's own hopes.

mod account;
mod charges;
mod children;
mod client;
mod gateway;
mod scene;
mod table;
mod worker;

pub use worker::{DemoWorkerArgs, run_worker};

use std::process::ExitCode;

/// A demo that cannot go on says why; nobody handles its errors.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How the demo plays.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Charges to publish; all of them a second time later on
    #[arg(long, default_value_t = 3_500, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    pub messages: u32,
    /// Worker processes. One that is killed or stopped is replaced
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: u32,
    /// Charges that a worker has under way at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub slots: u32,
    /// How long the gateway takes for a charge
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub gateway_latency_ms: u64,
    /// Repeats the gateway's decisions of an earlier run
    #[arg(long)]
    pub seed: Option<u64>,
    /// Play on this PostgreSQL database instead of a temporary SQLite store. Its queue is deleted at the end
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
}

/// Plays the scene and prints the books. Succeeds only if every number in them is right.
pub async fn run(args: DemoArgs) -> ExitCode {
    let interrupted = tokio::signal::ctrl_c();
    let played = tokio::select! {
        played = scene::play(&args) => played,
        _ = interrupted => Err("interrupted".into()),
    };
    match played {
        Ok(account) => {
            table::print(&account);
            if account.is_right() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("quita demo: {error}");
            ExitCode::FAILURE
        }
    }
}
