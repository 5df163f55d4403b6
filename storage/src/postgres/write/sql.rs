//! The statements: one per table and kind of change, each for any number of rows.

pub(in crate::postgres) const LEAVE_DELAYED: &str =
    "-- leave delayed\nDELETE FROM delayed WHERE ctid = ANY($1::text[]::tid[])";
pub(in crate::postgres) const LEAVE_READY: &str =
    "-- leave ready\nDELETE FROM ready WHERE ctid = ANY($1::text[]::tid[])";
pub(in crate::postgres) const LEAVE_LEASE: &str =
    "-- leave lease\nDELETE FROM lease WHERE ctid = ANY($1::text[]::tid[])";
pub(in crate::postgres) const LEAVE_DEAD: &str =
    "-- leave dead\nDELETE FROM dead WHERE ctid = ANY($1::text[]::tid[])";
pub(in crate::postgres) const LEAVE_DISCARDED: &str =
    "-- leave discarded\nDELETE FROM discarded WHERE ctid = ANY($1::text[]::tid[])";

pub(in crate::postgres) const ENTER_READY: &str = "-- enter ready
INSERT INTO ready (seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives, moved)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[], $10::boolean[])";

pub(in crate::postgres) const ENTER_DELAYED: &str = "-- enter delayed
INSERT INTO delayed (seq, queue_id, rank, due_at, fence, attempts, expirations, releases, redrives)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[])";

pub(in crate::postgres) const ENTER_LEASE: &str = "-- enter lease
INSERT INTO lease (seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives,
    leased_at, expires_at, check_at, bounds, special, worker)
SELECT seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives,
    leased_at, expires_at, expires_at, bounds, false, worker
FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[], $9::int[],
    $10::bigint[], $11::bigint[], $12::smallint[], $13::text[])
    AS t(seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives, leased_at, expires_at,
        bounds, worker)";

// A later end leaves check_at alone, so that the update touches no index. The new values are looked up in the arrays: a join
// could be planned as one that reads the whole table.
pub(in crate::postgres) const CHANGE_LEASE: &str = "-- change lease
UPDATE lease SET
    expires_at = ($2::bigint[])[array_position($1::bigint[], seq)],
    check_at = least(check_at, ($2::bigint[])[array_position($1::bigint[], seq)]),
    special = ($3::boolean[])[array_position($1::bigint[], seq)]
WHERE ctid = ANY($4::text[]::tid[])";

pub(in crate::postgres) const ENTER_DEAD: &str = "-- enter dead
INSERT INTO dead (seq, queue_id, rank, died_at, fence, attempts, expirations, releases, redrives,
    reason, bound, by_expiry, edited, error_code, group_id, published_at, key)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[], $10::smallint[], $11::smallint[], $12::boolean[], $13::boolean[], $14::text[], $15::bigint[], $16::bigint[],
    $17::bytea[])";

pub(in crate::postgres) const ENTER_DISCARDED: &str = "-- enter discarded
INSERT INTO discarded (seq, queue_id, rank, discarded_at, fence, attempts, expirations, releases, redrives,
    reason, bound, by_expiry, edited, error_code, group_id, died_at, payload_kept)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[], $10::smallint[], $11::smallint[], $12::boolean[], $13::boolean[], $14::text[], $15::bigint[], $16::bigint[],
    $17::boolean[])";

// A redriven message that dies is watched no more; how it died says whether it counts.
pub(in crate::postgres) const DIED_AGAIN: &str = "-- died again
WITH r AS (DELETE FROM redriven WHERE seq = ANY($1::bigint[]) RETURNING seq, redrive_id, place)
INSERT INTO redrive_failure (redrive_id, place)
SELECT redrive_id, place FROM r WHERE ($2::boolean[])[array_position($1::bigint[], seq)] ON CONFLICT DO NOTHING";

pub(in crate::postgres) const PUT_DELIVERY: &str = "-- put delivery
INSERT INTO delivery (seq, fence, attempt, leased_at, ended_at, cause, late, truncated, worker, code, detail)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::int[], $4::bigint[], $5::bigint[], $6::smallint[], $7::boolean[],
    $8::boolean[], $9::text[], $10::text[], $11::text[])
ON CONFLICT (seq, fence) DO UPDATE SET attempt = excluded.attempt, leased_at = excluded.leased_at,
    ended_at = excluded.ended_at, cause = excluded.cause, late = excluded.late, truncated = excluded.truncated,
    worker = excluded.worker, code = excluded.code, detail = excluded.detail";

pub(in crate::postgres) const DROP_DELIVERY: &str = "-- drop delivery
DELETE FROM delivery WHERE ctid = ANY(ARRAY(
    SELECT d.tid FROM unnest($1::bigint[], $2::int[]) AS w(seq, fence)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM delivery d WHERE d.seq = w.seq AND d.fence = w.fence LIMIT 1) d))";

pub(in crate::postgres) const FORGET_HISTORY: &str =
    "-- forget history\nDELETE FROM delivery WHERE seq = ANY($1::bigint[])";

// Two completions of one message can only come in one after the other: the second finds a row that its snapshot did not show.
pub(in crate::postgres) const COMPLETE: &str = "-- complete
INSERT INTO completion (seq, fence, outcome) SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[])
ON CONFLICT (seq) DO NOTHING";

pub(in crate::postgres) const UNCOMPLETE: &str =
    "-- uncomplete\nDELETE FROM completion WHERE seq = ANY($1::bigint[])";

pub(in crate::postgres) const DELETE_MESSAGE: &str =
    "-- delete message\nDELETE FROM message WHERE seq = ANY($1::bigint[])";

pub(in crate::postgres) const REMEMBER_END: &str = "-- remember end
INSERT INTO ended (seq, uid, how, at, published_at, fence, key, outcome, keep_until)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[], $6::int[], $7::bytea[],
    $8::text[], $9::bigint[])
ON CONFLICT (seq) DO UPDATE SET how = excluded.how, at = excluded.at, fence = excluded.fence, outcome = excluded.outcome,
    keep_until = excluded.keep_until";

pub(in crate::postgres) const ADD_KEY: &str = "-- add key
INSERT INTO keyed (seq, uid, key) SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[]) ON CONFLICT DO NOTHING";

pub(in crate::postgres) const DROP_KEY: &str = "-- drop key
DELETE FROM keyed WHERE ctid = ANY(ARRAY(
    SELECT k.tid FROM unnest($1::bigint[], $2::int[], $3::bytea[]) AS w(seq, uid, key)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM keyed k WHERE k.uid = w.uid AND k.key = w.key AND k.seq = w.seq LIMIT 1) k))";

pub(in crate::postgres) const ADD_EXPIRING: &str = "-- add expiring
INSERT INTO expiring (seq, check_at) SELECT * FROM unnest($1::bigint[], $2::bigint[])
ON CONFLICT (seq) DO UPDATE SET check_at = excluded.check_at";

pub(in crate::postgres) const DROP_EXPIRING: &str =
    "-- drop expiring\nDELETE FROM expiring WHERE seq = ANY($1::bigint[])";

pub(in crate::postgres) const NEW_EXPIRY: &str = "-- new expiry
UPDATE message SET expires_at = ($2::bigint[])[array_position($1::bigint[], seq)] WHERE seq = ANY($1::bigint[])";

// The rows are locked in key order, since a publish that replaces a free key may want the same ones.
pub(in crate::postgres) const KEEP_KEY: &str = "-- keep key
UPDATE unique_key SET keep_until = ($4::bigint[])[array_position($1::bigint[], seq)] WHERE ctid = ANY(ARRAY(
    SELECT k.tid FROM (SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[]) AS t(seq, uid, key) ORDER BY uid, key) w
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM unique_key k WHERE k.uid = w.uid AND k.key = w.key AND k.seq = w.seq
        LIMIT 1 FOR UPDATE) k))";

pub(in crate::postgres) const KEEP_ID: &str = "-- keep id
UPDATE dedupe SET kept_from = ($4::bigint[])[array_position($1::bigint[], seq)] WHERE ctid = ANY(ARRAY(
    SELECT d.tid FROM (SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[]) AS t(seq, uid, digest)
        ORDER BY uid, digest) w
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM dedupe d WHERE d.uid = w.uid AND d.digest = w.digest AND d.seq = w.seq
        LIMIT 1 FOR UPDATE) d))";

pub(in crate::postgres) const COUNT: &str = "-- count
INSERT INTO counter AS c (queue_id, uid, stripe, epoch, delayed, ready, leased, dead, accepted, reopened, acked, discarded,
    purged, dead_letter_expired, delivered, redriven)
SELECT t.queue_id, t.uid, $15::smallint, ($16::bigint / 60000)::int, delayed, ready, leased, dead, accepted, reopened,
    acked, discarded, purged, dead_letter_expired, delivered, redriven
FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
    AS t(queue_id, uid, delayed, ready, leased, dead, accepted, reopened, acked, discarded, purged, dead_letter_expired,
        delivered, redriven)
ORDER BY t.queue_id
ON CONFLICT (queue_id, stripe, epoch) DO UPDATE SET delayed = c.delayed + excluded.delayed, ready = c.ready + excluded.ready,
    leased = c.leased + excluded.leased, dead = c.dead + excluded.dead, accepted = c.accepted + excluded.accepted,
    reopened = c.reopened + excluded.reopened, acked = c.acked + excluded.acked,
    discarded = c.discarded + excluded.discarded, purged = c.purged + excluded.purged,
    dead_letter_expired = c.dead_letter_expired + excluded.dead_letter_expired,
    delivered = c.delivered + excluded.delivered, redriven = c.redriven + excluded.redriven";
