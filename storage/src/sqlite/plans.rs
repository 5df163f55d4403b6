//! Every statement that the store runs is planned by an index: a life with everything in it runs under trace, then each
//! statement that was seen is explained.

mod desk;
mod life;

use super::*;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use std::collections::BTreeSet;

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

pub(super) fn trace(connection: &Connection) {
    connection.trace_v2(
        TraceEventCodes::SQLITE_TRACE_STMT,
        Some(|event| {
            if let TraceEvent::Stmt(statement, _) = event {
                SEEN.lock().insert(statement.sql().into_owned());
            }
        }),
    );
}

/// What may be read from end to end: it does not grow with traffic.
const SMALL: [&str; 7] = [
    "CONSTANT", "api_key", "counter", "meta", "queue", "ranks", "trash",
];

/// Statements that may sort, and why.
const SORTED: [(&str, &str); 4] = [
    (
        "-- dead letters with a key prefix",
        "they are few, or this is not how they are listed",
    ),
    ("-- keys", "there are few API keys"),
    ("-- oldest trash", "few purges wait to be cleared"),
    (
        "-- unique_key on",
        "switching unique_key on reads the queue's live keys once",
    ),
];

/// Statements that may read one of them from end to end, and why.
const ALLOWED: [(&str, &str); 3] = [
    (
        "-- young request ids",
        "the start reads them into memory once",
    ),
    (
        "-- clear lease",
        "clearing a purged queue walks over the live leases, which are few, in the background",
    ),
    (
        "-- unique_key on",
        "switching unique_key on reads the queue's live keys once",
    ),
];

/// Runs all statements that were seen through `EXPLAIN QUERY PLAN`.
fn explain(connection: &Connection) -> Vec<String> {
    let mut complaints = Vec::new();
    let seen: Vec<String> = SEEN.lock().iter().cloned().collect();
    for sql in seen {
        let head = sql.trim_start();
        if sql.contains("sqlite_stat") {
            continue;
        }
        let plain = [
            "BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "EXPLAIN", "CREATE", "ANALYZE",
        ];
        if plain
            .iter()
            .any(|word| head.to_uppercase().starts_with(word))
        {
            continue;
        }
        let mut statement = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let unbound = statement.parameter_count();
        let values = vec![rusqlite::types::Value::Null; unbound];
        let plan: Vec<String> = statement
            .query_map(rusqlite::params_from_iter(values), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for line in plan {
            let scanned = line
                .strip_prefix("SCAN ")
                .and_then(|rest| rest.split(' ').next());
            let large = scanned.is_some_and(|name| !SMALL.contains(&name));
            if large && !ALLOWED.iter().any(|(start, _)| head.starts_with(start)) {
                complaints.push(format!("{line}\n  {sql}"));
            }
            let sorts = line.starts_with("USE TEMP B-TREE");
            if sorts && !SORTED.iter().any(|(start, _)| head.starts_with(start)) {
                complaints.push(format!("{line}\n  {sql}"));
            }
        }
    }
    complaints
}

#[tokio::test]
async fn no_statement_reads_a_large_table_from_end_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plans.db");
    let store = open(&path).await.unwrap();
    life::live(store.clone()).await;
    assert!(
        SEEN.lock().len() > 80,
        "only {} statements were seen",
        SEEN.lock().len()
    );
    let connection = connect(&path, false).unwrap();
    assert_eq!(explain(&connection), Vec::<String>::new());
    // Somebody else's statistics of the empty tables would change that; they do not survive the next start.
    connection.execute_batch("ANALYZE").unwrap();
    assert_ne!(
        explain(&connection),
        Vec::<String>::new(),
        "then dropping them is not needed any more"
    );
    drop(connection);
    store.close().await;
    drop(store);
    let store = open(&path).await.unwrap();
    let connection = connect(&path, false).unwrap();
    assert_eq!(explain(&connection), Vec::<String>::new());
    store.close().await;
}
