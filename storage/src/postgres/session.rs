//! Connecting: session settings, the durability check, migrations and the facts of the store.

use super::fault::Fault;
use super::patience::Trust;
use crate::backend::Facts;
use crate::error::{Result, StoreError};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, Row};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Connections for everything that is not a lane: operators, listings, timers.
const POOL_CONNECTIONS: u32 = 4;
/// How long a call waits for a connection before it is answered as unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Set on every connection. The first is the promise that an answer is on disk. The planner's settings are there because the
/// statistics of a queue's tables are always wrong (empty when sampled, a million rows later): every statement is written so
/// that its index scans and TID scans are the only cheap way, and a generic plan keeps it so.
const SETTINGS: &str = "SET synchronous_commit = on; SET enable_seqscan = off; SET enable_bitmapscan = off; \
    SET plan_cache_mode = force_generic_plan; SET jit = off; SET work_mem = '16MB'; \
    SET idle_in_transaction_session_timeout = '10s'; SET statement_timeout = '15s'; SET lock_timeout = '5s'; \
    SET timezone = 'UTC'; SET application_name = 'quita'; SET client_min_messages = warning";

/// Reads the address and keeps statement texts out of the log.
pub(super) fn options(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url).map_err(StoreError::unavailable)?;
    Ok(options
        .statement_cache_capacity(256)
        .disable_statement_logging())
}

/// A connection with our settings.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    connection.execute(SETTINGS).await?;
    Ok(connection)
}

/// The pool; connects when first used. A connection that does not answer is closed instead of taken back, since nobody else
/// would find out before the kernel does, in a quarter of an hour; those that were open when one was lost are not handed
/// out again.
pub(super) fn pool(options: &PgConnectOptions, trust: &Arc<Trust>) -> PgPool {
    let (returned, reused) = (trust.clone(), trust.clone());
    PgPoolOptions::new()
        .max_connections(POOL_CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A ping per use would be a round trip per use; a dead connection shows at the first statement and is repeated.
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute(SETTINGS).await?;
                Ok(())
            })
        })
        .after_release(move |connection, _| {
            let trust = returned.clone();
            Box::pin(async move {
                let Ok(answered) = timeout(ACQUIRE_TIMEOUT, connection.ping()).await else {
                    trust.broken();
                    return Err(sqlx::Error::PoolTimedOut);
                };
                answered.map(|()| true)
            })
        })
        .before_acquire(move |_, connection| {
            let good = reused.holds_for(connection.age);
            Box::pin(async move { Ok(good) })
        })
        .connect_lazy_with(options.clone())
}

/// Brings the tables up to date. Replicas that start together take turns: the migrator holds an advisory lock of this
/// database from before it looks for its own table until after the last migration.
pub(super) async fn migrate(options: &PgConnectOptions) -> Result<()> {
    // Without our lock_timeout: the replica that comes second waits for as long as the first one needs.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_with(options.clone())
        .await
        .map_err(StoreError::unavailable)?;
    let migrated = sqlx::migrate!("../migrations/postgres").run(&pool).await;
    pool.close().await;
    migrated.map_err(StoreError::internal)
}

/// With a hint where a statement that this session prepared is another session's: a pooler stands in between.
fn explained(error: sqlx::Error) -> StoreError {
    const TAKEN_OR_MISSING: [&str; 2] = ["42P05", "26000"];
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    if code.is_some_and(|code| TAKEN_OR_MISSING.contains(&code.as_ref())) {
        return StoreError::unavailable(format!(
            "{error}; something between this server and PostgreSQL hands sessions around, as PgBouncer does in transaction \
             mode: use its session mode, or connect to PostgreSQL itself"
        ));
    }
    StoreError::unavailable(error)
}

/// Refuses a store that would answer before the commit is on disk.
///
/// A pooler that hands sessions around loses `SET`s, and then reads back the server's default here; each batch checks
/// again, see `lane.rs`.
pub(super) async fn check_durability(connection: &mut PgConnection) -> Result<()> {
    let row = sqlx::query(
        "-- durability\n\
         SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes')",
    )
    .fetch_one(connection)
    .await
    .map_err(explained)?;
    let get = |i: usize| row.try_get::<String, _>(i).map_err(StoreError::internal);
    let (commit, fsync, pages) = (get(0)?, get(1)?, get(2)?);
    if commit != "on" && commit != "remote_apply" {
        let text = format!(
            "synchronous_commit is {commit} although this session set it to on: answers would come too early"
        );
        return Err(StoreError::unavailable(text));
    }
    if fsync != "on" || pages != "on" {
        tracing::warn!(
            fsync,
            full_page_writes = pages,
            "the server does not write safely: a crash can lose answered messages"
        );
    }
    Ok(())
}

/// Reads the store's facts; the first replica makes them.
pub(super) async fn facts(connection: &mut PgConnection) -> Result<Facts> {
    let secret: [u8; 32] = rand::random();
    read_facts(connection, &secret)
        .await
        .map_err(Fault::into_error)
}

async fn read_facts(connection: &mut PgConnection, secret: &[u8; 32]) -> Result<Facts, Fault> {
    sqlx::query(
        "-- meta defaults\n\
         INSERT INTO meta (name, value) VALUES ('epoch', $1), ('receipt_secret', $2) ON CONFLICT (name) DO NOTHING",
    )
    .bind(&1i32.to_be_bytes()[..])
    .bind(&secret[..])
    .execute(&mut *connection)
    .await?;
    let broken = |what: &str| {
        Fault::Store(StoreError::internal(format!(
            "meta.{what} has the wrong length"
        )))
    };
    let epoch = fact(connection, "epoch")
        .await?
        .try_into()
        .map_err(|_| broken("epoch"))?;
    let receipt_secret = fact(connection, "receipt_secret")
        .await?
        .try_into()
        .map_err(|_| broken("receipt_secret"))?;
    Ok(Facts {
        epoch: i32::from_be_bytes(epoch),
        receipt_secret,
    })
}

async fn fact(connection: &mut PgConnection, name: &str) -> Result<Vec<u8>, Fault> {
    let row = sqlx::query("-- meta\nSELECT value FROM meta WHERE name = $1")
        .bind(name)
        .fetch_one(connection)
        .await?;
    Ok(row.try_get(0)?)
}
