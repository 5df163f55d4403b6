//! What it costs to know the caller and to count what it publishes.
//!
//! `quita-bench access` compares server CPU per publish at 256 connections on SQLite: an API key and a publish rate that is
//! counted and never reached, beside `--dev-no-auth` and no credentials; and a token of an issuer beside the same. The three
//! take turns, each on a new store, in the opposite order every other time, so that a machine that gets slower favours none.

use crate::Outcome;
use crate::fresh::Ground;
use crate::load::{Measured, closed_loop};
use crate::messages::{self, QUEUE, message};
use crate::meters::Meters;
use crate::report::Verdict;
use crate::server::Quita;
use crate::stats::{Bound, Spread};
use crate::token;
use serde_json::json;
use std::time::Duration;

const CONNECTIONS: usize = 256;

/// Median of the ratios of the pairs: known and counted, to not even asked.
const BOUND: Bound = Bound::AtMost(1.08);

/// A rate that is counted and never reached.
const RATE: [&str; 2] = ["--rate-publish", "1000000:1000000"];

/// How callers are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Key,
    Token,
    Anybody,
}

const CALLERS: [Caller; 3] = [Caller::Key, Caller::Token, Caller::Anybody];

/// CPU in µs per publish, in the order of [`CALLERS`].
type Round = [f64; 3];

/// Measures `pairs` rounds of `length` each.
pub(crate) async fn run(ground: &Ground, pairs: u32, length: Duration) -> Outcome<Verdict> {
    println!(
        "server CPU in µs per publish, {CONNECTIONS} connections, SQLite\n{:>5}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "pair", "key", "token", "anybody", "key ×", "token ×"
    );
    let mut rounds = Vec::new();
    for pair in 0..pairs {
        let mut round: Round = [0.0; 3];
        for turn in 0..CALLERS.len() {
            let at = if pair % 2 == 0 {
                turn
            } else {
                CALLERS.len() - 1 - turn
            };
            let measured = measure(ground, CALLERS[at], length).await?;
            round[at] = measured.spent.server * 1e6 / measured.requests.max(1) as f64;
        }
        let [key, token, anybody] = round;
        println!(
            "{:>5}{key:>10.2}{token:>10.2}{anybody:>10.2}{:>10.3}{:>10.3}",
            pair + 1,
            key / anybody,
            token / anybody
        );
        rounds.push(round);
    }
    let (keys, tokens) = ratios(&rounds).ok_or("no pairs")?;
    let kept = BOUND.keeps(keys.median);
    let word = if kept { "pass" } else { "FAIL" };
    println!("\nkey with a publish rate / anybody: {keys}; median {BOUND}: {word}");
    println!("token with a publish rate / anybody: {tokens}");
    println!(
        "{}",
        json!({"row": "access", "key_ratio": keys, "token_ratio": tokens, "cpu_us": rounds, "bound": BOUND, "pass": kept})
    );
    Ok(if kept { Verdict::Pass } else { Verdict::Fail })
}

async fn measure(ground: &Ground, caller: Caller, length: Duration) -> Outcome<Measured> {
    let issuer = tempfile::tempdir()?;
    let file = token::issuer_file(issuer.path())?;
    let mut settings = Vec::new();
    match caller {
        Caller::Anybody => settings.push("--dev-no-auth"),
        Caller::Key => settings.extend(RATE),
        Caller::Token => {
            settings.extend(RATE);
            settings.extend(["--jwt-issuers", file.to_str().ok_or("a path without text")?]);
        }
    }
    ground.settle()?;
    let quita = Quita::start_with(&ground.program, &ground.directory, None, &settings).await?;
    quita.create(QUEUE).await?;
    let token;
    let credentials = match caller {
        Caller::Anybody => None,
        Caller::Key => Some(quita.key.as_str()),
        Caller::Token => {
            token = token::token()?;
            Some(token.as_str())
        }
    };
    let publish = messages::publish(QUEUE, &message(), credentials);
    let meters = Meters {
        server: quita.id(),
        postgres: None,
    };
    closed_loop(quita.address, &[publish], CONNECTIONS, length, &meters).await
}

/// Of each round key and token, both as a multiple of nobody being asked.
fn ratios(rounds: &[Round]) -> Option<(Spread, Spread)> {
    let of = |at: usize| {
        let ratios: Vec<f64> = rounds.iter().map(|round| round[at] / round[2]).collect();
        Spread::of(&ratios)
    };
    Some((of(0)?, of(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_ratios_counts_not_the_ratio_of_the_medians() {
        // Ratios 1.05, 1.10 and 1.00, whatever the machine did between the pairs.
        let rounds = [[21.0, 30.0, 20.0], [44.0, 60.0, 40.0], [10.0, 15.0, 10.0]];
        let (keys, tokens) = ratios(&rounds).unwrap();
        assert_eq!((keys.median * 1000.0).round() as i64, 1050);
        assert_eq!((keys.max * 1000.0).round() as i64, 1100);
        assert_eq!((tokens.median * 1000.0).round() as i64, 1500);
        assert!(ratios(&[]).is_none());
    }
}
