//! A walk over the dead letters of one queue in the order of their deaths: by the index that fits the filter best; what that
//! leaves open is answered row by row, so that whoever walks can bound how many rows it looks at.

use super::rows::failed;
use crate::dead_letters::{DeadFilter, KeyFilter, SelectionId, Span};
use crate::error::Result;
use crate::model::Millis;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use std::ops::ControlFlow;

/// Dead letters with a key prefix that are sorted; more of them are walked over in their order.
const FEW: u32 = 5_000;

/// A dead letter's place in the order: when it died, and its number.
pub(super) type Spot = (Millis, i64);

/// What is walked over.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    /// The incarnation of the dead letters.
    pub(super) dead_id: i64,
    pub(super) filter: &'a DeadFilter,
    /// Only those that are in this selection, as far as their time of writing says.
    pub(super) selection: Option<SelectionId>,
    /// Begin behind this one, in the direction of the walk.
    pub(super) after: Option<Spot>,
    pub(super) newest_first: bool,
}

/// Conditions with their values.
#[derive(Default)]
struct Terms {
    text: Vec<&'static str>,
    values: Vec<Value>,
}

impl Terms {
    fn add(&mut self, text: &'static str, values: impl IntoIterator<Item = Value>) {
        self.text.push(text);
        self.values.extend(values);
    }

    fn joined(&self) -> String {
        self.text.join(" AND ")
    }
}

impl<'a> Walk<'a> {
    /// A walk over everything that the filter means, oldest first.
    pub(super) fn all(dead_id: i64, filter: &'a DeadFilter) -> Self {
        Self {
            dead_id,
            filter,
            selection: None,
            after: None,
            newest_first: false,
        }
    }

    /// Looks at no more than `look` rows and shows each of them with whether the filter means it, until `visit` breaks. The
    /// columns of `dead d` named in `more` stand in the row from index 3. Answers how many rows were looked at; fewer than
    /// `look` and no break: that was the end.
    pub(super) fn run(
        &self,
        sql: &Connection,
        more: &str,
        look: u32,
        mut visit: impl FnMut(Spot, bool, &Row<'_>) -> rusqlite::Result<ControlFlow<()>>,
    ) -> Result<u32> {
        let (index, by, fits) = self.terms();
        let (order, text) = (if self.newest_first { " DESC" } else { "" }, fits.joined());
        let fits_text = if text.is_empty() { "1" } else { &text };
        let text = format!(
            "-- walk over dead letters\nSELECT d.died_at, d.seq, {fits_text}{more} FROM dead d{index}
             WHERE {} ORDER BY d.died_at{order}, d.seq{order} LIMIT ?",
            by.joined()
        );
        let values = fits.values.into_iter().chain(by.values);
        let values = values.chain([Value::Integer(i64::from(look))]);
        let mut statement = sql.prepare_cached(&text).map_err(failed)?;
        let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
        let mut looked = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            looked += 1;
            let fits = row.get::<_, Option<bool>>(2);
            let seen =
                fits.and_then(|fits| visit((row.get(0)?, row.get(1)?), fits.unwrap_or(false), row));
            if seen.map_err(failed)?.is_break() {
                break;
            }
        }
        Ok(looked)
    }

    /// The index to go by, what it answers, and what is left to look at.
    fn terms(&self) -> (&'static str, Terms, Terms) {
        let filter = self.filter;
        let (mut by, mut fits) = (Terms::default(), Terms::default());
        by.add("d.queue_id = ?", [Value::Integer(self.dead_id)]);
        let mut index = "";
        let mut equal = |name: &'static str, text, value: Option<Value>| {
            let Some(value) = value else { return };
            if index.is_empty() {
                index = name;
                by.add(text, [value]);
            } else {
                fits.add(text, [value]);
            }
        };
        let key = match &filter.key {
            Some(KeyFilter::Exactly(key)) => Some(Value::Text(key.clone())),
            _ => None,
        };
        // The one that leaves fewest rows first.
        equal(" INDEXED BY dead_key", "d.key = ?", key);
        equal(
            " INDEXED BY dead_group",
            "d.group_id = ?",
            filter.group.map(Value::Integer),
        );
        equal(
            " INDEXED BY dead_code",
            "d.error_code = ?",
            filter.error_code.clone().map(Value::Text),
        );
        equal(
            " INDEXED BY dead_reason",
            "d.reason = ?",
            filter.reason.map(|r| Value::Integer(r.code().into())),
        );
        self.bounds(&mut by);
        self.rest(&mut fits);
        (index, by, fits)
    }

    /// Where the walk begins and ends.
    fn bounds(&self, by: &mut Terms) {
        let Span { from, until } = self.filter.died;
        let spot = |(at, seq): Spot| [Value::Integer(at), Value::Integer(seq)];
        // Nothing has the lowest number of all: this is just below all that died at that time.
        let below = |at: Millis| (at, i64::MIN);
        if self.newest_first {
            let end = until.map_or((i64::MAX, i64::MAX), below);
            let start = self.after.map_or(end, |after| after.min(end));
            by.add("(d.died_at, d.seq) < (?, ?)", spot(start));
            if let Some(from) = from {
                by.add("d.died_at >= ?", [Value::Integer(from)]);
            }
        } else {
            let begin = below(from.unwrap_or(i64::MIN));
            let start = self.after.map_or(begin, |after| after.max(begin));
            by.add("(d.died_at, d.seq) > (?, ?)", spot(start));
            if let Some(until) = until {
                by.add("d.died_at < ?", [Value::Integer(until)]);
            }
        }
    }

    /// Everything that no index answers.
    fn rest(&self, fits: &mut Terms) {
        let filter = self.filter;
        if let Some(KeyFilter::Prefix(prefix)) = &filter.key {
            let (from, until) = prefix_range(prefix);
            fits.add("d.key >= ?", [from]);
            if let Some(until) = until {
                fits.add("d.key < ?", [until]);
            }
        }
        let numbers = [
            ("d.published_at >= ?", filter.published.from),
            ("d.published_at < ?", filter.published.until),
            ("d.attempts >= ?", filter.attempts.min.map(i64::from)),
            ("d.attempts <= ?", filter.attempts.max.map(i64::from)),
            ("d.redrives >= ?", filter.redrives.min.map(i64::from)),
            ("d.redrives <= ?", filter.redrives.max.map(i64::from)),
            ("d.edited = ?", filter.edited.map(i64::from)),
            ("d.generation < ?", self.selection.map(|s| s.0)),
        ];
        for (text, number) in numbers {
            if let Some(number) = number {
                fits.add(text, [Value::Integer(number)]);
            }
        }
    }

    /// What a filter with a key prefix means, in order, when few enough have such a key: then no other row need be looked at.
    /// Groups, codes and keys that are asked for exactly are few by themselves.
    pub(super) fn few(&self, sql: &Connection) -> Result<Option<Vec<Spot>>> {
        let filter = self.filter;
        let Some(KeyFilter::Prefix(prefix)) = &filter.key else {
            return Ok(None);
        };
        let (from, until) = prefix_range(prefix);
        let mut keys = Terms::default();
        keys.add(
            "d.queue_id = ? AND d.key >= ?",
            [Value::Integer(self.dead_id), from],
        );
        if let Some(until) = until {
            keys.add("d.key < ?", [until]);
        }
        let text = format!(
            "-- are there many dead letters with a key prefix\nSELECT 1 FROM dead d INDEXED BY dead_key
             WHERE {} LIMIT 1 OFFSET {FEW}",
            keys.joined()
        );
        let many = sql
            .prepare_cached(&text)
            .and_then(|mut s| {
                s.query_row(params_from_iter(&keys.values), |_| Ok(()))
                    .optional()
            })
            .map_err(failed)?;
        if many.is_some() {
            return Ok(None);
        }
        for (text, value) in [
            ("d.group_id = ?", filter.group.map(Value::Integer)),
            (
                "d.error_code = ?",
                filter.error_code.clone().map(Value::Text),
            ),
            (
                "d.reason = ?",
                filter.reason.map(|r| Value::Integer(r.code().into())),
            ),
        ] {
            if let Some(value) = value {
                keys.add(text, [value]);
            }
        }
        self.bounds(&mut keys);
        self.rest(&mut keys);
        let order = if self.newest_first { " DESC" } else { "" };
        let text = format!(
            "-- dead letters with a key prefix\nSELECT d.died_at, d.seq FROM dead d INDEXED BY dead_key WHERE {}
             ORDER BY d.died_at{order}, d.seq{order}",
            keys.joined()
        );
        let mut statement = sql.prepare_cached(&text).map_err(failed)?;
        let spots = statement.query_map(params_from_iter(&keys.values), |r| {
            Ok((r.get(0)?, r.get(1)?))
        });
        let spots: rusqlite::Result<Vec<Spot>> = spots.and_then(Iterator::collect);
        spots.map(Some).map_err(failed)
    }
}

/// The keys that begin so: from the prefix itself to the next text that does not. SQLite compares bytes, and the order of
/// UTF-8 is that of its characters.
fn prefix_range(prefix: &str) -> (Value, Option<Value>) {
    let mut until = prefix.to_owned();
    let until = loop {
        match until.pop() {
            None => break None,
            Some(char::MAX) => {}
            Some(last) => {
                let next = (u32::from(last) + 1..).find_map(char::from_u32);
                until.extend(next);
                break Some(Value::Text(until));
            }
        }
    };
    (Value::Text(prefix.to_owned()), until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        let until = |prefix| prefix_range(prefix).1;
        let text = |text: &str| Some(Value::Text(text.into()));
        assert_eq!(until("cob-"), text("cob."));
        assert_eq!(until("a\u{10ffff}"), text("b"));
        assert_eq!(until("\u{d7ff}"), text("\u{e000}"));
        assert_eq!(until("\u{10ffff}\u{10ffff}"), None);
    }
}
