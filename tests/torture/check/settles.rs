//! What settles and extends were answered: by a superseded receipt (8), by the table of late settles (9), by a forged
//! receipt (14).
//!
//! Of the table, the rows are judged in which a client can know where the message is: leased by the receipt's own
//! delivery, leased by another one, handed out again since, settled before. That an expired lease was *not* handed out
//! since is known only when no receive was left without an answer meanwhile.

use super::facts::{EPSILON, Facts, Index, NONE, Said, Settle};
use super::leases::{decided, may_be_ended, runs_out_from, runs_out_until};
use super::verdict::Tallies;
use crate::history::{Kind, MILLI};
use quita_storage::model::LateAck;

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    tallies.of(14).cannot("no forged receipt was shown");
    for s in &facts.settles {
        if s.forged {
            forged(s, tallies);
        } else if s.delivery != NONE && s.said != Said::Unknown && s.said != Said::Unavailable {
            Case::new(facts, s).judge(tallies);
        }
    }
    for delivery in 0..facts.deliveries.len() as Index {
        one_effect(facts, delivery, tallies);
    }
}

/// 14.
fn forged(s: &Settle, tallies: &mut Tallies) {
    let refused = s.status == 422 || matches!(s.said, Said::Unknown | Said::Unavailable);
    tallies.of(14).check(refused, || {
        format!(
            "settle {} with a forged receipt was answered {}",
            s.n, s.status
        )
    });
}

/// 9: of all settles of one delivery, one takes effect.
fn one_effect(facts: &Facts, delivery: Index, tallies: &mut Tallies) {
    let effects: Vec<&Settle> = facts
        .settles_of(delivery)
        .filter(|s| s.said.ended())
        .collect();
    if let [first, second, ..] = effects[..] {
        let name = facts
            .messages
            .of(facts.deliveries[delivery as usize].message);
        let say = || {
            format!(
                "{name}: settles {} and {} of one delivery both took effect",
                first.n, second.n
            )
        };
        tallies.of(9).check(false, say);
    }
}

/// One answered settle and what is known about its message.
struct Case<'a> {
    facts: &'a Facts,
    s: &'a Settle,
    /// Settle of the same delivery that surely took effect before.
    earlier: Option<&'a Settle>,
    /// A settle or extend of the same delivery whose effect nobody knows, or that ran at the same time; a delivery that
    /// may have been granted before or after this one.
    doubt: bool,
    /// A later delivery that was surely granted before.
    next: Option<Index>,
    strict: bool,
}

impl<'a> Case<'a> {
    fn new(facts: &'a Facts, s: &'a Settle) -> Self {
        let d = &facts.deliveries[s.delivery as usize];
        let others = || facts.settles_of(s.delivery).filter(|o| o.n != s.n);
        let before = |o: &&Settle| o.t_ret < s.t_inv;
        let earlier = others().filter(before).find(|o| o.said.ended());
        let doubt = others().any(|o| {
            let changes = o.said.ended() || o.said == Said::Extended;
            matches!(o.said, Said::Unknown | Said::Remembered) && o.t_inv < s.t_ret
                || changes && o.t_inv < s.t_ret && o.t_ret >= s.t_inv
        });
        // In which order two were granted that were on their way at once, nobody knows.
        let of_message = || facts.deliveries_of(d.message).filter(|o| o.n != d.n);
        let at_once = of_message().any(|o| !o.is_surely_after(d) && !d.is_surely_after(o));
        let after = (s.delivery + 1..facts.deliveries.len() as Index)
            .take_while(|at| facts.deliveries[*at as usize].message == d.message);
        let next = after
            .filter(|at| facts.deliveries[*at as usize].t_ret <= s.t_inv)
            .last();
        let policy = facts.policy(d.queue);
        Self {
            facts,
            s,
            earlier,
            doubt: doubt || at_once,
            next,
            strict: policy.is_some_and(|p| p.late_ack == LateAck::Strict),
        }
    }

    fn judge(&self, tallies: &mut Tallies) {
        if let Some(earlier) = self.earlier {
            self.after_a_settle(earlier, tallies);
        } else if self.doubt {
            // Anything may have been true.
        } else if let Some(next) = self.next {
            self.after_another_delivery(next, tallies);
        } else if self.surely_in_time() {
            self.in_time(tallies);
        } else if self.surely_too_late() {
            self.too_late(tallies);
        }
    }

    fn say(&self, why: &str) -> String {
        let d = &self.facts.deliveries[self.s.delivery as usize];
        let name = self.facts.messages.of(d.message);
        let Settle { n, kind, said, .. } = self.s;
        format!("{name}: {kind:?} {n} was answered {said:?}: {why}")
    }

    fn gone_otherwise(&self) -> bool {
        let d = &self.facts.deliveries[self.s.delivery as usize];
        self.facts.may_be_purged(d.queue, d.granted.0, self.s.t_ret)
    }

    /// Settled before: the same again, or refused.
    fn after_a_settle(&self, earlier: &Settle, tallies: &mut Tallies) {
        let s = self.s;
        let same = (s.kind, s.permanent) == (earlier.kind, earlier.permanent);
        let right = match s.said {
            Said::Already => same || self.gone_otherwise(),
            Said::Conflict => !same || self.gone_otherwise(),
            _ => false,
        };
        tallies.of(9).check(right, || {
            self.say(&format!("{:?} {} had settled it", earlier.kind, earlier.n))
        });
    }

    /// Handed out again since.
    fn after_another_delivery(&self, next: Index, tallies: &mut Tallies) {
        let s = self.s;
        let holder = &self.facts.deliveries[next as usize];
        let held = self.surely_held(next);
        let right = match (s.kind, s.said) {
            (_, Said::Conflict) => true,
            (Kind::Ack, Said::Remembered) => !self.strict,
            (Kind::Ack, Said::Acked) => !held && s.superseded && s.late && !self.strict,
            (Kind::Ack, Said::Already) => !held,
            _ => false,
        };
        let promise = if held { 8 } else { 9 };
        tallies.of(promise).check(right, || {
            let has = if held { "has" } else { "got" };
            self.say(&format!("receive {} {has} it since", holder.n))
        });
    }

    /// The delivery surely has the message during the whole settle.
    fn surely_held(&self, delivery: Index) -> bool {
        let d = &self.facts.deliveries[delivery as usize];
        let mut others = self.facts.deliveries_of(d.message).filter(|o| o.n != d.n);
        let superseded = others.any(|o| o.granted.0 <= self.s.t_ret && !d.is_surely_after(o));
        !superseded
            && d.t_ret <= self.s.t_inv
            && runs_out_from(self.facts, delivery, self.s.t_ret) > self.s.t_ret + EPSILON
            && !may_be_ended(self.facts, delivery, self.s.t_ret)
    }

    /// Leased by this delivery, whatever this settle does.
    fn surely_in_time(&self) -> bool {
        let (facts, s) = (self.facts, self.s);
        let d = &facts.deliveries[s.delivery as usize];
        !decided(facts, d, s.t_ret)
            && !self.gone_otherwise()
            && runs_out_from(facts, s.delivery, s.t_inv) > s.t_ret + EPSILON
    }

    fn in_time(&self, tallies: &mut Tallies) {
        let s = self.s;
        let right = match s.kind {
            Kind::Ack => s.said == Said::Acked && !s.superseded,
            Kind::Nack => {
                matches!(s.said, Said::Retry | Said::Dead) || self.completion_may_be_kept()
            }
            Kind::Release => {
                let bound = self
                    .facts
                    .policy(self.queue())
                    .is_none_or(|p| p.max_releases.is_some());
                s.said == Said::Released
                    || (s.said == Said::Dead && bound)
                    || self.completion_may_be_kept()
            }
            _ => s.said == Said::Extended,
        };
        // The holder's own settle works, whatever others say about the message.
        let promise = if self.is_first() { 9 } else { 8 };
        tallies.of(promise).check(right && !s.late, || {
            let end = runs_out_from(self.facts, s.delivery, s.t_inv);
            self.say(&format!(
                "it has the message until {} ms at least",
                end / MILLI
            ))
        });
    }

    fn queue(&self) -> Index {
        self.facts.deliveries[self.s.delivery as usize].queue
    }

    fn is_first(&self) -> bool {
        let d = &self.facts.deliveries[self.s.delivery as usize];
        self.facts.deliveries_of.get(d.message).first() == Some(&self.s.delivery)
    }

    /// An ack of an earlier delivery may have been remembered.
    fn completion_may_be_kept(&self) -> bool {
        let d = &self.facts.deliveries[self.s.delivery as usize];
        let earlier = self.facts.deliveries_of.get(d.message).iter();
        self.s.said == Said::AckedSuperseded
            && earlier
                .take_while(|at| **at < self.s.delivery)
                .flat_map(|at| self.facts.settles_of(*at))
                .any(|o| {
                    o.kind == Kind::Ack
                        && matches!(o.said, Said::Remembered | Said::Unknown)
                        && o.t_inv < self.s.t_ret
                })
    }

    /// Ran out, and surely not handed out since.
    fn surely_too_late(&self) -> bool {
        let (facts, s) = (self.facts, self.s);
        let d = &facts.deliveries[s.delivery as usize];
        let Some(over) = runs_out_until(facts, s.delivery) else {
            return false;
        };
        let of_message = facts.deliveries_of.get(d.message);
        let touched = of_message.iter().any(|at| {
            let other = &facts.deliveries[*at as usize];
            *at > s.delivery && other.granted.0 <= s.t_ret
                || *at < s.delivery
                    && facts
                        .settles_of(*at)
                        .any(|o| o.kind == Kind::Ack && !o.said.nothing() && o.t_inv < s.t_ret)
        });
        over + EPSILON < s.t_inv
            && !touched
            && !decided(facts, d, s.t_ret)
            && !self.gone_otherwise()
            && !facts.may_be_decided(d.queue, d.granted.0, s.t_ret)
            && facts.hidden_receives(d.queue, d.granted.0, s.t_ret) == 0
    }

    fn too_late(&self, tallies: &mut Tallies) {
        let s = self.s;
        let right = match s.kind {
            _ if self.strict => s.said == Said::Conflict,
            Kind::Ack => s.said == Said::Acked && s.late && !s.superseded,
            Kind::Nack => matches!(s.said, Said::Retry | Said::Dead) && s.late,
            Kind::Release => s.said == Said::Conflict,
            // Dead by its expiration, it cannot be revived.
            _ => matches!(s.said, Said::Extended | Said::Conflict),
        };
        tallies.of(9).check(right, || {
            self.say("its lease was over and nobody had it since")
        });
    }
}
