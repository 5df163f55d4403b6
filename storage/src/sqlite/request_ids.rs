//! Request ids: young ones in a log and in memory, old ones in an index.
//!
//! Request ids are random, so an index by id dirties a page of its own for nearly every publish: 4 KiB of log and as much again
//! at the checkpoint, for 40 bytes, and the disk's throughput becomes the limit. So a claim is appended to `dedupe_young` and
//! kept in memory; when enough have gathered they move to the index `dedupe` in the order of the index, where neighbours share
//! a page. Looking up is: memory, then the index.
//!
//! A row may stand in both tables while it moves. Memory is right where it knows an id; changes are written to both.

use super::rows::failed;
use super::writer::{Cycle, Writer};
use crate::error::Result;
use crate::model::{Millis, QueueUid};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Young ids from which they begin to move: about 10 MiB of memory, and on average sixty-odd of them to a page of the index
/// while it has two million ids.
const MANY: usize = 131_072;
/// Ids that move in one step: about 5 ms.
const STEP: usize = 2_000;
/// Rows of the log that are deleted in one step, in the order they were written.
const DELETE_STEP: usize = 10_000;

/// A request id: its queue and its digest.
pub(super) type Id = (QueueUid, [u8; 16]);

/// What is known of a request id that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// The message that has it.
    pub(super) seq: i64,
    pub(super) fingerprint: i64,
    pub(super) kept_from: Millis,
}

/// The young ids, and how far their move has come.
#[derive(Default)]
pub(super) struct Young {
    taken: BTreeMap<Id, Taken>,
    moving: Option<Moving>,
}

/// A move of all ids that were claimed up to one message.
#[derive(Clone, Copy)]
struct Moving {
    until: i64,
    /// The last id that moved.
    behind: Option<Id>,
    /// All have moved: their rows in the log go.
    deleting: bool,
}

/// One step of the move: worked out first, written in a transaction, taken over after its commit.
pub(super) enum Step {
    Move(Vec<(Id, Taken)>, i64),
    Delete(i64),
}

impl Young {
    /// Reads the log.
    pub(super) fn load(sql: &Connection) -> Result<Self> {
        const SQL: &str = "-- young request ids\nSELECT uid, digest, seq, fingerprint, kept_from FROM dedupe_young";
        let mut statement = sql.prepare(SQL).map_err(failed)?;
        let rows = statement.query_map([], |r| {
            let taken = Taken {
                seq: r.get(2)?,
                fingerprint: r.get(3)?,
                kept_from: r.get(4)?,
            };
            Ok(((QueueUid(r.get(0)?), r.get(1)?), taken))
        });
        let taken = rows.and_then(Iterator::collect).map_err(failed)?;
        Ok(Self {
            taken,
            moving: None,
        })
    }

    /// Takes over what a transaction did.
    pub(super) fn take_over(&mut self, id: Id, taken: Option<Taken>) {
        match taken {
            Some(taken) => self.taken.insert(id, taken),
            None => self.taken.remove(&id),
        };
    }

    /// The next step of the move, when one is due.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        if self.moving.is_none() && self.taken.len() >= MANY {
            let until = self.taken.values().map(|t| t.seq).max()?;
            self.moving = Some(Moving {
                until,
                behind: None,
                deleting: false,
            });
        }
        let moving = self.moving?;
        if moving.deleting {
            return Some(Step::Delete(moving.until));
        }
        let from = moving.behind.map_or(Bound::Unbounded, Bound::Excluded);
        let frozen = self
            .taken
            .range((from, Bound::Unbounded))
            .filter(|(_, t)| t.seq <= moving.until);
        Some(Step::Move(
            frozen.take(STEP).map(|(id, t)| (*id, *t)).collect(),
            moving.until,
        ))
    }

    /// The step is on disk; `deleted` rows of the log went with it.
    fn stepped(&mut self, step: &Step, deleted: usize) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        match step {
            Step::Move(moved, until) if moved.len() < STEP => {
                moving.deleting = true;
                self.taken.retain(|_, taken| taken.seq > *until);
            }
            Step::Move(moved, _) => moving.behind = moved.last().map(|(id, _)| *id),
            Step::Delete(_) if deleted < DELETE_STEP => self.moving = None,
            Step::Delete(_) => {}
        }
    }
}

impl Writer {
    /// One step of the move of young ids into the index. `true`: there is more to do now.
    pub(super) fn move_young_ids(&mut self, now: Millis) -> Result<bool> {
        let Some(step) = self.known.young.next_step() else {
            return Ok(false);
        };
        let (deleted, _, _) = self.transact(Some(now), |cycle| cycle.write_step(&step))?;
        self.known.young.stepped(&step, deleted);
        Ok(true)
    }

    /// Who has a request id, with what the last transactions did.
    pub(super) fn request_id(&self, id: Id) -> Result<Option<Taken>> {
        match self.known.young.taken.get(&id) {
            Some(taken) => Ok(Some(*taken)),
            None => find_old(self.connection(), id),
        }
    }
}

fn find_old(sql: &Connection, (uid, digest): Id) -> Result<Option<Taken>> {
    const SQL: &str = "-- who has the request id
        SELECT seq, fingerprint, kept_from FROM dedupe WHERE uid = ? AND digest = ?";
    let row = |r: &rusqlite::Row<'_>| {
        Ok(Taken {
            seq: r.get(0)?,
            fingerprint: r.get(1)?,
            kept_from: r.get(2)?,
        })
    };
    sql.prepare_cached(SQL)
        .and_then(|mut s| s.query_row(params![uid.0, &digest[..]], row).optional())
        .map_err(failed)
}

impl Cycle<'_> {
    /// Who has a request id now, this transaction's claims included.
    pub(super) fn find_request_id(&self, id: Id) -> Result<Option<Taken>> {
        if let Some(changed) = self.young.get(&id) {
            return Ok(*changed);
        }
        match self.known.young.taken.get(&id) {
            Some(taken) => Ok(Some(*taken)),
            None => find_old(self.sql, id),
        }
    }

    /// Claims an id that nobody has.
    pub(super) fn claim_request_id(&mut self, id: Id, taken: Taken) -> Result<()> {
        const SQL: &str = "-- claim the request id
            INSERT INTO dedupe_young (seq, uid, digest, fingerprint, kept_from) VALUES (?, ?, ?, ?, ?)";
        let values = params![
            taken.seq,
            id.0.0,
            &id.1[..],
            taken.fingerprint,
            taken.kept_from
        ];
        self.sql
            .prepare_cached(SQL)
            .and_then(|mut s| s.execute(values))
            .map_err(failed)?;
        self.young.insert(id, Some(taken));
        Ok(())
    }

    /// Claims an id that nobody has for a message that is not new. It goes into the index at once: a move takes ids by the
    /// number of their message, and may have passed this one.
    pub(super) fn claim_old_request_id(&self, id: Id, taken: Taken) -> Result<()> {
        const SQL: &str = "-- claim the request id of an old message
            INSERT INTO dedupe (uid, digest, seq, fingerprint, kept_from) VALUES (?, ?, ?, ?, ?)";
        let (uid, digest) = (id.0.0, &id.1[..]);
        let values = params![uid, digest, taken.seq, taken.fingerprint, taken.kept_from];
        self.sql
            .prepare_cached(SQL)
            .and_then(|mut s| s.execute(values))
            .map(|_| ())
            .map_err(failed)
    }

    /// Lets go of an id that `seq` has.
    pub(super) fn release_request_id(&mut self, id: Id, seq: i64) -> Result<()> {
        let young = "DELETE FROM dedupe_young WHERE seq = ?";
        self.sql
            .prepare_cached(young)
            .and_then(|mut s| s.execute([seq]))
            .map_err(failed)?;
        let old = "DELETE FROM dedupe WHERE uid = ? AND digest = ? AND seq = ?";
        let values = params![id.0.0, &id.1[..], seq];
        self.sql
            .prepare_cached(old)
            .and_then(|mut s| s.execute(values))
            .map_err(failed)?;
        self.young.insert(id, None);
        Ok(())
    }

    /// Changes from when the time of an id counts that `seq` has.
    pub(super) fn keep_request_id(
        &mut self,
        id: Id,
        seq: i64,
        kept_from: Millis,
    ) -> rusqlite::Result<()> {
        let young = "UPDATE dedupe_young SET kept_from = ? WHERE seq = ?";
        self.sql
            .prepare_cached(young)?
            .execute(params![kept_from, seq])?;
        let old = "UPDATE dedupe SET kept_from = ? WHERE uid = ? AND digest = ? AND seq = ?";
        self.sql
            .prepare_cached(old)?
            .execute(params![kept_from, id.0.0, &id.1[..], seq])?;
        let known = match self.young.get(&id) {
            Some(changed) => *changed,
            None => self.known.young.taken.get(&id).copied(),
        };
        if let Some(taken) = known.filter(|t| t.seq == seq) {
            self.young.insert(id, Some(Taken { kept_from, ..taken }));
        }
        Ok(())
    }

    /// Writes a step of the move; answers how many rows of the log were deleted.
    fn write_step(&self, step: &Step) -> Result<usize> {
        const MOVE: &str = "-- request ids: into the index
            INSERT INTO dedupe (uid, digest, seq, fingerprint, kept_from) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (uid, digest) DO UPDATE SET seq = excluded.seq, fingerprint = excluded.fingerprint,
                kept_from = excluded.kept_from";
        const DELETE: &str = "-- request ids: out of the log
            DELETE FROM dedupe_young WHERE seq IN (SELECT seq FROM dedupe_young WHERE seq <= ? ORDER BY seq LIMIT ?)";
        match step {
            Step::Move(ids, _) => {
                let mut statement = self.sql.prepare_cached(MOVE).map_err(failed)?;
                for ((uid, digest), t) in ids {
                    let values = params![uid.0, &digest[..], t.seq, t.fingerprint, t.kept_from];
                    statement.execute(values).map_err(failed)?;
                }
                Ok(0)
            }
            Step::Delete(until) => self
                .sql
                .prepare_cached(DELETE)
                .and_then(|mut s| s.execute(params![until, DELETE_STEP as i64]))
                .map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{connect, open};

    fn id(number: usize) -> Id {
        let mut digest = [0; 16];
        // Scattered, as digests are.
        digest[..8].copy_from_slice(
            &(number as u64)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .to_be_bytes(),
        );
        (QueueUid(1), digest)
    }

    fn taken(number: usize) -> Taken {
        Taken {
            seq: number as i64,
            fingerprint: number as i64 * 7,
            kept_from: 1_000,
        }
    }

    async fn writer(path: &std::path::Path) -> Writer {
        open(path).await.unwrap().close().await;
        Writer::new(connect(path, false).unwrap()).unwrap().0
    }

    fn claim(writer: &mut Writer, numbers: std::ops::Range<usize>) {
        let work = |cycle: &mut Cycle<'_>| {
            numbers
                .clone()
                .try_for_each(|n| cycle.claim_request_id(id(n), taken(n)))
        };
        writer.transact(Some(1_000), work).unwrap();
    }

    fn rows(writer: &Writer, table: &str) -> i64 {
        writer
            .connection()
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0))
            .unwrap()
    }

    #[tokio::test]
    async fn every_id_is_found_before_during_and_after_the_move_and_over_a_restart_in_the_middle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.db");
        let mut writer = writer(&path).await;
        claim(&mut writer, 0..MANY);
        let check = |writer: &Writer, upto: usize, changed: usize| {
            for number in (0..upto).step_by(97) {
                let expected = if number == changed {
                    Some(Taken {
                        kept_from: 5_000,
                        ..taken(number)
                    })
                } else {
                    Some(taken(number))
                };
                assert_eq!(writer.request_id(id(number)).unwrap(), expected, "{number}");
            }
        };
        check(&writer, MANY, usize::MAX);
        for _ in 0..10 {
            assert!(writer.move_young_ids(2_000).unwrap());
        }
        // Claims, a change and a release in the middle of the move.
        claim(&mut writer, MANY..MANY + 500);
        let moved = rows(&writer, "dedupe");
        assert!(moved > 0 && moved < MANY as i64);
        writer
            .transact(Some(2_000), |c| {
                c.keep_request_id(id(97), 97, 5_000).map_err(failed)
            })
            .unwrap();
        writer
            .transact(Some(2_000), |c| c.release_request_id(id(98), 98))
            .unwrap();
        check(&writer, MANY + 500, 97);
        drop(writer);
        let mut writer = Writer::new(connect(&path, false).unwrap()).unwrap().0;
        check(&writer, MANY + 500, 97);
        while writer.move_young_ids(3_000).unwrap() {}
        check(&writer, MANY + 500, 97);
        assert_eq!(writer.request_id(id(98)).unwrap(), None);
        assert_eq!(
            rows(&writer, "dedupe") + rows(&writer, "dedupe_young"),
            MANY as i64 + 499
        );
        assert!(rows(&writer, "dedupe_young") <= 500);
    }

    #[tokio::test]
    async fn a_transaction_that_fails_leaves_no_claim() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(&folder.path().join("ids.db")).await;
        let failed = writer.transact(Some(1_000), |cycle| {
            cycle.claim_request_id(id(1), taken(1))?;
            assert_eq!(cycle.find_request_id(id(1))?, Some(taken(1)));
            Err::<(), _>(crate::error::StoreError::internal("undo"))
        });
        assert!(failed.is_err());
        assert_eq!(writer.request_id(id(1)).unwrap(), None);
        claim(&mut writer, 1..2);
        assert_eq!(writer.request_id(id(1)).unwrap(), Some(taken(1)));
    }
}
