//! Background work in small steps: purged incarnations, request ids, checkpoints; and what is in [`super::forget`].

use super::rows::failed;
use super::writer::{Cycle, Writer};
use super::{Inner, connect, forget, publish};
use crate::backend::Keep;
use crate::error::{Result, StoreError};
use crate::model::{Counts, End, Ended, MessageId, Millis, QueueUid};
use crate::rules;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Rows per step and kind: a few milliseconds, so that callers hardly notice.
const STEP: u32 = 500;
/// Frames (4 KiB pages) in the WAL from which it is moved into the database file and begins anew: 64 MiB. A WAL that begins
/// anew is written over, which syncs in half the time of one that grows (0.11 ms against 0.24 ms here), and a page that was
/// changed often meanwhile is moved once.
const CHECKPOINT_FRAMES: i64 = 16_384;
/// Frames from which somebody should know: a reader has kept the WAL from beginning anew. 1 GiB.
const ALARM_FRAMES: i64 = 262_144;
/// How often the checkpointer looks.
const LOOK: Duration = Duration::from_millis(100);

impl Writer {
    /// One step of everything; a transaction that found nothing to write costs no fsync. `true`: there is more to do now.
    pub(super) fn maintain(&mut self, keep: Keep, now: Option<Millis>) -> Result<bool> {
        let now = self.catch_up(now)?;
        let moving = self.move_young_ids(now)?;
        let (more, _, _) = self.transact(Some(now), |cycle| {
            let mut more = clear_trash(cycle)?;
            more |= forget::step(cycle, keep)?;
            sweep_request_ids(cycle)?;
            Ok(more || moving)
        })?;
        Ok(more)
    }
}

/// Takes one message out for good that was purged at `at`.
pub(super) fn clear(cycle: &mut Cycle<'_>, id: MessageId, at: Millis) -> Result<()> {
    let Some(loaded) = cycle.load(id)? else {
        return Ok(());
    };
    let (Some(message), Some(queue)) = (&loaded.purged, cycle.queue(loaded.queue)) else {
        return Ok(());
    };
    let ended = Ended {
        end: End::Purged,
        at,
        fence: 0,
        outcome: None,
    };
    cycle
        .write_end(&loaded, message, &ended, &queue)
        .map_err(failed)?;
    for sql in [
        "DELETE FROM completion WHERE seq = ?",
        "DELETE FROM lease WHERE seq = ?",
    ] {
        cycle
            .sql
            .prepare_cached(sql)
            .and_then(|mut s| s.execute([id.0]))
            .map_err(failed)?;
    }
    Ok(())
}

/// Clears a step of the oldest purged incarnation; when it is empty, folds its numbers into the present one.
fn clear_trash(cycle: &mut Cycle<'_>) -> Result<bool> {
    const OLDEST: &str = "-- oldest trash
        SELECT id, uid, kind, since FROM trash ORDER BY since, id LIMIT 1";
    let oldest: Option<(i64, i32, i64, Millis)> = cycle
        .sql
        .prepare_cached(OLDEST)
        .and_then(|mut s| {
            s.query_row([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
                .optional()
        })
        .map_err(failed)?;
    let Some((id, uid, kind, since)) = oldest else {
        return Ok(false);
    };
    let tables: &[&str] = if kind == 0 {
        &["ready", "delayed", "lease"]
    } else {
        &["dead"]
    };
    let mut cleared = 0;
    for table in tables {
        let order = match *table {
            "ready" => "queue_id, rank, available_at, seq",
            "delayed" => "due_at, seq",
            "dead" => "queue_id, died_at, seq",
            _ => "seq",
        };
        // Both statements must mean the same rows, whatever index they go by.
        let text = format!(
            "-- clear {table}\nSELECT seq FROM {table} WHERE queue_id = ? ORDER BY {order} LIMIT ?"
        );
        let found: Vec<MessageId> = cycle
            .sql
            .prepare_cached(&text)
            .and_then(|mut s| {
                s.query_map(params![id, STEP], |r| r.get(0).map(MessageId))?
                    .collect()
            })
            .map_err(failed)?;
        for message in &found {
            clear(cycle, *message, since)?;
        }
        let text = format!(
            "-- clear {table} rows\nDELETE FROM {table} WHERE ({order}) IN
             (SELECT {order} FROM {table} WHERE queue_id = ? ORDER BY {order} LIMIT ?)"
        );
        if !found.is_empty() {
            cycle
                .sql
                .prepare_cached(&text)
                .and_then(|mut s| s.execute(params![id, STEP]))
                .map_err(failed)?;
        }
        cleared += found.len();
    }
    if cleared == 0 {
        fold(cycle, id, QueueUid(uid));
        cycle
            .sql
            .execute("DELETE FROM trash WHERE id = ?", [id])
            .map_err(failed)?;
    }
    Ok(true)
}

/// Moves the numbers of a cleared incarnation to the present one; what it still held counts as purged.
fn fold(cycle: &mut Cycle<'_>, id: i64, uid: QueueUid) {
    let Some(queue) = cycle.queue(uid) else {
        return;
    };
    let old = cycle.counts_of(id);
    let held = old.delayed + old.ready + old.leased + old.dead;
    let totals = Counts {
        delayed: 0,
        ready: 0,
        leased: 0,
        dead: 0,
        purged: old.purged + held,
        ..old
    };
    cycle.count(queue.live_id, uid, &totals);
    cycle.count(id, uid, &negative(&old));
}

fn negative(counts: &Counts) -> Counts {
    Counts {
        delayed: -counts.delayed,
        ready: -counts.ready,
        leased: -counts.leased,
        dead: -counts.dead,
        accepted: -counts.accepted,
        reopened: -counts.reopened,
        acked: -counts.acked,
        discarded: -counts.discarded,
        purged: -counts.purged,
        dead_letter_expired: -counts.dead_letter_expired,
        delivered: -counts.delivered,
        redriven: -counts.redriven,
    }
}

/// Walks the request ids with a cursor and drops those that are free. A free one that is still there does no harm: publish
/// looks at its time; this only gives the space back.
fn sweep_request_ids(cycle: &mut Cycle<'_>) -> Result<()> {
    const SQL: &str = "-- request ids: the next step of the walk
        SELECT uid, digest, seq, kept_from FROM dedupe WHERE (uid, digest) > (?, ?) ORDER BY uid, digest LIMIT ?";
    let (uid, digest) = cycle
        .known
        .dedupe_cursor
        .clone()
        .unwrap_or((QueueUid(i32::MIN), Vec::new()));
    let rows: Vec<(i32, Vec<u8>, i64, Millis)> = cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| {
            s.query_map(params![uid.0, digest, STEP], |r| {
                Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
            })?
            .collect()
        })
        .map_err(failed)?;
    cycle.known.dedupe_cursor = if rows.len() < STEP as usize {
        None
    } else {
        rows.last().map(|r| (QueueUid(r.0), r.1.clone()))
    };
    for (uid, digest, seq, kept_from) in rows {
        let Some(queue) = cycle.queue(QueueUid(uid)) else {
            continue;
        };
        let free = rules::request_id_is_free(kept_from, queue.policy.dedupe_window_ms, cycle.now);
        if free && !publish::message_exists(cycle, seq)? {
            let sql = "DELETE FROM dedupe WHERE uid = ? AND digest = ?";
            cycle
                .sql
                .prepare_cached(sql)
                .and_then(|mut s| s.execute(params![uid, digest]))
                .map_err(failed)?;
        }
    }
    Ok(())
}

/// Starts the thread that moves WAL frames into the database file beside the writer, so that no caller waits for it. It ends
/// with the store.
pub(super) fn spawn_checkpointer(inner: Weak<Inner>, path: &Path) -> Result<()> {
    let connection = connect(path, false)?;
    let run = move || {
        while let Some(store) = inner.upgrade() {
            if store.closing.load(Ordering::Relaxed) {
                break;
            }
            checkpoint(&store, &connection);
            drop(store);
            std::thread::sleep(LOOK);
        }
    };
    let thread = std::thread::Builder::new().name("quita-checkpoint".into());
    thread
        .spawn(run)
        .map(|_| ())
        .map_err(StoreError::unavailable)
}

fn checkpoint(store: &Inner, connection: &Connection) {
    let step = |connection: &Connection, mode: &str| -> rusqlite::Result<(i64, i64)> {
        connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |r| {
            Ok((r.get(1)?, r.get(2)?))
        })
    };
    let frames = step(connection, "NOOP").map_or(0, |(frames, _)| frames);
    if frames < CHECKPOINT_FRAMES {
        return;
    }
    // Most of it beside the writer; then the few frames that came meanwhile while nobody writes, so that all are moved and the
    // next commit begins the WAL anew. Neither waits for a reader.
    let moved = step(connection, "PASSIVE")
        .map_err(super::rows::failed)
        .and_then(|_| {
            store.write(|writer| step(writer.connection(), "PASSIVE").map_err(super::rows::failed))
        });
    match moved {
        Ok((frames, moved)) if frames > ALARM_FRAMES => {
            tracing::warn!(
                frames,
                moved,
                "the WAL cannot begin anew: a reader has been open for long"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "a checkpoint failed"),
    }
}
