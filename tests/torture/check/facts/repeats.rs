//! Settles that a server repeated itself: it lost the store's connection in the middle of the commit, looked again, and found
//! its own work done. To its client, who asked once, it says `already_settled`.

use super::{Facts, Said, Settle};
use crate::history::Fault;

/// Faults that cut connections to the store.
const CUTS: [&str; 6] = [
    "failover",
    "database",
    "backend",
    "postmaster",
    "connection_limit",
    "power_cut",
];

/// Takes such an answer for one that says nothing: it may have ended the delivery, or have come after its end. That the
/// message is gone it says all the same ([`Settle::end_acked`]).
pub(super) fn own_work(facts: &mut Facts) {
    let cut =
        |fault: &Fault| !fault.skipped && CUTS.iter().any(|kind| fault.kind.starts_with(kind));
    let cuts: Vec<Fault> = facts.faults.iter().filter(|f| cut(f)).cloned().collect();
    let repeated: Vec<usize> = (0..facts.settles.len())
        .filter(|at| {
            let s = &facts.settles[*at];
            let during = |f: &Fault| f.t_begin <= s.t_ret && f.t_end >= s.t_inv;
            s.said == Said::Already && cuts.iter().any(during) && is_alone(facts, s)
        })
        .collect();
    for at in repeated {
        facts.settles[at].said = Said::Unknown;
    }
}

/// No other settle of the delivery was asked for by then.
fn is_alone(facts: &Facts, s: &Settle) -> bool {
    let mut others = facts.settles_of(s.delivery).filter(|o| o.n != s.n);
    others.all(|o| o.t_inv > s.t_ret)
}
