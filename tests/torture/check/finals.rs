//! What is final: an ack (10), a remembered completion (11).

use super::facts::{Delivery, Facts, NEVER, Said, Settle};
use super::verdict::Tallies;
use crate::history::{Class, Kind, MILLI};

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    let mut at = 0;
    for of_one in facts.deliveries.chunk_by(|a, b| a.message == b.message) {
        let settles = (at..at + of_one.len()).flat_map(|d| facts.settles_of(d as u32));
        at += of_one.len();
        acked(facts, of_one, settles.clone(), tallies);
        remembered(facts, of_one, settles, tallies);
    }
}

/// 10: after the answer nothing of the message is granted.
fn acked<'a>(
    facts: &Facts,
    deliveries: &[Delivery],
    settles: impl Iterator<Item = &'a Settle>,
    tallies: &mut Tallies,
) {
    let ends = |s: &&Settle| match s.said {
        Said::Acked | Said::AckedSuperseded => true,
        _ => s.end_acked,
    };
    let Some(first) = settles.filter(ends).min_by_key(|s| s.t_ret) else {
        return;
    };
    let after = deliveries.iter().find(|d| d.granted.0 > first.t_ret);
    tallies.of(10).check(after.is_none(), || {
        let d = after.unwrap_or(&deliveries[0]);
        format!(
            "{} was acked in {} by {} ms and granted in receive {} after {} ms",
            facts.messages.of(d.message),
            first.n,
            first.t_ret / MILLI,
            d.n,
            d.granted.0 / MILLI
        )
    });
}

/// 11: unless an operator had taken the message and redrives it by force.
fn remembered<'a>(
    facts: &Facts,
    deliveries: &[Delivery],
    settles: impl Iterator<Item = &'a Settle>,
    tallies: &mut Tallies,
) {
    let kept = settles.filter(|s| s.said == Said::Remembered);
    let Some(first) = kept.min_by_key(|s| s.t_ret) else {
        return;
    };
    let forced = facts
        .decisions_of(deliveries[0].message)
        .filter(|d| d.kind == Kind::Redrive && d.force && d.class != Class::Fail)
        .map(|d| d.t_inv)
        .min()
        .unwrap_or(NEVER);
    let after = deliveries
        .iter()
        .find(|d| d.granted.0 > first.t_ret && d.t_ret < forced);
    tallies.of(11).check(after.is_none(), || {
        let d = after.unwrap_or(&deliveries[0]);
        format!(
            "the completion of {} was kept in {} and it was granted again in receive {}",
            facts.messages.of(d.message),
            first.n,
            d.n
        )
    });
}
