//! The wait between a failure and the next attempt.

use crate::model::{Backoff, Jitter, MAX_DELAY_MS, Millis};

/// The wait after failure number `failures` (1-based).
///
/// `chance` in [0, 1) places the wait inside the jitter's range. Saturating: never negative, never above 7 days, whatever
/// the numbers.
pub fn wait(backoff: &Backoff, failures: i32, chance: f64) -> Millis {
    let failures = failures.max(1);
    let (full, jitter) = match backoff {
        Backoff::Exponential {
            base_ms,
            factor,
            max_ms,
            jitter,
        } => {
            let grown = *base_ms as f64 * factor.powi(failures - 1);
            let capped = if grown.is_finite() {
                grown.min(*max_ms as f64)
            } else {
                *max_ms as f64
            };
            (capped as Millis, *jitter)
        }
        Backoff::Fixed { base_ms, jitter } => (*base_ms, *jitter),
        Backoff::Schedule {
            schedule_ms,
            jitter,
        } => {
            let index = (failures as usize - 1).min(schedule_ms.len().saturating_sub(1));
            (schedule_ms.get(index).copied().unwrap_or(0), *jitter)
        }
    };
    let full = full.clamp(0, MAX_DELAY_MS);
    let spread = match jitter {
        Jitter::None => return full,
        Jitter::Equal => full - full / 2,
        Jitter::Full => full,
    };
    full - spread + (spread as f64 * chance.clamp(0.0, 1.0)).round() as Millis
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exponential_doubles_up_to_its_cap() {
        let backoff = Backoff::Exponential {
            base_ms: 2_000,
            factor: 2.0,
            max_ms: 900_000,
            jitter: Jitter::None,
        };
        let waits: Vec<Millis> = (1..=11).map(|n| wait(&backoff, n, 0.5)).collect();
        assert_eq!(waits[..4], [2_000, 4_000, 8_000, 16_000]);
        assert_eq!(waits[9..], [900_000, 900_000]);
    }

    #[test]
    fn a_schedule_repeats_its_last_wait() {
        let backoff = Backoff::Schedule {
            schedule_ms: vec![300_000, 3_600_000, 21_600_000],
            jitter: Jitter::None,
        };
        let waits: Vec<Millis> = (1..=5).map(|n| wait(&backoff, n, 0.0)).collect();
        assert_eq!(
            waits,
            [300_000, 3_600_000, 21_600_000, 21_600_000, 21_600_000]
        );
    }

    proptest! {
        #[test]
        fn a_wait_stays_inside_its_jitter_and_never_overflows(
            base in 0i64..=MAX_DELAY_MS, factor in 1.0f64..1e6, max in 0i64..=MAX_DELAY_MS, n in 1i32..=10_000, chance in 0.0f64..1.0
        ) {
            for jitter in [Jitter::None, Jitter::Equal, Jitter::Full] {
                let full = wait(&Backoff::Exponential { base_ms: base, factor, max_ms: max, jitter: Jitter::None }, n, 0.0);
                let got = wait(&Backoff::Exponential { base_ms: base, factor, max_ms: max, jitter }, n, chance);
                let low = match jitter { Jitter::None => full, Jitter::Equal => full / 2, Jitter::Full => 0 };
                prop_assert!(low <= got && got <= full, "{jitter:?}: {low} <= {got} <= {full}");
            }
        }
    }
}
