//! Two runs side by side: what changed, and whether it is more than the runs differ among themselves.

use crate::Outcome;
use crate::stats::Spread;
use serde::Deserialize;
use std::path::Path;

/// A line of a file that `quita-bench all` wrote; those of other kinds hold no figure.
#[derive(Deserialize)]
struct Line {
    who: String,
    row: String,
    figure: String,
    median: f64,
    #[serde(default)]
    runs: Vec<f64>,
    spread: Option<Spread>,
}

impl Line {
    fn spread(&self) -> Option<Spread> {
        self.spread.or_else(|| Spread::of(&self.runs))
    }
}

/// Prints every figure that both files have, and the second over the first.
pub(crate) fn run(before: &Path, after: &Path) -> Outcome<()> {
    let (before, after) = (read(before)?, read(after)?);
    println!(
        "| whose | row | figure | before | after | ratio | |\n|---|---|---|---:|---:|---:|---|"
    );
    for (old, new) in pairs(&before, &after) {
        println!(
            "| {} | {} | {} | {:.3} | {:.3} | {:.3} | {} |",
            old.who,
            old.row,
            old.figure.replace('_', " "),
            old.median,
            new.median,
            new.median / old.median,
            if apart(old, new) { "apart" } else { "" }
        );
    }
    println!("\n`apart`: no repetition of one lies between those of the other.");
    Ok(())
}

fn read(path: &Path) -> Outcome<Vec<Line>> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    lines(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn lines(text: &str) -> Outcome<Vec<Line>> {
    let mut all = Vec::new();
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line)?;
        if matches!(value["kind"].as_str(), Some("figure" | "check")) {
            all.push(serde_json::from_value(value)?);
        }
    }
    Ok(all)
}

fn pairs<'a>(before: &'a [Line], after: &'a [Line]) -> Vec<(&'a Line, &'a Line)> {
    let same = |old: &Line, new: &Line| {
        (&old.who, &old.row, &old.figure) == (&new.who, &new.row, &new.figure)
    };
    let pair = |old: &'a Line| Some((old, after.iter().find(|new| same(old, new))?));
    before.iter().filter_map(pair).collect()
}

/// The two do not overlap, so the difference is probably not chance.
fn apart(old: &Line, new: &Line) -> bool {
    match (old.spread(), new.spread()) {
        (Some(old), Some(new)) => old.max < new.min || new.max < old.min,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rate: [f64; 3]) -> Vec<Line> {
        let text = format!(
            "{{\"kind\":\"machine\",\"machine\":{{}}}}\n\
             {{\"kind\":\"figure\",\"who\":\"sqlite\",\"row\":\"lifecycle\",\"figure\":\"requests_per_second\",\"median\":{},\"runs\":{rate:?}}}\n",
            rate[1]
        );
        lines(&text).unwrap()
    }

    #[test]
    fn figures_of_one_name_are_compared_and_chance_is_told_from_change() {
        let (old, near, far) = (
            file([9.0, 10.0, 11.0]),
            file([10.5, 12.0, 13.0]),
            file([11.5, 12.0, 13.0]),
        );
        let pair = pairs(&old, &near);
        assert_eq!(pair.len(), 1);
        assert!(!apart(pair[0].0, pair[0].1));
        let pair = pairs(&old, &far);
        assert!(apart(pair[0].0, pair[0].1));
    }
}
