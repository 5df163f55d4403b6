-- The operators' desk: what dead letters are looked for by, what is kept of discarded ones, revisions of payloads, selections,
-- redrives, and an audit trail that can be asked.
-- The file of the same number for SQLite has the same tables; "Differs from sqlite" says where not.

-- `key` and `published_at` repeat the message, since listings and bulk decisions ask for them.
-- Differs from sqlite: `entered` is the transaction that wrote the row. A selection keeps its snapshot, and those rows are its
-- members that the snapshot sees: so a selection needs no lock, and nothing that dies or is changed later can get into it.
ALTER TABLE dead
    ADD COLUMN group_id     bigint NOT NULL DEFAULT 0,
    ADD COLUMN published_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN key          bytea,
    ADD COLUMN entered      xid8 NOT NULL DEFAULT '0';
ALTER TABLE dead ALTER COLUMN entered SET DEFAULT pg_current_xact_id();
UPDATE dead SET published_at = m.created_at, key = m.key FROM message m WHERE m.seq = dead.seq;

-- Each ends in the order of the listing, so that a page goes on behind any place. They are on (died_at + 0), and dead_time on
-- (0 + died_at), and the statements ask for just that: a planner that has seen an empty table must not find one of them as
-- cheap as another.
CREATE INDEX dead_reason ON dead (queue_id, reason, (died_at + 0), seq);
CREATE INDEX dead_code ON dead (queue_id, error_code, (died_at + 0), seq) WHERE error_code IS NOT NULL;
CREATE INDEX dead_group ON dead (queue_id, group_id, (died_at + 0), seq);
CREATE INDEX dead_key ON dead (queue_id, key, (died_at + 0), seq) WHERE key IS NOT NULL;
CREATE INDEX dead_time ON dead ((0 + died_at), seq);

-- Vacuum by count, also after inserts: groups are counted from the index alone where the rows' pages are known as all visible.
ALTER TABLE dead SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- A discarded dead letter keeps its payload for some days, and the rest as long as audit rows.
ALTER TABLE discarded
    ADD COLUMN group_id     bigint NOT NULL DEFAULT 0,
    ADD COLUMN payload_kept boolean NOT NULL DEFAULT true;
CREATE INDEX discarded_payload ON discarded (discarded_at) WHERE payload_kept;

-- "This key was done before" (End::Acked).
CREATE INDEX ended_acked ON ended (uid, key) WHERE how = 1 AND key IS NOT NULL;

-- What operators made of payloads; number 0 is the payload as published. Written only for messages that somebody edited.
CREATE TABLE revision (
    seq     bigint NOT NULL,
    at      bigint NOT NULL,
    number  int NOT NULL,
    floor   int NOT NULL,
    undo    boolean NOT NULL,
    actor   text NOT NULL,
    reason  text,
    headers text,
    payload bytea NOT NULL,
    PRIMARY KEY (seq, number)
);
ALTER TABLE revision ALTER payload SET STORAGE EXTERNAL;

-- `body` is the selection as JSON. `snapshot` says who is in it; see `dead.entered`.
-- Differs from sqlite: there a selection is a number, and rows carry the number that was the latest one when they were written.
CREATE SEQUENCE selection_id;
CREATE TABLE selection (
    id         bigint PRIMARY KEY,
    uid        int NOT NULL,
    dead_id    int NOT NULL,
    expires_at bigint NOT NULL,
    snapshot   text NOT NULL,
    body       text NOT NULL
);
CREATE INDEX selection_expires ON selection (expires_at);

-- `body` is the redrive as JSON. `next_at` is set while it is under way, `watch_until` while its messages are watched.
CREATE SEQUENCE redrive_id;
CREATE TABLE redrive (
    id           bigint PRIMARY KEY,
    selection_id bigint NOT NULL,
    created_at   bigint NOT NULL,
    next_at      bigint,
    finished_at  bigint,
    watch_until  bigint,
    uid          int NOT NULL,
    state        smallint NOT NULL,
    body         text NOT NULL
);
CREATE INDEX redrive_next ON redrive (next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX redrive_finished ON redrive (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX redrive_watch ON redrive (watch_until) WHERE watch_until IS NOT NULL;
CREATE INDEX redrive_selection ON redrive (selection_id);

-- By which redrive a message was moved last, and as which one of its. When it dies again, the row becomes one of
-- redrive_failure, and the next step counts it: so a death never waits for a redrive's row, nor a redrive for a death.
CREATE TABLE redriven (
    seq        bigint PRIMARY KEY,
    redrive_id bigint NOT NULL,
    place      bigint NOT NULL
);
CREATE INDEX redriven_place ON redriven (redrive_id, place);
CREATE TABLE redrive_failure (
    redrive_id bigint NOT NULL,
    place      bigint NOT NULL,
    PRIMARY KEY (redrive_id, place)
);
ALTER TABLE redriven SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE redrive_failure SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

-- Rows are written once. `before` and `after` are JSON objects; the old column `detail` is not written any more. The indexes are
-- on id plus 0 in either order, so that the primary key is the only one that a number alone is looked for by.
ALTER TABLE audit
    ADD COLUMN redrive_id   bigint,
    ADD COLUMN before       text,
    ADD COLUMN after        text,
    ADD COLUMN http_request text;
CREATE INDEX audit_at ON audit (at, (0 + id));
CREATE INDEX audit_redrive ON audit (redrive_id, (id + 0)) WHERE redrive_id IS NOT NULL;
