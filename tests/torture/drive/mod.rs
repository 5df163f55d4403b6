//! The load: clients of every kind, and what happens when they stop.
//!
//! Reading order: [`queues`] → [`caller`] (a connection) → [`answer`] (what it says) → [`session`] (a client that writes
//! everything down) → [`producer`], [`consumer`], [`operator`] → [`drain`].

mod answer;
mod caller;
mod consumer;
mod drain;
mod operator;
pub(crate) mod payload;
mod producer;
pub(crate) mod queues;
mod session;

use crate::history::{Event, Happened, History};
use caller::Caller;
use parking_lot::Mutex;
use producer::Draft;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use session::{Done, Session};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Drafts that are kept to be repeated at the end.
const REPEATABLE: usize = 2_000;

/// What all clients share.
pub(crate) struct Load {
    /// Everything random follows from it.
    pub(crate) seed: u64,
    fronts: Vec<SocketAddr>,
    key: String,
    history: History,
    over: watch::Sender<bool>,
    known: Mutex<Known>,
}

/// What the clients were told together.
#[derive(Default)]
struct Known {
    open: BTreeSet<String>,
    ended: BTreeSet<String>,
    repeatable: Vec<Draft>,
    seen: usize,
}

impl Load {
    /// A load on these servers.
    pub(crate) fn new(
        seed: u64,
        fronts: Vec<SocketAddr>,
        key: &str,
        history: &History,
    ) -> Arc<Self> {
        Arc::new(Self {
            seed,
            fronts,
            key: key.to_owned(),
            history: history.clone(),
            over: watch::Sender::new(false),
            known: Mutex::default(),
        })
    }

    /// Makes the queues.
    pub(crate) async fn prepare(&self) -> Result<(), String> {
        let mut caller = Caller::new(&self.fronts, &self.key);
        for (name, policy) in queues::policies() {
            let path = format!("/v1/queues/{name}");
            let body = queues::input(&policy).to_string();
            let put = caller.call(0, "PUT", &path, &body, session::PATIENCE).await;
            let caller::Outcome::Answer {
                status: 200..300, ..
            } = put
            else {
                return Err(format!("queue {name} cannot be made"));
            };
        }
        Ok(())
    }

    /// Lets all clients work until [`Load::end`].
    pub(crate) fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for number in 0..8 {
            clients.spawn(producer::produce(self.clone(), number));
        }
        for number in 0..16 {
            clients.spawn(consumer::consume(self.clone(), number));
        }
        for number in 0..2 {
            clients.spawn(operator::operate(self.clone(), number));
        }
        clients.spawn(operator::read(self.clone(), 0));
        clients
    }

    /// Asks all clients to stop.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Drains, lists, counts and repeats, on servers that are whole again.
    pub(crate) async fn settle_up(self: &Arc<Self>) -> Result<(), String> {
        drain::drain(self).await?;
        self.history.event(Event {
            kind: Happened::Drained,
            t: self.history.now(),
            ..Event::default()
        });
        drain::recount(self).await?;
        drain::repeat(self).await;
        Ok(())
    }

    fn servers(&self) -> usize {
        self.fronts.len()
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// A client's own chance: what it draws depends on no other client.
    fn chance(&self, name: &str) -> StdRng {
        let own = name
            .bytes()
            .fold(0, |sum: u64, byte| sum * 131 + u64::from(byte));
        StdRng::seed_from_u64(self.seed.wrapping_mul(1_000_003) ^ own)
    }

    fn session(&self, name: &str) -> Session {
        Session::new(name, Caller::new(&self.fronts, &self.key), &self.history)
    }

    /// Waits so long, or until the load is over.
    async fn pause(&self, time: Duration) {
        let mut over = self.over.subscribe();
        let _ = tokio::time::timeout(time, over.wait_for(|over| *over)).await;
    }

    /// A publish was answered.
    fn told(&self, done: &Done) {
        let mut known = self.known.lock();
        for told in &done.body.told {
            if !told.id.is_empty() && !known.ended.contains(&told.id) {
                known.open.insert(told.id.clone());
            }
        }
    }

    /// A message's end was answered.
    fn ended(&self, id: &str) {
        let mut known = self.known.lock();
        known.open.remove(id);
        known.ended.insert(id.to_owned());
    }

    fn without_an_end(&self) -> Vec<String> {
        self.known.lock().open.iter().cloned().collect()
    }

    /// Keeps an even sample of all drafts.
    fn repeatable(&self, draft: &Draft) {
        let mut known = self.known.lock();
        known.seen += 1;
        let place = if known.repeatable.len() < REPEATABLE {
            known.repeatable.push(draft.clone());
            return;
        } else {
            StdRng::seed_from_u64(self.seed ^ known.seen as u64).random_range(0..known.seen)
        };
        if let Some(kept) = known.repeatable.get_mut(place) {
            *kept = draft.clone();
        }
    }

    fn some_repeatable(&self, count: usize) -> Vec<Draft> {
        let known = self.known.lock();
        let mut chance = self.chance("repeat");
        let some = known.repeatable.choose_multiple(&mut chance, count);
        some.cloned().collect()
    }
}
