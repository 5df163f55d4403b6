//! JSON as text: laid out or packed, and nothing else changed.
//!
//! A payload may hold numbers that no machine type takes, repeated names and lone surrogates. It is therefore never parsed and
//! written again, only its white space is. Characters that a terminal would act on are written as `\uXXXX` inside strings,
//! which is the same JSON.

use super::visible::unseen;
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt::Write;

/// One line.
pub(super) fn compact(text: &str) -> String {
    write(text, false)
}

/// Laid out with two blanks per level.
pub(super) fn pretty(text: &str) -> String {
    write(text, true)
}

/// Checks that the text is one JSON document, of any kind RFC 8259 allows.
pub(super) fn check(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::from_str::<&RawValue>(text).map(ToOwned::to_owned)
}

/// A value that is surely JSON.
pub(super) fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_default()
}

/// The text as a value; as a string of itself where it holds what a value cannot.
pub(super) fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// `text` is JSON: what is between its strings is copied.
fn write(text: &str, lines: bool) -> String {
    let mut out = String::with_capacity(text.len() * if lines { 2 } else { 1 });
    let mut depth = 0;
    let (mut inside, mut escaped) = (false, false);
    let line = |out: &mut String, depth: usize| {
        if lines {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        }
    };
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if inside {
            if unseen(c) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            } else {
                out.push(c);
            }
            inside = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = characters.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = usize::saturating_sub(depth, 1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(if lines { ": " } else { ":" }),
            c if c.is_ascii_whitespace() => {}
            c => {
                inside = c == '"';
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_changes_and_content_does_not() {
        let text = r#" {"a":[1e400, 0.10,{ },[]],"a":"\ud800 \"}{,:","b" : null} "#;
        let packed = r#"{"a":[1e400,0.10,{},[]],"a":"\ud800 \"}{,:","b":null}"#;
        assert_eq!(compact(text), packed);
        assert_eq!(
            pretty(text),
            "{\n  \"a\": [\n    1e400,\n    0.10,\n    {},\n    []\n  ],\n  \"a\": \"\\ud800 \\\"}{,:\",\n  \"b\": null\n}"
        );
        assert_eq!(compact(&pretty(text)), packed);
        assert_eq!(pretty(" 12 "), "12");
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        let text = "\"\u{9b}31m \u{202e}abc \u{e0041}\"";
        assert_eq!(compact(text), r#""\u009b31m \u202eabc \udb40\udc41""#);
        let (before, after): (Value, Value) = (
            serde_json::from_str(text).unwrap(),
            serde_json::from_str(&compact(text)).unwrap(),
        );
        assert_eq!(before, after);
    }

    #[test]
    fn a_document_may_be_anything_and_must_be_one() {
        for good in ["1e999", r#""\ud800""#, "null", r#"{"a":1,"a":2}"#] {
            assert_eq!(check(good).unwrap().get(), good);
        }
        for bad in ["", "{", "1 2", "nope", "{'a':1}"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert_eq!(value(r#""\ud800""#), Value::String(r#""\ud800""#.into()));
    }
}
