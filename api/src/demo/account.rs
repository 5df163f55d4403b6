//! The books: queue, gateway and workers asked separately, and compared.

use super::Outcome;
use super::charges::Published;
use super::children::Reports;
use super::client::Client;
use super::gateway::Gateway;
use super::scene::{MAX_ATTEMPTS, MAX_LEASE_EXPIRATIONS};
use super::worker::Report;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use std::time::Duration;

/// Histories asked for at the same time.
const READERS: usize = 16;

/// What the scene saw, for comparison with what the queue says.
pub(super) struct Evidence<'a> {
    pub(super) seed: u64,
    pub(super) messages: u32,
    pub(super) first: Published,
    pub(super) second: Published,
    /// Keys that were charged while the answer never reached the worker.
    pub(super) unanswered: Vec<String>,
    pub(super) gateway: &'a Gateway,
    pub(super) reports: &'a Reports,
    pub(super) time: Duration,
}

/// One number of the result.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) found: String,
    /// What it has to be, where it has to be something.
    pub(super) expected: String,
    pub(super) right: bool,
}

/// One dead letter.
#[derive(Debug)]
pub(super) struct DeadLetter {
    pub(super) key: String,
    pub(super) reason: String,
    /// How its deliveries ended, oldest first.
    pub(super) causes: Vec<String>,
    pub(super) charged: bool,
    /// The reason holds: a cancelled card, or attempts that its history shows to be used up.
    pub(super) explained: bool,
}

/// The result.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) seed: u64,
    pub(super) lines: Vec<Line>,
    pub(super) dead: Vec<DeadLetter>,
}

impl Account {
    /// Every number is what it has to be.
    pub(super) fn is_right(&self) -> bool {
        self.lines.iter().all(|line| line.right)
    }
}

/// One message as the queue tells its story.
struct Story {
    key: String,
    subscription: String,
    state: String,
    reason: String,
    causes: Vec<String>,
}

/// Messages of a queue that are neither finished nor dead.
pub(super) fn left_over(queue: &Value) -> Outcome<i64> {
    Ok(number(queue, "delayed")? + number(queue, "ready")? + number(queue, "leased")?)
}

/// Asks for everything and compares.
pub(super) async fn settle(
    client: &Client,
    queue: &str,
    evidence: &Evidence<'_>,
) -> Outcome<Account> {
    let numbers = client.get(&format!("/v1/queues/{queue}")).await?;
    let stories: Vec<Story> = stream::iter(
        evidence
            .first
            .ids
            .iter()
            .cloned()
            .map(|id| story(client, id)),
    )
    .buffer_unordered(READERS)
    .try_collect()
    .await?;
    let listed = dead_letters(client, queue).await?;
    let dead = judge(&stories, evidence.gateway);
    Ok(Account {
        seed: evidence.seed,
        lines: lines(&numbers, &stories, &dead, listed, evidence)?,
        dead,
    })
}

fn lines(
    numbers: &Value,
    stories: &[Story],
    dead: &[DeadLetter],
    listed: Vec<String>,
    evidence: &Evidence<'_>,
) -> Outcome<Vec<Line>> {
    let expected = u64::from(evidence.messages);
    let total = |name: &str| number(numbers, name).map(i64::unsigned_abs);
    let gateway = evidence.gateway.sums();
    let ends: usize = stories.iter().map(|story| story.causes.len()).sum();
    let count = |cause: &str| {
        stories
            .iter()
            .flat_map(|story| &story.causes)
            .filter(|found| *found == cause)
            .count()
    };
    let acked = stories
        .iter()
        .filter(|story| story.state == "acked")
        .count() as u64;
    let charged_dead = dead.iter().filter(|letter| letter.charged).count() as u64;
    let (permanent, exhausted): (Vec<_>, Vec<_>) = dead
        .iter()
        .partition(|letter| letter.reason == "permanent_failure");
    let cancelled = stories
        .iter()
        .filter(|story| evidence.gateway.is_cancelled(&story.subscription))
        .count();
    let came_again = |key: &String| {
        evidence.gateway.has_replayed(key)
            || dead
                .iter()
                .any(|letter| letter.key == *key && letter.charged)
    };
    let lost: Vec<&String> = evidence
        .unanswered
        .iter()
        .filter(|key| !came_again(key))
        .collect();
    let mut listed = listed;
    let mut found_dead: Vec<String> = dead.iter().map(|letter| letter.key.clone()).collect();
    listed.sort_unstable();
    found_dead.sort_unstable();

    let first = evidence.first.created;
    Ok(vec![
        equal("published", first, expected),
        equal("accepted, says the queue", total("accepted")?, expected),
        equal(
            "skipped as duplicates",
            evidence.second.duplicates,
            expected,
        ),
        equal("charged", gateway.charged, acked + charged_dead),
        equal("charged twice", gateway.charged_twice, 0),
        Line {
            name: "replays at the gateway",
            found: gateway.replays.to_string(),
            expected: format!("all {} unanswered", evidence.unanswered.len()),
            right: lost.is_empty(),
        },
        equal(
            "deliveries, with their end",
            ends as u64,
            total("delivered")?,
        ),
        told("failures at the gateway", gateway.failures),
        told("retries", count("nack") as u64),
        told("expirations", count("lease_expired") as u64),
        told("released unworked", count("release") as u64),
        told("late acks", evidence.reports.count(Report::AckedLate)),
        told(
            "acks of superseded deliveries",
            evidence.reports.count(Report::AckedSuperseded),
        ),
        equal("dead: permanent", permanent.len() as u64, cancelled as u64),
        Line {
            name: "dead: attempts used up",
            found: exhausted.len().to_string(),
            expected: "as histories show".to_owned(),
            right: dead.iter().all(|letter| letter.explained),
        },
        Line {
            name: "dead, says the queue",
            found: total("dead")?.to_string(),
            expected: format!("= {}", dead.len()),
            right: total("dead")? == dead.len() as u64 && listed == found_dead,
        },
        equal("acked, says the queue", total("acked")?, acked),
        equal("left over", left_over(numbers)?.unsigned_abs(), 0),
        equal("acked + dead", total("acked")? + total("dead")?, first),
        Line {
            name: "time",
            found: format!("{:.1} s", evidence.time.as_secs_f64()),
            expected: String::new(),
            right: true,
        },
    ])
}

/// Dead letters among the stories, each with a verdict.
fn judge(stories: &[Story], gateway: &Gateway) -> Vec<DeadLetter> {
    let mut dead: Vec<DeadLetter> = stories
        .iter()
        .filter(|story| story.state == "dead")
        .map(|story| {
            let count = |causes: &[&str]| {
                story
                    .causes
                    .iter()
                    .filter(|cause| causes.contains(&cause.as_str()))
                    .count() as u32
            };
            let cancelled = gateway.is_cancelled(&story.subscription);
            let used_up = count(&["nack", "lease_expired"]) >= MAX_ATTEMPTS
                || count(&["lease_expired"]) >= MAX_LEASE_EXPIRATIONS;
            DeadLetter {
                key: story.key.clone(),
                reason: story.reason.clone(),
                causes: story.causes.clone(),
                charged: gateway.has_charged(&story.subscription),
                explained: match story.reason.as_str() {
                    "permanent_failure" => cancelled && !gateway.has_charged(&story.subscription),
                    "max_attempts" | "lease_expired" => used_up,
                    _ => false,
                },
            }
        })
        .collect();
    dead.sort_by(|a, b| (&a.reason, &a.key).cmp(&(&b.reason, &b.key)));
    dead
}

/// Keys of all dead letters that the queue lists.
async fn dead_letters(client: &Client, queue: &str) -> Outcome<Vec<String>> {
    let mut keys = Vec::new();
    let mut path = format!("/v1/queues/{queue}/dead-letters?page_size=500");
    loop {
        let page = client.get(&path).await?;
        let letters = page["messages"]
            .as_array()
            .ok_or_else(|| format!("no messages in {page}"))?;
        keys.extend(
            letters
                .iter()
                .filter_map(|letter| letter["key"].as_str().map(str::to_owned)),
        );
        let Some(token) = page["next_page_token"].as_str() else {
            return Ok(keys);
        };
        path = format!("/v1/queues/{queue}/dead-letters?page_size=500&page_token={token}");
    }
}

async fn story(client: &Client, id: String) -> Outcome<Story> {
    let detail = client.get(&format!("/v1/messages/{id}")).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let history = detail["history"]
        .as_array()
        .ok_or_else(|| format!("no history in {detail}"))?;
    let key = text(&detail["key"]);
    let subscription = key
        .trim_start_matches("cob-")
        .trim_end_matches("-2026-10")
        .to_owned();
    Ok(Story {
        key,
        subscription,
        // A message that is gone says how it ended.
        state: text(detail.get("end").unwrap_or(&detail["state"])),
        reason: text(&detail["dead_letter"]["reason"]),
        causes: history
            .iter()
            .map(|delivery| text(&delivery["cause"]))
            .collect(),
    })
}

/// One of the queue's counts or totals.
fn number(queue: &Value, name: &str) -> Outcome<i64> {
    let found = [&queue["counts"], &queue["totals"]]
        .into_iter()
        .find_map(|group| group[name].as_i64());
    found.ok_or_else(|| format!("no {name} in {queue}").into())
}

fn equal(name: &'static str, found: u64, expected: u64) -> Line {
    Line {
        name,
        found: found.to_string(),
        expected: format!("= {expected}"),
        right: found == expected,
    }
}

fn told(name: &'static str, found: u64) -> Line {
    Line {
        name,
        found: found.to_string(),
        expected: String::new(),
        right: true,
    }
}
