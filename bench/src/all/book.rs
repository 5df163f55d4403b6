//! What was measured, in the order in which it was first measured.

use crate::fresh::Store;
use crate::load::Measured;
use crate::stats::{Spread, percentile_ms};
use serde::Serialize;

/// Whose figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    /// The bare handler.
    Bare,
    /// The store by itself, without the server.
    Alone(Store),
    Quita(Store),
}

impl Who {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Alone(Store::Sqlite) => "sqlite alone",
            Self::Alone(Store::Postgres) => "postgres alone",
            Self::Quita(store) => store.name(),
        }
    }
}

/// One figure of one measurement. The name says the unit.
pub(super) type Figure = (&'static str, f64);

pub(super) const REQUESTS_PER_SECOND: &str = "requests_per_second";
pub(super) const MESSAGES_PER_SECOND: &str = "messages_per_second";
pub(super) const MIB_PER_SECOND: &str = "mib_per_second";
pub(super) const P50_MS: &str = "p50_ms";
pub(super) const P99_MS: &str = "p99_ms";
pub(super) const SERVER_CPU_US: &str = "server_cpu_us_per_request";
pub(super) const POSTGRES_CPU_US: &str = "postgres_cpu_us_per_request";
pub(super) const CLIENT_CPU_US: &str = "client_cpu_us_per_request";
pub(super) const RSS_MIB: &str = "rss_mib";
pub(super) const PSS_MIB: &str = "pss_mib";
pub(super) const CPU_PERCENT: &str = "cpu_percent_of_a_core";
pub(super) const WRITTEN: &str = "bytes_written_per_message";
pub(super) const DISK: &str = "disk_bytes_per_message";

/// One row with the figures of each repetition.
pub(super) struct Entry {
    pub(super) who: Who,
    pub(super) row: &'static str,
    pub(super) figures: Vec<(&'static str, Vec<f64>)>,
}

impl Entry {
    /// A figure of each repetition; empty where there is none.
    pub(super) fn values(&self, figure: &str) -> &[f64] {
        let found = self.figures.iter().find(|(name, _)| *name == figure);
        found.map_or(&[], |(_, values)| values)
    }

    pub(super) fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.values(figure))
    }
}

/// All rows.
#[derive(Default)]
pub(super) struct Book {
    pub(super) entries: Vec<Entry>,
}

impl Book {
    /// Adds the figures of one repetition, and says so.
    pub(super) fn note(&mut self, who: Who, row: &'static str, figures: &[Figure]) {
        let text: Vec<String> = figures
            .iter()
            .map(|(name, value)| format!("{name} {}", number(*value)))
            .collect();
        eprintln!("{:<15}{row:<18}{}", who.name(), text.join(", "));
        let known = self
            .entries
            .iter()
            .position(|entry| entry.who == who && entry.row == row);
        let at = known.unwrap_or_else(|| {
            self.entries.push(Entry {
                who,
                row,
                figures: Vec::new(),
            });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[at];
        for (name, value) in figures {
            match entry.figures.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(*value),
                None => entry.figures.push((name, vec![*value])),
            }
        }
    }

    /// A figure of each repetition; empty where it was not measured.
    pub(super) fn values(&self, who: Who, row: &str, figure: &str) -> &[f64] {
        let found = self
            .entries
            .iter()
            .find(|entry| entry.who == who && entry.row == row);
        found.map_or(&[], |entry| entry.values(figure))
    }
}

/// Figures of a load, each per request; `more` are those that the row has besides.
pub(super) fn figures(measured: &Measured, has_postgres: bool, more: &[Figure]) -> Vec<Figure> {
    let requests = measured.requests.max(1) as f64;
    let spent = &measured.spent;
    let mut figures = vec![
        (
            REQUESTS_PER_SECOND,
            measured.requests as f64 / measured.seconds,
        ),
        (P50_MS, percentile_ms(&measured.latencies, 0.50)),
        (P99_MS, percentile_ms(&measured.latencies, 0.99)),
        (SERVER_CPU_US, spent.server * 1e6 / requests),
        (CLIENT_CPU_US, spent.client * 1e6 / requests),
    ];
    if has_postgres {
        figures.push((POSTGRES_CPU_US, spent.postgres * 1e6 / requests));
    }
    figures.extend_from_slice(more);
    figures
}

/// A number as people write it: three digits that matter, and none after the point from a hundred on.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let Some((sign_and_whole, fraction)) = text.split_once('.').or(Some((&text, ""))) else {
        return text;
    };
    let mut grouped = String::new();
    for (at, digit) in sign_and_whole.chars().enumerate() {
        let left = sign_and_whole.len() - at;
        if at > 0 && left % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() {
        grouped
    } else {
        format!("{grouped}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_of_a_row_are_kept_together() {
        let mut book = Book::default();
        let sqlite = Who::Quita(Store::Sqlite);
        for value in [1.0, 2.0] {
            book.note(sqlite, "idle", &[(RSS_MIB, value)]);
            book.note(Who::Bare, "idle", &[(RSS_MIB, 9.0)]);
        }
        assert_eq!(book.values(sqlite, "idle", RSS_MIB), [1.0, 2.0]);
        assert!(book.values(sqlite, "idle", PSS_MIB).is_empty());
        assert_eq!(book.entries.len(), 2);
    }

    #[test]
    fn numbers_are_short_and_grouped() {
        let cases = [
            (1_234_567.8, "1,234,568"),
            (100.0, "100"),
            (99.94, "99.9"),
            (1.234, "1.23"),
            (0.0456, "0.046"),
            (-1234.0, "-1,234"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
