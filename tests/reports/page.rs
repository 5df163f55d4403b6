//! docs/REPORTS.md says of each report which test answers it; the tests are there.

use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The folders that the page does not name by their whole path.
const FOLDERS: [&str; 4] = ["conformance", "http", "durability", "reports"];

struct Row {
    id: u32,
    report: String,
    what: String,
    tests: String,
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/REPORTS.md")).unwrap();
    let row =
        Regex::new(r"(?m)^\| B(\d{3}) \| ([^|]+) \| [^|]+ \| ([^|]+) \| ([^|]*) \|$").unwrap();
    let rows = row.captures_iter(&page).map(|found| Row {
        id: found[1].parse().unwrap(),
        report: found[2].to_owned(),
        what: found[3].to_owned(),
        tests: found[4].trim().to_owned(),
    });
    let rows: Vec<Row> = rows.collect();
    let lines = page.lines().filter(|line| line.starts_with("| B")).count();
    assert_eq!(rows.len(), lines, "a row is not written as the others");
    rows
}

#[test]
fn every_report_is_there_once_and_names_its_test_or_why_there_is_none() {
    let rows = rows();
    assert_eq!(rows.len(), 144);
    assert!(rows.is_sorted_by(|a, b| a.id < b.id));
    let reference = Regex::new(r"^[\w.-]+/[\w.-]+#\d+$").unwrap();
    for row in &rows {
        assert!(reference.is_match(&row.report), "{}", row.report);
        let later = row.what.starts_with("later: ");
        assert!(later || !row.tests.is_empty(), "B{:03}", row.id);
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let named = Regex::new(r"`([a-z_/]+\.rs)::([a-z0-9_]+)`").unwrap();
    let attribute = |name: &str| {
        Regex::new(&format!(
            r"#\[(?:tokio::)?test[^\n]*\]\n(?:#\[[^\n]*\n)*(?:async )?fn {name}\("
        ))
        .unwrap()
    };
    // The list of a macro that makes a test of a case.
    let listed =
        |name: &str| Regex::new(&format!(r"(?s)on_every_store!.*\b{name}\b[^;]*;")).unwrap();
    let mut seen = BTreeSet::new();
    for row in rows() {
        let mut names = 0;
        for found in named.captures_iter(&row.tests) {
            let (file, name) = (&found[1], &found[2]);
            let folder = file.split('/').next().unwrap_or_default();
            let file = if FOLDERS.contains(&folder) {
                format!("tests/{file}")
            } else {
                file.to_owned()
            };
            names += 1;
            if !seen.insert((file.clone(), name.to_owned())) {
                continue;
            }
            let source = fs::read_to_string(Path::new(ROOT).join(&file)).unwrap_or_default();
            let defined = source.contains(&format!("fn {name}("));
            let runs = attribute_is(&attribute(name), &source) || listed(name).is_match(&source);
            assert!(defined && runs, "B{:03}: {file}::{name}", row.id);
        }
        assert_eq!(names, row.tests.matches("::").count(), "B{:03}", row.id);
    }
    assert!(seen.len() > 100, "{}", seen.len());
}

fn attribute_is(attribute: &Regex, source: &str) -> bool {
    // Tests beside the code are indented.
    let flat: String = source
        .lines()
        .flat_map(|line| [line.trim_start(), "\n"])
        .collect();
    attribute.is_match(&flat)
}
