//! pgmq: functions in PostgreSQL, called as prepared statements, one connection per client.

use crate::message;
use crate::workload::{Client, Peer, Role};
use anyhow::{Context, Result};
use pgmq::PGMQueueExt;
use sqlx::{Connection, PgConnection, Row};
use std::time::Duration;

/// How long a message is hidden after it was read, in seconds.
const HIDDEN: i32 = 60;
/// An empty queue is asked again after this: pgmq's own wait asks in the server, more often.
const EMPTY: Duration = Duration::from_millis(5);

pub struct Pgmq {
    url: String,
    queue: String,
}

impl Pgmq {
    pub fn new(url: &str, queue: &str) -> Self {
        Self {
            url: url.to_owned(),
            queue: queue.to_owned(),
        }
    }
}

impl Peer for Pgmq {
    type Client = Member;

    async fn set_up(&self) -> Result<()> {
        let extension = PGMQueueExt::new(self.url.clone(), 1).await?;
        extension.install_sql_from_embedded().await?;
        let mut sql = PgConnection::connect(&self.url).await?;
        for statement in ["SELECT pgmq.create($1)", "SELECT pgmq.purge_queue($1)"] {
            sqlx::query(statement)
                .bind(&self.queue)
                .execute(&mut sql)
                .await?;
        }
        Ok(sql.close().await?)
    }

    async fn connect(&self, _role: Role, _number: usize) -> Result<Member> {
        let sql = PgConnection::connect(&self.url).await?;
        Ok(Member {
            sql,
            queue: self.queue.clone(),
        })
    }
}

pub struct Member {
    sql: PgConnection,
    queue: String,
}

impl Client for Member {
    type Handle = i64;

    async fn publish(&mut self, messages: &[Vec<u8>]) -> Result<()> {
        let texts: Result<Vec<&str>, _> = messages
            .iter()
            .map(|message| std::str::from_utf8(message))
            .collect();
        let texts = texts?;
        if let [one] = texts[..] {
            let send = sqlx::query("SELECT pgmq.send($1, $2::text::jsonb)");
            send.bind(&self.queue)
                .bind(one)
                .execute(&mut self.sql)
                .await?;
        } else {
            let send = sqlx::query("SELECT pgmq.send_batch($1, $2::text[]::jsonb[])");
            send.bind(&self.queue)
                .bind(texts)
                .execute(&mut self.sql)
                .await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<Option<(Duration, i64)>> {
        let read = sqlx::query("SELECT msg_id, message->>'id' FROM pgmq.read($1, $2, 1)");
        let row = read
            .bind(&self.queue)
            .bind(HIDDEN)
            .fetch_optional(&mut self.sql)
            .await?;
        let Some(row) = row else {
            tokio::time::sleep(EMPTY).await;
            return Ok(None);
        };
        let age = message::age(row.try_get::<&str, _>(1)?.as_bytes()).context("not one of ours")?;
        Ok(Some((age, row.try_get(0)?)))
    }

    async fn ack(&mut self, id: i64) -> Result<()> {
        let delete = sqlx::query("SELECT pgmq.delete($1, $2::bigint)");
        delete
            .bind(&self.queue)
            .bind(id)
            .execute(&mut self.sql)
            .await?;
        Ok(())
    }
}
