-- The queue. A row's table is its state: ready, delayed, lease, dead, discarded; `message` is written once and deleted once.
-- Times are milliseconds since the Unix epoch on the store's clock. `rank` is 9 - priority, so that the order of a queue is
-- the order of its key. `fence`, `attempts`, `expirations`, `releases`, `redrives` are the counters that follow a message.
-- The file of the same number for PostgreSQL has the same tables; "Differs from postgres" says where not.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- `uid` is the stable number of the name; `live_id` and `dead_id` are incarnations: purge gives the queue new ones, and rows
-- that carry an old one are gone at once and cleared later. A deleted queue keeps its row, since request ids, keys and totals
-- belong to the name.
CREATE TABLE queue (
    uid        INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    version    INTEGER NOT NULL,
    paused     INTEGER NOT NULL,
    deleted    INTEGER NOT NULL,
    live_id    INTEGER NOT NULL UNIQUE,
    dead_id    INTEGER NOT NULL UNIQUE,
    policy     TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Purged incarnations whose rows are still to be cleared. `kind`: 0 live, 1 dead.
CREATE TABLE trash (
    id    INTEGER PRIMARY KEY,
    uid   INTEGER NOT NULL,
    kind  INTEGER NOT NULL,
    since INTEGER NOT NULL
) STRICT;

CREATE TABLE message (
    seq          INTEGER PRIMARY KEY,
    uid          INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    rank         INTEGER NOT NULL,
    fingerprint  INTEGER NOT NULL,
    digest       BLOB,
    request_id   BLOB,
    key          TEXT,
    expires_at   INTEGER,
    max_attempts INTEGER,
    backoff      TEXT,
    headers      TEXT,
    payload      BLOB NOT NULL
) STRICT;

-- `moved` = 1: the row is not where the message row's available_at says, so it is found through ready_moved.
CREATE TABLE ready (
    queue_id     INTEGER NOT NULL,
    rank         INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    expirations  INTEGER NOT NULL,
    releases     INTEGER NOT NULL,
    redrives     INTEGER NOT NULL,
    moved        INTEGER NOT NULL,
    PRIMARY KEY (queue_id, rank, available_at, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX ready_moved ON ready (seq) WHERE moved = 1;

CREATE TABLE delayed (
    due_at      INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    queue_id    INTEGER NOT NULL,
    rank        INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    expirations INTEGER NOT NULL,
    releases    INTEGER NOT NULL,
    redrives    INTEGER NOT NULL,
    moved       INTEGER NOT NULL,
    PRIMARY KEY (due_at, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX delayed_moved ON delayed (seq) WHERE moved = 1;
CREATE INDEX delayed_queue ON delayed (queue_id, due_at, seq);

-- Differs from postgres: the index is on expires_at itself; an extend here rewrites it for nothing worth saving.
CREATE TABLE lease (
    seq          INTEGER PRIMARY KEY,
    queue_id     INTEGER NOT NULL,
    rank         INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    leased_at    INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    expirations  INTEGER NOT NULL,
    releases     INTEGER NOT NULL,
    redrives     INTEGER NOT NULL,
    bounds       INTEGER NOT NULL,
    worker       TEXT
) STRICT;
CREATE INDEX lease_due ON lease (expires_at);

CREATE TABLE dead (
    queue_id    INTEGER NOT NULL,
    died_at     INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    rank        INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    expirations INTEGER NOT NULL,
    releases    INTEGER NOT NULL,
    redrives    INTEGER NOT NULL,
    reason      INTEGER NOT NULL,
    bound       INTEGER,
    by_expiry   INTEGER NOT NULL,
    edited      INTEGER NOT NULL,
    error_code  TEXT,
    PRIMARY KEY (queue_id, died_at, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX dead_seq ON dead (seq);

-- Discarded dead letters whose payload is still kept.
CREATE TABLE discarded (
    seq          INTEGER PRIMARY KEY,
    queue_id     INTEGER NOT NULL,
    discarded_at INTEGER NOT NULL,
    died_at      INTEGER NOT NULL,
    rank         INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    expirations  INTEGER NOT NULL,
    releases     INTEGER NOT NULL,
    redrives     INTEGER NOT NULL,
    reason       INTEGER NOT NULL,
    bound        INTEGER,
    by_expiry    INTEGER NOT NULL,
    edited       INTEGER NOT NULL,
    error_code   TEXT
) STRICT;
CREATE INDEX discarded_at ON discarded (discarded_at);

-- One row per ended delivery, the first 10 and the last 100 of a message.
CREATE TABLE delivery (
    seq       INTEGER NOT NULL,
    fence     INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    leased_at INTEGER NOT NULL,
    ended_at  INTEGER NOT NULL,
    cause     INTEGER NOT NULL,
    late      INTEGER NOT NULL,
    worker    TEXT,
    code      TEXT,
    detail    TEXT,
    truncated INTEGER NOT NULL,
    PRIMARY KEY (seq, fence)
) STRICT, WITHOUT ROWID;

-- Work reported as done by a delivery that no longer held the message.
CREATE TABLE completion (
    seq     INTEGER PRIMARY KEY,
    fence   INTEGER NOT NULL,
    outcome TEXT
) STRICT;

-- How messages left. A first delivery acked plainly leaves no row: absent message and absent row mean acked.
-- keep_until NULL = for ever.
CREATE TABLE ended (
    seq          INTEGER PRIMARY KEY,
    uid          INTEGER NOT NULL,
    how          INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    key          TEXT,
    outcome      TEXT,
    keep_until   INTEGER
) STRICT;
CREATE INDEX ended_keep ON ended (keep_until) WHERE keep_until IS NOT NULL;

-- Request ids. kept_from = publish time, or the end of a message that lived longer than a window; free again once the
-- message is gone and kept_from + 2 windows is past.
CREATE TABLE dedupe (
    uid         INTEGER NOT NULL,
    digest      BLOB NOT NULL,
    seq         INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    kept_from   INTEGER NOT NULL,
    PRIMARY KEY (uid, digest)
) STRICT, WITHOUT ROWID;

-- The youngest request ids in the order they were claimed; they move to `dedupe` in the order of its key.
-- Differs from postgres: there they go into `dedupe` at once.
CREATE TABLE dedupe_young (
    seq         INTEGER PRIMARY KEY,
    uid         INTEGER NOT NULL,
    digest      BLOB NOT NULL,
    fingerprint INTEGER NOT NULL,
    kept_from   INTEGER NOT NULL
) STRICT;

-- Keys of unique_key queues. keep_until is set when the message ends; NULL while it lives or when kept for ever.
CREATE TABLE unique_key (
    uid         INTEGER NOT NULL,
    key         TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    keep_until  INTEGER,
    PRIMARY KEY (uid, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX unique_key_keep ON unique_key (keep_until) WHERE keep_until IS NOT NULL;

-- Live messages by key, for search. Written only for messages that have one.
CREATE TABLE keyed (
    uid INTEGER NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (uid, key, seq)
) STRICT, WITHOUT ROWID;

-- Live messages with an expires_at, for the sweep.
CREATE TABLE expiring (
    expires_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (expires_at, seq)
) STRICT, WITHOUT ROWID;

-- Exact numbers per incarnation. The gauges of a purged incarnation count as purged, so that a purge moves no number.
-- Differs from postgres: one row per incarnation, since there is one writer; `at` is the store's time of the last change:
-- the largest one is the floor of the clock after a restart.
CREATE TABLE counter (
    queue_id            INTEGER PRIMARY KEY,
    uid                 INTEGER NOT NULL,
    delayed             INTEGER NOT NULL DEFAULT 0,
    ready               INTEGER NOT NULL DEFAULT 0,
    leased              INTEGER NOT NULL DEFAULT 0,
    dead                INTEGER NOT NULL DEFAULT 0,
    accepted            INTEGER NOT NULL DEFAULT 0,
    reopened            INTEGER NOT NULL DEFAULT 0,
    acked               INTEGER NOT NULL DEFAULT 0,
    discarded           INTEGER NOT NULL DEFAULT 0,
    purged              INTEGER NOT NULL DEFAULT 0,
    dead_letter_expired INTEGER NOT NULL DEFAULT 0,
    delivered           INTEGER NOT NULL DEFAULT 0,
    redriven            INTEGER NOT NULL DEFAULT 0,
    at                  INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX counter_uid ON counter (uid);

-- Answers to operator calls, for repeats.
CREATE TABLE operation (
    request_id  TEXT PRIMARY KEY,
    fingerprint INTEGER NOT NULL,
    answer      TEXT NOT NULL,
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX operation_at ON operation (at);

-- What operators did.
CREATE TABLE audit (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    at            INTEGER NOT NULL,
    actor         TEXT NOT NULL,
    action        TEXT NOT NULL,
    uid           INTEGER,
    seq           INTEGER,
    justification TEXT,
    detail        TEXT
) STRICT;
CREATE INDEX audit_seq ON audit (seq) WHERE seq IS NOT NULL;

-- API keys: SHA-256 of the secret only.
CREATE TABLE api_key (
    id          TEXT PRIMARY KEY,
    secret_hash BLOB NOT NULL,
    description TEXT NOT NULL,
    scope       TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    revoked_at  INTEGER
) STRICT, WITHOUT ROWID;
