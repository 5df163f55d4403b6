//! Operators: they decide about dead letters, stop and start queues, empty one, and look at numbers.

use super::Load;
use super::queues::{ALL, DELAYED, SCRATCH};
use super::session::{Ask, Done, Session};
use crate::history::{Args, Kind};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

struct Operator {
    load: Arc<Load>,
    chance: StdRng,
    session: Session,
    name: String,
    calls: u64,
}

/// Decides until the load ends.
pub(crate) async fn operate(load: Arc<Load>, number: usize) {
    let name = format!("o{number}");
    let mut operator = Operator {
        chance: load.chance(&name),
        session: load.session(&name),
        load,
        name,
        calls: 0,
    };
    while !operator.load.is_over() {
        operator.step().await;
        let pause = operator.chance.random_range(100..400);
        operator.load.pause(Duration::from_millis(pause)).await;
    }
}

impl Operator {
    async fn step(&mut self) {
        let queue = ALL[self.chance.random_range(0..ALL.len())];
        match self.chance.random_range(0..100) {
            0..35 => self.redrive(queue).await,
            35..50 => self.discard(queue).await,
            50..58 => self.pause_and_resume(queue).await,
            58..68 => self.purge().await,
            68..76 => self.dead_letter(queue).await,
            76..84 => self.cancel(queue).await,
            84..92 => self.promote().await,
            _ => self.redrive_many(queue).await,
        }
    }

    async fn redrive(&mut self, queue: &str) {
        let Some(id) = self.one(queue, "dead").await else {
            return;
        };
        let path = format!("/v1/queues/{queue}/dead-letters/{id}/redrive");
        let body = json!({"reason": "the gateway is back"});
        self.decide(Kind::Redrive, queue, &path, &id, body).await;
    }

    async fn discard(&mut self, queue: &str) {
        let Some(id) = self.one(queue, "dead").await else {
            return;
        };
        let path = format!("/v1/queues/{queue}/dead-letters/{id}/discard");
        let body = json!({"code": "written_off", "justification": "the customer was told so"});
        let done = self.decide(Kind::Discard, queue, &path, &id, body).await;
        self.ended(&done, &id);
    }

    async fn dead_letter(&mut self, queue: &str) {
        let Some(id) = self.one(queue, "ready").await else {
            return;
        };
        let path = format!("/v1/messages/{id}/dead-letter");
        let body = json!({"reason": "it is poison"});
        self.decide(Kind::DeadLetter, queue, &path, &id, body).await;
    }

    async fn cancel(&mut self, queue: &str) {
        let Some(id) = self.one(queue, "ready").await else {
            return;
        };
        let path = format!("/v1/messages/{id}/cancel");
        let body = json!({"justification": "ordered by mistake"});
        let done = self.decide(Kind::Cancel, queue, &path, &id, body).await;
        self.ended(&done, &id);
    }

    async fn promote(&mut self) {
        let Some(id) = self.one(DELAYED, "delayed").await else {
            return;
        };
        let path = format!("/v1/messages/{id}/promote");
        self.decide(Kind::Promote, DELAYED, &path, &id, json!({}))
            .await;
    }

    fn ended(&self, done: &Done, id: &str) {
        if done.ok() {
            self.load.ended(id);
        }
    }

    async fn pause_and_resume(&mut self, queue: &str) {
        let path = |verb: &str| format!("/v1/queues/{queue}/{verb}");
        self.decide(Kind::Pause, queue, &path("pause"), "", json!({}))
            .await;
        let pause = self.chance.random_range(200..800);
        self.load.pause(Duration::from_millis(pause)).await;
        for _ in 0..20 {
            let resumed = path("resume");
            let done = self
                .decide(Kind::Resume, queue, &resumed, "", json!({}))
                .await;
            if done.ok() {
                break;
            }
            self.load.pause(Duration::from_millis(200)).await;
        }
    }

    async fn purge(&mut self) {
        let path = format!("/v1/queues/{SCRATCH}/purge");
        let body = json!({"confirm": SCRATCH});
        self.decide(Kind::Purge, SCRATCH, &path, "", body).await;
    }

    /// Freezes what is dead, and redrives a bounded part of it.
    async fn redrive_many(&mut self, queue: &str) {
        let path = "/v1/dead-letters/selections";
        let body = json!({"queue": queue});
        let ask = Ask::post(Kind::Probe, queue, path, Args::default(), body.to_string());
        let selected = self.ask(ask).await;
        let count = selected.json["count"].as_u64().unwrap_or(0);
        if !selected.ok() || count == 0 {
            return;
        }
        let max = self.chance.random_range(1..=20);
        let id = self.request_id();
        let body = json!({"selection_id": selected.json["selection_id"], "expected_count": count,
            "max": max, "rate_per_second": null, "canary": null, "abort_if": null,
            "client_request_id": id});
        let args = Args {
            max: Some(max),
            action: "redrive".to_owned(),
            request_id: id,
            ..Args::default()
        };
        let ask = || {
            let body = body.to_string();
            Ask::post(Kind::RedriveMany, queue, "/v1/redrives", args.clone(), body)
        };
        let mut done = self.ask(ask()).await;
        if done.unknown() {
            done = self.ask(ask()).await;
        }
        if done.ok() {
            self.follow(queue, &done.body.redrive_id).await;
        }
    }

    async fn follow(&mut self, queue: &str, redrive: &str) {
        for _ in 0..5 {
            let path = format!("/v1/redrives/{redrive}");
            let ask = Ask::get(Kind::RedriveState, queue, &path, Args::default());
            let done = self.ask(ask).await;
            if matches!(done.body.result.as_str(), "done" | "cancelled" | "aborted") {
                break;
            }
            self.load.pause(Duration::from_millis(200)).await;
        }
    }

    /// Makes a decision with a request id; repeats it when nobody knows what came of it, and now and then anyway.
    async fn decide(
        &mut self,
        what: Kind,
        queue: &str,
        path: &str,
        message: &str,
        mut body: Value,
    ) -> Done {
        let id = self.request_id();
        body["client_request_id"] = json!(id);
        let args = Args {
            message_id: message.to_owned(),
            request_id: id,
            ..Args::default()
        };
        let ask = || Ask::post(what, queue, path, args.clone(), body.to_string());
        let done = self.ask(ask()).await;
        if done.unknown() || self.chance.random_ratio(1, 5) {
            return self.ask(ask()).await;
        }
        done
    }

    fn request_id(&mut self) -> String {
        self.calls += 1;
        format!("{}-{}", self.name, self.calls)
    }

    /// Any message that a listing of this state shows.
    async fn one(&mut self, queue: &str, state: &str) -> Option<String> {
        let done = self
            .ask(list(Kind::List, queue, state, 100, None, None))
            .await;
        let listed = &done.body.listed;
        let which = self.chance.random_range(0..listed.len().max(1));
        listed.get(which).map(|message| message.id.clone())
    }

    async fn ask(&mut self, ask: Ask<'_>) -> Done {
        let server = self.chance.random_range(0..self.load.servers());
        self.session.ask(server, ask).await
    }
}

/// A page of a listing.
pub(crate) fn list<'a>(
    op: Kind,
    queue: &'a str,
    state: &str,
    page_size: u32,
    token: Option<&str>,
    pass: Option<u32>,
) -> Ask<'a> {
    let args = Args {
        max: Some(page_size),
        state: state.to_owned(),
        pass,
        ..Args::default()
    };
    let token = token.map_or(String::new(), |token| format!("&page_token={token}"));
    let path = format!("/v1/queues/{queue}/messages?state={state}&page_size={page_size}{token}");
    Ask::get(op, queue, &path, args)
}

/// Looks at numbers, listings and single messages until the load ends.
pub(crate) async fn read(load: Arc<Load>, number: usize) {
    let name = format!("s{number}");
    let mut chance = load.chance(&name);
    let mut session = load.session(&name);
    while !load.is_over() {
        let queue = ALL[chance.random_range(0..ALL.len())];
        let server = chance.random_range(0..load.servers());
        let ask = match chance.random_range(0..20) {
            0 => {
                let states = ["ready", "delayed", "leased", "dead"];
                let state = states[chance.random_range(0..states.len())];
                list(Kind::List, queue, state, 500, None, None)
            }
            1 => Ask::get(Kind::Readyz, "", "/readyz", Args::default()),
            _ => stats(Kind::Stats, queue, None),
        };
        session.ask(server, ask).await;
        let pause = chance.random_range(30..120);
        load.pause(Duration::from_millis(pause)).await;
    }
}

/// Counts and totals of a queue.
pub(crate) fn stats(op: Kind, queue: &str, pass: Option<u32>) -> Ask<'_> {
    let args = Args {
        pass,
        ..Args::default()
    };
    Ask::get(op, queue, &format!("/v1/queues/{queue}"), args)
}
