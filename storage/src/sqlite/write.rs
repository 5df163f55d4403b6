//! Write the difference between a message as it was loaded and what the rules made of it: here the rows that say where it is, in
//! [`super::ends`] its history and its end.

use super::drafts::{Incarnations, Loaded};
use super::rows::{DEAD, LIFE, failed};
use super::writer::Cycle;
use crate::error::Result;
use crate::model::{Counts, Dead, Discarded, Life, Limit, Millis, Place};
use crate::rules::{self, Message};
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
}
