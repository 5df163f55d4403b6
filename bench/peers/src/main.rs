//! One load generator for quita and for other queues, so that their figures can stand side by side.
//!
//! Reading order: [`workload`] (what is done and how it is measured), [`message`] (with what), one file per protocol, [`report`].
//! `run` beside this crate installs and starts the others and calls this program.

mod amqp;
mod beanstalkd;
mod http;
mod message;
mod nats;
mod pgmq;
mod process;
mod report;
mod workload;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use workload::{Extent, Peer};

#[derive(Parser)]
#[command(about = "Drives quita and other queues alike", version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Measures one workload and prints one JSON line
    Measure(Measure),
    /// Makes tables of such lines: medians of the repetitions
    Report { files: Vec<PathBuf> },
}

#[derive(Args)]
struct Measure {
    #[arg(long)]
    peer: Kind,
    /// Name of the row; the peer's by default
    #[arg(long)]
    name: String,
    #[arg(long)]
    url: String,
    #[arg(long)]
    work: Work,
    /// Producers; a lifecycle has as many consumers
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Messages of one publish
    #[arg(long, default_value_t = 1)]
    batch: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// The server's process, for its CPU and memory
    #[arg(long, default_value_t = 0)]
    pid: u32,
    /// quita's API key
    #[arg(long, default_value = "")]
    key: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Bare,
    Quita,
    Rabbitmq,
    Nats,
    Beanstalkd,
    Pgmq,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Work {
    Publish,
    Lifecycle,
}

const QUEUE: &str = "bench";
const WARM_UP: Duration = Duration::from_millis(700);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Measure(measure) => {
            println!("{}", measured(&measure).await?);
            Ok(())
        }
        What::Report { files } => report::print(&files),
    }
}

async fn measured(measure: &Measure) -> Result<Value> {
    let url = measure.url.as_str();
    let figures = match measure.peer {
        Kind::Bare => drive(http::Http::bare(url), measure).await,
        Kind::Quita => {
            // A new queue each time: a purged one is cleared while the next run is measured.
            let queue = format!("{QUEUE}-{}", message::now());
            drive(http::Http::quita(url, &queue, &measure.key), measure).await
        }
        Kind::Rabbitmq => drive(amqp::Amqp::open(url, QUEUE).await?, measure).await,
        Kind::Nats => drive(nats::Nats::open(url, QUEUE).await?, measure).await,
        Kind::Beanstalkd => drive(beanstalkd::Beanstalkd::new(url, QUEUE), measure).await,
        Kind::Pgmq => drive(pgmq::Pgmq::new(url, QUEUE), measure).await,
    }?;
    let row = match (measure.work, measure.batch) {
        (Work::Lifecycle, _) => "lifecycle".to_owned(),
        (Work::Publish, 1) => format!("publish-{}", measure.connections),
        (Work::Publish, batch) => format!("batch-{batch}"),
    };
    Ok(json!({"peer": measure.name, "row": row, "figures": figures}))
}

async fn drive<P: Peer>(peer: P, measure: &Measure) -> Result<Value> {
    let extent = Extent {
        connections: measure.connections,
        batch: measure.batch,
        warm_up: WARM_UP,
        length: Duration::from_secs_f64(measure.seconds),
        pid: measure.pid,
    };
    peer.set_up().await?;
    match measure.work {
        Work::Publish => workload::publish(peer, &extent).await,
        Work::Lifecycle => workload::lifecycle(peer, &extent).await,
    }
}
