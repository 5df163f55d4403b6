//! A PostgreSQL of our own that keeps what it confirms.
//!
//! The tests' server trades durability for speed. Here every figure includes its fsync, so that is set back and read back.

use crate::Outcome;
use crate::process::descendant_named;
use quita_tests::postgres::Database;
use sqlx::{Connection, PgConnection};
use std::time::Duration;

/// What the tests' server sets for speed, as a server has it by default.
const DURABLE: [&str; 4] = [
    "ALTER SYSTEM SET fsync = on",
    "ALTER SYSTEM SET full_page_writes = on",
    "ALTER SYSTEM RESET autovacuum_naptime",
    "SELECT pg_reload_conf()",
];

/// PostgreSQL can be started here, or one is given.
pub(crate) async fn is_there() -> bool {
    match quita_tests::postgres::database().await {
        Some(database) => {
            database.drop().await;
            true
        }
        None => false,
    }
}

/// An empty database on a server with `fsync=on`.
pub(crate) async fn database() -> Outcome<Database> {
    let database = quita_tests::postgres::database()
        .await
        .ok_or("no PostgreSQL")?;
    let mut connection = PgConnection::connect(&database.url).await?;
    for _ in 0..50 {
        let fsync: String = sqlx::query_scalar("SHOW fsync")
            .fetch_one(&mut connection)
            .await?;
        if fsync == "on" {
            connection.close().await?;
            return Ok(database);
        }
        for statement in DURABLE {
            sqlx::raw_sql(statement).execute(&mut connection).await?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("PostgreSQL does not take fsync = on".into())
}

/// Process of the server that this run started; `None` when it was given from outside.
pub(crate) fn postmaster() -> Option<u32> {
    descendant_named(std::process::id(), "postgres")
}
