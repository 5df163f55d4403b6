//! Lines become records, one after the other, so that a long history never has to be in memory as it was written.

use super::{
    Decision, Delivery, Entry, Facts, Index, NEVER, NONE, Page, Place, Receive, Said, Seen, Settle,
    clock, join, repeats, windows,
};
use crate::history::{Args, Class, Kind, Line, Lines, Op, Sample};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

/// Reasons of dead letters, numbered from 1.
pub(crate) const REASONS: [&str; 6] = [
    "max_attempts",
    "permanent_failure",
    "lease_expired",
    "release_limit",
    "expired",
    "operator",
];

/// Lines that are handed over at once.
const BATCH: usize = 1_000;

/// Reads a history: one thread takes the lines apart, this one makes records of them.
///
/// # Errors
/// When the file cannot be read, or a line of it is none.
pub(crate) fn read(path: &Path) -> io::Result<Facts> {
    let mut lines = Lines::open(path)?;
    let (to_records, batches) = mpsc::sync_channel::<Vec<Line>>(8);
    let mut facts = Facts::default();
    facts.sha256 = thread::scope(|threads| {
        let reader = threads.spawn(move || -> io::Result<String> {
            loop {
                let batch: io::Result<Vec<Line>> = lines.by_ref().take(BATCH).collect();
                let batch = batch?;
                if batch.is_empty() || to_records.send(batch).is_err() {
                    return Ok(lines.sha256());
                }
            }
        });
        for batch in batches {
            for line in batch {
                facts.add(line);
            }
        }
        let end = reader.join();
        end.unwrap_or_else(|_| Err(io::Error::other("the reader of the history panicked")))
    })?;
    if facts.header.store.is_empty() {
        return Err(io::Error::other("the history has no header"));
    }
    Ok(facts.ready())
}

impl Facts {
    /// Takes a line.
    pub(crate) fn add(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.header = *header,
            Line::Op(op) => self.add_op(*op),
            Line::Fault(fault) => self.faults.push(fault),
            Line::Event(event) => self.events.push(event),
            Line::Sample(sample) => self.add_sample(sample),
        }
    }

    /// Everything was taken.
    pub(crate) fn ready(mut self) -> Self {
        self.events.sort_by_key(|e| e.t);
        clock::narrow(&mut self);
        join::join(&mut self);
        repeats::own_work(&mut self);
        windows::find(&mut self);
        self
    }

    fn add_sample(&mut self, sample: Sample) {
        let most = self.used.entry(sample.replica).or_default();
        *most = Sample {
            t: sample.t,
            replica: sample.replica,
            rss_kib: most.rss_kib.max(sample.rss_kib),
            fds: most.fds.max(sample.fds),
            wal_bytes: most.wal_bytes.max(sample.wal_bytes),
            db_bytes: most.db_bytes.max(sample.db_bytes),
        };
    }

    fn add_op(&mut self, op: Op) {
        self.counts.entry(op.op).or_default()[op.class as usize] += 1;
        let queue = self.queues.number(&op.queue);
        if changes(op.op) && op.class == Class::Ok {
            self.writes.push((op.replica, op.t_inv, op.t_ret));
        }
        self.refusals += u64::from(op.status >= 300);
        if op.class == Class::Info || op.code == "refused" || op.status >= 500 || op.body.misshapen
        {
            self.troubles.push(Op {
                args: Args::default(),
                ..op.clone()
            });
        }
        match op.op {
            Kind::Publish | Kind::PublishBatch => self.add_publish(&op, queue),
            Kind::Receive => self.add_receive(&op, queue),
            Kind::Ack | Kind::Nack | Kind::Release | Kind::Extend => self.add_settle(&op),
            Kind::List | Kind::DrainList | Kind::Get => self.add_seen(&op, queue),
            Kind::Stats | Kind::Recount => self.stats.push(op),
            Kind::Readyz => self.readiness.push(op),
            Kind::Probe => {}
            Kind::Redrive
            | Kind::RedriveMany
            | Kind::RedriveState
            | Kind::Discard
            | Kind::Reopen
            | Kind::Cancel
            | Kind::Promote
            | Kind::DeadLetter
            | Kind::Pause
            | Kind::Resume
            | Kind::Purge => self.add_decision(&op, queue),
        }
    }

    fn add_publish(&mut self, op: &Op, queue: Index) {
        let of_batch = op.op == Kind::PublishBatch;
        for (at, asked) in op.args.messages.iter().enumerate() {
            let told = op.body.told.get(at);
            let class = match (op.class, told) {
                (Class::Ok, Some(told)) if !told.id.is_empty() => Class::Ok,
                (Class::Ok, Some(told)) if told.effect == "none" => Class::Fail,
                (Class::Ok, _) => Class::Info,
                (class, _) => class,
            };
            let in_place = op.class != Class::Ok
                || (op.body.told.len() == op.args.messages.len()
                    && told.is_some_and(|t| t.index as usize == at));
            let message = told.map_or(NONE, |t| self.messages.number(&t.id));
            self.entries.push(Entry {
                n: op.n,
                queue,
                sha: asked.sha,
                len: asked.len,
                t_inv: op.t_inv,
                t_ret: op.t_ret,
                class,
                request: self.words.number(&asked.request_id),
                key: self.words.number(&asked.key),
                delay_ms: asked.delay_ms.unwrap_or(0),
                expires_in_ms: asked.expires_in_ms,
                max_attempts: asked.max_attempts,
                message: if class == Class::Ok { message } else { NONE },
                deduplicated: told.is_some_and(|t| t.deduplicated),
                by_key: told.is_some_and(|t| t.by_key),
                of_batch,
                in_place,
            });
        }
    }

    fn add_receive(&mut self, op: &Op, queue: Index) {
        let policy = self.header.queues.get(&op.queue);
        let asked_ms = op
            .args
            .lease_ms
            .unwrap_or_else(|| policy.map_or(0, |policy| policy.visibility_timeout_ms as u64));
        let mut ids = HashSet::new();
        let repeats = !op.body.handed.iter().all(|h| ids.insert(h.id.as_str()));
        self.receives.push(Receive {
            n: op.n,
            queue,
            t_inv: op.t_inv,
            t_ret: op.t_ret,
            class: op.class,
            max: op.args.max.unwrap_or(1),
            got: op.body.handed.len() as u32,
            paused: op.body.paused,
            replica: op.replica,
            repeats,
            until: if op.class == Class::Info {
                NEVER
            } else {
                op.t_ret
            },
        });
        for handed in &op.body.handed {
            self.deliveries.push(Delivery {
                n: op.n,
                message: self.messages.number(&handed.id),
                queue,
                sha: handed.sha,
                len: handed.len,
                receipt: handed.receipt.0,
                t_inv: op.t_inv,
                t_ret: op.t_ret,
                begun: (op.t_inv, op.t_ret),
                granted: (op.t_inv, op.t_ret),
                attempt: handed.attempt,
                max_attempts: handed.max_attempts,
                redrives: handed.redrives,
                lease_ms: handed.lease_ms,
                asked_ms,
                leased_at_ms: handed.ends_at_ms - handed.lease_ms as i64,
            });
        }
    }

    fn add_settle(&mut self, op: &Op) {
        let Some(receipt) = op.args.receipt else {
            return;
        };
        self.settles.push(Settle {
            n: op.n,
            kind: op.op,
            receipt: receipt.0,
            delivery: NONE,
            t_inv: op.t_inv,
            t_ret: op.t_ret,
            said: said(op),
            status: op.status,
            forged: op.args.forged,
            permanent: op.args.permanent,
            late: op.body.late,
            superseded: op.body.superseded,
            end_acked: op.body.end == "acked",
            delay_ms: op.args.delay_ms,
            lease_ms: op.args.lease_ms.unwrap_or(0),
        });
    }

    fn add_decision(&mut self, op: &Op, queue: Index) {
        let message = self.messages.number(&op.args.message_id);
        self.decisions.push(Decision {
            n: op.n,
            kind: op.op,
            queue,
            message,
            t_inv: op.t_inv,
            t_ret: op.t_ret,
            class: op.class,
            force: op.args.force,
            discards: op.args.action == "discard",
            request: self.words.number(&op.args.request_id),
            max: op.args.max,
            moved: op.body.moved,
            replayed: op.body.replayed,
            acked_superseded: op.body.acked_superseded,
            until: op.t_ret,
            redrive: self.words.number(&op.body.redrive_id),
        });
    }

    fn add_seen(&mut self, op: &Op, queue: Index) {
        if op.class != Class::Ok {
            return;
        }
        let pass = op.args.pass.unwrap_or(0);
        if let (Kind::DrainList, Some(place)) = (op.op, place(&op.args.state)) {
            self.pages.push(Page {
                queue,
                place,
                replica: op.replica,
                pass,
                last: !op.body.more,
                t_inv: op.t_inv,
                t_ret: op.t_ret,
            });
        }
        for listed in &op.body.listed {
            let Some(place) = place(&listed.state) else {
                continue;
            };
            let reason = REASONS.iter().position(|r| *r == listed.reason);
            self.seen.push(Seen {
                n: op.n,
                kind: op.op,
                queue,
                message: self.messages.number(&listed.id),
                place,
                replica: op.replica,
                pass,
                t_inv: op.t_inv,
                t_ret: op.t_ret,
                attempts: listed.attempts,
                redrives: listed.redrives,
                reason: reason.map_or(0, |at| at as u8 + 1),
                request: self.words.number(&listed.request_id),
            });
        }
    }
}

/// Whether an ok of this kind says that something was written.
fn changes(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Receive
            | Kind::Stats
            | Kind::Recount
            | Kind::List
            | Kind::DrainList
            | Kind::Get
            | Kind::Readyz
            | Kind::Probe
            | Kind::RedriveState
    )
}

fn place(state: &str) -> Option<Place> {
    Some(match state {
        "delayed" => Place::Delayed,
        "ready" => Place::Ready,
        "leased" => Place::Leased,
        "dead" => Place::Dead,
        "ended" => Place::Ended,
        _ => return None,
    })
}

fn said(op: &Op) -> Said {
    match (op.class, op.status) {
        (Class::Info, _) => Said::Unknown,
        (Class::Ok, 409) => Said::Remembered,
        (Class::Ok, _) => match op.body.result.as_str() {
            "acked" => Said::Acked,
            "retry_scheduled" => Said::Retry,
            "dead_lettered" => Said::Dead,
            "released" => Said::Released,
            "acked_superseded" => Said::AckedSuperseded,
            "extended" => Said::Extended,
            "already_settled" => Said::Already,
            _ => Said::Nonsense,
        },
        (Class::Fail, 409) => Said::Conflict,
        (Class::Fail, 400..=407 | 410..=428) => Said::Refused,
        (Class::Fail, _) => Said::Unavailable,
    }
}
