//! A worker in its own process: receives, charges, settles. What any worker in any language would do over plain HTTP.
//!
//! One task receives ahead, one task per slot charges. Told to stop, it takes nothing new, finishes the charges under way
//! and releases what it holds but has not begun. Each settled message is one line on standard output.

use super::Outcome;
use super::client::{Client, Reply};
use super::gateway::WORKER_HEADER;
use http::Method;
use serde_json::{Value, json};
use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

/// How long an empty queue is waited on: also the longest that a stop takes.
const WAIT_SECONDS: u32 = 1;

/// One worker of the demo.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoWorkerArgs {
    /// Base URL of the queue server
    #[arg(long)]
    pub server: String,
    /// Base URL of the gateway
    #[arg(long)]
    pub gateway: String,
    /// The queue to work on
    #[arg(long)]
    pub queue: String,
    /// The worker's name
    #[arg(long)]
    pub name: String,
    /// Charges under way at a time
    #[arg(long, default_value_t = 8)]
    pub slots: usize,
    /// API key of the queue server
    #[arg(long, env = "QUITA_DEMO_KEY", hide_env_values = true)]
    pub key: String,
}

/// Works until told to stop.
pub async fn run_worker(args: DemoWorkerArgs) -> ExitCode {
    match work(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quita demo-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a worker reports, one line each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// Acked in time.
    Acked,
    /// Acked after the lease, accepted.
    AckedLate,
    /// Acked although somebody else has the message; remembered.
    AckedSuperseded,
    /// Nacked, comes again.
    Retry,
    /// Nacked, was the last time.
    Dead,
    /// Given back unworked.
    Released,
    /// A settle that was refused.
    Refused,
}

impl Report {
    pub(super) const ALL: [Self; 7] = [
        Self::Acked,
        Self::AckedLate,
        Self::AckedSuperseded,
        Self::Retry,
        Self::Dead,
        Self::Released,
        Self::Refused,
    ];

    pub(super) fn parse(line: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|report| report.to_string() == line)
    }

    fn of_ack(reply: &Reply) -> Self {
        match reply.status.as_u16() {
            200 if reply.body["late"] == true => Self::AckedLate,
            200 => Self::Acked,
            409 if reply.body["effect"] == "completion_remembered" => Self::AckedSuperseded,
            _ => Self::Refused,
        }
    }

    fn of_nack(reply: &Reply) -> Self {
        match (reply.status.as_u16(), reply.body["result"].as_str()) {
            (200, Some("dead_lettered")) => Self::Dead,
            (200, Some("acked_superseded")) => Self::Acked,
            (200, _) => Self::Retry,
            _ => Self::Refused,
        }
    }

    fn of_release(reply: &Reply) -> Self {
        if reply.status.as_u16() == 200 {
            Self::Released
        } else {
            Self::Refused
        }
    }

    /// To whoever started this process. Without a reader there is no point in going on.
    fn send(self) {
        if writeln!(std::io::stdout(), "{self}").is_err() {
            std::process::exit(1);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acked => "acked",
            Self::AckedLate => "acked_late",
            Self::AckedSuperseded => "acked_superseded",
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::Released => "released",
            Self::Refused => "refused",
        })
    }
}

/// A message that this worker holds.
#[derive(Debug)]
struct Held {
    receipt: String,
    key: String,
    message: Value,
}

struct Worker {
    args: DemoWorkerArgs,
    queue: Client,
    gateway: Client,
    stopping: AtomicBool,
}

type Line = Arc<Mutex<mpsc::Receiver<Held>>>;

async fn work(args: DemoWorkerArgs) -> Outcome<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let queue = Client::new(&args.server, Some(&args.key))?;
    let gateway = Client::new(&args.gateway, None)?.with_header(WORKER_HEADER, &args.name)?;
    let (into, line) = mpsc::channel(args.slots);
    let line: Line = Arc::new(Mutex::new(line));
    let slots = args.slots;
    let worker = Arc::new(Worker {
        args,
        queue,
        gateway,
        stopping: AtomicBool::new(false),
    });

    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&worker).receive(into));
    for _ in 0..slots {
        tasks.spawn(Arc::clone(&worker).settle_all(Arc::clone(&line)));
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        Some(ended) = tasks.join_next() => ended??,
    }
    worker.stopping.store(true, Ordering::Relaxed);
    // The slots may be busy for long; what waits behind them goes back now.
    tasks.spawn(Arc::clone(&worker).settle_all(line));
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

impl Worker {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Fills the line until told to stop. The last answer is still taken in: it may carry messages.
    async fn receive(self: Arc<Self>, into: mpsc::Sender<Held>) -> Outcome<()> {
        let body = json!({
            "queue": self.args.queue,
            "worker": self.args.name,
            "max_messages": self.args.slots.min(100),
            "wait_seconds": WAIT_SECONDS,
        });
        while !self.is_stopping() {
            let mut answer = self
                .queue
                .post("/v1/queue/receive", &body)
                .await?
                .success("receive")?;
            let Value::Array(messages) = answer["messages"].take() else {
                return Err("receive without messages".into());
            };
            for mut message in messages {
                let text = |name: &str| message[name].as_str().map(str::to_owned);
                let (Some(receipt), Some(key)) = (text("receipt"), text("key")) else {
                    return Err(format!("a delivery without receipt or key: {message}").into());
                };
                if into
                    .send(Held {
                        receipt,
                        key,
                        message: message["message"].take(),
                    })
                    .await
                    .is_err()
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// One slot: settles what comes down the line until it ends.
    async fn settle_all(self: Arc<Self>, line: Line) -> Outcome<()> {
        loop {
            let next = line.lock().await.recv().await;
            let Some(held) = next else { return Ok(()) };
            if self.is_stopping() {
                self.release(&held).await?.send();
            } else {
                self.charge(&held).await?.send();
            }
        }
    }

    /// Charges and settles by what the gateway said: 2xx ack, 402 never again, anything else later.
    async fn charge(&self, held: &Held) -> Outcome<Report> {
        let gateway = self
            .gateway
            .clone()
            .with_header("idempotency-key", &held.key)?;
        let charged = gateway.once(Method::POST, "/charges", &held.message).await;
        match charged {
            Ok(reply) if reply.status.is_success() => {
                let body = json!({ "receipt": held.receipt, "outcome": reply.body });
                Ok(Report::of_ack(
                    &self.queue.post("/v1/queue/ack", &body).await?,
                ))
            }
            Ok(reply) if reply.status.as_u16() == 402 => {
                let error = json!({ "code": "card_cancelled", "detail": reply.body.to_string() });
                self.nack(held, &error, true).await
            }
            Ok(reply) => {
                let error = json!({ "code": format!("gateway_{}", reply.status.as_u16()) });
                self.nack(held, &error, false).await
            }
            Err(error) => {
                let error = json!({ "code": "gateway_unreachable", "detail": error.to_string() });
                self.nack(held, &error, false).await
            }
        }
    }

    async fn nack(&self, held: &Held, error: &Value, permanent: bool) -> Outcome<Report> {
        let body = json!({ "receipt": held.receipt, "error": error, "permanent": permanent });
        Ok(Report::of_nack(
            &self.queue.post("/v1/queue/nack", &body).await?,
        ))
    }

    async fn release(&self, held: &Held) -> Outcome<Report> {
        let body = json!({ "receipt": held.receipt });
        Ok(Report::of_release(
            &self.queue.post("/v1/queue/release", &body).await?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        for report in Report::ALL {
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
        assert_eq!(Report::parse("quita"), None);
    }
}
