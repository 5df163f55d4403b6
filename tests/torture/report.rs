//! What is printed about a history: what was done, a verdict per promise, why messages came twice, and one last line.

use crate::check::facts::Facts;
use crate::check::verdict::Verdict;
use crate::check::{Judgement, PROMISES, facts, judge};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};
use std::io;
use std::path::Path;

/// A judged history, ready to be printed.
pub(crate) struct Report {
    facts: Facts,
    judgement: Judgement,
}

impl Report {
    /// Of the history in this file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let facts = facts::gather::read(path)?;
        let judgement = judge(&facts);
        Ok(Self { facts, judgement })
    }

    /// Whether every promise that could be judged was kept.
    pub(crate) fn holds(&self) -> bool {
        self.judgement.holds()
    }

    /// Whether a fault happened; a machine may lack what all of them need.
    pub(crate) fn had_faults(&self) -> bool {
        let mut faults = self.facts.faults.iter();
        faults.any(|fault| !fault.skipped && fault.kind != "clock_offset")
    }

    /// Messages that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.judgement.broken(1)
    }

    /// Numbers of the promises that were broken.
    pub(crate) fn broken_promises(&self) -> Vec<u8> {
        let all = 1..=PROMISES.len() as u8;
        all.filter(|n| self.judgement.broken(*n) > 0).collect()
    }

    /// The first complaint about each broken promise.
    pub(crate) fn complaints(&self) -> String {
        let mut text = String::new();
        for (number, verdict) in (1..).zip(&self.judgement.verdicts) {
            if let Verdict::Broken {
                broken, examples, ..
            } = verdict
            {
                let first = examples.first().map_or("", String::as_str);
                let _ = writeln!(text, "  {number:>2} {broken:>5} times, first: {first}");
            }
        }
        text
    }

    fn operations(&self) -> String {
        let counts = &self.facts.counts;
        let mut text = String::new();
        for (kind, [ok, fail, info]) in counts {
            let name = format!("{kind:?}");
            let _ = writeln!(
                text,
                "  {name:<14}{ok:>9} ok {fail:>8} refused {info:>7} unknown"
            );
        }
        text
    }

    fn faults(&self) -> String {
        let mut kinds: BTreeMap<&str, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
        for fault in &self.facts.faults {
            let (happened, skipped) = kinds.entry(&fault.kind).or_default();
            if fault.skipped {
                *skipped.entry(&fault.detail).or_default() += 1;
            } else {
                *happened += 1;
            }
        }
        let mut text = String::new();
        for (kind, (happened, skipped)) in kinds {
            let _ = write!(text, "  {kind:<24}{happened:>5}");
            for (why, times) in skipped {
                let _ = write!(text, "  {times} SKIPPED ({why})");
            }
            text.push('\n');
        }
        text
    }

    fn verdicts(&self) -> String {
        let mut text = String::new();
        for ((number, promise), verdict) in (1..).zip(PROMISES).zip(&self.judgement.verdicts) {
            let _ = match verdict {
                Verdict::Holds { checked } => {
                    writeln!(text, "  {number:>2} {promise:<44} holds      {checked}")
                }
                Verdict::NotCovered(why) => {
                    writeln!(text, "  {number:>2} {promise:<44} NOT COVERED ({why})")
                }
                Verdict::Broken {
                    checked,
                    broken,
                    examples,
                } => {
                    let _ = writeln!(
                        text,
                        "  {number:>2} {promise:<44} BROKEN     {broken} of {checked}"
                    );
                    examples
                        .iter()
                        .try_for_each(|e| writeln!(text, "       {e}"))
                }
            };
        }
        text
    }

    fn duplicates(&self) -> String {
        let deliveries = self.facts.deliveries.len();
        let mut text = String::new();
        for (cause, times) in &self.judgement.duplicates {
            let share = *times as f64 * 100.0 / deliveries.max(1) as f64;
            let _ = writeln!(text, "  {cause:<32}{times:>8} {share:>6.2} %");
        }
        text
    }

    fn used(&self) -> String {
        let mut text = String::new();
        for (replica, most) in &self.facts.used {
            let mib = |bytes: u64| bytes >> 20;
            let _ = writeln!(
                text,
                "  server {replica}: at most {} MiB of memory, {} files, {} MiB of log, {} MiB of database",
                most.rss_kib >> 10,
                most.fds,
                mib(most.wal_bytes),
                mib(most.db_bytes)
            );
        }
        text
    }

    /// What the figures of the last line leave out as well.
    fn broken(&self) -> String {
        let all = self.broken_promises();
        let numbers: Vec<String> = all.iter().map(u8::to_string).collect();
        match numbers[..] {
            [] => "every promise that could be judged holds".to_owned(),
            _ => format!("BROKEN: {}", numbers.join(", ")),
        }
    }

    /// The figures that have to be 0, in one line.
    fn last_line(&self) -> String {
        let j = &self.judgement;
        let faults = self.facts.faults.iter().filter(|f| !f.skipped).count();
        format!(
            "torture: seed {} · {} operations · {faults} faults · lost {} · unexpected {} · overlapping leases {} · \
             superseded effects {} · unexplained duplicates {} · dedupe violations {} · conservation {} · counts {} · \
             5xx outside faults {} · panics {}",
            self.facts.header.seed,
            self.facts.operations(),
            j.broken(1),
            j.broken(2) + j.broken(3) + j.broken(5),
            j.broken(7),
            j.broken(8),
            j.broken(22),
            j.broken(4),
            j.broken(20),
            j.broken(21),
            j.unwell.0,
            j.unwell.1
        )
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = &self.facts.header;
        writeln!(
            f,
            "seed {}, {}, {} servers, {} minutes, {}, begun {}",
            header.seed,
            header.store,
            header.replicas,
            header.minutes,
            header.version,
            header.started
        )?;
        writeln!(f, "history {}", self.facts.sha256)?;
        writeln!(f, "operations\n{}", self.operations())?;
        writeln!(f, "faults\n{}", self.faults())?;
        writeln!(f, "used\n{}", self.used())?;
        writeln!(
            f,
            "deliveries {}, of them again\n{}",
            self.facts.deliveries.len(),
            self.duplicates()
        )?;
        writeln!(f, "promises\n{}", self.verdicts())?;
        writeln!(f, "{}", self.broken())?;
        writeln!(f, "{}", self.last_line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, Fault, Happened, Header, History};

    fn report(events: &[Happened]) -> Report {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let header = Header {
            seed: 7,
            store: "sqlite".into(),
            ..Header::default()
        };
        let history = History::create(&path, header).unwrap();
        history.fault(Fault {
            kind: "clock".into(),
            detail: "no faketime".into(),
            skipped: true,
            ..Fault::default()
        });
        for kind in events {
            history.event(Event {
                kind: *kind,
                ..Event::default()
            });
        }
        history.finish().unwrap();
        Report::of(&path).unwrap()
    }

    #[test]
    fn the_last_line_has_the_figures_and_a_missing_tool_is_told() {
        let text = report(&[Happened::LogRead]).to_string();
        assert!(text.contains("1 SKIPPED (no faketime)"), "{text}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("torture: seed 7 · 0 operations · 0 faults · lost 0"));
        assert!(last.ends_with("5xx outside faults 0 · panics 0"), "{last}");
    }

    #[test]
    fn one_broken_promise_is_enough() {
        assert!(report(&[Happened::LogRead]).holds());
        let broken = report(&[Happened::Panicked]);
        assert!(!broken.holds());
        assert!(broken.to_string().contains("BROKEN: 29\n"));
        assert!(
            broken
                .to_string()
                .lines()
                .last()
                .unwrap()
                .ends_with("panics 1")
        );
    }

    #[test]
    fn a_file_without_a_header_is_no_history() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        std::fs::write(&path, "").unwrap();
        assert!(Report::of(&path).is_err());
    }
}
