//! The arithmetic of repeated measurements.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How several measurements of one thing lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            min: *sorted.first()?,
            lower: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper: quantile(&sorted, 0.75),
            max: *sorted.last()?,
        })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "median {:.3} (min {:.3}, quartiles {:.3} and {:.3}, max {:.3})",
            self.median, self.min, self.lower, self.upper, self.max
        )
    }
}

/// The middle one; of an even number, the mean of the two in the middle; of none, 0.
pub(crate) fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// Linear between neighbours, as most tables have it (type 7 of Hyndman and Fan).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() - 1) as f64 * share;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (at - at.floor())
}

/// The value that so large a share does not exceed, of sorted microseconds, in milliseconds; of none, 0.
pub(crate) fn percentile_ms(sorted_us: &[u32], share: f64) -> f64 {
    let at = (sorted_us.len().saturating_sub(1) as f64 * share) as usize;
    sorted_us.get(at).map_or(0.0, |us| f64::from(*us) / 1000.0)
}

/// What something must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn keeps(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_knows_its_middle_and_its_quarters() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0, 5.0]).unwrap();
        let all = [
            spread.min,
            spread.lower,
            spread.median,
            spread.upper,
            spread.max,
        ];
        assert_eq!(all.map(|value| (value * 10.0) as i64), [10, 20, 30, 40, 50]);
        let even = Spread::of(&[1.0, 2.0, 4.0, 8.0]).unwrap();
        assert_eq!((even.median * 10.0) as i64, 30);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let us: Vec<u32> = (1..=100).map(|ms| ms * 1000).collect();
        assert_eq!(percentile_ms(&us, 0.5) as i64, 50);
        assert_eq!(percentile_ms(&us, 0.99) as i64, 99);
        assert_eq!(percentile_ms(&us, 1.0) as i64, 100);
        assert_eq!(percentile_ms(&[], 0.5) as i64, 0);
    }

    #[test]
    fn a_bound_holds_at_its_edge() {
        assert!(Bound::AtMost(1.08).keeps(1.08) && !Bound::AtMost(1.08).keeps(1.081));
        assert!(Bound::AtLeast(0.5).keeps(0.5) && !Bound::AtLeast(0.5).keeps(0.499));
    }
}
