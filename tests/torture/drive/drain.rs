//! After the load: everything that can be received is, and then every server is asked for everything.

use super::Load;
use super::consumer::{receive, settle};
use super::operator::{list, stats};
use super::queues::{ALL, LONGEST_MS};
use super::session::{Ask, Session};
use crate::history::{Args, Kind};
use futures_util::future::join_all;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Consumers of the drain.
const CONSUMERS: usize = 8;

/// What may pass after the longest lease, backoff and delay.
const SLACK: Duration = Duration::from_secs(2);

/// Longer than a drain takes.
const PATIENCE: Duration = Duration::from_mins(3);

/// Publishes that are repeated at the end.
const REPEATED: usize = 200;

/// Receives and acks until nothing came for so long that nothing can come any more.
pub(crate) async fn drain(load: &Arc<Load>) -> Result<(), String> {
    resume_all(load).await;
    let began = Instant::now();
    // Milliseconds since the beginning at which something came last.
    let last = AtomicU64::new(0);
    let drained = join_all((0..CONSUMERS).map(|n| consume(load, n, began, &last))).await;
    drained.into_iter().collect()
}

/// An operator may have been cut off between pause and resume.
async fn resume_all(load: &Arc<Load>) {
    let mut session = load.session("d");
    for queue in ALL {
        let path = format!("/v1/queues/{queue}/resume");
        let body = json!({}).to_string();
        session
            .ask(
                0,
                Ask::post(Kind::Resume, queue, &path, Args::default(), body),
            )
            .await;
    }
}

async fn consume(
    load: &Arc<Load>,
    number: usize,
    began: Instant,
    last: &AtomicU64,
) -> Result<(), String> {
    let quiet = Duration::from_millis(LONGEST_MS) + SLACK;
    let mut session = load.session(&format!("d{number}"));
    let server = number % load.servers();
    let mut turn = number;
    loop {
        let now = began.elapsed();
        let idle = now.saturating_sub(Duration::from_millis(last.load(Ordering::SeqCst)));
        if idle > quiet {
            return Ok(());
        }
        if now > PATIENCE {
            return Err(format!("messages still come {PATIENCE:?} after the load"));
        }
        let queue = ALL[turn % ALL.len()];
        turn += 1;
        let done = session
            .ask(server, receive(queue, 100, LONGEST_MS, 100))
            .await;
        if done.held.is_empty() {
            continue;
        }
        last.store(began.elapsed().as_millis() as u64, Ordering::SeqCst);
        for held in &done.held {
            let ask = settle(Kind::Ack, held, Args::default(), json!({}));
            if session.ask(server, ask).await.ok() {
                load.ended(&held.id);
            }
        }
    }
}

/// Every server's counts and listings, and a look at every message whose end nobody was told.
pub(crate) async fn recount(load: &Arc<Load>) -> Result<(), String> {
    let mut session = load.session("d");
    for server in 0..load.servers() {
        for queue in ALL {
            let pass = Some(server as u32);
            let counted = session.ask(server, stats(Kind::Recount, queue, pass)).await;
            if !counted.ok() {
                return Err(format!("{queue} cannot be counted: {}", counted.code));
            }
            for state in ["delayed", "ready", "leased", "dead"] {
                list_all(&mut session, server, queue, state, pass).await?;
            }
        }
    }
    look_for_the_rest(load, &mut session).await
}

async fn list_all(
    session: &mut Session,
    server: usize,
    queue: &str,
    state: &str,
    pass: Option<u32>,
) -> Result<(), String> {
    let mut token = None;
    loop {
        let ask = list(Kind::DrainList, queue, state, 500, token.as_deref(), pass);
        let page = session.ask(server, ask).await;
        if !page.ok() {
            return Err(format!("{queue} cannot be listed: {}", page.code));
        }
        token = page.next;
        if token.is_none() {
            return Ok(());
        }
    }
}

async fn look_for_the_rest(load: &Arc<Load>, session: &mut Session) -> Result<(), String> {
    let servers = load.servers();
    for (n, id) in load.without_an_end().into_iter().enumerate() {
        let args = Args {
            message_id: id.clone(),
            ..Args::default()
        };
        let ask = Ask::get(Kind::Get, "", &format!("/v1/messages/{id}"), args);
        let seen = session.ask(n % servers, ask).await;
        if seen.unknown() {
            return Err(format!("nobody can say what became of {id}: {}", seen.code));
        }
    }
    Ok(())
}

/// Repeats publishes from all over the run: each must name the message that it made.
pub(crate) async fn repeat(load: &Arc<Load>) {
    let mut session = load.session("d");
    let drafts = load.some_repeatable(REPEATED);
    for (n, draft) in drafts.iter().enumerate() {
        session.ask(n % load.servers(), draft.ask()).await;
    }
}
