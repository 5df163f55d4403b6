//! The results as Markdown for people and as JSON Lines for [`crate::compare`].

use super::book::{
    Book, CLIENT_CPU_US, Entry, P50_MS, P99_MS, POSTGRES_CPU_US, PSS_MIB, REQUESTS_PER_SECOND,
    RSS_MIB, SERVER_CPU_US, number,
};
use super::bounds::Checked;
use super::machine::Machine;
use crate::Outcome;
use crate::stats::{Bound, Spread};
use serde_json::{Value, json};
use std::fmt::Write;

/// Figures that have a column of their own, and its heading.
const COLUMNS: [(&str, &str); 7] = [
    (REQUESTS_PER_SECOND, "requests/s"),
    (P50_MS, "p50 ms"),
    (P99_MS, "p99 ms"),
    (SERVER_CPU_US, "server µs"),
    (POSTGRES_CPU_US, "PostgreSQL µs"),
    (CLIENT_CPU_US, "client µs"),
    (RSS_MIB, "server MiB"),
];

/// The whole report in Markdown.
pub(super) fn markdown(machine: &Machine, book: &Book, checks: &[Checked]) -> Outcome<String> {
    let mut text = machine.markdown();
    text.push_str("\nMedians, and in brackets the smallest and the largest of the repetitions. µs are CPU per request.\n\n");
    text.push_str("| whose | row |");
    for (_, heading) in COLUMNS {
        write!(text, " {heading} |")?;
    }
    text.push_str(" also |\n|---|---|");
    text.push_str(&"---:|".repeat(COLUMNS.len()));
    text.push_str("---|\n");
    for entry in &book.entries {
        writeln!(text, "{}", row(entry))?;
    }
    text.push_str("\n| what must hold | whose | figure | bound | |\n|---|---|---:|---:|---|\n");
    for Checked { check, spread } in checks {
        let whose = check.store.map_or("bare", crate::fresh::Store::name);
        let kept = if check.bound.keeps(spread.median) {
            "pass"
        } else {
            "**FAIL**"
        };
        writeln!(
            text,
            "| {} | {whose} | {} | {} | {kept} |",
            check.name,
            short(spread),
            check.bound
        )?;
    }
    Ok(text)
}

fn row(entry: &Entry) -> String {
    let mut text = format!("| {} | {} |", entry.who.name(), entry.row);
    for (figure, _) in COLUMNS {
        // Of the rate the spread is shown, of the rest the medians: all of them are in the lines.
        let cell = entry.spread(figure).map_or_else(String::new, |spread| {
            if figure == REQUESTS_PER_SECOND {
                short(&spread)
            } else {
                number(spread.median)
            }
        });
        text = format!("{text} {cell} |");
    }
    let is_column =
        |name: &str| name == PSS_MIB || COLUMNS.iter().any(|(column, _)| *column == name);
    let more: Vec<String> = entry
        .figures
        .iter()
        .filter(|(name, _)| !is_column(name))
        .filter_map(|(name, values)| {
            Some(format!(
                "{} {}",
                name.replace('_', " "),
                short(&Spread::of(values)?)
            ))
        })
        .collect();
    format!("{text} {} |", more.join(", "))
}

fn short(spread: &Spread) -> String {
    if (spread.max - spread.min).abs() < f64::EPSILON {
        return number(spread.median);
    }
    format!(
        "{} ({}–{})",
        number(spread.median),
        number(spread.min),
        number(spread.max)
    )
}

/// One JSON object per line: the machine, each figure of each row, each check.
pub(super) fn lines(machine: &Machine, book: &Book, checks: &[Checked]) -> String {
    let mut lines = vec![json!({"kind": "machine", "machine": machine})];
    for entry in &book.entries {
        for (figure, values) in &entry.figures {
            lines.push(json!({
                "kind": "figure", "who": entry.who.name(), "row": entry.row, "figure": figure,
                "median": Spread::of(values).map(|spread| spread.median), "runs": values,
            }));
        }
    }
    for Checked { check, spread } in checks {
        let (at_least, at_most): (Option<f64>, Option<f64>) = match check.bound {
            Bound::AtLeast(least) => (Some(least), None),
            Bound::AtMost(most) => (None, Some(most)),
        };
        lines.push(json!({
            "kind": "check", "who": check.store.map_or("bare", crate::fresh::Store::name), "row": check.name, "figure": "check",
            "median": spread.median, "spread": spread, "at_least": at_least, "at_most": at_most,
            "pass": check.bound.keeps(spread.median),
        }));
    }
    let texts: Vec<String> = lines.iter().map(Value::to_string).collect();
    texts.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::book::Who;
    use super::*;
    use crate::fresh::Store;

    #[test]
    fn a_row_shows_its_spread_and_what_has_no_column() {
        let mut book = Book::default();
        for rate in [1000.0, 3000.0, 2000.0] {
            let figures = [
                (REQUESTS_PER_SECOND, rate),
                ("bytes_written_per_message", 7.0),
            ];
            book.note(Who::Quita(Store::Sqlite), "lifecycle", &figures);
        }
        let text = row(&book.entries[0]);
        assert!(
            text.starts_with("| sqlite | lifecycle | 2,000 (1,000–3,000) |"),
            "{text}"
        );
        assert!(text.ends_with("bytes written per message 7.00 |"), "{text}");
    }
}
