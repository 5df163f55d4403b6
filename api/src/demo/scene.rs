//! What happens, in order.

use super::account::{self, Account, Evidence};
use super::charges::{self, Published};
use super::children::{Recipe, Reports, Server, WorkerProcess};
use super::client::Client;
use super::gateway::{Gateway, chance};
use super::{DemoArgs, Outcome};
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Subscriptions whose card was cancelled.
const CANCELLED_CARDS: usize = 12;
/// Deliveries that may fail.
pub(super) const MAX_ATTEMPTS: u32 = 5;
/// Deliveries that may run out.
pub(super) const MAX_LEASE_EXPIRATIONS: u32 = 3;
/// A lease is this long plus eight times what the gateway takes: long against the server's absence and against waiting
/// behind other charges, short enough to see the killed worker's charges come again.
const LEASE: Duration = Duration::from_secs(4);
/// How long the server stays dead: workers must notice.
const SERVER_ABSENCE: Duration = Duration::from_millis(300);
/// What is still undecided when nothing has moved for two leases and this long is left over.
const STANDSTILL: Duration = Duration::from_secs(30);

/// Shares of the batch that the gateway has decided when the next thing goes wrong, in percent.
const KILL_WORKER_AT: usize = 15;
const KILL_SERVER_AT: usize = 35;
const PUBLISH_AGAIN_AT: usize = 50;
const STOP_WORKER_AT: usize = 70;

/// Plays the scene on a store of its own.
pub(super) async fn play(args: &DemoArgs) -> Outcome<Account> {
    let seed = args
        .seed
        .unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let start = Instant::now();
    let directory = tempfile::Builder::new().prefix("quita-demo-").tempdir()?;
    let latency = Duration::from_millis(args.gateway_latency_ms);
    let (gateway, gateway_address) =
        Gateway::start(seed, latency, cancelled_cards(seed, args.messages)).await?;
    let server = Server::start(directory.path(), args.database_url.as_deref()).await?;
    let key = server.key().to_owned();
    let client = Client::new(&server.url(), Some(&key))?;
    // Keys are remembered beyond the life of a queue: on a database that stays, each run needs a name of its own.
    let queue = format!("demo-charges-{:08x}", rand::random::<u32>());
    let recipe = Recipe {
        server: server.url(),
        gateway: format!("http://{gateway_address}"),
        queue: queue.clone(),
        key,
        slots: args.slots,
        reports: Arc::new(Reports::default()),
    };
    let mut stage = Stage {
        messages: args.messages,
        latency,
        bar: progress_bar(args.messages),
        start,
        gateway,
        server,
        client,
        queue,
        recipe,
        workers: VecDeque::new(),
        hired: 0,
    };
    stage.say(&format!(
        "seed {seed}: {} charges, {} workers, gateway {latency:?}",
        args.messages, args.workers
    ));
    let acts = stage.perform(args.workers).await?;
    stage.bar.finish_and_clear();
    stage.say("counting");
    let evidence = Evidence {
        seed,
        messages: args.messages,
        first: acts.first,
        second: acts.second,
        unanswered: acts.unanswered,
        gateway: &stage.gateway,
        reports: &stage.recipe.reports,
        time: start.elapsed(),
    };
    let account = account::settle(&stage.client, &stage.queue, &evidence).await?;
    if args.database_url.is_some() {
        let path = format!("/v1/queues/{}?force=true", stage.queue);
        stage
            .client
            .call(Method::DELETE, &path, &serde_json::Value::Null)
            .await?
            .success("delete the queue")?;
    }
    stage.server.stop().await?;
    Ok(account)
}

/// What the acts of the scene leave behind.
struct Acts {
    first: Published,
    second: Published,
    /// Keys that the killed worker had charged without learning it.
    unanswered: Vec<String>,
}

struct Stage {
    messages: u32,
    latency: Duration,
    bar: ProgressBar,
    start: Instant,
    gateway: Arc<Gateway>,
    server: Server,
    client: Client,
    queue: String,
    recipe: Recipe,
    workers: VecDeque<WorkerProcess>,
    hired: u32,
}

impl Stage {
    async fn perform(&mut self, workers: u32) -> Outcome<Acts> {
        self.create_queue().await?;
        let first = charges::publish(&self.client, &self.queue, self.messages, 1).await?;
        self.say(&format!("published {}", first.created));
        for _ in 0..workers {
            self.hire()?;
        }

        self.until_decided(KILL_WORKER_AT).await?;
        let unanswered = self.kill_a_worker().await?;

        self.until_decided(KILL_SERVER_AT).await?;
        self.server.kill().await?;
        self.say("killed the server (kill -9)");
        tokio::time::sleep(SERVER_ABSENCE).await;
        let down = Instant::now();
        self.server.restart().await?;
        self.say(&format!(
            "the server is back after {} ms",
            down.elapsed().as_millis()
        ));

        self.until_decided(PUBLISH_AGAIN_AT).await?;
        let second = charges::publish(&self.client, &self.queue, self.messages, 2).await?;
        self.say(&format!(
            "published all {} again: {} duplicates",
            self.messages, second.duplicates
        ));

        self.until_decided(STOP_WORKER_AT).await?;
        self.stop_a_worker().await?;

        self.until_settled().await?;
        for worker in &self.workers {
            worker.ask_to_stop()?;
        }
        for worker in self.workers.drain(..) {
            worker.stop().await?;
        }
        Ok(Acts {
            first,
            second,
            unanswered,
        })
    }

    fn lease(&self) -> Duration {
        LEASE + 8 * self.latency
    }

    fn stands_still(&self, since: Instant) -> bool {
        since.elapsed() > STANDSTILL + 2 * self.lease()
    }

    async fn create_queue(&self) -> Outcome<()> {
        let policy = json!({
            "visibility_timeout_seconds": self.lease().as_secs_f64(),
            "max_attempts": MAX_ATTEMPTS,
            "max_lease_expirations": MAX_LEASE_EXPIRATIONS,
            "backoff": { "type": "exponential", "base_seconds": 0.1, "factor": 2, "max_seconds": 2, "jitter": "equal" },
            "unique_key": true,
        });
        let path = format!("/v1/queues/{}", self.queue);
        self.client
            .call(Method::PUT, &path, &policy)
            .await?
            .success("create the queue")
            .map(drop)
    }

    fn hire(&mut self) -> Outcome<()> {
        self.hired += 1;
        self.workers
            .push_back(WorkerProcess::start(&self.recipe, self.hired)?);
        Ok(())
    }

    /// kill −9 in the worst moment: the gateway has charged, the worker does not know it yet.
    async fn kill_a_worker(&mut self) -> Outcome<Vec<String>> {
        let worker = self.workers.pop_front().ok_or("no worker left")?;
        self.hold(&worker.name).await;
        let name = worker.name.clone();
        worker.kill().await?;
        let unanswered = self.gateway.let_go();
        self.say(&format!(
            "killed {name} (kill -9) with {} charges made and not acked",
            unanswered.len()
        ));
        self.hire()?;
        Ok(unanswered)
    }

    /// SIGTERM while its charges are under way: those are finished, what waits behind them is released.
    async fn stop_a_worker(&mut self) -> Outcome<()> {
        let worker = self.workers.pop_front().ok_or("no worker left")?;
        self.hold(&worker.name).await;
        worker.ask_to_stop()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let finished = self.gateway.let_go().len();
        let name = worker.name.clone();
        worker.stop().await?;
        let released = self.recipe.reports.count(super::worker::Report::Released);
        self.say(&format!(
            "stopped {name} (SIGTERM): {finished} charges finished, {released} messages released"
        ));
        self.hire()
    }

    /// Lets a worker's slots fill up with charges that are made and not answered.
    async fn hold(&self, worker: &str) {
        self.gateway.hold(worker);
        let since = Instant::now();
        while self.gateway.unanswered() < self.recipe.slots as usize / 2 + 1
            && since.elapsed() < LEASE / 4 + 2 * self.latency
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the gateway has decided `percent` of the batch.
    async fn until_decided(&self, percent: usize) -> Outcome<()> {
        let target = self.messages as usize * percent / 100;
        let mut moved = (0, Instant::now());
        loop {
            let decided = self.gateway.decided();
            self.bar.set_position(decided as u64);
            if decided >= target {
                return Ok(());
            }
            if decided > moved.0 {
                moved = (decided, Instant::now());
            } else if self.stands_still(moved.1) {
                return Err(format!(
                    "stuck: the gateway has decided {decided} of {} charges",
                    self.messages
                )
                .into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until nothing is delayed, ready or leased, or nothing moves any more.
    async fn until_settled(&self) -> Outcome<()> {
        let path = format!("/v1/queues/{}", self.queue);
        let mut moved = (i64::MAX, Instant::now());
        loop {
            let left = account::left_over(&self.client.get(&path).await?)?;
            self.bar
                .set_position(u64::from(self.messages).saturating_sub(left.unsigned_abs()));
            if left == 0 || self.stands_still(moved.1) {
                return Ok(());
            }
            if left < moved.0 {
                moved = (left, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn say(&self, what: &str) {
        self.bar
            .suspend(|| println!("{:>6.2} s  {what}", self.start.elapsed().as_secs_f64()));
    }
}

/// Twelve by lot, or fewer where that would be more than every fourth.
fn cancelled_cards(seed: u64, messages: u32) -> HashSet<String> {
    let mut all: Vec<String> = (0..messages).map(charges::subscription).collect();
    all.sort_by_cached_key(|subscription| chance(seed, subscription, 0));
    all.truncate(CANCELLED_CARDS.min(messages as usize / 4));
    all.into_iter().collect()
}

fn progress_bar(messages: u32) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(messages));
    if let Ok(style) =
        ProgressStyle::with_template("{elapsed:>7}  {wide_bar} {pos}/{len} charges decided")
    {
        bar.set_style(style);
    }
    bar
}
