//! A database that takes no writes, as a standby does: the server says so, to its callers and now and then in its log.

use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres;
use quita_tests::server::Process;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Makes the database refuse writes, or take them again, in every session from now on.
async fn read_only(connection: &mut sqlx::PgConnection, on: bool) {
    let name: String = sqlx::query_scalar("SELECT current_database()")
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    let word = if on { "on" } else { "off" };
    let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = {word}");
    // Through a session of its own, which is not read-only itself.
    let sql = format!("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE; {sql}");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut *connection)
        .await
        .unwrap();
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'quita'",
    )
    .fetch_all(connection)
    .await
    .unwrap();
}

/// B099: a database that only reads for a while fills no log, and is written to again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_only_reads_fills_no_log() {
    const LASTING: Duration = Duration::from_secs(1);
    let Some(database) = postgres::database().await else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let arguments = ["--database-url", &database.url, "--admin-key", &key];
    let server = Process::start_heard(folder.path(), &arguments);
    let mut client = Client::new(server.address, &key);
    let body = json!({"queue": "q", "message": 1});
    client.must("POST", "/v1/queue/publish", &body).await;
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let before = server.said().lines().count();
    read_only(&mut connection, true).await;
    // The first one may look for the fate of its commit for a while.
    client
        .call("POST", "/v1/queue/publish", &body)
        .await
        .unwrap();
    let (began, mut refused) = (Instant::now(), 0);
    while began.elapsed() < LASTING {
        let answer = client.call("POST", "/v1/queue/publish", &body).await;
        refused += usize::from(answer.unwrap().0 == 503);
    }
    assert!(refused > 10, "{refused}");
    let said = server.said();
    let lines = said.lines().count() - before;
    // Each of the loops has said so once, and nobody has said it for each of the callers.
    assert!(lines <= 12, "{lines} lines for {refused} refusals:\n{said}");
    read_only(&mut connection, false).await;
    let began = Instant::now();
    while client
        .call("POST", "/v1/queue/publish", &body)
        .await
        .unwrap()
        .0
        != 201
    {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    drop(server);
    connection.close().await.unwrap();
    database.drop().await;
}
