//! What the figures must reach. Ratios are within one run, so that the machine cancels out.

use super::book::{
    Book, CLIENT_CPU_US, CPU_PERCENT, MESSAGES_PER_SECOND, P50_MS, P99_MS, REQUESTS_PER_SECOND,
    RSS_MIB, WRITTEN, Who,
};
use crate::fresh::Store;
use crate::report::Verdict;
use crate::rows::CLIENT_FLOOR;
use crate::stats::{Bound, Spread};

/// A figure of a row.
type Place = (Who, &'static str, &'static str);

/// One thing that must hold.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) store: Option<Store>,
    of: Place,
    over: Option<Place>,
    pub(super) bound: Bound,
    /// When it fails, nothing was measured: the client or somebody else was in the way.
    proof: bool,
}

/// How a check came out.
pub(super) struct Checked {
    pub(super) check: Check,
    pub(super) spread: Spread,
}

impl Checked {
    pub(super) fn passes(&self) -> bool {
        self.check.bound.keeps(self.spread.median)
    }
}

/// All checks whose figures are in `book`.
pub(super) fn checked(book: &Book, stores: &[Store]) -> Vec<Checked> {
    let all = proofs()
        .into_iter()
        .chain(stores.iter().flat_map(|store| of_store(*store)));
    all.filter_map(|check| {
        let spread = Spread::of(&values(book, &check))?;
        Some(Checked { check, spread })
    })
    .collect()
}

/// The figure of each repetition, over the other figure of the same repetition.
fn values(book: &Book, check: &Check) -> Vec<f64> {
    let figures = |place: Place| book.values(place.0, place.1, place.2);
    let of = figures(check.of);
    match check.over.map(figures) {
        None => of.to_vec(),
        Some(over) => of.iter().zip(over).map(|(of, over)| of / over).collect(),
    }
}

pub(super) fn verdict(all: &[Checked]) -> Verdict {
    let missed = |proof| {
        all.iter()
            .any(|one| one.check.proof == proof && !one.passes())
    };
    if missed(true) {
        Verdict::Void
    } else if missed(false) {
        Verdict::Fail
    } else {
        Verdict::Pass
    }
}

fn proofs() -> Vec<Check> {
    let proof = |name, figure, bound| Check {
        name,
        store: None,
        of: (Who::Bare, "publish-256", figure),
        over: None,
        bound,
        proof: true,
    };
    vec![
        proof(
            "client CPU, µs per request at 256 connections",
            CLIENT_CPU_US,
            Bound::AtMost(10.0),
        ),
        proof(
            "bare handler, requests/s at 256 connections",
            REQUESTS_PER_SECOND,
            Bound::AtLeast(CLIENT_FLOOR),
        ),
    ]
}

fn of_store(store: Store) -> Vec<Check> {
    use Bound::{AtLeast, AtMost};
    let (quita, alone) = (Who::Quita(store), Who::Alone(store));
    // The bound on SQLite, then on PostgreSQL.
    let by = |sqlite, postgres| match store {
        Store::Sqlite => sqlite,
        Store::Postgres => postgres,
    };
    let check = |name, of: Place, over: Option<Place>, bound| Check {
        name,
        store: Some(store),
        of,
        over,
        bound,
        proof: false,
    };
    let rate = |name, row, bare, bound| {
        let over = (Who::Bare, bare, REQUESTS_PER_SECOND);
        check(name, (quita, row, REQUESTS_PER_SECOND), Some(over), bound)
    };
    let depth = |name, row| {
        let over = (quita, "depth-1k", REQUESTS_PER_SECOND);
        check(
            name,
            (quita, row, REQUESTS_PER_SECOND),
            Some(over),
            AtLeast(0.9),
        )
    };
    let figure = |name, row, figure, bound| check(name, (quita, row, figure), None, bound);
    let mut all = vec![
        rate(
            "publish at 256 / bare handler",
            "publish-256",
            "publish-256",
            AtLeast(by(0.50, 0.25)),
        ),
        rate(
            "publish at 64 / bare handler",
            "publish-64",
            "publish-64",
            AtLeast(by(0.35, 0.20)),
        ),
        rate(
            "lifecycle / bare handler at 64",
            "lifecycle",
            "publish-64",
            AtLeast(by(0.35, 0.20)),
        ),
        check(
            "publish at 1, p50 / one commit by itself",
            (quita, "publish-1", P50_MS),
            Some((alone, "commit", P50_MS)),
            AtMost(1.6),
        ),
        check(
            "batches of 100 / bulk insert of messages by itself",
            (quita, "batch-100", MESSAGES_PER_SECOND),
            Some((alone, "bulk-1000", MESSAGES_PER_SECOND)),
            AtLeast(0.5),
        ),
        check(
            "publish at 64, p99 / p50",
            (quita, "tail-64", P99_MS),
            Some((quita, "tail-64", P50_MS)),
            AtMost(by(4.0, 5.0)),
        ),
        figure(
            "1,000 waiting receives, % of a core",
            "waiting-1000",
            CPU_PERCENT,
            AtMost(by(2.0, 3.0)),
        ),
        figure("wake-up, p99 ms", "wake-up", P99_MS, AtMost(5.0)),
        depth("receive and ack at 1,000,000 / at 1,000", "depth-1m"),
        depth(
            "the same with 1,000,000 delayed / at 1,000",
            "depth-delayed",
        ),
        figure("memory at rest, MiB", "idle", RSS_MIB, AtMost(40.0)),
        figure(
            "memory at 1,000,000 waiting, MiB",
            "million",
            RSS_MIB,
            AtMost(by(250.0, 100.0)),
        ),
    ];
    if store == Store::Postgres {
        all.push(figure(
            "wake-up at another replica, p99 ms",
            "wake-up-replica",
            P99_MS,
            AtMost(60.0),
        ));
        all.push(figure(
            "WAL bytes per lifecycle",
            "lifecycle",
            WRITTEN,
            AtMost(2_600.0),
        ));
        all.push(check(
            "lifecycles beside an open snapshot, end / start",
            (quita, "snapshot-end", REQUESTS_PER_SECOND),
            Some((quita, "snapshot-start", REQUESTS_PER_SECOND)),
            AtLeast(0.8),
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQLITE: Who = Who::Quita(Store::Sqlite);

    fn book(bare: &[f64], quita: &[f64], client: f64) -> Book {
        let mut book = Book::default();
        for (bare, quita) in bare.iter().zip(quita) {
            let figures = [(REQUESTS_PER_SECOND, *bare), (CLIENT_CPU_US, client)];
            book.note(Who::Bare, "publish-256", &figures);
            book.note(SQLITE, "publish-256", &[(REQUESTS_PER_SECOND, *quita)]);
        }
        book
    }

    fn judged(bare: &[f64], quita: &[f64], client: f64) -> Verdict {
        verdict(&checked(&book(bare, quita, client), &[Store::Sqlite]))
    }

    #[test]
    fn ratios_are_of_one_repetition_each_and_their_median_counts() {
        // 0.6, 0.5 and 0.1.
        let rates = ([1e5, 2e5, 1e5], [6e4, 1e5, 1e4]);
        assert_eq!(judged(&rates.0, &rates.1, 8.0), Verdict::Pass);
        assert_eq!(judged(&[1e5], &[49_999.0], 8.0), Verdict::Fail);
    }

    #[test]
    fn a_client_that_costs_too_much_measures_nothing() {
        assert_eq!(judged(&[1e5], &[9e4], 10.1), Verdict::Void);
        assert_eq!(judged(&[7e4], &[1e4], 8.0), Verdict::Void);
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert_eq!(
            checked(&book(&[1e5], &[6e4], 8.0), &[Store::Sqlite]).len(),
            3
        );
    }
}
