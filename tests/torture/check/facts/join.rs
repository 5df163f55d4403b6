//! Which records belong to which message and delivery.

use super::{Delivery, Facts, Index, NONE};
use std::collections::HashMap;

/// Members of numbered groups, in one allocation.
#[derive(Default)]
pub(crate) struct Groups {
    begins: Vec<Index>,
    members: Vec<Index>,
}

impl Groups {
    /// Of records whose group is `of` ([`NONE`] = none); members keep the records' order.
    pub(crate) fn new(groups: usize, of: impl Iterator<Item = Index> + Clone) -> Self {
        let mut begins = vec![0; groups + 1];
        for group in of.clone().filter(|g| *g != NONE) {
            begins[group as usize + 1] += 1;
        }
        for at in 0..groups {
            begins[at + 1] += begins[at];
        }
        let mut next = begins.clone();
        let mut members = vec![0; begins[groups] as usize];
        for (member, group) in of.enumerate().filter(|(_, g)| *g != NONE) {
            let place = &mut next[group as usize];
            members[*place as usize] = member as Index;
            *place += 1;
        }
        Self { begins, members }
    }

    /// Members of a group.
    pub(crate) fn get(&self, group: Index) -> &[Index] {
        let group = group as usize;
        match (self.begins.get(group), self.begins.get(group + 1)) {
            (Some(from), Some(to)) => &self.members[*from as usize..*to as usize],
            _ => &[],
        }
    }
}

/// Sorts the records and joins them.
pub(crate) fn join(facts: &mut Facts) {
    facts.deliveries.sort_by_key(|d| (d.message, d.t_ret, d.n));
    for of_one in facts.deliveries.chunk_by_mut(|a, b| a.message == b.message) {
        put_in_order(of_one);
    }
    facts.receives.sort_by_key(|r| (r.queue, r.t_inv, r.n));
    facts.settles.sort_by_key(|s| (s.t_inv, s.n));
    let holders: HashMap<u64, Index> = facts
        .deliveries
        .iter()
        .enumerate()
        .map(|(at, d)| (d.receipt, at as Index))
        .collect();
    for settle in &mut facts.settles {
        if !settle.forged {
            settle.delivery = holders.get(&settle.receipt).copied().unwrap_or(NONE);
        }
    }
    let messages = facts.messages.len();
    facts.deliveries_of = Groups::new(messages, facts.deliveries.iter().map(|d| d.message));
    facts.entries_of = Groups::new(messages, facts.entries.iter().map(|e| e.message));
    facts.decisions_of = Groups::new(messages, facts.decisions.iter().map(|d| d.message));
    facts.settles_of = Groups::new(
        facts.deliveries.len(),
        facts.settles.iter().map(|s| s.delivery),
    );
    facts.by_digest = facts
        .entries
        .iter()
        .enumerate()
        .map(|(at, e)| (e.sha, at as Index))
        .collect();
    facts.by_digest.sort_unstable();
}

/// Two answers that were on their way at once may have been granted in either order; their attempts say in which. That
/// is no excuse for a server that counts them wrongly: in the other order they would be wrong as well.
fn put_in_order(deliveries: &mut [Delivery]) {
    for end in 1..deliveries.len() {
        let mut at = end;
        while at > 0 {
            let (a, b) = (&deliveries[at - 1], &deliveries[at]);
            if b.is_surely_after(a) || (a.redrives, a.attempt) <= (b.redrives, b.attempt) {
                break;
            }
            deliveries.swap(at - 1, at);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_their_group_and_keep_their_order() {
        let of = [1, NONE, 0, 1, 3];
        let groups = Groups::new(4, of.iter().copied());
        assert_eq!(groups.get(0), [2]);
        assert_eq!(groups.get(1), [0, 3]);
        assert!(groups.get(2).is_empty());
        assert_eq!(groups.get(3), [4]);
        assert!(groups.get(NONE).is_empty());
    }
}
