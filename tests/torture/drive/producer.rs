//! Producers: some retry blindly, some send the same thing many times at once.

use super::Load;
use super::payload::{Size, text};
use super::queues::{DELAYED, EXPIRING, PLAIN, SCRATCH, UNIQUE};
use super::session::{Ask, Done, Session};
use crate::history::{Args, Digest, Entry, Kind};
use futures_util::future::join_all;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Most copies of one publish at once.
const COPIES: usize = 8;

/// Earlier publishes that are remembered, to be repeated.
const REMEMBERED: usize = 64;

/// One message to publish, with all that has to be the same when it is repeated.
#[derive(Clone)]
pub(crate) struct Draft {
    queue: &'static str,
    text: String,
    request_id: Option<String>,
    key: Option<String>,
    delay_ms: Option<u64>,
    expires_in_ms: Option<u64>,
}

impl Draft {
    fn entry(&self) -> Entry {
        Entry {
            sha: Digest::of(self.text.as_bytes()),
            len: self.text.len() as u32,
            request_id: self.request_id.clone().unwrap_or_default(),
            key: self.key.clone().unwrap_or_default(),
            delay_ms: self.delay_ms,
            expires_in_ms: self.expires_in_ms,
            max_attempts: None,
        }
    }

    /// Members of the request, the message's text as it is.
    fn members(&self) -> String {
        let mut members = format!("\"message\":{}", self.text);
        let seconds = |ms: Option<u64>| ms.map(|ms| ms as f64 / 1_000.0);
        for (name, value) in [
            ("client_request_id", json!(self.request_id)),
            ("key", json!(self.key)),
            ("delay_seconds", json!(seconds(self.delay_ms))),
            ("expires_in_seconds", json!(seconds(self.expires_in_ms))),
        ] {
            if value != Value::Null {
                // Writing to a text cannot fail.
                let _ = write!(members, ",\"{name}\":{value}");
            }
        }
        members
    }

    /// As one publish.
    pub(crate) fn ask(&self) -> Ask<'static> {
        let args = Args {
            messages: vec![self.entry()],
            ..Args::default()
        };
        let body = format!("{{\"queue\":\"{}\",{}}}", self.queue, self.members());
        Ask::post(Kind::Publish, self.queue, "/v1/queue/publish", args, body)
    }
}

fn batch(drafts: &[Draft]) -> Ask<'static> {
    let queue = drafts[0].queue;
    let entries: Vec<String> = drafts
        .iter()
        .map(|draft| format!("{{{}}}", draft.members()))
        .collect();
    let args = Args {
        messages: drafts.iter().map(Draft::entry).collect(),
        ..Args::default()
    };
    let body = format!(
        "{{\"queue\":\"{queue}\",\"messages\":[{}]}}",
        entries.join(",")
    );
    Ask::post(
        Kind::PublishBatch,
        queue,
        "/v1/queue/publish-batch",
        args,
        body,
    )
}

struct Producer {
    load: Arc<Load>,
    chance: StdRng,
    name: String,
    made: u64,
    sessions: Vec<Session>,
    earlier: VecDeque<Draft>,
}

/// Publishes until the load ends.
pub(crate) async fn produce(load: Arc<Load>, number: usize) {
    let name = format!("p{number}");
    let mut sessions = vec![load.session(&name)];
    sessions.extend((1..COPIES).map(|copy| load.session(&format!("{name}.{copy}"))));
    let mut producer = Producer {
        chance: load.chance(&name),
        load,
        name,
        made: 0,
        sessions,
        earlier: VecDeque::new(),
    };
    while !producer.load.is_over() {
        producer.step().await;
        let pause = producer.chance.random_range(20..60);
        producer.load.pause(Duration::from_millis(pause)).await;
    }
}

impl Producer {
    async fn step(&mut self) {
        match self.chance.random_range(0..100) {
            0..10 => self.publish_batch().await,
            10..15 if !self.earlier.is_empty() => {
                let which = self.chance.random_range(0..self.earlier.len());
                let again = self.earlier[which].clone();
                self.publish(&again).await;
            }
            _ => {
                let queue = self.queue();
                let size = Size::draw(&mut self.chance);
                let draft = self.draft(queue, size);
                let storm = draft.request_id.is_some() && self.chance.random_ratio(3, 10);
                let answered = if storm {
                    self.publish_at_once(&draft).await
                } else {
                    self.publish(&draft).await
                };
                self.remember(draft, answered);
            }
        }
    }

    fn queue(&mut self) -> &'static str {
        match self.chance.random_range(0..100) {
            0..40 => PLAIN,
            40..60 => DELAYED,
            60..75 => EXPIRING,
            75..93 => UNIQUE,
            _ => SCRATCH,
        }
    }

    fn draft(&mut self, queue: &'static str, size: Size) -> Draft {
        self.made += 1;
        let id = format!("{}-{}-{}", self.load.seed, self.name, self.made);
        let key = (queue == UNIQUE).then(|| self.key(&id));
        let beside = key.as_ref().map_or(0, String::len);
        Draft {
            queue,
            text: text(&id, size, beside, &mut self.chance),
            request_id: self.chance.random_ratio(6, 10).then(|| format!("r-{id}")),
            key,
            delay_ms: (queue == DELAYED).then(|| self.chance.random_range(2..30) * 100),
            expires_in_ms: (queue == EXPIRING).then_some(5_000),
        }
    }

    /// A new one, or one that an earlier message has.
    fn key(&mut self, id: &str) -> String {
        let mut taken = self.earlier.iter().filter_map(|draft| draft.key.as_ref());
        match taken.next_back() {
            Some(taken) if self.chance.random_ratio(2, 10) => taken.clone(),
            _ => format!("k-{id}"),
        }
    }

    /// Keeps it for repeats; for those at the very end only if it was answered, since they must make nothing new.
    fn remember(&mut self, draft: Draft, answered: bool) {
        if draft.request_id.is_some() && draft.text.len() < 4_096 {
            if answered {
                self.load.repeatable(&draft);
            }
            self.earlier.push_back(draft);
            if self.earlier.len() > REMEMBERED {
                self.earlier.pop_front();
            }
        }
    }

    /// Publishes, and again under the same id while nobody knows what came of it; whether it was answered in the end.
    async fn publish(&mut self, draft: &Draft) -> bool {
        for _ in 0..3 {
            let server = self.chance.random_range(0..self.load.servers());
            let done = self.sessions[0].ask(server, draft.ask()).await;
            self.load.told(&done);
            let again = done.unknown() && draft.request_id.is_some();
            if !again || self.load.is_over() || self.chance.random_ratio(3, 10) {
                return done.ok();
            }
            self.load.pause(Duration::from_millis(100)).await;
        }
        false
    }

    /// Publishes many times at once; whether one of them was answered.
    async fn publish_at_once(&mut self, draft: &Draft) -> bool {
        let copies = self.chance.random_range(2..=COPIES);
        let first = self.chance.random_range(0..COPIES);
        let servers = self.load.servers();
        let sessions = self.sessions.iter_mut().enumerate().take(copies);
        let asked = sessions.map(|(n, session)| session.ask((first + n) % servers, draft.ask()));
        let mut answered = false;
        for done in join_all(asked).await {
            self.load.told(&done);
            answered |= done.ok();
        }
        answered
    }

    async fn publish_batch(&mut self) {
        let queue = self.queue();
        let count = self.chance.random_range(2..20);
        let mut drafts: Vec<Draft> = (0..count).map(|_| self.draft(queue, Size::Small)).collect();
        // Now and then an entry is there twice.
        if self.chance.random_ratio(1, 5) {
            drafts.push(drafts[0].clone());
        }
        let server = self.chance.random_range(0..self.load.servers());
        let done: Done = self.sessions[0].ask(server, batch(&drafts)).await;
        self.load.told(&done);
        self.remember(drafts.swap_remove(0), done.ok());
    }
}
