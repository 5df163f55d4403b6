//! Short words for histories made by hand. Times are milliseconds; the store's clock shows the same ones.

use crate::check::facts::Facts;
use crate::check::verdict::Verdict;
use crate::check::{Judgement, judge};
use crate::history::{
    Args, Body, Class, Counts, Digest, Entry, Event, Fault, Handed, Happened, Header, Kind, Line,
    Listed, MILLI, Op, Short, Told, Totals,
};
use quita_storage::model::{Backoff, Jitter, LateAck, Policy};

/// A history in the making.
pub(super) struct Story {
    header: Header,
    ops: Vec<Op>,
    rest: Vec<Line>,
}

impl Story {
    /// One server and three queues: `plain`, `unique` with unique keys, `strict` that takes no late acks.
    pub(super) fn new() -> Self {
        let plain = Policy {
            visibility_timeout_ms: 2_000,
            max_attempts: 3,
            max_lease_expirations: 2,
            backoff: Backoff::Fixed {
                base_ms: 1_000,
                jitter: Jitter::Equal,
            },
            dedupe_window_ms: 60_000,
            ..Policy::default()
        };
        let unique = Policy {
            unique_key: true,
            ..plain.clone()
        };
        let strict = Policy {
            late_ack: LateAck::Strict,
            ..plain.clone()
        };
        let queues = [("plain", plain), ("unique", unique), ("strict", strict)];
        Self {
            header: Header {
                store: "sqlite".into(),
                replicas: 1,
                drain_delay_ms: 1_000,
                stop_deadline_ms: 5_000,
                queues: queues.map(|(name, p)| (name.to_owned(), p)).into(),
                ..Header::default()
            },
            ops: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Any operation on `plain`, from `at` to `at + 10`, with status 200.
    pub(super) fn op(&mut self, at: u64, op: Kind) -> &mut Op {
        self.ops.push(Op {
            n: self.ops.len() as u64 + 1,
            t_inv: at * MILLI,
            t_ret: (at + 10) * MILLI,
            op,
            queue: "plain".into(),
            class: Class::Ok,
            status: 200,
            ..Op::default()
        });
        self.ops.last_mut().unwrap()
    }

    /// A publish whose payload is named like its message.
    pub(super) fn publish(&mut self, at: u64, id: &str) -> &mut Op {
        let op = self.op(at, Kind::Publish);
        op.args.messages = vec![entry(id)];
        op.body.told = vec![told(id)];
        op
    }

    /// A publish with a request id.
    pub(super) fn publish_as(
        &mut self,
        at: u64,
        id: &str,
        request: &str,
        deduplicated: bool,
    ) -> &mut Op {
        let op = self.publish(at, id);
        op.args.messages[0].request_id = request.into();
        op.body.told[0].deduplicated = deduplicated;
        op
    }

    /// A receive that gets these; the receipt of attempt 1 of `m` is `m/1`.
    pub(super) fn receive(&mut self, at: u64, got: &[(&str, u32)]) -> &mut Op {
        let op = self.op(at, Kind::Receive);
        op.args.max = Some(10);
        op.body.handed = got
            .iter()
            .map(|(id, attempt)| handed(at, id, *attempt))
            .collect();
        op
    }

    /// A receive of whose answer nobody knows.
    pub(super) fn lost_receive(&mut self, at: u64) -> &mut Op {
        let op = self.receive(at, &[]);
        op.class = Class::Info;
        (op.status, op.code) = (0, "timeout".into());
        op
    }

    /// A settle with this receipt and result.
    pub(super) fn settle(&mut self, at: u64, kind: Kind, receipt: &str, result: &str) -> &mut Op {
        let op = self.op(at, kind);
        op.args.receipt = Some(Short::of(receipt));
        op.body.result = result.into();
        op
    }

    /// An ack in time.
    pub(super) fn ack(&mut self, at: u64, receipt: &str) -> &mut Op {
        self.settle(at, Kind::Ack, receipt, "acked")
    }

    /// A settle that is refused with this code; `completion_remembered` where it says so.
    pub(super) fn refused(
        &mut self,
        at: u64,
        kind: Kind,
        receipt: &str,
        code: &str,
        remembered: bool,
    ) -> &mut Op {
        let op = self.settle(at, kind, receipt, "");
        (op.status, op.code) = (409, code.into());
        op.class = if remembered { Class::Ok } else { Class::Fail };
        op
    }

    /// An operator's call about a message, or about the queue when `id` is empty.
    pub(super) fn decide(&mut self, at: u64, kind: Kind, id: &str) -> &mut Op {
        let op = self.op(at, kind);
        op.args.message_id = id.into();
        op
    }

    /// Counts and totals.
    pub(super) fn stats(&mut self, at: u64, counts: Counts, totals: Totals) -> &mut Op {
        let op = self.op(at, Kind::Stats);
        op.body = Body {
            counts: Some(counts),
            totals: Some(totals),
            ..Body::default()
        };
        op
    }

    /// A complete final listing of all queues, with these in `plain`.
    pub(super) fn listing(&mut self, at: u64, pass: u32, shown: &[(&str, &str)]) {
        for queue in ["plain", "unique", "strict"] {
            for state in ["delayed", "ready", "leased", "dead"] {
                let here = shown.iter().filter(|s| queue == "plain" && s.1 == state);
                let listed = here.map(|s| listed(s.0, state)).collect();
                let op = self.op(at, Kind::DrainList);
                op.queue = queue.into();
                (op.args.state, op.args.pass) = (state.into(), Some(pass));
                op.body.listed = listed;
            }
        }
    }

    /// Something happened to server 0.
    pub(super) fn event(&mut self, at: u64, kind: Happened) -> &mut Event {
        self.rest.push(Line::Event(Event {
            kind,
            replica: Some(0),
            t: at * MILLI,
            ..Event::default()
        }));
        match self.rest.last_mut() {
            Some(Line::Event(event)) => event,
            _ => unreachable!(),
        }
    }

    /// A fault.
    pub(super) fn fault(&mut self, kind: &str, begin: u64, end: u64) {
        self.rest.push(Line::Fault(Fault {
            kind: kind.into(),
            target: "replica 0".into(),
            t_begin: begin * MILLI,
            t_end: end * MILLI,
            ..Fault::default()
        }));
    }

    /// What the checks say.
    pub(super) fn judge(&self) -> Judgement {
        let mut facts = Facts::default();
        facts.add(Line::Header(Box::new(self.header.clone())));
        for op in &self.ops {
            facts.add(Line::Op(Box::new(op.clone())));
        }
        for line in &self.rest {
            facts.add(line.clone());
        }
        judge(&facts.ready())
    }

    /// Promise `n` was judged at least once and kept, and so was every other one that could be judged.
    #[track_caller]
    pub(super) fn holds(&self, n: u8) {
        let judged = self.judge();
        for other in 1..=29 {
            let verdict = judged.of(other);
            assert!(
                !matches!(verdict, Verdict::Broken { .. }),
                "{other}: {verdict:?}"
            );
        }
        let verdict = judged.of(n);
        assert!(matches!(verdict, Verdict::Holds { .. }), "{n}: {verdict:?}");
    }

    /// Promise `n` was broken once.
    #[track_caller]
    pub(super) fn breaks(&self, n: u8) {
        let judged = self.judge();
        let verdict = judged.of(n);
        assert!(
            matches!(verdict, Verdict::Broken { broken: 1, .. }),
            "{n}: {verdict:?}"
        );
    }
}

/// Takes an answer away: nobody knows what the operation did.
pub(super) fn unanswered(op: &mut Op) -> &mut Op {
    op.class = Class::Info;
    (op.status, op.code) = (0, "reset".into());
    op.body = Body::default();
    op
}

pub(super) fn entry(id: &str) -> Entry {
    Entry {
        sha: Digest::of(id.as_bytes()),
        len: id.len() as u32,
        ..Entry::default()
    }
}

pub(super) fn told(id: &str) -> Told {
    Told {
        status: 201,
        id: id.into(),
        ..Told::default()
    }
}

/// Handed out at `at` for two seconds.
pub(super) fn handed(at: u64, id: &str, attempt: u32) -> Handed {
    Handed {
        id: id.into(),
        receipt: Short::of(&format!("{id}/{attempt}")),
        sha: Digest::of(id.as_bytes()),
        len: id.len() as u32,
        attempt,
        max_attempts: 3,
        lease_ms: 2_000,
        ends_at_ms: at as i64 + 2_000,
        ..Handed::default()
    }
}

pub(super) fn listed(id: &str, state: &str) -> Listed {
    Listed {
        id: id.into(),
        state: state.into(),
        reason: if state == "dead" {
            "max_attempts".into()
        } else {
            String::new()
        },
        ..Listed::default()
    }
}

/// Asked with these arguments.
pub(super) fn with(op: &mut Op, change: impl FnOnce(&mut Args)) -> &mut Op {
    change(&mut op.args);
    op
}
