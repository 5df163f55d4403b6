//! A selection as an operator sees it before anything happens: how many, of which kinds, and some of them.

use super::message::SUMMARY;
use super::table::{self, text};
use super::visible::visible;
use serde_json::Value;
use std::fmt::Write;

/// Longest bar of a histogram.
const BAR: u64 = 24;

/// The figures and the sample, for a terminal of this width. `server` is where it is.
pub(super) fn shown(selection: &Value, server: &str, width: Option<usize>) -> String {
    let count = selection["count"].as_u64().unwrap_or(0);
    let mut out = format!(
        "{count} dead letter{} of {} on {} ({})",
        if count == 1 { "" } else { "s" },
        visible(&text(&selection["queue"])),
        visible(server),
        visible(&text(&selection["selection_id"])),
    );
    if count == 0 {
        return out;
    }
    let mut lines: Vec<(&str, String, u64)> = Vec::new();
    for (title, member, name) in [
        ("reason", "by_reason", "reason"),
        ("error", "by_error_code", "error_code"),
        ("age", "by_age", "age"),
    ] {
        for entry in selection[member].as_array().into_iter().flatten() {
            let label = match &entry[name] {
                Value::Null => "(none)".to_owned(),
                label => {
                    visible(&text(label)).replace('_', if member == "by_age" { " " } else { "_" })
                }
            };
            lines.push((title, label, entry["count"].as_u64().unwrap_or(0)));
        }
    }
    let wide = |text: &str| console::measure_text_width(text);
    let widest = lines.iter().map(|(_, label, _)| wide(label)).max();
    let widest = widest.unwrap_or(0).min(40);
    let mut before = "";
    for (title, label, number) in &lines {
        let title = if *title == before { "" } else { *title };
        before = if title.is_empty() { before } else { title };
        let label = console::truncate_str(label, widest, "…");
        let label = console::pad_str(&label, widest, console::Alignment::Left, None);
        let length = (number * BAR).div_ceil(count.max(1)).min(BAR) as usize;
        let _ = write!(
            out,
            "\n  {title:<7} {label} {number:>7} {}",
            "#".repeat(length)
        );
        out.truncate(out.trim_end().len());
    }
    let marks: Vec<String> = [
        ("edited", "edited"),
        ("over_max_redrives", "over max_redrives"),
        ("completion_remembered", "with a remembered completion"),
        ("outcome_recorded", "with a recorded outcome"),
    ]
    .iter()
    .filter(|(member, _)| selection[*member].as_u64().unwrap_or(0) > 0)
    .map(|(member, name)| format!("{} {name}", text(&selection[*member])))
    .collect();
    if !marks.is_empty() {
        let _ = write!(out, "\n  of them: {}", marks.join(", "));
    }
    let rows: Vec<Vec<String>> = selection["sample"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|message| {
            SUMMARY
                .iter()
                .map(|column| (column.cell)(message))
                .collect()
        })
        .collect();
    if !rows.is_empty() {
        out += &sample(&rows, count, width);
    }
    out
}

/// Some of them, with a line where others are left out, and with the names of columns that do not fit.
fn sample(rows: &[Vec<String>], count: u64, width: Option<usize>) -> String {
    let table = table::lay_out(SUMMARY, rows, width);
    let mut lines: Vec<&str> = table.lines().collect();
    let left_out = count.saturating_sub(rows.len() as u64);
    let half = rows.len().div_ceil(2);
    let gap = format!("… {left_out} more …");
    // A first column that is too wide for its terminal takes more than one line per row.
    let whole = lines.len() == rows.len() + 1;
    let title = match (left_out, whole) {
        (0, _) => "all of them, oldest first:",
        (_, true) => {
            lines.insert(1 + half, &gap);
            "the oldest, and below the gap the youngest:"
        }
        (_, false) => "the oldest and the youngest:",
    };
    let mut out = format!("\n\n{title}\n{}", lines.join("\n"));
    if let Some(note) = table::not_shown(SUMMARY, rows, width) {
        let _ = write!(out, "\n{note}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn count_histogram_and_sample_are_there_and_harmless() {
        let selection = json!({
            "selection_id": "sel_1", "queue": "charges", "count": 40,
            "by_reason": [{"reason": "max_attempts", "count": 30}, {"reason": "lease_expired", "count": 10}],
            "by_error_code": [{"error_code": "card\u{1b}[2J", "count": 39}, {"error_code": null, "count": 1}],
            "by_age": [{"age": "1_to_24_hours", "count": 40}],
            "sample": [{"message_id": "msg_1", "queue": "charges", "key": "cob-1"}],
            "edited": 2, "over_max_redrives": 0, "completion_remembered": 1, "outcome_recorded": 0, "new_figure": 1});
        let text = shown(&selection, "http://h", Some(100));
        for part in [
            "40 dead letters of charges on http://h (sel_1)",
            "reason  max_attempts       30 ##################\n",
            "lease_expired      10 ######\n",
            "error   card\\x1b[2J        39 ########################\n",
            "(none)              1 #\n",
            "age     1 to 24 hours      40",
            "of them: 2 edited, 1 with a remembered completion",
            "msg_1",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
        let none = shown(
            &json!({"selection_id": "sel_2", "queue": "q", "count": 0}),
            "http://h",
            None,
        );
        assert_eq!(none, "0 dead letters of q on http://h (sel_2)");
    }

    #[test]
    fn the_sample_says_where_others_are_left_out_and_which_columns() {
        let some = |count: u64, rows: usize, width: Option<usize>| {
            let sample: Vec<Value> = (0..rows)
                .map(|n| json!({"message_id": format!("msg_{n}"), "key": "k"}))
                .collect();
            let selection =
                json!({"selection_id": "sel_1", "queue": "q", "count": count, "sample": sample});
            shown(&selection, "http://h", width)
        };
        let many = some(258, 4, None);
        let lines: Vec<&str> = many.lines().collect();
        let gap = lines
            .iter()
            .position(|line| *line == "… 254 more …")
            .unwrap();
        assert!(lines[gap - 1].starts_with("msg_1") && lines[gap + 1].starts_with("msg_2"));
        assert!(many.contains("below the gap the youngest"), "{many}");
        let few = some(2, 2, Some(40));
        assert!(few.contains("all of them, oldest first"), "{few}");
        assert!(
            few.contains("Not shown, as the terminal is too narrow: ") && few.contains("EDITED")
        );
    }
}
