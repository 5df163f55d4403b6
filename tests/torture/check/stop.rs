//! Processes: back after a kill (26), stopped in order (27).

use super::facts::Facts;
use super::verdict::Tallies;
use crate::history::{Class, Event, Fault, Happened, Kind, MILLI, Nanos, SECOND};

/// A server is ready this soon after its start.
const READY: Nanos = 5 * SECOND;

/// From SIGTERM until `/readyz` says so.
const FLIPS: Nanos = 100 * MILLI;

/// From SIGTERM until a receive that waits has ended, with half a second for a busy machine.
const RECEIVES_END: Nanos = 1_500 * MILLI;

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    tallies.of(26).cannot("no server was killed");
    tallies.of(27).cannot("no server was stopped in order");
    for (at, event) in facts.events.iter().enumerate() {
        match event.kind {
            Happened::Killed => back(facts, at, tallies),
            Happened::Termed => stopped(facts, at, tallies),
            _ => {}
        }
    }
}

/// The first event of a kind about the same server after event number `at`.
fn next(facts: &Facts, at: usize, kind: Happened) -> Option<&Event> {
    let this = &facts.events[at];
    facts.events[at + 1..]
        .iter()
        .find(|e| e.kind == kind && e.replica == this.replica)
}

/// A fault other than `own` kinds between the two.
fn disturbed(facts: &Facts, own: &[&str], from: Nanos, until: Nanos) -> bool {
    // A wrong clock disturbs no start and no stop.
    let other = |f: &&Fault| {
        let mut harmless = own.iter().chain(&["clock_"]);
        !f.skipped && !harmless.any(|kind| f.kind.starts_with(kind))
    };
    let mut others = facts.faults.iter().filter(other);
    others.any(|f| f.t_begin <= until && f.t_end >= from)
}

/// 26.
fn back(facts: &Facts, at: usize, tallies: &mut Tallies) {
    let Some(started) = next(facts, at, Happened::Started) else {
        return;
    };
    let ready = facts
        .events
        .iter()
        .find(|e| e.kind == Happened::Ready && e.replica == started.replica && e.t >= started.t);
    let until = ready.map_or(Nanos::MAX, |e| e.t);
    if disturbed(
        facts,
        &["kill", "power_cut"],
        started.t,
        until.min(started.t + READY),
    ) {
        return;
    }
    tallies.of(26).check(until - started.t <= READY, || {
        let took = ready.map_or("never".to_owned(), |e| {
            format!("{} ms later", (e.t - started.t) / MILLI)
        });
        let replica = started.replica.unwrap_or(0);
        format!(
            "server {replica} was killed, started at {} ms and ready {took}",
            started.t / MILLI
        )
    });
}

/// 27.
fn stopped(facts: &Facts, at: usize, tallies: &mut Tallies) {
    let term = &facts.events[at];
    let replica = term.replica.unwrap_or(0);
    let exited = next(facts, at, Happened::Exited);
    let delay = facts.header.drain_delay_ms * MILLI;
    let deadline = facts.header.stop_deadline_ms * MILLI + SECOND;
    let gone = exited.map_or(Nanos::MAX, |e| e.t);
    // A server that is paused or cut off answers nobody, and that is not its stop's fault.
    if disturbed(
        facts,
        &["term", "rolling_restart"],
        term.t,
        gone.min(term.t + deadline),
    ) {
        return;
    }
    let in_order = exited.is_some_and(|e| e.exit == Some(0) && e.t - term.t <= deadline);
    tallies.of(27).check(in_order, || match exited {
        None => format!(
            "server {replica} was asked to stop at {} ms and did not",
            term.t / MILLI
        ),
        Some(e) => format!(
            "server {replica} ended {} ms after SIGTERM with {:?} ({})",
            (e.t - term.t) / MILLI,
            e.exit,
            e.detail
        ),
    });
    let here = |r: u32| r == replica;
    for op in facts.readiness.iter().filter(|op| here(op.replica)) {
        if op.t_inv >= term.t + FLIPS && op.t_inv < gone {
            tallies.of(27).check(op.status != 200, || {
                format!(
                    "server {replica} says ready in {}, {} ms after SIGTERM",
                    op.n,
                    (op.t_inv - term.t) / MILLI
                )
            });
        }
    }
    for op in facts.troubles.iter().filter(|op| here(op.replica)) {
        let begun = op.t_inv + FLIPS < term.t + delay && op.t_ret >= term.t;
        // A client that gives up is its own affair.
        let cut = op.code != "timeout" && (op.class == Class::Info || op.code == "refused");
        let refused = op.status >= 500 && op.op != Kind::Readyz;
        if begun && (cut || refused) {
            tallies.of(27).check(false, || {
                let late = op.t_inv.saturating_sub(term.t) / MILLI;
                format!(
                    "server {replica}: {:?} {} of {late} ms after SIGTERM ended with {} {}, the drain delay is {} ms",
                    op.op, op.n, op.status, op.code, facts.header.drain_delay_ms
                )
            });
        }
    }
    for r in facts.receives.iter().filter(|r| here(r.replica)) {
        let waits = r.class == Class::Ok && r.t_inv < term.t && r.t_ret > term.t;
        if waits {
            tallies.of(27).check(r.t_ret <= term.t + RECEIVES_END, || {
                format!(
                    "receive {} went on {} ms after SIGTERM",
                    r.n,
                    (r.t_ret - term.t) / MILLI
                )
            });
        }
    }
}
