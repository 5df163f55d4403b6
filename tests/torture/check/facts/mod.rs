//! The history as the checks read it: small records with numbers for names, sorted and joined.
//!
//! Reading order: this file → [`records`] → [`gather`] (lines become records) → [`names`] → [`join`] (records of one
//! message and of one delivery) → [`clock`] (when a lease began) → [`windows`]
//! (when a fault may be felt).

pub(crate) mod clock;
pub(crate) mod gather;
pub(crate) mod join;
pub(crate) mod names;
pub(crate) mod records;
mod repeats;
pub(crate) mod windows;

use crate::history::{Class, Digest, Event, Fault, Header, Kind, Nanos, Op, Sample};
use names::Names;
pub(crate) use records::{Decision, Delivery, Entry, Page, Place, Receive, Said, Seen, Settle};
use std::collections::BTreeMap;
use windows::Windows;

/// Number of a message, of a queue, of a request id or key, of a record.
pub(crate) type Index = u32;

/// No number.
pub(crate) const NONE: Index = Index::MAX;

/// Later than everything.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// Tolerance of every bound that should hold to the moment (the contract's ε).
pub(crate) const EPSILON: Nanos = 5 * crate::history::MILLI;

/// Time that the servers have for what happens by itself (the contract's S).
pub(crate) const SLACK: Nanos = 2 * crate::history::SECOND;

/// Everything that a verdict needs.
#[derive(Default)]
pub(crate) struct Facts {
    /// The first line.
    pub(crate) header: Header,
    /// SHA-256 of the history.
    pub(crate) sha256: String,
    /// Operations by kind and class.
    pub(crate) counts: BTreeMap<Kind, [u64; 3]>,
    /// Names of queues.
    pub(crate) queues: Names,
    /// Names of messages.
    pub(crate) messages: Names,
    /// Request ids and keys.
    pub(crate) words: Names,
    /// Messages that publishes asked for.
    pub(crate) entries: Vec<Entry>,
    /// Receives.
    pub(crate) receives: Vec<Receive>,
    /// Deliveries, of each message in their order.
    pub(crate) deliveries: Vec<Delivery>,
    /// Settles and extends, of each delivery in the order of their calls.
    pub(crate) settles: Vec<Settle>,
    /// Calls of operators that may change something, and decisions about many.
    pub(crate) decisions: Vec<Decision>,
    /// Messages that listings and looks showed.
    pub(crate) seen: Vec<Seen>,
    /// Pages of final listings.
    pub(crate) pages: Vec<Page>,
    /// Counts and totals of queues.
    pub(crate) stats: Vec<Op>,
    /// Calls without an answer, and answers that should not be.
    pub(crate) troubles: Vec<Op>,
    /// Looks at readiness.
    pub(crate) readiness: Vec<Op>,
    /// Answers that were no 2xx.
    pub(crate) refusals: u64,
    /// Faults that happened or were skipped.
    pub(crate) faults: Vec<Fault>,
    /// What happened.
    pub(crate) events: Vec<Event>,
    /// What servers used at most.
    pub(crate) used: BTreeMap<u32, Sample>,
    /// When faults may be felt.
    pub(crate) windows: Windows,
    /// Successful writes, as (server, call, answer).
    pub(crate) writes: Vec<(u32, Nanos, Nanos)>,
    /// Deliveries of each message.
    pub(crate) deliveries_of: join::Groups,
    /// Entries that answers of each message name.
    pub(crate) entries_of: join::Groups,
    /// Settles of each delivery.
    pub(crate) settles_of: join::Groups,
    /// Decisions about each message.
    pub(crate) decisions_of: join::Groups,
    /// Receives of each queue that nobody read the answer of.
    pub(crate) hidden: Vec<windows::Calls>,
    /// When a purge of each queue may have taken effect.
    pub(crate) purged: Vec<Windows>,
    /// When a decision about many of each queue may have taken effect.
    pub(crate) decided: Vec<Windows>,
    /// When a queue may have been resumed.
    pub(crate) resumed: Vec<Windows>,
    /// Entries by digest.
    pub(crate) by_digest: Vec<(Digest, Index)>,
}

impl Facts {
    /// Operations in all.
    pub(crate) fn operations(&self) -> u64 {
        self.counts.values().flatten().sum()
    }

    /// When an event of this kind happened first.
    pub(crate) fn when(&self, kind: crate::history::Happened) -> Option<Nanos> {
        self.events.iter().find(|e| e.kind == kind).map(|e| e.t)
    }

    /// Deliveries of a message in their order.
    pub(crate) fn deliveries_of(&self, message: Index) -> impl Iterator<Item = &Delivery> {
        let of = self.deliveries_of.get(message);
        of.iter().map(|at| &self.deliveries[*at as usize])
    }

    /// Settles and extends of a delivery in the order of their calls.
    pub(crate) fn settles_of(&self, delivery: Index) -> impl Iterator<Item = &Settle> + Clone {
        let of = self.settles_of.get(delivery);
        of.iter().map(|at| &self.settles[*at as usize])
    }

    /// Operators' calls about a message.
    pub(crate) fn decisions_of(&self, message: Index) -> impl Iterator<Item = &Decision> {
        let of = self.decisions_of.get(message);
        of.iter().map(|at| &self.decisions[*at as usize])
    }

    /// Entries whose answers name a message.
    pub(crate) fn entries_of(&self, message: Index) -> impl Iterator<Item = &Entry> {
        let of = self.entries_of.get(message);
        of.iter().map(|at| &self.entries[*at as usize])
    }

    /// Entries with this payload.
    pub(crate) fn with_digest(&self, sha: Digest) -> impl Iterator<Item = &Entry> {
        let from = self.by_digest.partition_point(|(other, _)| *other < sha);
        let same = self.by_digest[from..].iter();
        same.take_while(move |(other, _)| *other == sha)
            .map(|(_, at)| &self.entries[*at as usize])
    }

    /// Calls about the whole queue that may have taken effect.
    pub(crate) fn decisions_on(&self, queue: Index, kind: Kind) -> impl Iterator<Item = &Decision> {
        self.decisions
            .iter()
            .filter(move |d| d.kind == kind && d.queue == queue && d.class != Class::Fail)
    }

    /// Receives without an answer that may have got messages of this queue between the two.
    pub(crate) fn hidden_receives(&self, queue: Index, from: Nanos, until: Nanos) -> u64 {
        let of = self.hidden.get(queue as usize);
        of.map_or(0, |calls| calls.between(from, until))
    }

    /// Whether a purge of the queue may have taken effect between the two.
    pub(crate) fn may_be_purged(&self, queue: Index, from: Nanos, until: Nanos) -> bool {
        touches(&self.purged, queue, from, until)
    }

    /// Whether a decision about many of the queue may have taken effect between the two.
    pub(crate) fn may_be_decided(&self, queue: Index, from: Nanos, until: Nanos) -> bool {
        touches(&self.decided, queue, from, until)
    }

    /// Whether the queue may have been resumed between the two.
    pub(crate) fn may_be_resumed(&self, queue: Index, from: Nanos, until: Nanos) -> bool {
        touches(&self.resumed, queue, from, until)
    }

    /// Policy of a queue.
    pub(crate) fn policy(&self, queue: Index) -> Option<&quita_storage::model::Policy> {
        self.header.queues.get(self.queues.of(queue))
    }
}

fn touches(windows: &[Windows], queue: Index, from: Nanos, until: Nanos) -> bool {
    let of = windows.get(queue as usize);
    of.is_some_and(|windows| windows.touch(from, until))
}
