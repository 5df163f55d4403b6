//! How a redrive of many goes on: pure decisions about a [`Redrive`]; a store asks [`next`], moves messages, and reports with
//! [`took`].
//!
//! **Rate.** `paced_until` is the time up to which the rate is used up; a step takes what has come due since, at most one
//! second's worth, so a pause of the server is not made up for by a burst.
//!
//! **Stop by itself.** Failures come in late: a message dies only after its attempts. So the redriven messages are numbered,
//! and the failures are compared with the number of the last one that failed: all up to there have had as much time.
//! Stop when `failed ≥ failed_fraction · max(that number, min_sample)`.

use crate::model::{Millis, Reason};
use crate::redrives::{Redrive, RedriveState, Steer};
use crate::rules::operate::ActRefused;

/// Messages of one step: some 20 ms of a store's time, so that publishes and settles hardly notice.
pub const STEP: u32 = 500;
/// Shortest time between two steps that a rate paces.
const BEAT_MS: Millis = 100;
/// How often the canary is looked at during its pause.
const GLANCE_MS: Millis = 1_000;
/// Most that a rate makes up for.
const CATCH_UP_MS: Millis = 1_000;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing before `next_at`.
    Wait,
    /// Decide at most so many messages.
    Take(u32),
    /// It has just come to a final state: write that down.
    Finished,
}

/// What a step found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Messages decided.
    pub moved: i64,
    /// Left alone, at or above `max_redrives`.
    pub redrive_limit: i64,
    /// Left alone, since a worker has reported the work as done.
    pub completion_remembered: i64,
    /// Left alone, past their `expires_at`.
    pub expired: i64,
    /// Where it looked last; `None` = as before.
    pub cursor: Option<(Millis, i64)>,
    /// The end of the selection was reached.
    pub exhausted: bool,
}

impl Took {
    /// Counts a message that had to be left alone. Those that changed since the selection are counted at its end.
    pub fn refused(&mut self, why: ActRefused) {
        match why {
            ActRefused::RedriveLimit => self.redrive_limit += 1,
            ActRefused::CompletionRemembered => self.completion_remembered += 1,
            ActRefused::Expired => self.expired += 1,
            _ => {}
        }
    }
}

/// Decides about the next step. `canary_left` is asked only while the canary's pause runs: how many of the first messages are
/// still waiting or leased.
pub fn next(redrive: &mut Redrive, canary_left: u32, now: Millis) -> Next {
    if redrive.state.is_final() || redrive.state == RedriveState::Paused {
        return Next::Wait;
    }
    let wanted = (redrive.goal() - redrive.moved).max(0);
    if redrive.plan.dry_run {
        return Next::Take(wanted.min(i64::from(STEP)) as u32);
    }
    if fails_too_often(redrive) {
        finish(redrive, RedriveState::Aborted, now);
        return Next::Finished;
    }
    let mut wanted = wanted.min(i64::from(STEP));
    if let Some(canary) = redrive.plan.canary.filter(|_| !redrive.canary_over) {
        let first = i64::from(canary.count) - redrive.moved;
        if first > 0 {
            wanted = wanted.min(first);
        } else {
            let until = *redrive
                .canary_until
                .get_or_insert(now.saturating_add(canary.wait_ms));
            if now < until && canary_left > 0 {
                redrive.next_at = until.min(now.saturating_add(GLANCE_MS));
                return Next::Wait;
            }
            redrive.canary_over = true;
            redrive.state = RedriveState::Running;
        }
    }
    match redrive.plan.rate {
        None => Next::Take(wanted as u32),
        Some(_) if redrive.paced_until > now => {
            redrive.next_at = redrive.paced_until;
            Next::Wait
        }
        Some(rate) => {
            redrive.paced_until = redrive.paced_until.max(now - CATCH_UP_MS);
            let due = (now - redrive.paced_until) as f64 * rate / 1_000.0;
            Next::Take(wanted.min(due as i64 + 1) as u32)
        }
    }
}

/// Notes what a step did.
pub fn took(redrive: &mut Redrive, took: &Took, now: Millis) {
    redrive.moved += took.moved;
    redrive.skipped.redrive_limit += took.redrive_limit;
    redrive.skipped.completion_remembered += took.completion_remembered;
    redrive.skipped.expired += took.expired;
    redrive.cursor = took.cursor.or(redrive.cursor);
    redrive.next_at = now;
    if let Some(rate) = redrive.plan.rate.filter(|_| !redrive.plan.dry_run) {
        // Rounded down: a step is at least a beat apart from the next, so this is at most 1 % too fast. Rounded up, 333 a
        // second became 328.
        let used = (took.moved as f64 * 1_000.0 / rate) as Millis;
        redrive.paced_until = redrive.paced_until.saturating_add(used);
        // A full step may be followed at once, or a beat would be a limit of its own.
        let beat = if took.moved < i64::from(STEP) {
            BEAT_MS
        } else {
            0
        };
        if took.moved > 0 {
            redrive.next_at = redrive.paced_until.max(now + beat);
        }
    }
    if took.exhausted {
        let known = redrive.moved + redrive.skipped.total();
        redrive.skipped.changed = (redrive.count - known).max(0);
    }
    if took.exhausted || redrive.moved >= redrive.goal() {
        finish(redrive, RedriveState::Done, now);
    }
}

/// Notes that redriven messages died again: their places among the redriven ones.
pub fn failed(redrive: &mut Redrive, places: &[i64]) {
    redrive.failed_again += places.len() as i64;
    redrive.failed_up_to = places.iter().fold(redrive.failed_up_to, |a, b| a.max(*b));
}

/// Whether a redriven message that died for this reason has failed again.
pub fn is_failure(reason: Reason) -> bool {
    reason != Reason::Operator
}

/// Does what an operator wants. `false`: it is in a final state, and nothing changed.
pub fn steer(redrive: &mut Redrive, steer: Steer, now: Millis) -> bool {
    if redrive.state.is_final() {
        return false;
    }
    match steer {
        Steer::Pause => redrive.state = RedriveState::Paused,
        Steer::Resume if redrive.state == RedriveState::Paused => {
            redrive.state = if redrive.canary_over {
                RedriveState::Running
            } else {
                RedriveState::Canary
            };
            redrive.paced_until = now;
            redrive.next_at = now;
        }
        Steer::Resume => {}
        Steer::Cancel => finish(redrive, RedriveState::Cancelled, now),
        Steer::Rate(rate) => {
            redrive.plan.rate = rate;
            redrive.paced_until = now;
            redrive.next_at = now;
        }
    }
    true
}

fn fails_too_often(redrive: &Redrive) -> bool {
    redrive.plan.abort_if.is_some_and(|abort| {
        let sample = redrive.failed_up_to.max(i64::from(abort.min_sample));
        redrive.failed_again > 0
            && redrive.failed_again as f64 >= abort.failed_fraction * sample as f64
    })
}

fn finish(redrive: &mut Redrive, state: RedriveState, now: Millis) {
    redrive.state = state;
    redrive.finished_at = Some(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letters::SelectionId;
    use crate::model::QueueUid;
    use crate::redrives::{AbortIf, BulkAction, Canary, RedriveId, RedrivePlan};

    fn redrive(rate: Option<f64>, canary: Option<Canary>) -> Redrive {
        let plan = RedrivePlan {
            selection: SelectionId(1),
            action: BulkAction::Redrive,
            expected_count: 10_000,
            max: None,
            rate,
            canary,
            abort_if: Some(AbortIf {
                failed_fraction: 0.2,
                min_sample: 10,
            }),
            force: false,
            dry_run: false,
        };
        Redrive::new(RedriveId(1), QueueUid(1), plan, 10_000, 0)
    }

    /// Runs until `end`, taking whatever it may; answers how many.
    fn run(redrive: &mut Redrive, from: Millis, end: Millis) -> i64 {
        let (before, mut now) = (redrive.moved, from);
        while now < end {
            if let Next::Take(n) = next(redrive, 1, now) {
                let moved = i64::from(n);
                took(
                    redrive,
                    &Took {
                        moved,
                        ..Took::default()
                    },
                    now,
                );
            }
            now = redrive.next_at.max(now + 1);
        }
        redrive.moved - before
    }

    #[test]
    fn the_rate_is_kept_over_time_and_a_pause_is_not_made_up_for() {
        for rate in [0.5, 3.0, 50.0, 333.0, 2_000.0] {
            let mut redrive = redrive(Some(rate), None);
            redrive.count = i64::MAX;
            let moved = run(&mut redrive, 0, 20_000) as f64;
            assert!(
                (moved - 20.0 * rate).abs() <= 1.0 + rate * 0.12,
                "{rate}: {moved}"
            );
            // An hour later: at most a second's worth at once.
            let Next::Take(n) = next(&mut redrive, 0, 3_600_000) else {
                panic!("nothing to take");
            };
            assert!(
                f64::from(n) <= (rate + 1.0).min(f64::from(STEP)),
                "{rate}: {n}"
            );
        }
    }

    #[test]
    fn the_canary_goes_first_and_its_pause_ends_early_when_all_are_gone() {
        let canary = Canary {
            count: 10,
            wait_ms: 60_000,
        };
        let mut redrive = redrive(None, Some(canary));
        assert_eq!(redrive.state, RedriveState::Canary);
        assert_eq!(run(&mut redrive, 0, 60_000), 10);
        assert_eq!(redrive.state, RedriveState::Canary);
        let mut early = redrive.clone();
        assert_eq!(next(&mut early, 0, 59_000), Next::Take(STEP));
        assert_eq!(early.state, RedriveState::Running);
        // The pause began a millisecond after the last of the ten was moved, when that was first looked at.
        assert_eq!(next(&mut redrive, 1, 60_000), Next::Wait);
        assert_eq!(next(&mut redrive, 1, 60_001), Next::Take(STEP));
    }

    #[test]
    fn it_stops_by_itself_when_too_many_of_those_that_had_time_died_again() {
        let mut redrive = redrive(None, None);
        run(&mut redrive, 0, 3);
        assert_eq!(redrive.moved, 1_500);
        failed(&mut redrive, &[3]);
        assert_eq!(next(&mut redrive, 0, 10), Next::Take(STEP), "1 of 10");
        // 3 of the first 20 are fewer than a fifth; 4 are a fifth, although 1,500 are on their way.
        failed(&mut redrive, &[7, 20]);
        assert_eq!(next(&mut redrive, 0, 10), Next::Take(STEP), "3 of 20");
        failed(&mut redrive, &[19]);
        assert_eq!(next(&mut redrive, 0, 10), Next::Finished);
        assert_eq!(
            (redrive.state, redrive.finished_at),
            (RedriveState::Aborted, Some(10))
        );
        assert_eq!(next(&mut redrive, 0, 11), Next::Wait);
    }

    #[test]
    fn what_is_missing_at_the_end_had_changed() {
        let mut redrive = redrive(None, None);
        redrive.count = 10;
        let found = Took {
            moved: 5,
            redrive_limit: 2,
            exhausted: true,
            ..Took::default()
        };
        took(&mut redrive, &found, 7);
        assert_eq!(redrive.skipped.changed, 3);
        assert_eq!(
            (redrive.state, redrive.remaining()),
            (RedriveState::Done, 0)
        );
        assert!(!steer(&mut redrive, Steer::Pause, 8));
    }

    #[test]
    fn a_pause_keeps_the_canary_and_a_new_rate_begins_at_once() {
        let canary = Canary {
            count: 10,
            wait_ms: 60_000,
        };
        let mut redrive = redrive(Some(0.01), Some(canary));
        assert_eq!(run(&mut redrive, 0, 10), 1);
        assert!(steer(&mut redrive, Steer::Pause, 20));
        assert_eq!(next(&mut redrive, 0, 30), Next::Wait);
        assert!(steer(&mut redrive, Steer::Resume, 40));
        assert_eq!(redrive.state, RedriveState::Canary);
        assert!(steer(&mut redrive, Steer::Rate(Some(1_000.0)), 50));
        assert_eq!(next(&mut redrive, 0, 55), Next::Take(6));
    }
}
