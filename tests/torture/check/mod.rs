//! The verdicts: a pure function over a history, so that saved histories are judged anew when a check changes.
//!
//! Reading order: this file → [`verdict`] → [`facts`] (the history as the checks read it) → one file per family of
//! promises, numbered as in the list [`PROMISES`].
//!
//! What an `info` operation may have done is always allowed for: each may have taken effect or not, also after it was
//! given up. A bound is judged with the end of an interval that a correct server cannot pass. So a complaint is a fault of
//! the servers (or of their clock), never of the way of asking; what cannot be judged is not counted.
//!
//! Faults that are easily made in a queue, and what sees them in a history of ordinary load:
//!
//! | fault | promise | how it shows |
//! |---|---|---|
//! | ack ignores the fence | 8 | `result: acked` for a receipt whose message somebody else surely holds |
//! | `synchronous=NORMAL` | 1, 10, 21, 24 | after a power cut: ids that no listing has, grants after an ok ack, totals that fell |
//! | claim located before it is locked | 7, 15, 21, 22 | one message in two answers |
//! | dedupe by select-then-insert | 4 | two ids, or two `deduplicated: false`, for one request id |
//! | dead-letter move in two transactions | 20, 21, 17, 1 | a snapshot whose sum is off; after a kill an id in two places or in none |
//! | attempt lowered on release | 15 | `attempt` falls, or does not grow after a nack |
//! | counter outside the transaction | 20, 21 | totals below what was answered, or above what was asked, after a kill |
//! | expiry judged by the API's clock | 7, 28 | a second grant before the first lease can be over, while clocks differ |
//! | listener closed before readiness flips | 27 | calls refused within the drain delay |
//! | blind re-run of a commit | 3, 15, 21 | two ids for one body; attempts that nobody can have seen; accepted above what was asked |
//! | request id freed at ack | 4 | a repeat after the ack gets a new id |
//! | late ack taken from the present holder | 8 | as for the fence, and the holder's own settle fails |
//! | receive committed asynchronously | 7, 15, 21, 24 | after a power cut a second grant within the lease, the same attempt again, too few delivered |
//! | coalesced duplicates share one answer | 4 | two `deduplicated: false` for one request id |
//! | purge through a stale queue cache | 1, 17, 21 | an id that was answered after the purge is nowhere, one from before it is handed out, or purged grows without a purge |

pub(crate) mod facts;
pub(crate) mod verdict;

mod answers;
mod attempts;
mod counts;
mod durability;
mod finals;
mod leases;
mod life;
mod liveness;
mod loss;
mod places;
mod publishes;
mod settles;
mod stop;
#[cfg(test)]
mod tests;

use facts::Facts;
use std::collections::BTreeMap;
use verdict::{Tallies, Verdict};

/// The promises, numbered as in the contract.
pub(crate) const PROMISES: [&str; 29] = [
    "no loss",
    "no ghosts",
    "an unknown publish appears at most once",
    "dedupe",
    "batches answer for each entry",
    "delay and expiry",
    "one live lease",
    "a superseded receipt takes nothing",
    "late settles",
    "ack is final",
    "a remembered completion is final",
    "what a receive returns",
    "lost answers come back",
    "forged receipts",
    "attempts",
    "poison leaves",
    "one place",
    "backoff",
    "redrives are bounded",
    "conservation",
    "counts equal a recount",
    "every duplicate is explained",
    "liveness",
    "no ok without durability",
    "fail-stop",
    "back after a kill within 5 s",
    "graceful stop",
    "clocks change nothing",
    "no 5xx, panic, misshapen answer or leak",
];

/// What a history says.
pub(crate) struct Judgement {
    /// A verdict per promise, in their order.
    pub(crate) verdicts: Vec<Verdict>,
    /// Second and later hand-outs by their cause.
    pub(crate) duplicates: BTreeMap<&'static str, u64>,
    /// Answers with a 5xx outside faults, and panics.
    pub(crate) unwell: (u64, u64),
}

impl Judgement {
    /// Verdict on promise `n`.
    pub(crate) fn of(&self, n: u8) -> &Verdict {
        &self.verdicts[usize::from(n) - 1]
    }

    /// How often promise `n` was broken.
    pub(crate) fn broken(&self, n: u8) -> u64 {
        match self.of(n) {
            Verdict::Broken { broken, .. } => *broken,
            _ => 0,
        }
    }

    /// Every promise that could be judged was kept.
    pub(crate) fn holds(&self) -> bool {
        let broken = |v: &Verdict| matches!(v, Verdict::Broken { .. });
        !self.verdicts.iter().any(broken)
    }
}

/// Judges a history.
pub(crate) fn judge(facts: &Facts) -> Judgement {
    let mut tallies = Tallies::default();
    publishes::judge(facts, &mut tallies);
    life::judge(facts, &mut tallies);
    leases::judge(facts, &mut tallies);
    settles::judge(facts, &mut tallies);
    finals::judge(facts, &mut tallies);
    attempts::judge(facts, &mut tallies);
    loss::judge(facts, &mut tallies);
    places::judge(facts, &mut tallies);
    counts::judge(facts, &mut tallies);
    liveness::judge(facts, &mut tallies);
    stop::judge(facts, &mut tallies);
    let unwell = answers::judge(facts, &mut tallies);
    // Looks at what the others found.
    durability::judge(facts, &mut tallies);
    Judgement {
        verdicts: (1..=29).map(|n| tallies.of(n).verdict()).collect(),
        duplicates: tallies.duplicates,
        unwell,
    }
}
