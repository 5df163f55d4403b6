//! Tables of what was measured: medians of the repetitions of each row.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

const ROWS: [&str; 7] = [
    "publish-1",
    "publish-16",
    "publish-64",
    "publish-256",
    "batch-10",
    "batch-100",
    "lifecycle",
];

/// Figures of each row of each peer, and the peers in the order in which they came.
#[derive(Default)]
struct Results {
    peers: Vec<String>,
    figures: BTreeMap<(String, String), Vec<Value>>,
}

pub fn print(files: &[PathBuf]) -> Result<()> {
    let mut results = Results::default();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        results.read(&text)?;
    }
    println!("{}", results.rates());
    println!("{}", results.costs());
    Ok(())
}

impl Results {
    fn read(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let name = |member: &str| {
                line[member]
                    .as_str()
                    .map(str::to_owned)
                    .context("not a result")
            };
            let (peer, row) = (name("peer")?, name("row")?);
            if !self.peers.contains(&peer) {
                self.peers.push(peer.clone());
            }
            self.figures
                .entry((peer, row))
                .or_default()
                .push(line["figures"].clone());
        }
        Ok(())
    }

    fn median(&self, peer: &str, row: &str, figure: &str) -> Option<f64> {
        let runs = self.figures.get(&(peer.to_owned(), row.to_owned()))?;
        let mut values: Vec<f64> = runs.iter().filter_map(|run| run[figure].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// Messages a second, with p50 and p99 in ms.
    fn rates(&self) -> String {
        let mut text = format!(
            "| messages/s (p50 / p99 ms) | {} |\n|---|{}\n",
            ROWS.join(" | "),
            "---:|".repeat(ROWS.len())
        );
        for peer in &self.peers {
            let _ = write!(text, "| {peer} |");
            for row in ROWS {
                let at = |figure| self.median(peer, row, figure);
                let cell = at("messages_per_second")
                    .zip(at("p50_ms"))
                    .zip(at("p99_ms"));
                let cell = cell.map_or("–".to_owned(), |((rate, p50), p99)| {
                    format!("{} ({p50} / {p99})", grouped(rate))
                });
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
        text
    }

    /// CPU in µs per message of server and client, and the server's memory.
    fn costs(&self) -> String {
        let mut text =
            "| server µs / client µs / server MiB | publish-64 | lifecycle |\n|---|---:|---:|\n"
                .to_owned();
        for peer in &self.peers {
            let _ = write!(text, "| {peer} |");
            for row in ["publish-64", "lifecycle"] {
                let at = |figure| self.median(peer, row, figure);
                let cell = at("server_cpu_us")
                    .zip(at("client_cpu_us"))
                    .zip(at("pss_mib"));
                let cell = cell.map_or("–".to_owned(), |((server, client), memory)| {
                    format!("{server} / {client} / {memory}")
                });
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
        text
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_a_row_stands_in_its_column() {
        let mut results = Results::default();
        for rate in [1000.0, 3000.0, 2000.0] {
            let line = format!(
                "{{\"peer\":\"a\",\"row\":\"publish-64\",\"figures\":{{\"messages_per_second\":{rate},\"p50_ms\":1.5,\"p99_ms\":2.5}}}}"
            );
            results.read(&line).unwrap();
        }
        assert!(
            results
                .rates()
                .contains("| a | – | – | 2,000 (1.5 / 2.5) | – |")
        );
    }
}
