-- The queue. A row's table is its state: ready, delayed, lease, dead, discarded; `message` is written once and deleted once.
-- Times are milliseconds since the Unix epoch on the store's clock. `rank` is 9 - priority, so that the order of a queue is
-- the order of its key. `fence`, `attempts`, `expirations`, `releases`, `redrives` are the counters that follow a message.
-- The file of the same number for SQLite has the same tables; "Differs from sqlite" says where not.
--
-- No foreign keys, triggers or sequences near a message: each would cost a lock or a round trip per row. Keys of messages
-- are bytea, since a business key may hold U+0000 and text may not.

CREATE TABLE meta (
    name  text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- The next queue number and the next incarnation. One row; creating a queue and purging are rare enough to take turns.
-- Differs from sqlite: there the one writer counts by itself.
CREATE TABLE allocator (
    id               smallint PRIMARY KEY,
    next_uid         int NOT NULL,
    next_incarnation int NOT NULL
);
INSERT INTO allocator VALUES (0, 1, 1);

-- `uid` is the stable number of the name; `live_id` and `dead_id` are incarnations: purge gives the queue new ones, and rows
-- that carry an old one are gone at once and cleared later. A deleted queue keeps its row, since request ids, keys and totals
-- belong to the name. That the incarnations are unique also makes them key columns, and that is load-bearing: a publish holds
-- its queue FOR KEY SHARE, so a purge waits for it, while pause and policy changes do not.
-- Differs from sqlite: `retention_ms` and `dead_retention_ms` repeat the policy for the sweeps.
CREATE TABLE queue (
    uid               int PRIMARY KEY,
    name              text COLLATE "C" NOT NULL UNIQUE,
    version           bigint NOT NULL,
    paused            boolean NOT NULL,
    deleted           boolean NOT NULL,
    live_id           int NOT NULL UNIQUE,
    dead_id           int NOT NULL UNIQUE,
    retention_ms      bigint NOT NULL,
    dead_retention_ms bigint,
    policy            text NOT NULL,
    created_at        bigint NOT NULL
);

-- Purged incarnations whose rows are still to be cleared. `kind`: 0 live, 1 dead.
CREATE TABLE trash (
    id    int PRIMARY KEY,
    uid   int NOT NULL,
    kind  smallint NOT NULL,
    since bigint NOT NULL
);
CREATE INDEX trash_uid ON trash (uid);

-- Differs from sqlite: `live_id` is the incarnation at publish, so that a row still at its first place is found by key even
-- after a purge, and "not found" means that somebody moved it.
CREATE TABLE message (
    seq          bigint PRIMARY KEY,
    created_at   bigint NOT NULL,
    available_at bigint NOT NULL,
    fingerprint  bigint NOT NULL,
    expires_at   bigint,
    uid          int NOT NULL,
    live_id      int NOT NULL,
    max_attempts int,
    rank         smallint NOT NULL,
    digest       bytea,
    request_id   bytea,
    key          bytea,
    backoff      text,
    headers      text,
    payload      bytea NOT NULL
);
-- No attempt to compress in the server: JSON of a kilobyte gains little and costs CPU on every publish.
ALTER TABLE message ALTER payload SET STORAGE EXTERNAL;

-- `moved`: the row is not where the message row's live_id and available_at say, so it is found through ready_moved.
-- That index, delayed_seq and dead_seq are on (seq + 0), and the statements ask for seq + 0: a planner that has seen an empty
-- table finds every index equally cheap, and the primary key, where seq comes last, would do as well as the right one.
CREATE TABLE ready (
    available_at bigint NOT NULL,
    seq          bigint NOT NULL,
    queue_id     int NOT NULL,
    fence        int NOT NULL,
    attempts     int NOT NULL,
    expirations  int NOT NULL,
    releases     int NOT NULL,
    redrives     int NOT NULL,
    rank         smallint NOT NULL,
    moved        boolean NOT NULL,
    PRIMARY KEY (queue_id, rank, available_at, seq)
);
CREATE UNIQUE INDEX ready_moved ON ready ((seq + 0)) WHERE moved;

-- Differs from sqlite: no `moved`, since every row is found by delayed_seq.
CREATE TABLE delayed (
    due_at      bigint NOT NULL,
    seq         bigint NOT NULL,
    queue_id    int NOT NULL,
    fence       int NOT NULL,
    attempts    int NOT NULL,
    expirations int NOT NULL,
    releases    int NOT NULL,
    redrives    int NOT NULL,
    rank        smallint NOT NULL,
    PRIMARY KEY (due_at, seq)
);
CREATE UNIQUE INDEX delayed_seq ON delayed ((seq + 0));
CREATE INDEX delayed_queue ON delayed (queue_id, due_at, seq);

-- Differs from sqlite: the index is on `check_at`, which is at or before expires_at, so that an extend is a HOT update that
-- touches no index; the sweep moves check_at forward. `special`: a completion is remembered for this lease, so the short cut
-- for plain acks must leave it alone.
CREATE TABLE lease (
    seq          bigint PRIMARY KEY,
    available_at bigint NOT NULL,
    leased_at    bigint NOT NULL,
    expires_at   bigint NOT NULL,
    check_at     bigint NOT NULL,
    queue_id     int NOT NULL,
    fence        int NOT NULL,
    attempts     int NOT NULL,
    expirations  int NOT NULL,
    releases     int NOT NULL,
    redrives     int NOT NULL,
    rank         smallint NOT NULL,
    bounds       smallint NOT NULL,
    special      boolean NOT NULL,
    worker       text
) WITH (fillfactor = 50);
CREATE INDEX lease_check ON lease (check_at);

CREATE TABLE dead (
    died_at     bigint NOT NULL,
    seq         bigint NOT NULL,
    queue_id    int NOT NULL,
    fence       int NOT NULL,
    attempts    int NOT NULL,
    expirations int NOT NULL,
    releases    int NOT NULL,
    redrives    int NOT NULL,
    rank        smallint NOT NULL,
    reason      smallint NOT NULL,
    bound       smallint,
    by_expiry   boolean NOT NULL,
    edited      boolean NOT NULL,
    error_code  text,
    PRIMARY KEY (queue_id, died_at, seq)
);
CREATE UNIQUE INDEX dead_seq ON dead ((seq + 0));

-- Discarded dead letters whose payload is still kept.
CREATE TABLE discarded (
    seq          bigint PRIMARY KEY,
    discarded_at bigint NOT NULL,
    died_at      bigint NOT NULL,
    queue_id     int NOT NULL,
    fence        int NOT NULL,
    attempts     int NOT NULL,
    expirations  int NOT NULL,
    releases     int NOT NULL,
    redrives     int NOT NULL,
    rank         smallint NOT NULL,
    reason       smallint NOT NULL,
    bound        smallint,
    by_expiry    boolean NOT NULL,
    edited       boolean NOT NULL,
    error_code   text
);
CREATE INDEX discarded_at ON discarded (discarded_at);

-- One row per ended delivery, the first 10 and the last 100 of a message.
CREATE TABLE delivery (
    seq       bigint NOT NULL,
    leased_at bigint NOT NULL,
    ended_at  bigint NOT NULL,
    fence     int NOT NULL,
    attempt   int NOT NULL,
    cause     smallint NOT NULL,
    late      boolean NOT NULL,
    truncated boolean NOT NULL,
    worker    text,
    code      text,
    detail    text,
    PRIMARY KEY (seq, fence)
);

-- Work reported as done by a delivery that no longer held the message.
CREATE TABLE completion (
    seq     bigint PRIMARY KEY,
    fence   int NOT NULL,
    outcome text
);

-- How messages left. A first delivery acked plainly leaves no row: absent message and absent row mean acked.
-- keep_until NULL = for ever.
CREATE TABLE ended (
    seq          bigint PRIMARY KEY,
    at           bigint NOT NULL,
    published_at bigint NOT NULL,
    keep_until   bigint,
    uid          int NOT NULL,
    fence        int NOT NULL,
    how          smallint NOT NULL,
    key          bytea,
    outcome      text
);
CREATE INDEX ended_keep ON ended (keep_until) WHERE keep_until IS NOT NULL;

-- Request ids. kept_from = publish time, or the end of a message that lived longer than a window; free again once the
-- message is gone and kept_from + 2 windows is past.
CREATE TABLE dedupe (
    seq         bigint NOT NULL,
    fingerprint bigint NOT NULL,
    kept_from   bigint NOT NULL,
    uid         int NOT NULL,
    digest      bytea NOT NULL,
    PRIMARY KEY (uid, digest)
);

-- Keys of unique_key queues. keep_until is set when the message ends; NULL while it lives or when kept for ever.
CREATE TABLE unique_key (
    seq         bigint NOT NULL,
    fingerprint bigint NOT NULL,
    keep_until  bigint,
    uid         int NOT NULL,
    key         bytea NOT NULL,
    PRIMARY KEY (uid, key)
);
CREATE INDEX unique_key_keep ON unique_key (keep_until) WHERE keep_until IS NOT NULL;

-- Live messages by key, for search. Written only for messages that have one.
CREATE TABLE keyed (
    seq bigint NOT NULL,
    uid int NOT NULL,
    key bytea NOT NULL,
    PRIMARY KEY (uid, key, seq)
);

-- Waiting or leased messages with an expires_at, for the sweep.
-- Differs from sqlite: keyed by seq, with a check_at that the sweep moves past a lease in its way.
CREATE TABLE expiring (
    seq      bigint PRIMARY KEY,
    check_at bigint NOT NULL
);
CREATE INDEX expiring_check ON expiring (check_at);

-- Exact numbers per incarnation. The gauges of a purged incarnation count as purged, so that a purge moves no number.
-- Differs from sqlite: many rows per incarnation, one for each connection (stripe) and minute (epoch), since one row that all
-- writers change would make them take turns; the sum is exact in every snapshot, and maintenance folds old minutes into epoch 0.
CREATE TABLE counter (
    delayed             bigint NOT NULL DEFAULT 0,
    ready               bigint NOT NULL DEFAULT 0,
    leased              bigint NOT NULL DEFAULT 0,
    dead                bigint NOT NULL DEFAULT 0,
    accepted            bigint NOT NULL DEFAULT 0,
    reopened            bigint NOT NULL DEFAULT 0,
    acked               bigint NOT NULL DEFAULT 0,
    discarded           bigint NOT NULL DEFAULT 0,
    purged              bigint NOT NULL DEFAULT 0,
    dead_letter_expired bigint NOT NULL DEFAULT 0,
    delivered           bigint NOT NULL DEFAULT 0,
    redriven            bigint NOT NULL DEFAULT 0,
    queue_id            int NOT NULL,
    uid                 int NOT NULL,
    epoch               int NOT NULL,
    stripe              smallint NOT NULL,
    PRIMARY KEY (queue_id, stripe, epoch)
) WITH (fillfactor = 20);
CREATE INDEX counter_uid ON counter (uid);
CREATE INDEX counter_epoch ON counter (epoch, queue_id) WHERE epoch > 0;

-- "Did my commit arrive?" Every batch takes effect only through its row here; see resolve.rs.
CREATE TABLE commit_mark (
    batcher bigint PRIMARY KEY,
    n       bigint NOT NULL,
    at      bigint NOT NULL,
    epoch   int NOT NULL
) WITH (fillfactor = 20);

-- Answers to operator calls, for repeats.
CREATE TABLE operation (
    request_id  text COLLATE "C" PRIMARY KEY,
    fingerprint bigint NOT NULL,
    at          bigint NOT NULL,
    answer      text NOT NULL
);
CREATE INDEX operation_at ON operation (at);

-- What operators did.
CREATE TABLE audit (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            bigint NOT NULL,
    seq           bigint,
    uid           int,
    actor         text NOT NULL,
    action        text NOT NULL,
    justification text,
    detail        text
);
CREATE INDEX audit_seq ON audit (seq, id) WHERE seq IS NOT NULL;

-- API keys: SHA-256 of the secret only.
CREATE TABLE api_key (
    id          text COLLATE "C" PRIMARY KEY,
    secret_hash bytea NOT NULL,
    description text NOT NULL,
    scope       text NOT NULL,
    created_at  bigint NOT NULL,
    revoked_at  bigint
);

-- Hot tables: vacuum by count, at full speed, and never give the tail of the file back, because that takes a lock which stops
-- everybody.
ALTER TABLE ready       SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE delayed     SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE lease       SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE counter     SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE commit_mark SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE keyed       SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE expiring    SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE message     SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off,
                             toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 50000, toast.autovacuum_vacuum_cost_delay = 0, toast.vacuum_truncate = off);
