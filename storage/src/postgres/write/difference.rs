//! What a transaction writes about its drafts, sorted by table: the difference between what was loaded and what the rules made
//! of it.

use super::sql::{LEAVE_DEAD, LEAVE_DELAYED, LEAVE_DISCARDED, LEAVE_LEASE, LEAVE_READY};
use crate::backend::Stir;
use crate::model::{
    Counts, Dead, Delivered, Discarded, HISTORY_HEAD, HISTORY_TAIL, Life, Millis, Place,
};
use crate::postgres::drafts::{Drafts, Loaded};
use crate::postgres::rows::{Table, rank};
use crate::rules::{self, Message, Record, bulk};
use std::collections::{BTreeMap, HashMap};

/// Changes of counters by incarnation and queue.
pub(in crate::postgres) type Deltas = BTreeMap<(i32, i32), Counts>;

/// Everything that a transaction writes about its drafts.
#[derive(Default)]
pub(in crate::postgres) struct Writes {
    /// Rows that go: addresses by state table.
    pub(super) leave: HashMap<&'static str, Vec<String>>,
    pub(super) ready: Vec<(i64, i32, i16, Millis, Life, bool)>,
    pub(super) delayed: Vec<(i64, i32, i16, Millis, Life)>,
    pub(super) lease: Vec<(i64, i32, i16, crate::model::Lease, Life)>,
    /// Leases that stay: address, end, and whether a completion is remembered.
    pub(super) changed: Vec<(i64, String, Millis, bool)>,
    pub(super) dead: Vec<DeadRow>,
    pub(super) discarded: Vec<(i64, i32, i16, Discarded, Life)>,
    /// Messages that had been redriven and died, and whether that is a failure of the redrive.
    pub(super) died_again: Vec<(i64, bool)>,
    /// Messages that are gone and may have revisions.
    pub(super) unrevised: Vec<i64>,
    pub(super) put: Vec<(i64, Delivered)>,
    pub(super) dropped: Vec<(i64, i32)>,
    pub(super) completed: Vec<(i64, i32, Option<String>)>,
    pub(super) uncompleted: Vec<i64>,
    pub(super) gone: Vec<i64>,
    pub(super) forgotten: Vec<i64>,
    pub(super) ended: Vec<EndedRow>,
    pub(super) keyed: Vec<(i64, i32, Vec<u8>)>,
    pub(super) unkeyed: Vec<(i64, i32, Vec<u8>)>,
    pub(super) expiring: Vec<(i64, Millis)>,
    pub(super) unexpiring: Vec<i64>,
    pub(super) new_expiry: Vec<(i64, Option<Millis>)>,
    pub(super) keep_key: Vec<(i64, i32, Vec<u8>, Option<Millis>)>,
    pub(super) keep_id: Vec<(i64, i32, Vec<u8>, Millis)>,
    pub(super) deltas: Deltas,
    /// Rows put into `ready`: queue, rank and time, for the scan floors.
    pub(super) put_back: Vec<(i32, i16, Millis)>,
    pub(in crate::postgres) stir: Stir,
}

pub(super) struct DeadRow {
    pub(super) seq: i64,
    pub(super) queue_id: i32,
    pub(super) rank: i16,
    pub(super) dead: Dead,
    pub(super) life: Life,
    pub(super) published_at: Millis,
    pub(super) key: Option<Vec<u8>>,
}

pub(super) struct EndedRow {
    pub(super) seq: i64,
    pub(super) uid: i32,
    pub(super) ended: crate::model::Ended,
    pub(super) published_at: Millis,
    pub(super) key: Option<Vec<u8>>,
    pub(super) keep_until: Option<Millis>,
}

fn waits_or_lives(message: Option<&Message>) -> bool {
    message.is_some_and(|m| !matches!(m.place, Place::Discarded(_)))
}

fn expires(message: Option<&Message>) -> Option<Millis> {
    let message = message?;
    match message.place {
        Place::Delayed { .. } | Place::Ready { .. } | Place::Leased(_) => message.expires_at,
        Place::Dead(_) | Place::Discarded(_) => None,
    }
}

/// Adds `by` to a queue's numbers: dead letters count in their own incarnation.
pub(in crate::postgres) fn add(
    deltas: &mut Deltas,
    live_id: i32,
    dead_id: i32,
    uid: i32,
    by: &Counts,
) {
    let live = Counts { dead: 0, ..*by };
    for (id, part) in [
        (live_id, live),
        (
            dead_id,
            Counts {
                dead: by.dead,
                ..Counts::default()
            },
        ),
    ] {
        if part == Counts::default() {
            continue;
        }
        let sum = deltas.entry((id, uid)).or_default();
        sum.delayed += part.delayed;
        sum.ready += part.ready;
        sum.leased += part.leased;
        sum.dead += part.dead;
        sum.accepted += part.accepted;
        sum.reopened += part.reopened;
        sum.acked += part.acked;
        sum.discarded += part.discarded;
        sum.purged += part.purged;
        sum.dead_letter_expired += part.dead_letter_expired;
        sum.delivered += part.delivered;
        sum.redriven += part.redriven;
    }
}

impl Writes {
    /// The differences of all drafts.
    pub(in crate::postgres) fn of(drafts: &Drafts, now: Millis) -> Self {
        let mut writes = Self::default();
        for loaded in drafts.values() {
            writes.add(loaded, now);
        }
        writes
    }

    /// The difference of one draft. Does nothing for a message that was gone when it was loaded.
    fn add(&mut self, loaded: &Loaded, now: Millis) {
        let (Some(before), Some(row), Some(known)) = (&loaded.before, &loaded.row, &loaded.known)
        else {
            return;
        };
        let after = loaded.draft.message.as_ref();
        let (seq, uid) = (loaded.seq, known.queue.uid.0);
        let left_at = loaded
            .draft
            .ended
            .as_ref()
            .filter(|_| after.is_none())
            .map_or(now, |ended| ended.at);
        let policy = &known.queue.policy;
        if after != Some(before) {
            self.place(loaded, before);
            let delta = rules::counts_delta(Some(&before.place), &loaded.draft);
            add(&mut self.deltas, known.live_id, known.dead_id, uid, &delta);
        }
        for record in &loaded.draft.records {
            match record {
                Record::Put(delivered) => {
                    self.dropped.retain(|d| *d != (seq, delivered.fence));
                    self.put
                        .retain(|(s, d)| (*s, d.fence) != (seq, delivered.fence));
                    // A message that leaves without a record leaves without a history.
                    self.put.push((seq, delivered.clone()));
                    let oldest = delivered.fence - HISTORY_TAIL;
                    if oldest > HISTORY_HEAD {
                        self.dropped.push((seq, oldest));
                    }
                }
                Record::Drop(fence) => {
                    self.put.retain(|(s, d)| (*s, d.fence) != (seq, *fence));
                    self.dropped.push((seq, *fence));
                }
            }
        }
        let completion = after.and_then(|m| m.completion.as_ref());
        if completion != before.completion.as_ref() {
            match completion {
                Some(completion) => {
                    let outcome = completion.outcome.as_deref().map(str::to_owned);
                    self.completed.push((seq, completion.fence, outcome));
                }
                None if after.is_some() => self.uncompleted.push(seq),
                None => {}
            }
        }
        if let Some(after) = after.filter(|after| after.expires_at != before.expires_at) {
            self.new_expiry.push((seq, after.expires_at));
        }
        let key = row.envelope.key.as_deref().map(|k| k.as_bytes().to_vec());
        if let Some(key) = &key {
            match (waits_or_lives(Some(before)), waits_or_lives(after)) {
                (true, false) => self.unkeyed.push((seq, uid, key.clone())),
                (false, true) => self.keyed.push((seq, uid, key.clone())),
                _ => {}
            }
        }
        match (expires(Some(before)), expires(after)) {
            (Some(_), None) => self.unexpiring.push(seq),
            (None, Some(at)) => self.expiring.push((seq, at)),
            (Some(old), Some(at)) if old != at => {
                self.unexpiring.push(seq);
                self.expiring.push((seq, at));
            }
            _ => {}
        }
        if let Some(at) = expires(after) {
            self.stir.add_due(at);
        }
        if waits_or_lives(Some(before)) && !waits_or_lives(after) {
            if let Some(digest) = &row.digest {
                let published_at = row.envelope.created_at;
                if rules::request_id_kept_from(published_at, left_at, policy.dedupe_window_ms)
                    != published_at
                {
                    self.keep_id.push((seq, uid, digest.clone(), left_at));
                }
            }
            // Also when keys need not be unique any more: they may have been when this one was taken.
            if let Some(key) = &key {
                let until = rules::key_kept_until(left_at, policy);
                self.keep_key.push((seq, uid, key.clone(), until));
            }
        }
        if after.is_none() {
            self.gone.push(seq);
            // Only a dead letter can be edited, and only a redrive makes it another thing than dead or discarded.
            let was_dead = matches!(before.place, Place::Dead(_) | Place::Discarded(_));
            if was_dead || before.life.redrives > 0 {
                self.unrevised.push(seq);
            }
            if before.completion.is_some() {
                self.uncompleted.push(seq);
            }
            match &loaded.draft.ended {
                Some(ended)
                    if rules::remembers_end(&row.envelope, before.life.fence, ended, policy) =>
                {
                    self.ended.push(EndedRow {
                        seq,
                        uid,
                        ended: ended.clone(),
                        published_at: row.envelope.created_at,
                        key,
                        keep_until: rules::end_kept_until(&row.envelope, ended.at, policy),
                    });
                }
                _ => {
                    self.put.retain(|(s, _)| *s != seq);
                    self.dropped.retain(|(s, _)| *s != seq);
                    if before.life.fence > 0 {
                        self.forgotten.push(seq);
                    }
                }
            }
        }
    }

    /// Where it was and where it is now.
    fn place(&mut self, loaded: &Loaded, before: &Message) {
        let (Some(row), Some(spot), Some(known)) = (&loaded.row, &loaded.spot, &loaded.known)
        else {
            return;
        };
        let after = loaded.draft.message.as_ref();
        let (seq, uid, rank) = (loaded.seq, known.queue.uid, rank(row.envelope.priority));
        if let Some(after) = after.filter(|after| after.life == before.life) {
            if let (Place::Leased(_), Place::Leased(lease)) = (&before.place, &after.place) {
                self.changed.push((
                    seq,
                    spot.tid.clone(),
                    lease.expires_at,
                    after.completion.is_some(),
                ));
                self.stir.add_due(lease.expires_at);
                return;
            }
            if after.place == before.place {
                return;
            }
        }
        let table = match spot.table {
            Table::Delayed => LEAVE_DELAYED,
            Table::Ready => LEAVE_READY,
            Table::Lease => LEAVE_LEASE,
            Table::Dead => LEAVE_DEAD,
            Table::Discarded => LEAVE_DISCARDED,
        };
        self.leave.entry(table).or_default().push(spot.tid.clone());
        let Some(after) = after else { return };
        let life = after.life;
        let moved =
            |at: Millis| known.live_id != row.live_id || at != row.envelope.first_available_at;
        match &after.place {
            Place::Ready { available_at } => {
                self.ready.push((
                    seq,
                    known.live_id,
                    rank,
                    *available_at,
                    life,
                    moved(*available_at),
                ));
                self.put_back.push((uid.0, rank, *available_at));
                self.stir.add_ready(uid, 1);
            }
            Place::Delayed { due_at } => {
                self.delayed.push((seq, known.live_id, rank, *due_at, life));
                self.stir.add_due(*due_at);
            }
            Place::Leased(lease) => {
                self.lease
                    .push((seq, known.live_id, rank, lease.clone(), life));
                self.stir.add_due(lease.expires_at);
            }
            Place::Dead(dead) => {
                let envelope = &row.envelope;
                let was_alive = !matches!(before.place, Place::Dead(_) | Place::Discarded(_));
                if was_alive && life.redrives > 0 {
                    self.died_again.push((seq, bulk::is_failure(dead.reason)));
                }
                self.dead.push(DeadRow {
                    seq,
                    queue_id: known.dead_id,
                    rank,
                    dead: dead.clone(),
                    life,
                    published_at: envelope.created_at,
                    key: envelope.key.as_deref().map(|k| k.as_bytes().to_vec()),
                });
            }
            Place::Discarded(d) => {
                self.discarded
                    .push((seq, known.dead_id, rank, d.clone(), life));
            }
        }
    }

    /// Takes purged messages out for good. Their ends are recorded where somebody can ask about them: by request id, by key or
    /// by receipt. No number changes, since the gauges of a purged incarnation count as purged already.
    pub(in crate::postgres) fn clear(drafts: &mut Drafts, now: Millis) -> Self {
        drafts.retain(|_, loaded| loaded.purged.is_some());
        let mut handed_out = Vec::new();
        for loaded in drafts.values_mut() {
            loaded.before = loaded.purged.take();
            if loaded.before.as_ref().is_some_and(|m| m.life.fence > 0) {
                handed_out.push(loaded.seq);
            }
            if let Some(ended) = &mut loaded.draft.ended {
                // The trash has forgotten when it was: a lease that outlived its queue's purge.
                if ended.at == 0 {
                    ended.at = now;
                }
            }
        }
        let mut writes = Self::of(drafts, now);
        writes.ended.retain(|end| {
            let has_id = drafts
                .get(&end.seq)
                .and_then(|l| l.row.as_ref())
                .is_some_and(|r| r.digest.is_some());
            has_id || end.key.is_some() || handed_out.contains(&end.seq)
        });
        writes.uncompleted = handed_out;
        writes.deltas.clear();
        writes.stir = Stir::default();
        writes
    }
}
