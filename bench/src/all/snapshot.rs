//! A transaction that somebody forgot: while its snapshot is open, PostgreSQL removes no dead row that it could still see.

use super::book::{Book, Figure, MESSAGES_PER_SECOND, Who};
use super::requests::lifecycle;
use crate::Outcome;
use crate::fresh::Fresh;
use sqlx::{Connection, PgConnection};
use std::time::Duration;

/// Length of one stretch whose rate is taken.
const STRETCH: Duration = Duration::from_secs(5);

/// Runs lifecycles until `count` messages have passed beside an open snapshot, for two stretches at least, and notes the first and the last stretch.
pub(super) async fn run(fresh: &Fresh, count: u64, book: &mut Book) -> Outcome<()> {
    let mut sql =
        PgConnection::connect(fresh.url().ok_or("only PostgreSQL has snapshots")?).await?;
    let pin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue";
    sqlx::raw_sql(pin).execute(&mut sql).await?;
    let who = Who::Quita(fresh.store);
    let mut passed = 0.0;
    let mut stretch = 0;
    loop {
        let figures = lifecycle(fresh, &format!("snapshot-{stretch}"), STRETCH).await?;
        passed += value(&figures, MESSAGES_PER_SECOND)? * STRETCH.as_secs_f64();
        if stretch == 0 {
            book.note(who, "snapshot-start", &figures);
        } else if passed >= count as f64 {
            book.note(who, "snapshot-end", &figures);
            break;
        }
        stretch += 1;
    }
    book.note(who, "snapshot", &[("lifecycles", passed)]);
    sqlx::raw_sql("ROLLBACK").execute(&mut sql).await?;
    Ok(sql.close().await?)
}

fn value(figures: &[Figure], name: &str) -> Outcome<f64> {
    let found = figures.iter().find(|(known, _)| *known == name);
    Ok(found.ok_or_else(|| format!("no {name}"))?.1)
}
