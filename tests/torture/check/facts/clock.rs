//! When a lease began, as exactly as can be known.
//!
//! A client knows that its receive was granted between call and answer; a receive that waits makes that long. But the
//! answer also says when the lease began on the store's clock. Every delivery bounds how far that clock is from ours,
//! `leased_at − t_ret ≤ offset ≤ leased_at − t_inv`; where one offset satisfies all of them, it tells each moment to a few
//! milliseconds. It is granted then or later: a store may take the time before it waits for a row. Where none does (somebody moved a clock, or a server took the time from a wrong one), nothing is made of it.

use super::{EPSILON, Facts};
use crate::history::{MILLI, Nanos};

/// With fewer deliveries than this the offset is too loose to be worth its risk.
const ENOUGH: usize = 20;

/// Narrows what is known of every lease.
pub(crate) fn narrow(facts: &mut Facts) {
    let stepped = facts
        .faults
        .iter()
        .any(|f| !f.skipped && f.kind.starts_with("store_clock"));
    if stepped || facts.deliveries.len() < ENOUGH {
        return;
    }
    let ours = |nanos: Nanos| i128::from(nanos);
    let store = |ms: i64| i128::from(ms) * i128::from(MILLI);
    let (mut low, mut high) = (i128::MIN, i128::MAX);
    for d in &facts.deliveries {
        low = low.max(store(d.leased_at_ms) - ours(d.t_ret));
        // Milliseconds are cut off, so the lease may have begun almost one later.
        high = high.min(store(d.leased_at_ms + 1) - ours(d.t_inv));
    }
    if low > high {
        return;
    }
    let epsilon = ours(EPSILON);
    for d in &mut facts.deliveries {
        let begin = store(d.leased_at_ms) - high - epsilon;
        let end = store(d.leased_at_ms + 1) - low + epsilon;
        let keep = |moment: i128| moment.clamp(ours(d.t_inv), ours(d.t_ret)) as Nanos;
        d.begun = (keep(begin), keep(end));
        d.granted.0 = d.begun.0;
    }
}
