//! What is measured, and what each figure must reach.

use crate::fresh::Store;

/// Connections at which the bare handler must reach [`CLIENT_FLOOR`].
pub(crate) const PROOF_CONNECTIONS: usize = 256;

/// Requests per second of the bare handler below which a run measured the client, not the server.
pub(crate) const CLIENT_FLOOR: f64 = 80_000.0;

/// Whose figure a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The bare axum handler.
    Bare,
    /// quita on a store of its own.
    Quita(Store),
}

const SQLITE: Subject = Subject::Quita(Store::Sqlite);
const POSTGRES: Subject = Subject::Quita(Store::Postgres);

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One message per request over so many connections; for the bare handler, the request alone.
    Publish(usize),
    /// Publish, receive and ack: 64 producers, 64 consumers.
    Lifecycle,
    /// Nothing: the memory of a server that waits.
    Idle,
}

/// What a row must reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Requests per second, as a share of the bare handler's.
    Ratio(f64),
    /// Resident memory in MiB.
    Memory(f64),
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) subject: Subject,
    pub(crate) work: Work,
    pub(crate) bound: Option<Bound>,
}

impl Row {
    /// The connection count of the bare handler's row that this one is compared with.
    pub(crate) fn compared_at(&self) -> Option<usize> {
        match self.work {
            Work::Publish(connections) => Some(connections),
            Work::Lifecycle => Some(64),
            Work::Idle => None,
        }
    }
}

/// All rows in the order of a repetition: what is compared runs close together.
pub(crate) const ROWS: [Row; 12] = {
    use Bound::{Memory, Ratio};
    use Subject::Bare;
    use Work::{Idle, Lifecycle, Publish};
    const fn row(name: &'static str, subject: Subject, work: Work, bound: Option<Bound>) -> Row {
        Row {
            name,
            subject,
            work,
            bound,
        }
    }
    [
        row("sqlite-idle", SQLITE, Idle, Some(Memory(40.0))),
        row("bare-1", Bare, Publish(1), None),
        row("sqlite-publish-1", SQLITE, Publish(1), None),
        row("postgres-publish-1", POSTGRES, Publish(1), None),
        row("sqlite-lifecycle", SQLITE, Lifecycle, Some(Ratio(0.22))),
        row("postgres-lifecycle", POSTGRES, Lifecycle, Some(Ratio(0.12))),
        row("bare-64", Bare, Publish(64), None),
        row("sqlite-publish-64", SQLITE, Publish(64), None),
        row("postgres-publish-64", POSTGRES, Publish(64), None),
        row(
            "sqlite-publish-256",
            SQLITE,
            Publish(256),
            Some(Ratio(0.33)),
        ),
        row("bare-256", Bare, Publish(PROOF_CONNECTIONS), None),
        row(
            "postgres-publish-256",
            POSTGRES,
            Publish(256),
            Some(Ratio(0.20)),
        ),
    ]
};

/// The rows of these stores that `wanted` leaves, and every row of the bare handler that they are compared with. The bare
/// handler at [`PROOF_CONNECTIONS`] always runs: without it nobody knows what was measured.
pub(crate) fn chosen(stores: &[Store], wanted: &[String]) -> Vec<Row> {
    let asked = |row: &Row| {
        (match row.subject {
            Subject::Bare => true,
            Subject::Quita(store) => stores.contains(&store),
        }) && (wanted.is_empty() || wanted.iter().any(|part| row.name.contains(part.as_str())))
    };
    let compared: Vec<usize> = ROWS
        .iter()
        .filter(|row| asked(row))
        .filter_map(Row::compared_at)
        .collect();
    let needed = |row: &Row| match row.work {
        Work::Publish(n) if row.subject == Subject::Bare => {
            n == PROOF_CONNECTIONS || compared.contains(&n)
        }
        _ => false,
    };
    ROWS.into_iter()
        .filter(|row| asked(row) || needed(row))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_row_brings_what_it_is_compared_with() {
        let names = |rows: Vec<Row>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(
            names(chosen(&[Store::Sqlite], &["lifecycle".to_owned()])),
            ["sqlite-lifecycle", "bare-64", "bare-256"]
        );
        assert_eq!(chosen(&Store::ALL, &[]).len(), ROWS.len());
    }
}
