//! Medians, the table, one JSON line per row, and the verdict.

use crate::Outcome;
use crate::fresh::Store;
use crate::load::Measured;
use crate::rows::{Bound, CLIENT_FLOOR, PROOF_CONNECTIONS, Row, Subject, Work};
use crate::stats::{self, percentile_ms};
use serde::Serialize;
use std::fmt;

/// Figures of one row in one repetition, or their medians. What a row does not have is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) server_cpu_us: f64,
    pub(crate) postgres_cpu_us: f64,
    pub(crate) client_cpu_us: f64,
    pub(crate) rss_mib: f64,
    pub(crate) pss_mib: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rss_mib > 0.0 {
            write!(
                f,
                "RSS {:.1} MiB, PSS {:.1} MiB",
                self.rss_mib, self.pss_mib
            )
        } else {
            write!(f, "{:.0} requests/s", self.requests_per_second)
        }
    }
}

impl From<Measured> for Figures {
    fn from(measured: Measured) -> Self {
        let requests = measured.requests.max(1) as f64;
        Self {
            requests_per_second: measured.requests as f64 / measured.seconds,
            p50_ms: percentile_ms(&measured.latencies, 0.50),
            p99_ms: percentile_ms(&measured.latencies, 0.99),
            server_cpu_us: measured.spent.server * 1e6 / requests,
            postgres_cpu_us: measured.spent.postgres * 1e6 / requests,
            client_cpu_us: measured.spent.client * 1e6 / requests,
            ..Self::default()
        }
    }
}

/// A row with what its repetitions showed.
pub(crate) struct Line {
    row: Row,
    runs: Vec<f64>,
    figures: Figures,
    ratio: Option<f64>,
}

/// How the whole run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every bound is kept.
    Pass,
    /// A bound is missed.
    Fail,
    /// The client was the bottleneck: nothing was measured.
    Void,
}

/// Medians of each row, and each as a share of the bare handler's.
pub(crate) fn lines(results: &[(Row, Vec<Figures>)]) -> Vec<Line> {
    let medians: Vec<Figures> = results.iter().map(|(_, runs)| medians(runs)).collect();
    let bare = |connections: usize| {
        let at = results.iter().position(|(row, _)| {
            row.subject == Subject::Bare && row.work == Work::Publish(connections)
        })?;
        Some(medians[at].requests_per_second)
    };
    let line = |((row, runs), figures): (&(Row, Vec<Figures>), &Figures)| Line {
        row: *row,
        runs: runs
            .iter()
            .map(|run| run.requests_per_second.round())
            .collect(),
        figures: *figures,
        ratio: row
            .compared_at()
            .and_then(bare)
            .map(|bare| figures.requests_per_second / bare),
    };
    results.iter().zip(&medians).map(line).collect()
}

impl Line {
    /// The bound is kept; `None` where there is none.
    fn kept(&self) -> Option<bool> {
        Some(match self.row.bound? {
            Bound::Ratio(least) => self.ratio? >= least,
            Bound::Memory(most) => self.figures.rss_mib <= most,
        })
    }

    fn mark(&self) -> String {
        let word = |kept| if kept { "pass" } else { "FAIL" };
        match (self.row.bound, self.kept()) {
            (Some(Bound::Ratio(least)), Some(kept)) => format!(">= {least:.2}  {}", word(kept)),
            (Some(Bound::Memory(most)), Some(kept)) => format!("<= {most:.0} MiB  {}", word(kept)),
            _ => String::new(),
        }
    }

    /// The row as one JSON object.
    pub(crate) fn json(&self) -> Outcome<String> {
        let two = |value: f64| (value * 100.0).round() / 100.0;
        let load = (self.row.work != Work::Idle).then(|| LoadJson {
            requests_per_second: self.figures.requests_per_second.round(),
            p50_ms: two(self.figures.p50_ms),
            p99_ms: two(self.figures.p99_ms),
            server_cpu_us_per_request: two(self.figures.server_cpu_us),
            postgres_cpu_us_per_request: (self.row.subject == Subject::Quita(Store::Postgres))
                .then(|| two(self.figures.postgres_cpu_us)),
            client_cpu_us_per_request: two(self.figures.client_cpu_us),
            ratio: self.ratio.map(|ratio| (ratio * 1000.0).round() / 1000.0),
            runs: &self.runs,
        });
        let memory = (self.row.work == Work::Idle).then(|| MemoryJson {
            rss_mib: two(self.figures.rss_mib),
            pss_mib: two(self.figures.pss_mib),
        });
        let line = LineJson {
            row: self.row.name,
            load,
            memory,
            pass: self.kept(),
        };
        Ok(serde_json::to_string(&line)?)
    }
}

#[derive(Serialize)]
struct LineJson<'a> {
    row: &'static str,
    #[serde(flatten)]
    load: Option<LoadJson<'a>>,
    #[serde(flatten)]
    memory: Option<MemoryJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<bool>,
}

#[derive(Serialize)]
struct LoadJson<'a> {
    requests_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    server_cpu_us_per_request: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    postgres_cpu_us_per_request: Option<f64>,
    client_cpu_us_per_request: f64,
    ratio: Option<f64>,
    runs: &'a [f64],
}

#[derive(Serialize)]
struct MemoryJson {
    rss_mib: f64,
    pss_mib: f64,
}

/// Prints the table and the JSON lines.
pub(crate) fn print(lines: &[Line]) -> Outcome<()> {
    println!(
        "\n{:<22}{:>11}{:>9}{:>9}{:>12}{:>12}{:>12}{:>8}  bound",
        "row", "requests/s", "p50 ms", "p99 ms", "server µs", "postgres µs", "client µs", "ratio"
    );
    for line in lines {
        let figures = &line.figures;
        if line.row.work == Work::Idle {
            let memory = figures.to_string();
            println!("{:<22}{memory:>73}  {}", line.row.name, line.mark());
            continue;
        }
        let postgres = match line.row.subject {
            Subject::Quita(Store::Postgres) => format!("{:.1}", figures.postgres_cpu_us),
            _ => "-".to_owned(),
        };
        println!(
            "{:<22}{:>11.0}{:>9.2}{:>9.2}{:>12.1}{:>12}{:>12.1}{:>8.3}  {}",
            line.row.name,
            figures.requests_per_second,
            figures.p50_ms,
            figures.p99_ms,
            figures.server_cpu_us,
            postgres,
            figures.client_cpu_us,
            line.ratio.unwrap_or(0.0),
            line.mark()
        );
    }
    println!(
        "\nCPU is per request; ratio: requests/s as a share of the bare handler's at the same connection count"
    );
    println!(
        "(lifecycle: at 64; its latencies are from publish to ack, its requests are all three).\n"
    );
    for line in lines {
        println!("{}", line.json()?);
    }
    Ok(())
}

/// Void before fail: a client that is too slow makes every ratio look good.
pub(crate) fn verdict(lines: &[Line]) -> Verdict {
    let proof = Work::Publish(PROOF_CONNECTIONS);
    let slow_client = lines.iter().any(|line| {
        line.row.subject == Subject::Bare
            && line.row.work == proof
            && line.figures.requests_per_second < CLIENT_FLOOR
    });
    if slow_client {
        Verdict::Void
    } else if lines.iter().any(|line| line.kept() == Some(false)) {
        Verdict::Fail
    } else {
        Verdict::Pass
    }
}

fn medians(runs: &[Figures]) -> Figures {
    let median = |of: fn(&Figures) -> f64| stats::median(&runs.iter().map(of).collect::<Vec<_>>());
    Figures {
        requests_per_second: median(|run| run.requests_per_second),
        p50_ms: median(|run| run.p50_ms),
        p99_ms: median(|run| run.p99_ms),
        server_cpu_us: median(|run| run.server_cpu_us),
        postgres_cpu_us: median(|run| run.postgres_cpu_us),
        client_cpu_us: median(|run| run.client_cpu_us),
        rss_mib: median(|run| run.rss_mib),
        pss_mib: median(|run| run.pss_mib),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    fn result(name: &str, rates: &[f64]) -> (Row, Vec<Figures>) {
        let row = *ROWS.iter().find(|row| row.name == name).unwrap();
        let figures = |rate: &f64| Figures {
            requests_per_second: *rate,
            ..Figures::default()
        };
        (row, rates.iter().map(figures).collect())
    }

    #[test]
    fn a_slow_client_voids_a_good_ratio() {
        let slow = [
            result("bare-256", &[79_999.0]),
            result("sqlite-publish-256", &[79_000.0]),
        ];
        assert_eq!(verdict(&lines(&slow)), Verdict::Void);
    }

    #[test]
    fn bounds_are_judged_by_medians() {
        let good = [
            result("bare-256", &[1e5, 9e4, 2e5]),
            result("sqlite-publish-256", &[33_000.0, 1.0, 90_000.0]),
        ];
        assert_eq!(verdict(&lines(&good)), Verdict::Pass);
        let bad = [
            result("bare-256", &[1e5]),
            result("sqlite-publish-256", &[32_999.0]),
        ];
        assert_eq!(verdict(&lines(&bad)), Verdict::Fail);
    }
}
