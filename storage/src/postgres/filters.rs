//! What a [`DeadFilter`] is in SQL: which index leads, and what is asked of each row.
//!
//! All statements with a filter take the same parameters in the same places: 1 queues, 2 to 5 the open interval of places
//! (time of death, message), 6 a limit, 7 to 18 the filter; what a statement needs beyond that comes after. The index that
//! leads is part of the text, so there are as many texts as indexes, and none has a value in it.

use super::rows::text;
use crate::dead_letters::{DeadFilter, KeyFilter};
use crate::model::{Millis, Reason};
use sqlx::Postgres as Driver;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

/// The filter as a condition on `dead d`.
macro_rules! asked {
    () => {
        "coalesce(($7::smallint IS NULL OR d.reason = $7::smallint) AND ($8::text IS NULL OR d.error_code = $8::text)
        AND ($9::bigint IS NULL OR d.group_id = $9::bigint)
        AND ($10::bytea IS NULL OR d.key >= $10::bytea) AND ($11::bytea IS NULL OR d.key < $11::bytea)
        AND ($12::bigint IS NULL OR d.published_at >= $12::bigint) AND ($13::bigint IS NULL OR d.published_at < $13::bigint)
        AND ($14::int IS NULL OR d.attempts >= $14::int) AND ($15::int IS NULL OR d.attempts <= $15::int)
        AND ($16::int IS NULL OR d.redrives >= $16::int) AND ($17::int IS NULL OR d.redrives <= $17::int)
        AND ($18::boolean IS NULL OR d.edited = $18::boolean), false)"
    };
}
pub(super) use asked;

/// The interval of places as a condition on `dead d`; `$at` is the time of death as the leading index has it.
macro_rules! between {
    ($at:literal) => {
        concat!(
            "(",
            $at,
            ", d.seq) > ($2::bigint, $3::bigint) AND (",
            $at,
            ", d.seq) < ($4::bigint, $5::bigint)"
        )
    };
}
pub(super) use between;

/// One text per leading index, in the order of [`Lead`]: calls `$sql` with a name, a condition and the time of death.
macro_rules! by_lead {
    ($sql:ident $(, $more:literal)*) => {
        [
            $sql!("in order", "", "d.died_at" $(, $more)*),
            $sql!("by reason", " AND d.reason = $7::smallint", "d.died_at + 0" $(, $more)*),
            $sql!("by code", " AND d.error_code = $8::text", "d.died_at + 0" $(, $more)*),
            $sql!("by group", " AND d.group_id = $9::bigint", "d.died_at + 0" $(, $more)*),
            $sql!("by key", " AND d.key = $10::bytea", "d.died_at + 0" $(, $more)*),
        ]
    };
}
pub(super) use by_lead;

/// The index that a search begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    Order,
    Reason,
    Code,
    Group,
    Key,
}

impl Lead {
    /// The one that leaves least to look at.
    pub(super) fn of(filter: &DeadFilter) -> Self {
        if matches!(filter.key, Some(KeyFilter::Exactly(_))) {
            Self::Key
        } else if filter.group.is_some() {
            Self::Group
        } else if filter.error_code.is_some() {
            Self::Code
        } else if filter.reason.is_some() {
            Self::Reason
        } else {
            Self::Order
        }
    }

    /// Whether the index answers the whole filter.
    pub(super) fn is_all(self, filter: &DeadFilter) -> bool {
        let mut rest = filter.clone();
        rest.died = crate::dead_letters::Span::default();
        match self {
            Self::Order => {}
            Self::Reason => rest.reason = None,
            Self::Code => rest.error_code = None,
            Self::Group => rest.group = None,
            Self::Key => rest.key = None,
        }
        rest == DeadFilter::default()
    }

    /// Its text of those that [`by_lead`] makes.
    pub(super) fn pick(self, texts: &[&'static str; 5]) -> &'static str {
        texts[self as usize]
    }
}

/// A place in the order of deaths: time and message.
pub(super) type Place = (Millis, i64);

/// Places between two others, without these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    pub(super) above: Place,
    pub(super) below: Place,
}

impl Between {
    /// Where the filter's span of deaths is.
    pub(super) fn of(filter: &DeadFilter) -> Self {
        let span = &filter.died;
        Self {
            above: span.from.map_or((i64::MIN, i64::MIN), |from| {
                (from.saturating_sub(1), i64::MAX)
            }),
            below: span
                .until
                .map_or((i64::MAX, i64::MAX), |until| (until, i64::MIN)),
        }
    }

    /// What is left of it behind a place, in the direction of a listing.
    pub(super) fn behind(mut self, place: Option<Place>, newest_first: bool) -> Self {
        match place {
            Some(place) if newest_first => self.below = self.below.min(place),
            Some(place) => self.above = self.above.max(place),
            None => {}
        }
        self
    }
}

/// The keys of a filter as an interval: from, and before.
fn keys(filter: &DeadFilter) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    match &filter.key {
        None => (None, None),
        Some(KeyFilter::Exactly(key)) => {
            let next = [key.as_bytes(), &[0]].concat();
            (Some(key.clone().into_bytes()), Some(next))
        }
        Some(KeyFilter::Prefix(prefix)) => {
            // A byte of UTF-8 is never the largest one.
            let mut next = prefix.clone().into_bytes();
            if let Some(last) = next.last_mut() {
                *last += 1;
            }
            (Some(prefix.clone().into_bytes()), Some(next))
        }
    }
}

/// Binds the parameters 1 to 18.
pub(super) fn bind<'q>(
    query: Query<'q, Driver, PgArguments>,
    uids: &[i32],
    between: Between,
    limit: i64,
    filter: &DeadFilter,
) -> Query<'q, Driver, PgArguments> {
    let (from, before) = keys(filter);
    query
        .bind(uids.to_vec())
        .bind(between.above.0)
        .bind(between.above.1)
        .bind(between.below.0)
        .bind(between.below.1)
        .bind(limit)
        .bind(filter.reason.map(Reason::code))
        .bind(filter.error_code.as_deref().map(|c| text(c).into_owned()))
        .bind(filter.group)
        .bind(from)
        .bind(before)
        .bind(filter.published.from)
        .bind(filter.published.until)
        .bind(filter.attempts.min)
        .bind(filter.attempts.max)
        .bind(filter.redrives.min)
        .bind(filter.redrives.max)
        .bind(filter.edited)
}
