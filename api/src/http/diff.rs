//! What differs between two JSON texts, as JSON Patch (RFC 6902).

use crate::service::fingerprint;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Bytes of a difference that are never too many: an array with a new first element differs in every place.
const SHORT: usize = 4_096;

/// Operations that make the second text of the first; none when they are the same apart from white space.
///
/// Where a parser for values cannot tell the difference (long numbers, repeated names, lone surrogates), and where telling it
/// would take longer, the whole is replaced by the text as it is.
pub(crate) fn of(before: &str, after: &str) -> Vec<Box<RawValue>> {
    let same = |text: &str| fingerprint::of_message(text.as_bytes(), None, None);
    if before == after || same(before) == same(after) {
        return Vec::new();
    }
    let operations: Vec<Box<RawValue>> = match (parsed(before), parsed(after)) {
        (Some(before), Some(after)) => {
            let patch = json_patch::diff(&before, &after);
            let written = patch.0.iter().map(serde_json::value::to_raw_value);
            written.filter_map(Result::ok).collect()
        }
        _ => Vec::new(),
    };
    let length: usize = operations.iter().map(|o| o.get().len()).sum();
    if operations.is_empty() || length > after.len().max(SHORT) {
        whole(after).into_iter().collect()
    } else {
        operations
    }
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn whole(after: &str) -> Option<Box<RawValue>> {
    let operation = json!({"op": "replace", "path": ""}).to_string();
    let open = operation.strip_suffix('}')?;
    RawValue::from_string(format!("{open},\"value\":{}}}", after.trim())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(before: &str, after: &str) -> String {
        serde_json::to_string(&of(before, after)).unwrap()
    }

    #[test]
    fn values_are_compared_member_by_member() {
        assert_eq!(
            diff(
                r#"{"a":1,"b":[1,2],"c":0}"#,
                r#"{"a":2,"b":[1,2],"d/e":null}"#
            ),
            r#"[{"op":"replace","path":"/a","value":2},{"op":"add","path":"/d~1e","value":null},{"op":"remove","path":"/c"}]"#
        );
        assert_eq!(diff(r#"{"a": 1}"#, r#"{"a":1}"#), "[]");
        assert_eq!(
            diff("1", r#""x""#),
            r#"[{"op":"replace","path":"","value":"x"}]"#
        );
    }

    #[test]
    fn the_operations_make_the_second_text_of_the_first() {
        let (before, after) = (
            json!({"a": [1, 2, 3], "b": {"c": null}, "~": 1}),
            json!({"a": [0, 1], "b": {"d": [{}]}, "/": "x"}),
        );
        let text = diff(&before.to_string(), &after.to_string());
        let mut made = before;
        let patch: json_patch::Patch = serde_json::from_str(&text).unwrap();
        json_patch::patch(&mut made, &patch).unwrap();
        assert_eq!(made, after);
    }

    #[test]
    fn a_difference_that_is_longer_than_the_whole_is_the_whole() {
        let long = (1..5_000).collect::<Vec<i32>>();
        let shifted = (0..5_000).collect::<Vec<i32>>();
        let text = diff(&json!(long).to_string(), &json!(shifted).to_string());
        assert!(text.starts_with(r#"[{"op":"replace","path":"","value":[0,1"#));
    }

    #[test]
    fn what_a_parser_cannot_tell_apart_is_replaced_as_a_whole() {
        for (before, after) in [
            ("1", "1e400"),
            (r#""\ud800""#, r#""\udc00""#),
            (
                r#"{"n":12345678901234567890.1}"#,
                r#"{"n":12345678901234567890.2}"#,
            ),
            (r#"{"a":1}"#, r#"{"a":2,"a":1}"#),
        ] {
            let expected = format!(r#"[{{"op":"replace","path":"","value":{after}}}]"#);
            assert_eq!(diff(before, after), expected);
        }
    }
}
