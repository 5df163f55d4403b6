//! The few things about JSON text that a parser for values would hide: how deep it is nested, and the members of an object
//! as they were written, byte for byte.

use serde::Deserialize;
use serde::de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Whether arrays and objects are nested deeper than `limit`. Reads text of any kind; whether it is JSON is not judged.
pub(crate) fn deeper_than(text: &[u8], limit: usize) -> bool {
    if text.len() <= limit {
        return false;
    }
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        match text[at] {
            b'"' => {
                at += 1;
                while at < text.len() && text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    false
}

/// One member of an object: its name with quotes and escapes, and its value.
pub(crate) type Member<'a> = (&'a RawValue, &'a RawValue);

/// The members of a JSON object in their order, repeated ones included.
pub(crate) struct Members<'a>(pub(crate) Vec<Member<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some(member) = map.next_entry::<&RawValue, &RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// The entries of a JSON array, at most `MAX` of them, and whether there are more.
pub(crate) struct Entries<'a, const MAX: usize> {
    pub(crate) items: Vec<&'a RawValue>,
    pub(crate) more: bool,
}

impl<'de: 'a, 'a, const MAX: usize> Deserialize<'de> for Entries<'a, MAX> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<const MAX: usize>;
        impl<'de, const MAX: usize> Visitor<'de> for Reader<MAX> {
            type Value = Entries<'de, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while items.len() < MAX {
                    match seq.next_element()? {
                        Some(item) => items.push(item),
                        None => return Ok(Entries { items, more: false }),
                    }
                }
                let more = seq.next_element::<IgnoredAny>()?.is_some();
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Entries { items, more })
            }
        }
        deserializer.deserialize_seq(Reader::<MAX>)
    }
}

/// The text of a JSON string; `None` when it is no string, or when it is no Unicode text (a lone surrogate).
pub(crate) fn text(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The text of any JSON value: of a string with lone surrogates replaced, of anything else as it is written; `None` for
/// `null`.
pub(crate) fn lossy_text(raw: &str) -> Option<Cow<'_, str>> {
    struct Lossy(String);
    impl<'de> Deserialize<'de> for Lossy {
        fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Reader;
            impl Visitor<'_> for Reader {
                type Value = Lossy;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a string")
                }

                fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                    Ok(Lossy(String::from_utf8_lossy(bytes).into_owned()))
                }
            }
            // As bytes, the parser lets lone surrogates pass.
            deserializer.deserialize_bytes(Reader)
        }
    }
    if raw == "null" {
        return None;
    }
    if !raw.starts_with('"') {
        return Some(Cow::Borrowed(raw));
    }
    text(raw).or_else(|| {
        let read: Option<Lossy> = serde_json::from_str(raw).ok();
        read.map(|lossy| Cow::Owned(lossy.0))
    })
}

/// The value of the only member `name` of an object, when there is exactly one and it is a string of Unicode text.
pub(crate) fn only_string_member<'a>(object: &'a str, name: &str) -> Option<Cow<'a, str>> {
    // A name may be written with escapes, so text that holds some is read as well.
    if !object.starts_with('{') || !(object.contains(name) || object.contains("\\u")) {
        return None;
    }
    let Members(members) = serde_json::from_str(object).ok()?;
    let mut found = members
        .into_iter()
        .filter(|(member, _)| text(member.get()).is_some_and(|member| member == name));
    let (_, value) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    text(value.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert!(!deeper_than(br#"{"a":"[[[[[[\"[[[["}"#, 1));
        assert!(deeper_than(br#"{"a":[[1]]}      "#, 2));
        assert!(!deeper_than(br#"{"a":[[1]]}      "#, 3));
        assert!(deeper_than("[".repeat(100_000).as_bytes(), 128));
    }

    #[test]
    fn members_come_as_they_were_written() {
        let text = "{ \"a\" : 1e400 , \"a\":\"\\ud800\", \"\\u0062\" : {\"x\": [ ] } }";
        let Members(members) = serde_json::from_str(text).unwrap();
        let written: Vec<_> = members.iter().map(|(n, v)| (n.get(), v.get())).collect();
        assert_eq!(
            written,
            [
                ("\"a\"", "1e400"),
                ("\"a\"", "\"\\ud800\""),
                ("\"\\u0062\"", "{\"x\": [ ] }")
            ]
        );
    }

    #[test]
    fn entries_stop_at_the_limit() {
        let read = |text| {
            let entries: Entries<'_, 2> = serde_json::from_str(text).unwrap();
            (entries.items.len(), entries.more)
        };
        assert_eq!(read("[]"), (0, false));
        assert_eq!(read("[1,2]"), (2, false));
        assert_eq!(read("[1,2,3,4]"), (2, true));
    }

    #[test]
    fn the_only_string_member_is_found_and_a_repeated_one_is_not() {
        let find = |object| only_string_member(object, "idempotency_key").map(Cow::into_owned);
        assert_eq!(find(r#"{"idempotency_key":"a"}"#).as_deref(), Some("a"));
        assert_eq!(
            find(r#"{"x":1,"idempotency\u005fkey":"b"}"#).as_deref(),
            Some("b")
        );
        assert_eq!(
            find(r#"{"idempotency_key":"a","idempotency_key":"a"}"#),
            None
        );
        assert_eq!(find(r#"{"idempotency_key":1}"#), None);
        assert_eq!(find(r#"{"y":{"idempotency_key":"a"}}"#), None);
        assert_eq!(find(r#""idempotency_key""#), None);
        assert_eq!(find(r#"{"idempotency_key":"\ud800"}"#), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_measured_and_any_text_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), text in "\\PC{0,60}|[\\[\\]{}\":,a0-9.eu\\\\ -]{0,60}", limit in 0usize..70) {
            deeper_than(&bytes, limit);
            deeper_than(text.as_bytes(), limit);
            let _ = serde_json::from_str::<Members<'_>>(&text);
            let _ = serde_json::from_str::<Entries<'_, 3>>(&text);
            let _ = super::text(&text);
            let _ = lossy_text(&text);
            let _ = only_string_member(&text, "a");
        }

        #[test]
        fn any_string_comes_back(sent in any::<String>()) {
            let raw = serde_json::to_string(&sent).unwrap();
            prop_assert_eq!(super::text(&raw), Some(Cow::Borrowed(&*sent)));
            prop_assert_eq!(lossy_text(&raw), Some(Cow::Borrowed(&*sent)));
        }

        #[test]
        fn depth_is_what_a_parser_says(depth in 1usize..20, limit in 1usize..20) {
            let text = format!("{}\"]\"{}", "[".repeat(depth), "]".repeat(depth));
            prop_assert_eq!(deeper_than(text.as_bytes(), limit), depth > limit);
        }
    }
}
