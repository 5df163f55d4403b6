-- The operators' desk: groups, selections, changed payloads, bulk decisions, and an audit that says before and after.
-- The file of the same number for PostgreSQL has the same tables; "Differs from postgres" says where not.

-- `group_id`: dead letters that failed alike; 0 = died before there were groups. `key` and `published_at` are the message's,
-- so that a filter needs no other table. `generation`: the number of the newest selection when the row was written; a row
-- belongs to the selections after it.
-- Differs from postgres: there a transaction number takes the place of the generation.
ALTER TABLE dead ADD COLUMN group_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN key TEXT;
ALTER TABLE dead ADD COLUMN published_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dead ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
UPDATE dead SET (key, published_at) = (SELECT m.key, m.created_at FROM message m WHERE m.seq = dead.seq)
    WHERE EXISTS (SELECT 1 FROM message m WHERE m.seq = dead.seq);

-- Each in the order of listings, so that a page begins anywhere.
-- Differs from postgres: a listing across queues merges the queues' own orders, so it needs no index of its own.
CREATE INDEX dead_reason ON dead (queue_id, reason, died_at, seq);
CREATE INDEX dead_code ON dead (queue_id, error_code, died_at, seq) WHERE error_code IS NOT NULL;
CREATE INDEX dead_group ON dead (queue_id, group_id, died_at, seq);
CREATE INDEX dead_key ON dead (queue_id, key, died_at, seq) WHERE key IS NOT NULL;

-- A discarded dead letter stays as long as audit rows; its payload goes sooner.
ALTER TABLE discarded ADD COLUMN group_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE discarded ADD COLUMN payload_kept INTEGER NOT NULL DEFAULT 1;
CREATE INDEX discarded_kept ON discarded (discarded_at) WHERE payload_kept = 1;

-- Which keys another message was acked under.
CREATE INDEX ended_key ON ended (uid, key) WHERE key IS NOT NULL AND how = 1;

-- What operators made of a payload. Number 0 is what was published; `floor` is the number that the message died with.
CREATE TABLE revision (
    seq     INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    floor   INTEGER NOT NULL,
    undo    INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    reason  TEXT,
    headers TEXT,
    payload BLOB NOT NULL,
    PRIMARY KEY (seq, number)
) STRICT;

-- Frozen sets of dead letters; the body is the whole noun as JSON. The number of the latest one is in `meta`, so that none
-- is used twice. expires_at NULL = kept by its redrive.
CREATE TABLE selection (
    id         INTEGER PRIMARY KEY,
    uid        INTEGER NOT NULL,
    dead_id    INTEGER NOT NULL,
    expires_at INTEGER,
    body       TEXT NOT NULL
) STRICT;
CREATE INDEX selection_over ON selection (expires_at) WHERE expires_at IS NOT NULL;

-- Bulk decisions; the body is the whole noun as JSON. next_at NULL = not under way. `watched`: what it redrove is still
-- looked after.
CREATE TABLE redrive (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    uid          INTEGER NOT NULL,
    selection_id INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    next_at      INTEGER,
    created_at   INTEGER NOT NULL,
    finished_at  INTEGER,
    watched      INTEGER NOT NULL DEFAULT 1,
    body         TEXT NOT NULL
) STRICT;
CREATE INDEX redrive_due ON redrive (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX redrive_selection ON redrive (selection_id);
CREATE INDEX redrive_finished ON redrive (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX redrive_watched ON redrive (finished_at) WHERE watched = 1 AND finished_at IS NOT NULL;

-- By which redrive a message was moved last, and as which one of its.
CREATE TABLE redriven (
    seq        INTEGER PRIMARY KEY,
    redrive_id INTEGER NOT NULL,
    place      INTEGER NOT NULL
) STRICT;
CREATE INDEX redriven_by ON redriven (redrive_id, place);

-- Redriven messages that died again and are not counted yet: so a death never waits for its redrive, nor the other way round.
CREATE TABLE redrive_failure (
    redrive_id INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    PRIMARY KEY (redrive_id, place)
) STRICT, WITHOUT ROWID;

-- Differs from postgres: no index by time, since here the rows' numbers rise with their times.
ALTER TABLE audit ADD COLUMN redrive_id INTEGER;
ALTER TABLE audit ADD COLUMN before TEXT;
ALTER TABLE audit ADD COLUMN after TEXT;
ALTER TABLE audit ADD COLUMN http_request TEXT;
CREATE INDEX audit_redrive ON audit (redrive_id) WHERE redrive_id IS NOT NULL;
