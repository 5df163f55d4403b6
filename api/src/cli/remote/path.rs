//! Paths and queries of the interface, with what a user typed made harmless.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// One segment of a path.
fn segment(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// `/v1/queues/{queue}` and what follows.
pub(super) fn queue(name: &str, rest: &str) -> String {
    format!("/v1/queues/{}{rest}", segment(name))
}

/// `/v1/messages/{message_id}`.
pub(super) fn message(id: &str) -> String {
    format!("/v1/messages/{}", segment(id))
}

/// `/v1/queues/{queue}/dead-letters/{message_id}` and what follows.
pub(super) fn dead_letter(queue_name: &str, id: &str, rest: &str) -> String {
    queue(queue_name, &format!("/dead-letters/{}{rest}", segment(id)))
}

/// `/v1/redrives/{redrive_id}` and what follows.
pub(super) fn redrive(id: &str, rest: &str) -> String {
    format!("/v1/redrives/{}{rest}", segment(id))
}

/// Parameters of a query, in order.
pub(super) type Pairs = Vec<(&'static str, Value)>;

/// The path with a query; the path alone when there are no parameters.
pub(super) fn with_query(path: &str, pairs: &Pairs) -> String {
    let mut out = path.to_owned();
    for (at, (name, value)) in pairs.iter().enumerate() {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        out.push(if at == 0 { '?' } else { '&' });
        out.push_str(name);
        out.push('=');
        out.push_str(&segment(&value));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_typed_stays_inside_its_segment() {
        assert_eq!(
            dead_letter("a/b?c", "../x#", "/redrive"),
            "/v1/queues/a%2Fb%3Fc/dead-letters/..%2Fx%23/redrive"
        );
        let pairs = vec![
            ("key", json!("ä &=")),
            ("max_attempts", json!(3)),
            ("edited", json!(true)),
        ];
        assert_eq!(
            with_query("/p", &pairs),
            "/p?key=%C3%A4%20%26%3D&max_attempts=3&edited=true"
        );
        assert_eq!(with_query("/p", &vec![]), "/p");
    }
}
