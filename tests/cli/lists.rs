//! Listings: pages, bounds and formats.

use crate::fake::{Fake, Say, ok, problem};
use crate::run::{finished, prepared, started};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use tempfile::TempDir;

fn dead(n: u32) -> Value {
    json!({"message_id": format!("msg_{n}"), "queue": "charges", "state": "dead", "key": format!("k\u{1b}{n}"), "attempts": 3, "redrive_count": 0,
        "dead_letter": {"reason": "max_attempts", "failure_kind": "nack", "died_at": "2026-11-30T10:00:00.000Z", "error_code": "E1", "group": "grp_1"},
        "last_delivery": {"error": {"code": "E1", "detail": "no\n\u{202e}luck"}}, "added_later": [1]})
}

/// Three pages, the second one short, the third one empty.
fn pages(path: &str) -> Fake {
    Fake::new(&[
        (
            path,
            ok(json!({"messages": [dead(1), dead(2)], "next_page_token": "a+/="})),
        ),
        (
            path,
            ok(json!({"messages": [dead(3)], "next_page_token": "b"})),
        ),
        (path, ok(json!({"messages": []}))),
    ])
}

#[test]
fn pages_are_followed_to_the_end_and_a_short_one_is_not_the_end() {
    let fake = pages("GET /v1/dead-letters");
    let ran = fake.quita(&["dead", "list", "-o", "name"]).ended(0);
    assert_eq!(ran.lines(), ["msg_1", "msg_2", "msg_3"]);
    let queries: Vec<_> = fake.seen().into_iter().map(|seen| seen.query).collect();
    assert_eq!(
        queries,
        [
            "page_size=50",
            "page_size=48&page_token=a%2B%2F%3D",
            "page_size=47&page_token=b"
        ]
    );
    let fake = pages("GET /v1/dead-letters");
    fake.quita(&["dead", "list", "--all", "-o", "name"])
        .ended(0);
    assert_eq!(fake.seen()[2].query, "page_size=500&page_token=b");
}

#[test]
fn a_bound_is_kept_and_says_that_there_is_more() {
    let fake = pages("GET /v1/dead-letters");
    let ran = fake
        .quita(&["dead", "list", "--limit", "1", "-o", "name"])
        .ended(0);
    assert_eq!(ran.lines(), ["msg_1"]);
    // Whoever says how many knows.
    assert_eq!(ran.err, "");
    assert_eq!(fake.asked().len(), 1);
    let fifty: Vec<Value> = (0..50).map(dead).collect();
    let page = json!({"messages": fifty, "next_page_token": "again"});
    Fake::new(&[("GET /v1/dead-letters", ok(page))])
        .quita(&["dead", "list", "-o", "name"])
        .ended(0)
        .says("--limit N or --all");
}

#[test]
fn every_format_is_what_it_says() {
    let run = |format: &str| {
        let fake = pages("GET /v1/queues/charges/dead-letters");
        fake.quita(&["dead", "list", "--queue", "charges", "-o", format])
            .ended(0)
    };
    let all = json!([dead(1), dead(2), dead(3)]);
    assert_eq!(run("json").json(), all);
    let lines: Vec<Value> = run("jsonl")
        .lines()
        .iter()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(json!(lines), all);
    let table = run("table");
    assert_eq!(table.lines().len(), 4);
    assert!(
        table.lines()[1].contains("k\\x1b1") && table.lines()[1].contains("no\\n\\u{202e}luck")
    );
    for format in ["json", "jsonl", "table"] {
        let out = run(format).out;
        assert!(
            !out.contains('\u{1b}') && !out.contains('\u{202e}'),
            "{format}"
        );
    }
}

#[test]
fn nothing_found_is_no_failure_and_still_the_format() {
    let fake = Fake::new(&[("GET /v1/dead-letters", ok(json!({"messages": []})))]);
    assert_eq!(
        fake.quita(&["dead", "list", "-o", "json"]).ended(0).json(),
        json!([])
    );
    let table = fake
        .quita(&["dead", "list"])
        .ended(0)
        .says("no such dead letters");
    assert_eq!(table.out, "");
}

#[test]
fn the_filter_goes_into_the_query() {
    let fake = Fake::new(&[(
        "GET /v1/queues/a%2Fb/dead-letters",
        ok(json!({"messages": []})),
    )]);
    let line = [
        "dead",
        "list",
        "--queue",
        "a/b",
        "--failure-kind",
        "max_attempts",
        "--error-code",
        "a b",
        "--died-after",
        "2026-11-30T00:00:00Z",
        "--min-attempts",
        "2",
        "--edited",
        "--order",
        "newest",
    ];
    fake.quita(&line).ended(0);
    assert_eq!(
        fake.seen()[0].query,
        "failure_kind=nack&error_code=a%20b&died_after=2026-11-30T00%3A00%3A00.000Z&min_attempts=2&edited=true&order=newest&page_size=50"
    );
    fake.quita(&["dead", "list", "--died-after", "soon"])
        .ended(2)
        .says("--died-after");
    fake.quita(&["dead", "list", "--failure-kind", "bad luck"])
        .ended(2);
}

#[test]
fn groups_show_what_failed_most() {
    let group = json!({"group": "grp_0123456789abcdef", "queue": "charges", "reason": "max_attempts", "failure_kind": "nack", "error_code": "E1",
        "error_text": "card \u{1b}[2J<n>", "count": 412, "first_died_at": "2026-11-30T10:00:00.000Z", "last_died_at": "2026-11-30T11:00:00.000Z", "example_message_id": "msg_1"});
    let fake = Fake::new(&[(
        "GET /v1/dead-letters/groups",
        ok(json!({"groups": [group], "more": true})),
    )]);
    fake.quita(&["dead", "groups"]).ended(0).says("more groups");
    let ran = fake.quita(&["dead", "groups", "--limit", "1"]).ended(0);
    assert_eq!(ran.err, "");
    let places = ["FIRST", "LAST", "EXAMPLE"].map(|title| ran.lines()[0].find(title));
    assert!(places.is_sorted() && places[0].is_some(), "{}", ran.out);
    assert!(
        ran.out
            .contains("412  grp_0123456789abcdef  charges  nack  E1    card \\x1b[2J<n>"),
        "{}",
        ran.out
    );
    let queries: Vec<_> = fake.seen().into_iter().map(|seen| seen.query).collect();
    assert_eq!(queries, ["limit=50", "limit=1"]);
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let many: Vec<Value> = (0..500).map(dead).collect();
    let page = json!({"messages": many, "next_page_token": "again"});
    let fake = Fake::new(&[("GET /v1/dead-letters", ok(page))]);
    let folder = TempDir::new().unwrap();
    let line = ["dead", "list", "--all", "-o", "jsonl"];
    let mut child = started(&mut prepared(folder.path(), &fake.url(), "k", &line));
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains(r#""message_id":"msg_0""#), "{first}");
    finished(child).ended(0);
}

#[test]
fn what_came_before_a_failure_is_printed_all_the_same() {
    let path = "GET /v1/dead-letters";
    let page = json!({"messages": [dead(1)], "next_page_token": "a"});
    let script = [(path, ok(page)), (path, problem(503, "overloaded"))];
    for (format, lines) in [("table", 2), ("json", 3), ("name", 1)] {
        let ran = Fake::new(&script)
            .quita(&["dead", "list", "-o", format])
            .ended(6);
        assert_eq!(ran.lines().len(), lines, "{}", ran.out);
    }
    let none = Fake::new(&script[1..])
        .quita(&["dead", "list", "-o", "json"])
        .ended(6);
    assert_eq!(none.out, "");
}

#[test]
fn an_answer_without_its_list_is_not_taken_for_an_empty_one() {
    let fake = Fake::new(&[("GET /v1/dead-letters", Say::Json(200, json!({"items": []})))]);
    fake.quita(&["dead", "list"]).ended(1).says("no `messages`");
}
