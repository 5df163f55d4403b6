//! Write what stays of a message: its history of deliveries, and at its end what is remembered of it.

use super::drafts::Loaded;
use super::writer::{Cycle, QueueRow};
use crate::model::{Ended, HISTORY_HEAD, HISTORY_TAIL, Millis, Place, Policy};
use crate::rules::{self, Draft, Message, Record};
use rusqlite::params;

impl Cycle<'_> {
    /// Writes the changes to its history.
    pub(super) fn write_records(
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
    pub(super) fn free_ids(
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
