//! Every statement prepares on a migrated database, and its generic plan reads no table from end to end: neither on tables
//! that were never used, nor on empty ones after a VACUUM (every store at rest), nor on full ones.

use super::{
    audit, browse, claims, drafts, due, groups, keys, lane, maintenance, memories, operate,
    policies, publish, queues, receive, redrives, revisions, selections, session, settle, steps,
    walks, write,
};
use quita_tests::postgres;
use serde_json::Value;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use std::collections::HashMap;

const ALL: &[&str] = &[
    audit::DECISIONS,
    audit::ROWS,
    audit::SPAN,
    audit::WRITE,
    browse::BY_KEY,
    browse::BY_REQUEST_ID,
    browse::DEAD,
    browse::DELAYED,
    browse::LEASED,
    browse::PAYLOAD,
    browse::READY,
    drafts::COMPLETIONS,
    drafts::ENDS,
    drafts::HISTORY,
    drafts::LOAD_FREE,
    drafts::LOAD_LOCKED,
    drafts::LOAD_SEEN,
    drafts::PURGED_AT,
    drafts::WHOLE_HISTORY,
    walks::ALL_QUEUES,
    walks::NEWEST_OF_ALL,
    walks::OLDEST_OF_ALL,
    due::CLOCK,
    due::DUE,
    due::EXPIRED,
    due::LOOK_LATER,
    due::NEXT_DUE,
    due::OVER_AGED,
    groups::LARGEST,
    keys::REVOKE,
    keys::ROTATE,
    lane::FENCE,
    lane::OPEN_MARK,
    maintenance::ANYTHING_LEFT,
    maintenance::DEAD_TOO_LONG,
    maintenance::DROP_TRASH,
    maintenance::FOLD_COUNTERS,
    maintenance::FOLD_TRASH,
    maintenance::LEFT_IN_DEAD,
    maintenance::LEFT_IN_DELAYED,
    maintenance::LEFT_IN_READY,
    maintenance::POLICIES,
    maintenance::WALK_IDS,
    maintenance::WALK_LEASES,
    memories::ANSWERS_OVER,
    memories::AUDIT_OVER,
    memories::DISCARDED_LONG_AGO,
    memories::DROP_FAILURES,
    memories::DROP_REDRIVE,
    memories::DROP_WATCHED,
    memories::ENDS_OVER,
    memories::FAILURES_LEFT,
    memories::FOLDED,
    memories::KEYS_OVER,
    memories::LOCK_IF_FREE,
    memories::PAYLOADS_OVER,
    memories::REDRIVE_OVER,
    memories::SELECTIONS_OVER,
    memories::STILL_WATCHED,
    memories::THERE,
    memories::WALK_REVISIONS,
    memories::WATCHED,
    memories::WATCHED_LONG_ENOUGH,
    operate::ALONE,
    operate::BEGIN,
    operate::KEY_OWNER,
    operate::REMEMBER,
    operate::TAKE_ID_AGAIN,
    operate::TAKE_KEY_AGAIN,
    policies::ADOPT_KEYS,
    policies::CHANGE,
    policies::CREATE,
    policies::GAUGES,
    policies::NEW_INCARNATIONS,
    policies::NEW_UID,
    policies::QUEUE,
    policies::QUEUE_ALONE,
    policies::QUEUE_NAMED,
    policies::REPEATED_KEYS,
    policies::REPLACE,
    policies::TO_TRASH,
    claims::CLAIM_ID,
    claims::CLAIM_KEY,
    publish::DEEP_QUEUES,
    publish::DEPTHS,
    claims::FREE_ID,
    claims::FREE_KEY,
    publish::PUBLISH,
    publish::QUEUES,
    publish::STORE,
    publish::STORED,
    claims::TAKEN_IDS,
    claims::TAKEN_KEYS,
    queues::BEHIND,
    queues::BY_NAME,
    queues::BY_UID,
    queues::NUMBERS,
    queues::READY_AMONG,
    queues::WRITABLE,
    receive::RECEIVE,
    redrives::FOLD,
    redrives::KEEP,
    redrives::LIST,
    redrives::LOCK,
    redrives::NEW_ID,
    redrives::READ,
    redrives::SAVE,
    revisions::ADD,
    revisions::ALL,
    revisions::FORGET_REVISIONS,
    revisions::LATEST,
    revisions::ONE,
    revisions::REPLACE,
    revisions::STAMP,
    selections::ACKED,
    selections::COMPLETED,
    selections::KEEP,
    selections::LOCK,
    selections::READ,
    selections::MERGED,
    selections::MERGED_OF_ALL,
    selections::SNAPSHOT,
    settle::ACK,
    steps::CANARY_LEFT,
    steps::DUE,
    steps::NEXT,
    steps::REDRIVEN,
    write::ADD_EXPIRING,
    write::ADD_KEY,
    write::CHANGE_LEASE,
    write::COMPLETE,
    write::COUNT,
    write::DELETE_MESSAGE,
    write::DIED_AGAIN,
    write::DROP_DELIVERY,
    write::DROP_EXPIRING,
    write::DROP_KEY,
    write::ENTER_DEAD,
    write::ENTER_DELAYED,
    write::ENTER_DISCARDED,
    write::ENTER_LEASE,
    write::ENTER_READY,
    write::FORGET_HISTORY,
    write::KEEP_ID,
    write::KEEP_KEY,
    write::LEAVE_DEAD,
    write::LEAVE_DELAYED,
    write::LEAVE_DISCARDED,
    write::LEAVE_LEASE,
    write::LEAVE_READY,
    write::NEW_EXPIRY,
    write::PUT_DELIVERY,
    write::REMEMBER_END,
    write::UNCOMPLETE,
];

/// Statements that there is one of for each index that can lead, or for each direction.
const FAMILIES: &[&[&str]] = &[
    &audit::IN_ORDER,
    &audit::OF_MESSAGE,
    &audit::OF_REDRIVE,
    &walks::BY_PREFIX,
    &walks::NEWEST,
    &walks::OLDEST,
    &groups::FILTERED,
    &selections::FIGURES,
    &selections::FIRST,
    &selections::LAST,
    &selections::RECORDED,
];

/// Reads a small table from end to end, seldom, and says so where it is: all keys; which of them were used; which trash is the oldest; marks of
/// connections long gone.
const WHOLE_TABLES: &[&str] = &[
    keys::ADD,
    keys::ALL,
    keys::TOUCH,
    maintenance::DROP_MARKS,
    maintenance::OLDEST_TRASH,
];

/// The index of `dead` that each text of a family must go along, in the order of the leads.
const LEADS: [&str; 5] = [
    "dead_pkey",
    "dead_reason",
    "dead_code",
    "dead_group",
    "dead_key",
];

/// Statements for which only one index will do, with the table and the index.
fn only_one_will_do() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut only = vec![
        (browse::DEAD, "dead", "dead_pkey"),
        (walks::NEWEST_OF_ALL, "dead", "dead_time"),
        (walks::OLDEST_OF_ALL, "dead", "dead_time"),
        (groups::LARGEST, "dead", "dead_group"),
        (maintenance::LEFT_IN_DEAD, "dead", "dead_pkey"),
        (memories::AUDIT_OVER, "audit", "audit_at"),
        (audit::DECISIONS, "audit", "audit_seq"),
        (audit::SPAN, "audit", "audit_at"),
    ];
    for (family, index) in [
        (audit::IN_ORDER, "audit_pkey"),
        (audit::OF_MESSAGE, "audit_seq"),
        (audit::OF_REDRIVE, "audit_redrive"),
    ] {
        only.extend(family.map(|sql| (sql, "audit", index)));
    }
    only.extend(walks::BY_PREFIX.map(|sql| (sql, "dead", "dead_key")));
    for family in [
        walks::OLDEST,
        walks::NEWEST,
        selections::FIRST,
        selections::LAST,
    ] {
        only.extend(
            family
                .into_iter()
                .zip(LEADS)
                .map(|(sql, index)| (sql, "dead", index)),
        );
    }
    only
}

/// As many rows as a busy store has, in every table that grows with messages.
const FILL: &str = "
    INSERT INTO queue SELECT g, 'q' || g, 1, false, false, 2 * g, 2 * g + 1, 1209600000, NULL, '{}', 0
        FROM generate_series(1, 20) g;
    INSERT INTO message (seq, uid, live_id, created_at, available_at, rank, fingerprint, digest, key, expires_at, payload)
        SELECT g, g % 20 + 1, 2 * (g % 20 + 1), g, g, 5, g, decode(md5(g::text), 'hex'), convert_to('k' || g, 'UTF8'), g,
            repeat('x', 200)::bytea FROM generate_series(1, 20000) g;
    INSERT INTO ready (queue_id, rank, available_at, seq, fence, attempts, expirations, releases, redrives, moved)
        SELECT 2 * (g % 20 + 1), 5, g, g, 0, 0, 0, 0, 0, g % 3 = 0 FROM generate_series(1, 20000) g;
    INSERT INTO delayed (queue_id, rank, due_at, seq, fence, attempts, expirations, releases, redrives)
        SELECT 2 * (g % 20 + 1), 5, g, g, 0, 0, 0, 0, 0 FROM generate_series(1, 20000) g;
    INSERT INTO lease SELECT g, g, g, g, g, 2 * (g % 20 + 1), 1, 0, 0, 0, 0, 5, 0, false, NULL FROM generate_series(1, 20000) g;
    INSERT INTO dead SELECT g, g, 2 * (g % 20 + 1) + 1, 1, 0, 0, 0, 0, 5, g % 6 + 1, NULL, false, false, 'E' || g % 50,
        g % 100, g, convert_to('k' || g, 'UTF8') FROM generate_series(1, 20000) g;
    INSERT INTO discarded SELECT g, g, g, 3, 1, 0, 0, 0, 0, 5, 1, NULL, false, false, NULL FROM generate_series(1, 20000) g;
    INSERT INTO delivery SELECT g / 2, g, g, g % 2, 1, 1, false, false FROM generate_series(1, 20000) g;
    INSERT INTO completion SELECT g, 1, NULL FROM generate_series(1, 20000) g;
    INSERT INTO ended SELECT g, g, g, g, g % 20 + 1, 1, 1, convert_to('k' || g, 'UTF8') FROM generate_series(1, 20000) g;
    INSERT INTO revision SELECT g / 2, 1, g % 2, 0, false, '', NULL, NULL, '' FROM generate_series(1, 20000) g;
    INSERT INTO selection SELECT g, 1, 3, g, '1:1:', '' FROM generate_series(1, 20000) g;
    INSERT INTO redrive SELECT g, g, g, CASE WHEN g > 19990 THEN g END, CASE WHEN g <= 19990 THEN g END, NULL, 1, 6, ''
        FROM generate_series(1, 20000) g;
    INSERT INTO redriven SELECT g, g % 10, g FROM generate_series(1, 20000) g;
    INSERT INTO redrive_failure SELECT g % 10, g FROM generate_series(1, 20000) g;
    INSERT INTO dedupe SELECT g, g, g, g % 20 + 1, decode(md5(g::text), 'hex') FROM generate_series(1, 20000) g;
    INSERT INTO unique_key SELECT g, g, g, g % 20 + 1, convert_to('k' || g, 'UTF8') FROM generate_series(1, 20000) g;
    INSERT INTO keyed SELECT g, g % 20 + 1, convert_to('k' || g, 'UTF8') FROM generate_series(1, 20000) g;
    INSERT INTO expiring SELECT g, g FROM generate_series(1, 20000) g;
    INSERT INTO counter (queue_id, uid, epoch, stripe) SELECT 2 * (g % 20 + 1), g % 20 + 1, g, 1 FROM generate_series(1, 20000) g;
    INSERT INTO operation SELECT 'o' || g, 1, g, '' FROM generate_series(1, 20000) g;
    INSERT INTO audit (at, seq, redrive_id, actor, action) SELECT g, g, g % 10, '', '' FROM generate_series(1, 20000) g;
    INSERT INTO trash SELECT g, 1, 0, g FROM generate_series(1001, 1100) g;
    INSERT INTO commit_mark SELECT g, 0, 0, 1 FROM generate_series(1, 100) g;
    VACUUM ANALYZE;";

fn name(sql: &str) -> &str {
    sql.lines().next().unwrap_or(sql)
}

/// The statement's generic plan, as this session plans it.
async fn plan(connection: &mut PgConnection, sql: &'static str) -> Value {
    let parameters = (1..100)
        .take_while(|n| sql.contains(&format!("${n}")))
        .count();
    let prepare = format!("PREPARE s AS {sql}");
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *connection)
        .await
    {
        panic!("{}: {error}", name(sql));
    }
    let nulls = vec!["NULL"; parameters].join(", ");
    let call = if parameters == 0 {
        String::new()
    } else {
        format!("({nulls})")
    };
    let explain = format!("EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE s{call}");
    let row = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    connection.execute("DEALLOCATE s").await.unwrap();
    serde_json::from_str(row.try_get_unchecked(0).unwrap()).unwrap()
}

/// What is wrong with a plan: reads of a whole table. An index scan without a condition on the first column of its index is
/// one, unless a LIMIT stops it.
fn complaints(
    node: &Value,
    limited: bool,
    first_columns: &HashMap<String, String>,
    found: &mut Vec<String>,
) {
    if let Some(nodes) = node.as_array() {
        for node in nodes {
            complaints(node, limited, first_columns, found);
        }
        return;
    }
    let Some(fields) = node.as_object() else {
        return;
    };
    let kind = fields
        .get("Node Type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let relation = fields.get("Relation Name").and_then(Value::as_str);
    // A locking node passes rows on one by one.
    let limited = kind == "Limit"
        || (limited && matches!(kind, "LockRows" | "Index Scan" | "Index Only Scan"));
    if let Some(relation) = relation {
        let index = fields
            .get("Index Name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let condition = fields
            .get("Index Cond")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let first = first_columns
            .get(index)
            .is_some_and(|column| condition.contains(column));
        let bounded = first || fields.contains_key("TID Cond") || limited;
        if kind.ends_with("Scan") && !bounded {
            found.push(format!("{kind} of {relation} by {index} where {condition}"));
        }
    }
    for value in fields.values().filter(|v| v.is_array() || v.is_object()) {
        complaints(value, limited, first_columns, found);
    }
}

/// The indexes by which a plan reads a table.
fn indexes_of<'p>(node: &'p Value, table: &str, found: &mut Vec<&'p str>) {
    if node["Relation Name"] == table {
        found.extend(node["Index Name"].as_str());
    }
    let below: Vec<&Value> = match node {
        Value::Array(nodes) => nodes.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    };
    for node in below {
        indexes_of(node, table, found);
    }
}

async fn check(connection: &mut PgConnection, state: &str) {
    let columns = "SELECT c.relname::text, pg_get_indexdef(i.indexrelid, 1, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid";
    let columns = sqlx::raw_sql(columns)
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    let first_columns: HashMap<String, String> =
        columns.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut wrong = Vec::new();
    let families = FAMILIES.iter().flat_map(|family| family.iter());
    for sql in ALL.iter().chain(families) {
        let plan = plan(connection, sql).await;
        let mut found = Vec::new();
        complaints(&plan, false, &first_columns, &mut found);
        if !found.is_empty() {
            wrong.push(format!("{}: {}", name(sql), found.join(", ")));
        }
    }
    for sql in WHOLE_TABLES {
        plan(connection, sql).await;
    }
    for (sql, table, index) in only_one_will_do() {
        let plan = plan(connection, sql).await;
        let mut found = Vec::new();
        indexes_of(&plan, table, &mut found);
        if found.is_empty() || found.iter().any(|by| *by != index) {
            wrong.push(format!("{}: {table} by {found:?}, not {index}", name(sql)));
        }
    }
    assert!(wrong.is_empty(), "{state}:\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let options = session::options(&database.url).unwrap();
    session::migrate(&options).await.unwrap();
    let mut connection = session::connect(&options).await.unwrap();
    check(&mut connection, "never used").await;
    connection.execute("VACUUM ANALYZE").await.unwrap();
    check(&mut connection, "empty after VACUUM").await;
    for statement in FILL.split_inclusive(';') {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut connection)
            .await
            .unwrap();
    }
    check(&mut connection, "full").await;
    connection.close().await.unwrap();
    database.drop().await;
}
