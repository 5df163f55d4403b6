//! What "the same body" means (product 4.3): message, key and headers, apart from insignificant white space.

use sha2::{Digest, Sha256};

/// 63 bits of SHA-256 over the message's JSON text without insignificant white space, the key, and the headers' canonical
/// text. Lengths go in as well, so that no shifting between the parts can be ambiguous.
pub fn of_message(message: &[u8], key: Option<&str>, headers: Option<&str>) -> i64 {
    let mut hash = Sha256::new();
    let mut length = 0u64;
    significant(message, |run| {
        hash.update(run);
        length += run.len() as u64;
    });
    hash.update(length.to_be_bytes());
    for part in [key, headers] {
        let part = part.map(str::as_bytes);
        hash.update(part.map_or(-1, |p| p.len() as i64).to_be_bytes());
        hash.update(part.unwrap_or_default());
    }
    positive(&hash)
}

/// 63 bits of SHA-256 over a route and a body's JSON text without insignificant white space.
pub fn of_call(route: &str, body: &[u8]) -> i64 {
    let mut hash = Sha256::new();
    hash.update((route.len() as u64).to_be_bytes());
    hash.update(route);
    significant(body, |run| hash.update(run));
    positive(&hash)
}

fn positive(hash: &Sha256) -> i64 {
    let full = hash.clone().finalize();
    let mut first = [0u8; 8];
    first.copy_from_slice(&full[..8]);
    i64::from_be_bytes(first) & i64::MAX
}

/// Calls `run` with the stretches of `json` between insignificant white space.
fn significant(json: &[u8], mut run: impl FnMut(&[u8])) {
    let (mut from, mut at) = (0, 0);
    while at < json.len() {
        match json[at] {
            b'"' => at = after_string(json, at),
            b' ' | b'\t' | b'\n' | b'\r' => {
                run(&json[from..at]);
                at += 1;
                from = at;
            }
            _ => at += 1,
        }
    }
    run(&json[from..]);
}

/// The position behind the string that begins at `at`.
fn after_string(json: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < json.len() {
        match json[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_outside_strings_does_not_matter_and_inside_does() {
        let plain = of_message(br#"{"a":[1,"x y"]}"#, None, None);
        assert_eq!(
            plain,
            of_message(b"{ \"a\" :\n[ 1,\t\"x y\"] }", None, None)
        );
        assert_ne!(plain, of_message(br#"{"a":[1,"xy"]}"#, None, None));
    }

    #[test]
    fn an_escaped_quote_does_not_end_a_string() {
        assert_ne!(
            of_message(br#""a\" b""#, None, None),
            of_message(br#""a\"b""#, None, None)
        );
        assert_ne!(
            of_message(br#""\\ b""#, None, None),
            of_message(br#""\\b""#, None, None)
        );
    }

    #[test]
    fn key_and_headers_cannot_be_confused() {
        let one = of_message(b"1", Some("a"), None);
        assert_ne!(one, of_message(b"1", None, Some("a")));
        assert_ne!(one, of_message(b"1", None, None));
        assert_ne!(one, of_message(b"1", Some("a"), Some("")));
        assert!(one >= 0);
    }

    #[test]
    fn a_call_is_its_route_and_its_body() {
        let one = of_call("/a", br#"{"x":1}"#);
        assert_eq!(one, of_call("/a", b"{ \"x\" : 1 }"));
        assert_ne!(one, of_call("/b", br#"{"x":1}"#));
        assert_ne!(one, of_call("/a", br#"{"x":2}"#));
    }
}
