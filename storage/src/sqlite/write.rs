//! Write the difference between a message as it was loaded and what the rules made of it.

use super::drafts::{Incarnations, Loaded};
use super::rows::{DEAD, LIFE, failed};
use super::writer::{Cycle, QueueRow};
use crate::error::Result;
use crate::model::{
    Counts, Dead, Discarded, Ended, HISTORY_HEAD, HISTORY_TAIL, Life, Limit, Millis, Place, Policy,
};
use crate::rules::{self, Draft, Message, Record};
use rusqlite::params;

impl Cycle<'_> {
    /// Writes what the rules changed in `loaded`, and counts it.
    pub(super) fn write(&mut self, loaded: &Loaded) -> Result<()> {
        let Loaded {
            draft,
            before,
            queue,
            ..
        } = loaded;
        let Some(before) = before else { return Ok(()) };
        let Some(row) = self.queue(*queue) else {
            return Ok(());
        };
        let own = Incarnations {
            live_id: row.live_id,
            dead_id: row.dead_id,
        };
        self.write_records(before, draft, &row.policy)
            .map_err(failed)?;
        match &draft.message {
            Some(message) if message == before => {}
            Some(message) => {
                self.move_row(own, before, message).map_err(failed)?;
                if message.completion != before.completion {
                    self.write_completion(message).map_err(failed)?;
                }
                if message.expires_at != before.expires_at {
                    let sql = "-- new expires_at\nUPDATE message SET expires_at = ? WHERE seq = ?";
                    let values = params![message.expires_at, message.envelope.id.0];
                    self.sql
                        .prepare_cached(sql)
                        .and_then(|mut s| s.execute(values))
                        .map_err(failed)?;
                }
                if matches!(message.place, Place::Ready { .. }) {
                    self.stir.add_ready(*queue, 1);
                }
                if let (Place::Discarded(d), Place::Dead(_)) = (&message.place, &before.place) {
                    self.free_ids(loaded, before, d.discarded_at, &row)
                        .map_err(failed)?;
                }
            }
            None => {
                self.delete_row(own, before).map_err(failed)?;
                if let Some(ended) = &draft.ended {
                    self.write_end(loaded, before, ended, &row)
                        .map_err(failed)?;
                }
            }
        }
        let delta = rules::counts_delta(Some(&before.place), draft);
        let live = Counts { dead: 0, ..delta };
        let dead = Counts {
            dead: delta.dead,
            ..Counts::default()
        };
        if live != Counts::default() {
            self.count(own.live_id, *queue, &live);
        }
        if dead != Counts::default() {
            self.count(own.dead_id, *queue, &dead);
        }
        Ok(())
    }

    fn move_row(
        &mut self,
        own: Incarnations,
        before: &Message,
        after: &Message,
    ) -> rusqlite::Result<()> {
        if let (Place::Leased(_), Place::Leased(lease)) = (&before.place, &after.place) {
            let sql = "-- extend\nUPDATE lease SET expires_at = ? WHERE seq = ?";
            self.sql
                .prepare_cached(sql)?
                .execute(params![lease.expires_at, after.envelope.id.0])?;
            self.due_at(lease.expires_at);
            return Ok(());
        }
        // Written again, a dead letter would leave the selections that it is in.
        if (&before.place, before.life) == (&after.place, after.life) {
            return Ok(());
        }
        self.delete_row(own, before)?;
        self.insert_row(own, after)?;
        match (&before.place, &after.place) {
            (Place::Dead(_) | Place::Discarded(_), _) => Ok(()),
            (_, Place::Dead(dead)) if after.life.redrives > 0 => {
                self.died_again(after.envelope.id, dead.reason)
            }
            _ => Ok(()),
        }
    }

    /// Removes the row that says where the message is.
    fn delete_row(&self, own: Incarnations, message: &Message) -> rusqlite::Result<()> {
        let id = message.envelope.id.0;
        let deleted = match &message.place {
            Place::Leased(_) => self.sql.prepare_cached("DELETE FROM lease WHERE seq = ?")?.execute([id])?,
            Place::Ready { available_at } => self
                .sql
                .prepare_cached("DELETE FROM ready WHERE queue_id = ? AND rank = ? AND available_at = ? AND seq = ?")?
                .execute(params![own.live_id, 9 - message.envelope.priority, available_at, id])?,
            Place::Delayed { due_at } => {
                self.sql.prepare_cached("DELETE FROM delayed WHERE due_at = ? AND seq = ?")?.execute(params![due_at, id])?
            }
            Place::Dead(dead) => self
                .sql
                .prepare_cached("DELETE FROM dead WHERE queue_id = ? AND died_at = ? AND seq = ?")?
                .execute(params![own.dead_id, dead.died_at, id])?,
            Place::Discarded(_) => self.sql.prepare_cached("DELETE FROM discarded WHERE seq = ?")?.execute([id])?,
        };
        if deleted == 1 {
            Ok(())
        } else {
            Err(rusqlite::Error::StatementChangedRows(deleted))
        }
    }

    /// Adds the row that says where the message is.
    pub(super) fn insert_row(
        &mut self,
        own: Incarnations,
        message: &Message,
    ) -> rusqlite::Result<()> {
        let id = message.envelope.id.0;
        let rank = 9 - message.envelope.priority;
        let Life {
            fence,
            attempts,
            expirations,
            releases,
            redrives,
        } = message.life;
        let moved = |at: Millis| at != message.envelope.first_available_at || fence > 0;
        match &message.place {
            Place::Ready { available_at } => {
                let sql = "-- into ready\nINSERT INTO ready (queue_id, rank, available_at, seq, fence, attempts, expirations,
                    releases, redrives, moved) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
                self.sql.prepare_cached(sql)?.execute(params![
                    own.live_id,
                    rank,
                    available_at,
                    id,
                    fence,
                    attempts,
                    expirations,
                    releases,
                    redrives,
                    moved(*available_at)
                ])?;
                self.watch_expiry(message)?;
            }
            Place::Delayed { due_at } => {
                let sql = "-- into delayed\nINSERT INTO delayed (due_at, seq, queue_id, rank, fence, attempts, expirations,
                    releases, redrives, moved) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
                self.sql.prepare_cached(sql)?.execute(params![
                    due_at,
                    id,
                    own.live_id,
                    rank,
                    fence,
                    attempts,
                    expirations,
                    releases,
                    redrives,
                    moved(*due_at)
                ])?;
                self.due_at(*due_at);
                self.watch_expiry(message)?;
            }
            Place::Leased(lease) => {
                let sql = "-- into lease\nINSERT INTO lease (seq, queue_id, rank, available_at, leased_at, expires_at, fence,
                    attempts, expirations, releases, redrives, bounds, worker) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
                self.sql.prepare_cached(sql)?.execute(params![
                    id,
                    own.live_id,
                    rank,
                    lease.available_at,
                    lease.leased_at,
                    lease.expires_at,
                    fence,
                    attempts,
                    expirations,
                    releases,
                    redrives,
                    lease.bounds.bits(),
                    lease.worker.as_deref()
                ])?;
                self.due_at(lease.expires_at);
            }
            Place::Dead(dead) => self.insert_dead(own, message, dead)?,
            Place::Discarded(discarded) => self.insert_discarded(own, message, discarded)?,
        }
        Ok(())
    }

    /// The row belongs to the selections that are made from now on.
    fn insert_dead(
        &self,
        own: Incarnations,
        message: &Message,
        dead: &Dead,
    ) -> rusqlite::Result<()> {
        let text = format!(
            "-- into dead\nINSERT INTO dead (queue_id, seq, rank, {LIFE}, {DEAD}, key, published_at, generation)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        );
        let (life, envelope) = (message.life, &message.envelope);
        self.sql.prepare_cached(&text)?.execute(params![
            own.dead_id,
            envelope.id.0,
            9 - envelope.priority,
            life.fence,
            life.attempts,
            life.expirations,
            life.releases,
            life.redrives,
            dead.died_at,
            dead.reason.code(),
            dead.limit.map(Limit::code),
            dead.by_expiry,
            dead.edited,
            dead.error_code.as_deref(),
            dead.group,
            envelope.key.as_deref(),
            envelope.created_at,
            self.known.generation
        ])?;
        Ok(())
    }

    fn insert_discarded(
        &self,
        own: Incarnations,
        message: &Message,
        discarded: &Discarded,
    ) -> rusqlite::Result<()> {
        let text = format!(
            "-- into discarded\nINSERT INTO discarded (queue_id, seq, rank, {LIFE}, {DEAD}, discarded_at, payload_kept)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        );
        let (life, dead) = (message.life, &discarded.dead);
        self.sql.prepare_cached(&text)?.execute(params![
            own.dead_id,
            message.envelope.id.0,
            9 - message.envelope.priority,
            life.fence,
            life.attempts,
            life.expirations,
            life.releases,
            life.redrives,
            dead.died_at,
            dead.reason.code(),
            dead.limit.map(Limit::code),
            dead.by_expiry,
            dead.edited,
            dead.error_code.as_deref(),
            dead.group,
            discarded.discarded_at,
            discarded.payload_kept
        ])?;
        Ok(())
    }

    /// A waiting message with an `expires_at` is in the list that the sweep reads; a leased one need not be.
    fn watch_expiry(&mut self, message: &Message) -> rusqlite::Result<()> {
        let Some(at) = message.expires_at else {
            return Ok(());
        };
        let sql = "INSERT INTO expiring (expires_at, seq) VALUES (?, ?) ON CONFLICT DO NOTHING";
        self.sql
            .prepare_cached(sql)?
            .execute(params![at, message.envelope.id.0])?;
        self.due_at(at);
        Ok(())
    }

    fn write_completion(&self, message: &Message) -> rusqlite::Result<()> {
        let id = message.envelope.id.0;
        match &message.completion {
            Some(completion) => self
                .sql
                .prepare_cached("INSERT INTO completion (seq, fence, outcome) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")?
                .execute(params![id, completion.fence, completion.outcome.as_deref()])?,
            None => self.sql.prepare_cached("DELETE FROM completion WHERE seq = ?")?.execute([id])?,
        };
        Ok(())
    }

    fn write_records(
        &self,
        before: &Message,
        draft: &Draft,
        policy: &Policy,
    ) -> rusqlite::Result<()> {
        let (id, fence) = (before.envelope.id, before.life.fence);
        // An end that is not remembered leaves no history.
        let forgotten = |e: &Ended| !rules::remembers_end(&before.envelope, fence, e, policy);
        let plain = draft.message.is_none() && draft.ended.as_ref().is_some_and(forgotten);
        for record in &draft.records {
            match record {
                Record::Put(d) if plain && d.cause == crate::model::Cause::Ack && !d.late => {}
                Record::Put(d) => {
                    let sql = "-- history, put\nINSERT INTO delivery (seq, fence, attempt, leased_at, ended_at, cause, late,
                        worker, code, detail, truncated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                        ON CONFLICT (seq, fence) DO UPDATE SET attempt = excluded.attempt, ended_at = excluded.ended_at,
                            cause = excluded.cause, late = excluded.late, code = excluded.code,
                            detail = excluded.detail, truncated = excluded.truncated";
                    self.sql.prepare_cached(sql)?.execute(params![
                        id.0,
                        d.fence,
                        d.attempt,
                        d.leased_at,
                        d.ended_at,
                        d.cause.code(),
                        d.late,
                        d.worker.as_deref(),
                        d.failure.code.as_deref(),
                        d.failure.detail.as_deref(),
                        d.failure.truncated
                    ])?;
                    if d.fence > HISTORY_HEAD + HISTORY_TAIL {
                        self.sql
                            .prepare_cached("-- history, cut\nDELETE FROM delivery WHERE seq = ? AND fence > ? AND fence <= ?")?
                            .execute(params![id.0, HISTORY_HEAD, d.fence - HISTORY_TAIL])?;
                    }
                }
                Record::Drop(fence) => {
                    let sql = "-- history, drop\nDELETE FROM delivery WHERE seq = ? AND fence = ?";
                    self.sql
                        .prepare_cached(sql)?
                        .execute(params![id.0, fence])?;
                }
            }
        }
        Ok(())
    }

    /// Writes the end of a message: what is remembered of it, and what goes with it.
    pub(super) fn write_end(
        &mut self,
        loaded: &Loaded,
        before: &Message,
        ended: &Ended,
        queue: &QueueRow,
    ) -> rusqlite::Result<()> {
        let envelope = &before.envelope;
        let id = envelope.id.0;
        let kept_until = rules::end_kept_until(envelope, ended.at, &queue.policy);
        let remembered = rules::remembers_end(envelope, before.life.fence, ended, &queue.policy);
        if remembered {
            let sql = "-- ended\nINSERT INTO ended (seq, uid, how, at, published_at, fence, key, outcome, keep_until)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
            self.sql.prepare_cached(sql)?.execute(params![
                id,
                envelope.queue.0,
                ended.end.code(),
                ended.at,
                envelope.created_at,
                ended.fence,
                envelope.key.as_deref(),
                ended.outcome.as_deref(),
                kept_until
            ])?;
        } else if before.life.fence > 1 || !loaded.draft.records.is_empty() {
            self.sql
                .prepare_cached("DELETE FROM delivery WHERE seq = ?")?
                .execute([id])?;
        }
        self.sql
            .prepare_cached("DELETE FROM message WHERE seq = ?")?
            .execute([id])?;
        if before.completion.is_some() {
            self.sql
                .prepare_cached("DELETE FROM completion WHERE seq = ?")?
                .execute([id])?;
        }
        // Nobody changed or redrove a message that never was a dead letter. The short cut of a plain ack leaves these rows to
        // the sweep.
        if before.life.redrives > 0 || matches!(before.place, Place::Dead(_) | Place::Discarded(_))
        {
            for sql in [
                "-- end: revisions\nDELETE FROM revision WHERE seq = ?",
                "-- end: redriven\nDELETE FROM redriven WHERE seq = ?",
            ] {
                self.sql.prepare_cached(sql)?.execute([id])?;
            }
        }
        if let Some(at) = before.expires_at {
            let sql = "DELETE FROM expiring WHERE expires_at = ? AND seq = ?";
            self.sql.prepare_cached(sql)?.execute(params![at, id])?;
        }
        if let Some(key) = &envelope.key {
            let values = params![envelope.queue.0, &**key, id];
            self.sql
                .prepare_cached("DELETE FROM keyed WHERE uid = ? AND key = ? AND seq = ?")?
                .execute(values)?;
        }
        if !matches!(before.place, Place::Discarded(_)) {
            self.free_ids(loaded, before, ended.at, queue)?;
        }
        Ok(())
    }

    /// Starts the time after which the request id and the key of a message that left are free again.
    fn free_ids(
        &mut self,
        loaded: &Loaded,
        message: &Message,
        ended_at: Millis,
        queue: &QueueRow,
    ) -> rusqlite::Result<()> {
        let envelope = &message.envelope;
        let (uid, id) = (envelope.queue.0, envelope.id.0);
        if let Some(key) = envelope.key.as_deref() {
            let sql = "UPDATE unique_key SET keep_until = ? WHERE uid = ? AND key = ? AND seq = ?";
            let values = params![rules::key_kept_until(ended_at, &queue.policy), uid, key, id];
            self.sql.prepare_cached(sql)?.execute(values)?;
        }
        let window = queue.policy.dedupe_window_ms;
        let kept_from = rules::request_id_kept_from(envelope.created_at, ended_at, window);
        // Mostly the row's own time keeps the id long enough.
        let digest = loaded.digest.as_deref().and_then(|d| d.try_into().ok());
        if let Some(digest) = digest.filter(|_| kept_from != envelope.created_at) {
            self.keep_request_id((envelope.queue, digest), id, kept_from)?;
        }
        Ok(())
    }
}
