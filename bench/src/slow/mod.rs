//! Clients that are slow on purpose, and what the others notice of them.
//!
//! `quita-bench slow` holds many connections in three ways ([`sockets`]) against a server whose time-outs are a few seconds,
//! while ordinary callers publish at a steady pace ([`paced`]). Every slow one must be closed at its deadline, what it had
//! received must be back in its queue, and the ordinary ones must hardly notice. Waves of slow clients and quiet times take
//! turns.

mod sockets;

use crate::Outcome;
use crate::client::{Connection, Request};
use crate::fresh::Ground;
use crate::messages::{self, QUEUE, message, message_of};
use crate::paced::{self, Pace};
use crate::report::Verdict;
use crate::server::Quita;
use crate::stats::{Bound, percentile_ms};
use serde_json::{Value, json};
use sockets::{Kind, Readers, Target};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Deadlines in seconds, in the order of [`Kind::ALL`].
const DEADLINES: [f64; 3] = [2.0, 2.5, 3.0];
const SETTINGS: [&str; 5] = [
    "--header-timeout-seconds=2",
    "--body-timeout-seconds=2.5",
    "--write-stall-seconds=3",
    // Not what is measured: all ordinary callers share one key, and so do the slow ones.
    "--max-connections=5000",
    "--max-waiting-receives=5000",
];

/// A connection ends no sooner than its deadline and no later than so long after it.
const LATE: Duration = Duration::from_millis(750);
/// Clocks of both sides, and a byte that left before it arrived.
const EARLY: Duration = Duration::from_millis(50);
/// Within this time those come who do not read, then those who drip.
const READERS_ARRIVE: Duration = Duration::from_millis(1_200);
const OTHERS_ARRIVE: Duration = Duration::from_millis(300);
/// Ordinary callers are watched from when all slow ones are there until the last one is gone: large answers are work and no
/// matter of slowness, so they are made before.
const WATCHED: Duration = Duration::from_millis(3_300);
/// By then an answer that has begun to come has filled the kernel's buffers.
const SETTLES: Duration = Duration::from_millis(200);
/// When they are watched while they are alone.
const LEAD: Duration = Duration::from_millis(1_500);
/// Slow ones that are not there in time are a machine that does something else.
const ALL_THERE: Duration = Duration::from_millis(3_500);
/// How long ordinary ones call.
const RUN: Duration = Duration::from_secs(7);

/// Ordinary callers.
const CONNECTIONS: u32 = 16;
const PER_SECOND: u32 = 500;
/// What the ordinary ones may notice: their p99 beside slow clients, as a multiple.
const NOTICED: Bound = Bound::AtMost(2.0);

/// Queue of large messages, their size, and how many make an answer that the kernel does not take (it keeps 128 KiB for a
/// client who does not read).
const LARGE: &str = "large";
const LARGE_BYTES: usize = 262_144;
const LARGE_MESSAGES: usize = 4;

/// How one kind of slow clients fared, over all waves.
#[derive(Default)]
struct Fate {
    seconds: Vec<f64>,
    still_open: usize,
}

impl Fate {
    /// Every one was closed at its deadline.
    fn is_right(&self, deadline: f64) -> bool {
        let right = (deadline - EARLY.as_secs_f64())..=(deadline + LATE.as_secs_f64());
        self.still_open == 0 && self.seconds.iter().all(|seconds| right.contains(seconds))
    }
}

/// Runs `waves` of `count` slow clients each.
pub(crate) async fn run(ground: &Ground, count: usize, waves: u32) -> Outcome<Verdict> {
    let quita = Quita::start_with(&ground.program, &ground.directory, None, &SETTINGS).await?;
    quita.create(QUEUE).await?;
    quita.create(LARGE).await?;
    let readers = kinds(count).filter(|kind| *kind == Kind::Reader).count();
    fill(&quita, readers * LARGE_MESSAGES).await?;
    // Hundreds of MiB that the kernel would write out beside what is measured.
    tokio::process::Command::new("sync").status().await?;
    let publish = messages::publish(QUEUE, &message(), Some(&quita.key));
    let mut fates: [Fate; 3] = Default::default();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for wave in 0..u64::from(waves) {
        let serials = 2 * wave * u64::from(CONNECTIONS);
        let from = Instant::now() + LEAD;
        without.extend(watched(&ordinary(&quita, &publish, serials).await?, from));
        let load = ordinary(&quita, &publish, serials + u64::from(CONNECTIONS));
        let (beside, wave) = tokio::join!(load, one_wave(&quita, count));
        let (since, ends) = wave?;
        with.extend(watched(&beside?, since));
        for (kind, after) in ends {
            let fate = &mut fates[kind as usize];
            match after {
                Some(after) => fate.seconds.push(after.as_secs_f64()),
                None => fate.still_open += 1,
            }
        }
    }
    let back = given_back(&quita, readers * LARGE_MESSAGES).await?;
    without.sort_unstable();
    with.sort_unstable();
    Ok(judge(&fates, back, &without, &with))
}

fn kinds(count: usize) -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().cycle().take(count)
}

/// Latencies of ordinary callers by the time at which they called.
async fn ordinary(quita: &Quita, publish: &Request, first: u64) -> Outcome<Vec<(Instant, u32)>> {
    let pace = Pace {
        connections: CONNECTIONS,
        per_second: PER_SECOND,
        length: RUN,
    };
    paced::run(quita.address, publish, pace, first).await
}

/// Those of the time that is watched.
fn watched(all: &[(Instant, u32)], from: Instant) -> impl Iterator<Item = u32> {
    all.iter()
        .filter(move |(due, _)| (from..from + WATCHED).contains(due))
        .map(|(_, took)| *took)
}

/// How each slow client ended.
type Ends = Vec<(Kind, Option<Duration>)>;

/// Opens `count` slow connections and waits for the end of them all. Answers also when all were there.
async fn one_wave(quita: &Quita, count: usize) -> Outcome<(Instant, Ends)> {
    let (sender, open) = watch::channel(HashSet::new());
    let there = Arc::new(Semaphore::new(0));
    let target = Target {
        address: quita.address,
        key: quita.key.clone(),
        receive: json!({"queue": LARGE, "max_messages": LARGE_MESSAGES}).to_string(),
        patience: Duration::from_secs_f64(DEADLINES[2]) + 4 * LATE,
        open,
        readers: Readers::default(),
        there: Arc::clone(&there),
    };
    let readers = Arc::clone(&target.readers);
    let mut slow = JoinSet::new();
    for (number, kind) in kinds(count).enumerate() {
        let (target, share) = (target.clone(), number as f64 / count as f64);
        let turn = match kind {
            Kind::Reader => READERS_ARRIVE.mul_f64(share),
            Kind::Head | Kind::Body => READERS_ARRIVE + OTHERS_ARRIVE.mul_f64(share),
        };
        slow.spawn(async move {
            sleep(turn).await;
            Outcome::Ok((kind, sockets::hold(&target, kind).await?))
        });
    }
    drop(target);
    let all = there.acquire_many(u32::try_from(count)?);
    let late = "the slow clients were not there in time: the machine does something else";
    timeout(ALL_THERE, all).await.map_err(|_| late)??.forget();
    let since = Instant::now() + SETTLES;
    let ended = async {
        let mut ends = Vec::new();
        while let Some(end) = slow.join_next().await {
            ends.push(end??);
        }
        Outcome::Ok(ends)
    };
    let (looked, ends) = tokio::join!(sockets::look(quita, &readers, sender), ended);
    looked?;
    Ok((since, ends?))
}

/// Publishes the large messages, as many at once as a batch takes.
async fn fill(quita: &Quita, count: usize) -> Outcome<()> {
    const AT_ONCE: usize = 30;
    let one = format!("{{\"message\":{}}}", message_of(LARGE_BYTES));
    let mut connection = Connection::open(quita.address).await?;
    let mut left = count;
    while left > 0 {
        let batch = vec![one.as_str(); left.min(AT_ONCE)];
        let body = format!(
            "{{\"queue\":\"{LARGE}\",\"messages\":[{}]}}",
            batch.join(",")
        );
        let request = Request::new("POST", "/v1/queue/publish-batch", Some(&quita.key), &body);
        let answer = connection.call(request.bytes()).await?;
        if answer.status != 200 {
            return Err(answer.unexpected().into());
        }
        left -= batch.len();
    }
    Ok(())
}

/// Everything that no slow client took is ready again.
async fn given_back(quita: &Quita, count: usize) -> Outcome<bool> {
    let queue = quita
        .call("GET", &format!("/v1/queues/{LARGE}"), "")
        .await?;
    let counts = queue.get("counts").unwrap_or(&queue);
    let number = |name: &str| counts.get(name).and_then(Value::as_u64);
    Ok(number("ready") == Some(count as u64) && number("leased") == Some(0))
}

fn judge(fates: &[Fate; 3], back: bool, without: &[u32], with: &[u32]) -> Verdict {
    let word = |kept| if kept { "pass" } else { "FAIL" };
    println!("| slow client | deadline s | closed | first s | last s | still open | |");
    println!("|---|---:|---:|---:|---:|---:|---|");
    let mut all = true;
    for ((kind, fate), deadline) in Kind::ALL.iter().zip(fates).zip(DEADLINES) {
        let right = fate.is_right(deadline);
        all &= right;
        let first = fate.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let last = fate.seconds.iter().copied().fold(0.0, f64::max);
        println!(
            "| {} | {deadline:.1} | {} | {first:.3} | {last:.3} | {} | {} |",
            kind.name(),
            fate.seconds.len(),
            fate.still_open,
            word(right)
        );
    }
    let at = |share| (percentile_ms(without, share), percentile_ms(with, share));
    let ((p50, p50_beside), (p99, p99_beside)) = (at(0.5), at(0.99));
    let ratio = p99_beside / p99;
    let unnoticed = NOTICED.keeps(ratio);
    println!("\n{} messages back in their queue: {}", LARGE, word(back));
    println!(
        "{PER_SECOND} publishes/s, p50 / p99 ms: {p50:.2} / {p99:.2} alone, {p50_beside:.2} / {p99_beside:.2} beside slow clients; \
         p99 × {ratio:.2} {NOTICED}: {}",
        word(unnoticed)
    );
    let pass = all && back && unnoticed;
    println!(
        "{}",
        json!({"row": "slow", "closed": fates.iter().map(|fate| fate.seconds.len()).sum::<usize>(), "at_deadline": all,
            "given_back": back, "p99_ms_alone": p99, "p99_ms_beside": p99_beside, "p99_ratio": ratio, "pass": pass})
    );
    if pass { Verdict::Pass } else { Verdict::Fail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_ends_too_soon_or_too_late_or_not_at_all_fails_its_kind() {
        let fate = |seconds: &[f64], still_open| Fate {
            seconds: seconds.to_vec(),
            still_open,
        };
        assert!(fate(&[2.0, 2.7], 0).is_right(2.0));
        assert!(!fate(&[2.0, 1.9], 0).is_right(2.0));
        assert!(!fate(&[2.0, 2.8], 0).is_right(2.0));
        assert!(!fate(&[2.0], 1).is_right(2.0));
    }

    #[test]
    fn ordinary_callers_may_notice_a_little() {
        let right = || {
            DEADLINES.map(|deadline| Fate {
                seconds: vec![deadline],
                still_open: 0,
            })
        };
        assert_eq!(judge(&right(), true, &[1000], &[2000]), Verdict::Pass);
        assert_eq!(judge(&right(), true, &[1000], &[2001]), Verdict::Fail);
        assert_eq!(judge(&right(), false, &[1000], &[1000]), Verdict::Fail);
    }
}
