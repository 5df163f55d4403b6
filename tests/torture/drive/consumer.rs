//! Consumers: most work as they should, some fail, sleep past their lease, vanish, or come back with an old receipt.

use super::Load;
use super::answer::Held;
use super::queues::{DELAYED, EXPIRING, PLAIN, SCRATCH, UNIQUE};
use super::session::{Ask, Done, PATIENCE, Session};
use crate::history::{Args, Kind, Short};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Old receipts that are kept, to be shown again.
const KEPT: usize = 100;

struct Consumer {
    load: Arc<Load>,
    chance: StdRng,
    session: Session,
    /// Its favourite server, until that fails it.
    server: usize,
    /// What it will do later, the receipt with it.
    later: Vec<(Instant, Kind, Held)>,
    old: VecDeque<Held>,
}

/// Receives and settles until the load ends; what it holds then is left alone.
pub(crate) async fn consume(load: Arc<Load>, number: usize) {
    let name = format!("c{number}");
    let mut consumer = Consumer {
        chance: load.chance(&name),
        session: load.session(&name),
        server: number % load.servers(),
        load,
        later: Vec::new(),
        old: VecDeque::new(),
    };
    while !consumer.load.is_over() {
        consumer.do_what_is_due().await;
        consumer.receive().await;
    }
}

impl Consumer {
    async fn receive(&mut self) {
        let queue = match self.chance.random_range(0..100) {
            0..35 => PLAIN,
            35..55 => DELAYED,
            55..70 => EXPIRING,
            70..93 => UNIQUE,
            _ => SCRATCH,
        };
        let max = self.chance.random_range(1..=10);
        let lease_ms = self.chance.random_range(2..=6) * 500;
        let wait_ms = self.chance.random_range(0..=4) * 250;
        let mut ask = receive(queue, max, lease_ms, wait_ms);
        if self.chance.random_ratio(3, 200) {
            // It vanishes while it waits, or while the answer is on its way.
            ask.patience = Duration::from_millis(self.chance.random_range(1..400));
        }
        let done = self.ask(ask).await;
        let begun = Instant::now();
        for held in done.held {
            self.work(held, begun, Duration::from_millis(lease_ms))
                .await;
        }
    }

    async fn work(&mut self, held: Held, begun: Instant, lease: Duration) {
        let soon = Instant::now() + lease.mul_f64(0.4);
        match self.chance.random_range(0..1_000) {
            0..680 => self.settle(Kind::Ack, &held).await,
            680..700 => self.settle(Kind::Release, &held).await,
            700..800 => self.settle(Kind::Nack, &held).await,
            800..830 => self.nack_for_good(&held).await,
            830..880 => {
                self.settle(Kind::Extend, &held).await;
                self.later.push((soon, Kind::Ack, held.clone()));
            }
            880..950 => {
                let past = lease + Duration::from_millis(self.chance.random_range(50..2_000));
                let what = match self.chance.random_range(0..10) {
                    0 => Kind::Nack,
                    1 => Kind::Extend,
                    2 => Kind::Release,
                    _ => Kind::Ack,
                };
                self.later.push((begun + past, what, held.clone()));
            }
            950..980 => {}
            _ => {
                self.settle(Kind::Ack, &held).await;
                self.show_an_old_receipt().await;
            }
        }
        self.old.push_back(held);
        if self.old.len() > KEPT {
            self.old.pop_front();
        }
    }

    async fn do_what_is_due(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.later.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, what, held) in due {
            self.settle(what, &held).await;
        }
    }

    async fn settle(&mut self, what: Kind, held: &Held) {
        for _ in 0..2 {
            let ask = match what {
                Kind::Ack => settle(Kind::Ack, held, Args::default(), json!({})),
                Kind::Release => self.release(held),
                Kind::Extend => self.extend(held),
                _ => self.nack(held),
            };
            let done = self.ask(ask).await;
            if what == Kind::Ack && done.ok() {
                self.load.ended(&held.id);
            }
            // The receipt makes the repeat safe.
            if !done.unknown() || self.chance.random() {
                break;
            }
        }
    }

    fn nack(&mut self, held: &Held) -> Ask<'static> {
        let mut args = Args::default();
        let mut more = json!({"error": {"code": "gateway_503", "detail": "no answer"}});
        if self.chance.random_ratio(1, 4) {
            let delay = self.chance.random_range(0..1_000);
            args.delay_ms = Some(delay);
            more["delay_seconds"] = json!(delay as f64 / 1_000.0);
        }
        settle(Kind::Nack, held, args, more)
    }

    async fn nack_for_good(&mut self, held: &Held) {
        let args = Args {
            permanent: true,
            ..Args::default()
        };
        let more = json!({"permanent": true, "error": {"code": "card_cancelled"}});
        self.ask(settle(Kind::Nack, held, args, more)).await;
    }

    fn release(&mut self, held: &Held) -> Ask<'static> {
        let mut args = Args::default();
        let mut more = json!({});
        if self.chance.random() {
            args.delay_ms = Some(500);
            more["delay_seconds"] = json!(0.5);
        }
        settle(Kind::Release, held, args, more)
    }

    fn extend(&mut self, held: &Held) -> Ask<'static> {
        let lease_ms = self.chance.random_range(2..=6) * 500;
        let args = Args {
            lease_ms: Some(lease_ms),
            ..Args::default()
        };
        let more = json!({"visibility_timeout_seconds": lease_ms as f64 / 1_000.0});
        settle(Kind::Extend, held, args, more)
    }

    /// One that was settled, ran out or was taken from it long ago; one time in four, a changed one.
    async fn show_an_old_receipt(&mut self) {
        if self.old.is_empty() {
            return;
        }
        let mut held = self.old[self.chance.random_range(0..self.old.len())].clone();
        if self.chance.random_ratio(3, 4) {
            self.settle(Kind::Ack, &held).await;
            return;
        }
        let mut bytes = held.receipt.into_bytes();
        let at = self.chance.random_range(0..bytes.len());
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        bytes.truncate(self.chance.random_range(1..=bytes.len()).max(at + 1));
        held.receipt = String::from_utf8_lossy(&bytes).into_owned();
        let args = Args {
            forged: true,
            ..Args::default()
        };
        self.ask(settle(Kind::Ack, &held, args, json!({}))).await;
    }

    /// Asks its server, now and then another one; after a failure it takes another for good.
    async fn ask(&mut self, ask: Ask<'_>) -> Done {
        let servers = self.load.servers();
        if self.chance.random_ratio(1, 10) {
            self.server = self.chance.random_range(0..servers);
        }
        let done = self.session.ask(self.server, ask).await;
        if done.unknown() {
            self.server = (self.server + 1) % servers;
            self.load.pause(Duration::from_millis(50)).await;
        }
        done
    }
}

/// A receive.
pub(crate) fn receive(queue: &str, max: u32, lease_ms: u64, wait_ms: u64) -> Ask<'_> {
    let args = Args {
        max: Some(max),
        lease_ms: Some(lease_ms),
        wait_ms: Some(wait_ms),
        ..Args::default()
    };
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    let body = json!({"queue": queue, "max_messages": max, "wait_seconds": seconds(wait_ms),
        "visibility_timeout_seconds": seconds(lease_ms)});
    let path = "/v1/queue/receive";
    let mut ask = Ask::post(Kind::Receive, queue, path, args, body.to_string());
    ask.patience = PATIENCE + Duration::from_millis(wait_ms);
    ask
}

/// A settle or an extend.
pub(crate) fn settle(what: Kind, held: &Held, mut args: Args, mut more: Value) -> Ask<'static> {
    args.receipt = Some(Short::of(&held.receipt));
    args.message_id.clone_from(&held.id);
    more["receipt"] = json!(held.receipt);
    let path = match what {
        Kind::Nack => "/v1/queue/nack",
        Kind::Release => "/v1/queue/release",
        Kind::Extend => "/v1/queue/extend",
        _ => "/v1/queue/ack",
    };
    let queue = super::queues::ALL.into_iter().find(|q| *q == held.queue);
    Ask::post(
        what,
        queue.unwrap_or_default(),
        path,
        args,
        more.to_string(),
    )
}
