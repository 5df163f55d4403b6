//! When a fault may be felt.

use super::{Facts, Index};
use crate::history::{Class, Happened, Kind, Nanos, SECOND};

/// Time to get well after a fault is undone.
const RECOVERY: Nanos = 10 * SECOND;

/// A call that was given up may take effect this much later when nothing holds it up.
const STRAY: Nanos = 5 * SECOND;

/// Disjoint stretches of time, in order.
#[derive(Default)]
pub(crate) struct Windows(Vec<(Nanos, Nanos)>);

impl Windows {
    /// Of these stretches, in any order.
    pub(crate) fn new(mut stretches: Vec<(Nanos, Nanos)>) -> Self {
        stretches.sort_unstable();
        let mut merged: Vec<(Nanos, Nanos)> = Vec::new();
        for (begin, end) in stretches {
            match merged.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((begin, end)),
            }
        }
        Self(merged)
    }

    /// Whether a fault may be felt at some time between the two.
    pub(crate) fn touch(&self, from: Nanos, until: Nanos) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < from);
        self.0.get(at).is_some_and(|(begin, _)| *begin <= until)
    }

    /// Until when a call that was given up may still take effect.
    fn stray(&self, t_inv: Nanos, t_ret: Nanos) -> Nanos {
        let stray = t_ret + STRAY;
        self.end_of(t_inv, stray)
            .map_or(stray, |end| end.max(stray))
    }

    /// The end of the last one that touches the two.
    fn end_of(&self, from: Nanos, until: Nanos) -> Option<Nanos> {
        let at = self.0.partition_point(|(begin, _)| *begin <= until);
        let last = self.0[..at].last()?;
        (last.1 >= from).then_some(last.1)
    }
}

/// Calls that may take effect between their beginning and some later moment.
#[derive(Default)]
pub(crate) struct Calls {
    begins: Vec<Nanos>,
    ends: Vec<Nanos>,
}

impl Calls {
    fn new(calls: impl Iterator<Item = (Nanos, Nanos)>) -> Self {
        let (mut begins, mut ends): (Vec<_>, Vec<_>) = calls.unzip();
        begins.sort_unstable();
        ends.sort_unstable();
        Self { begins, ends }
    }

    /// How many may take effect between the two.
    pub(crate) fn between(&self, from: Nanos, until: Nanos) -> u64 {
        let begun = self.begins.partition_point(|t| *t <= until);
        let over = self.ends.partition_point(|t| *t < from);
        begun.saturating_sub(over) as u64
    }
}

/// Faults, and the times in which a server was not there.
pub(crate) fn find(facts: &mut Facts) {
    let mut stretches: Vec<_> = facts
        .faults
        .iter()
        .filter(|f| !f.skipped)
        .map(|f| (f.t_begin, f.t_end.max(f.t_begin) + RECOVERY))
        .collect();
    for (at, gone) in facts.events.iter().enumerate() {
        let left = matches!(
            gone.kind,
            Happened::Termed | Happened::Killed | Happened::Exited | Happened::Started
        );
        if left {
            let back = facts.events[at..]
                .iter()
                .find(|e| e.kind == Happened::Ready && e.replica == gone.replica && e.t >= gone.t);
            let until = back.map_or(super::NEVER, |e| e.t + RECOVERY);
            stretches.push((gone.t, until));
        }
    }
    facts.windows = Windows::new(stretches);
    for receive in &mut facts.receives {
        if receive.class == Class::Info {
            receive.until = facts.windows.stray(receive.t_inv, receive.t_ret);
        }
    }
    for decision in &mut facts.decisions {
        // A decision about many goes on after its answer.
        if decision.class == Class::Info || decision.kind == Kind::RedriveMany {
            decision.until = facts.windows.stray(decision.t_inv, decision.t_ret);
        }
    }
    let hidden = |queue| {
        let of = facts.receives.iter().filter(move |r| r.queue == queue);
        let unread = of.filter(|r| r.class == Class::Info);
        Calls::new(unread.map(|r| (r.t_inv, r.until)))
    };
    facts.hidden = (0..facts.queues.len() as Index).map(hidden).collect();
    facts.purged = of_queues(facts, Kind::Purge);
    facts.decided = of_queues(facts, Kind::RedriveMany);
    facts.resumed = of_queues(facts, Kind::Resume);
}

fn of_queues(facts: &Facts, kind: Kind) -> Vec<Windows> {
    (0..facts.queues.len() as Index)
        .map(|queue| {
            let calls = facts.decisions_on(queue, kind);
            Windows::new(calls.map(|d| (d.t_inv, d.until)).collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_touch_are_one_and_are_found_by_their_ends() {
        let windows = Windows::new(vec![(50, 60), (10, 20), (15, 30)]);
        assert!(!windows.touch(0, 9));
        assert!(windows.touch(0, 10));
        assert!(windows.touch(30, 40));
        assert!(!windows.touch(31, 49));
        assert!(windows.touch(25, 26));
        assert_eq!(windows.end_of(55, 100), Some(60));
        assert_eq!(windows.end_of(61, 100), None);
    }

    #[test]
    fn calls_between_two_moments_are_those_that_began_and_are_not_over() {
        let calls = Calls::new([(10, 50), (20, 25), (60, 70)].into_iter());
        assert_eq!(calls.between(0, 9), 0);
        assert_eq!(calls.between(0, 20), 2);
        assert_eq!(calls.between(26, 59), 1);
        assert_eq!(calls.between(51, 100), 1);
    }
}
