//! Everything that the project says about its speed, in one run: `quita-bench all`.
//!
//! Reading order: this file (what is measured, in which order) → [`requests`], [`waits`], [`depth`], [`snapshot`] (how) and
//! [`alone`] (the floor under it) → [`book`] (what came of it) → [`bounds`] (what it must reach) → [`table`].
//!
//! What is compared takes turns: a repetition measures each row once, the bare handler's beside quita's. quita gets a new
//! store for each row. Deep queues and the open snapshot take long to prepare: their stores are made once, and their rows take
//! turns there.

mod alone;
mod book;
mod bounds;
mod depth;
mod machine;
mod requests;
mod snapshot;
mod table;
mod waits;

use crate::Outcome;
use crate::fresh::{Fresh, Ground, Store};
use crate::report::Verdict;
use crate::subject::Bare;
use alone::What;
use book::{Book, Figure, Who, figures};
use clap::Args;
use machine::Machine;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Args, Clone)]
pub(crate) struct Extent {
    /// How often each row is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Messages in the deep queues, a multiple of 1,000
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    depth: u64,
    /// Lifecycles beside an open snapshot
    #[arg(long, default_value_t = 500_000)]
    lifecycles: u64,
    /// Seconds of the row whose p99 is compared with its p50
    #[arg(long, default_value_t = 10.0)]
    tail_seconds: f64,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Requests, Part::Waits, Part::Depth, Part::Snapshot])]
    parts: Vec<Part>,
    /// Where the lines for `compare` are written
    #[arg(long, default_value = "bench.jsonl")]
    output: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Publishes, lifecycles, batches, sizes, and the stores by themselves
    Requests,
    /// Receives that wait
    Waits,
    /// A million messages
    Depth,
    /// An open snapshot in PostgreSQL
    Snapshot,
}

/// What is done with a new store, and the row's name.
#[derive(Clone, Copy)]
enum Work {
    Idle,
    Publish(usize),
    Tail,
    Lifecycle,
    Batches(u64),
    Sizes,
    Waiting,
    WakeUp,
    WakeUpAtReplica,
}

const REQUESTS: [(&str, Work); 10] = [
    ("idle", Work::Idle),
    ("publish-1", Work::Publish(1)),
    ("publish-16", Work::Publish(16)),
    ("publish-64", Work::Publish(64)),
    ("publish-256", Work::Publish(256)),
    ("lifecycle", Work::Lifecycle),
    ("batch-10", Work::Batches(10)),
    ("batch-100", Work::Batches(100)),
    ("sizes", Work::Sizes),
    ("tail-64", Work::Tail),
];

const WAITS: [(&str, Work); 3] = [
    ("waiting-1000", Work::Waiting),
    ("wake-up", Work::WakeUp),
    ("wake-up-replica", Work::WakeUpAtReplica),
];

/// Wake-ups of one repetition.
const WAKE_UPS: u64 = 100;
/// A server is at rest so long after it became ready.
const AT_REST: Duration = Duration::from_millis(1500);

struct Run<'a> {
    ground: &'a Ground,
    stores: &'a [Store],
    extent: &'a Extent,
    length: Duration,
    bare: Bare,
    book: Book,
}

/// Measures everything, prints it and writes the lines.
pub(crate) async fn run(
    ground: &Ground,
    stores: &[Store],
    extent: &Extent,
    length: Duration,
) -> Outcome<Verdict> {
    // A thousand waiting receives, on either side.
    quita_api::open_files::raise_to(4 * waits::WAITING as u64);
    let begun = Instant::now();
    let machine = Machine::look(&ground.directory, stores).await?;
    let mut run = Run {
        ground,
        stores,
        extent,
        length,
        bare: Bare::start().await?,
        book: Book::default(),
    };
    for repetition in 1..=extent.repeat {
        eprintln!(
            "repetition {repetition} of {}, {:.0?} so far",
            extent.repeat,
            begun.elapsed()
        );
        run.repetition().await?;
    }
    if extent.parts.contains(&Part::Depth) {
        run.depth().await?;
    }
    if extent.parts.contains(&Part::Snapshot) && stores.contains(&Store::Postgres) {
        let fresh = ground.start(Store::Postgres).await?;
        snapshot::run(&fresh, extent.lifecycles, &mut run.book).await?;
        fresh.end().await;
    }
    let checks = bounds::checked(&run.book, stores);
    std::fs::write(&extent.output, table::lines(&machine, &run.book, &checks))?;
    println!("{}", table::markdown(&machine, &run.book, &checks)?);
    println!(
        "{:.0?}; lines in {}",
        begun.elapsed(),
        extent.output.display()
    );
    Ok(bounds::verdict(&checks))
}

impl Run<'_> {
    async fn repetition(&mut self) -> Outcome<()> {
        if self.extent.parts.contains(&Part::Requests) {
            for (row, work) in REQUESTS {
                if let Work::Publish(connections) = work {
                    let measured = self.bare.measure(connections, self.length).await?;
                    self.book
                        .note(Who::Bare, row, &figures(&measured, false, &[]));
                }
                self.of_each_store(row, work).await?;
                self.alone(work).await?;
            }
        }
        if self.extent.parts.contains(&Part::Waits) {
            for (row, work) in WAITS {
                self.of_each_store(row, work).await?;
            }
        }
        Ok(())
    }

    async fn of_each_store(&mut self, row: &'static str, work: Work) -> Outcome<()> {
        for store in self.stores {
            if matches!(work, Work::WakeUpAtReplica) && *store != Store::Postgres {
                continue;
            }
            let fresh = self.ground.start(*store).await?;
            let figures = self.measure(&fresh, work).await;
            fresh.end().await;
            let figures = figures.map_err(|error| format!("{} {row}: {error}", store.name()))?;
            self.book.note(Who::Quita(*store), row, &figures);
        }
        Ok(())
    }

    async fn measure(&self, fresh: &Fresh, work: Work) -> Outcome<Vec<Figure>> {
        let length = self.length;
        match work {
            Work::Idle => {
                tokio::time::sleep(AT_REST).await;
                Ok(requests::memory(fresh)?.to_vec())
            }
            Work::Publish(connections) => requests::publish(fresh, connections, length).await,
            Work::Tail => {
                let length = Duration::from_secs_f64(self.extent.tail_seconds);
                requests::publish(fresh, 64, length).await
            }
            Work::Lifecycle => requests::lifecycle(fresh, "0", length).await,
            Work::Batches(count) => requests::batches(fresh, count, length).await,
            Work::Sizes => requests::sizes(fresh, length).await,
            Work::Waiting => waits::idle(fresh).await,
            Work::WakeUp => waits::wake_ups(&fresh.quita, &fresh.quita, WAKE_UPS).await,
            Work::WakeUpAtReplica => {
                let replica = self.ground.replica(fresh).await?;
                waits::wake_ups(&fresh.quita, &replica, WAKE_UPS).await
            }
        }
    }

    /// The floors under a row, right after it.
    async fn alone(&mut self, work: Work) -> Outcome<()> {
        let floors = match work {
            Work::Publish(1) => &[("commit", What::Row, 1)][..],
            Work::Batches(100) => &[
                ("bulk-1000", What::Message, 1_000),
                ("bulk-1000-rows", What::Row, 1_000),
            ],
            _ => return Ok(()),
        };
        for store in self.stores {
            for (row, what, messages) in floors {
                let figures = alone::insert(self.ground, *store, *what, *messages, self.length);
                self.book.note(Who::Alone(*store), row, &figures.await?);
            }
        }
        Ok(())
    }

    async fn depth(&mut self) -> Outcome<()> {
        for store in self.stores {
            let fresh = self.ground.start(*store).await?;
            let (depth, repeat) = (self.extent.depth, self.extent.repeat);
            let done = depth::run(&fresh, depth, repeat, self.length, &mut self.book).await;
            fresh.end().await;
            done?;
        }
        Ok(())
    }
}
