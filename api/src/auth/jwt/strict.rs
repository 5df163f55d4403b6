//! From the text of a token to two JSON objects, strictly.
//!
//! Where two readers of one text may see different things, an attacker chooses who sees what. So a member that is there
//! twice, at any depth, is refused and not resolved; base64 has one spelling; times are whole numbers and names are strings.

use super::reason::{Part, Reason};
use super::{MAX_TOKEN_BYTES, shown};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// A token taken apart. Nothing in it is to be believed yet, and its `Debug` shows nothing of it.
pub(super) struct Parts<'a> {
    pub(super) header: Members,
    pub(super) claims: Members,
    /// What was signed: header and claims as sent.
    pub(super) signed: &'a str,
    /// In base64url.
    pub(super) signature: &'a str,
}

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts(…)")
    }
}

/// Takes a token apart.
pub(super) fn split(token: &[u8]) -> Result<Parts<'_>, Reason> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Reason::TooLong(token.len()));
    }
    let text = std::str::from_utf8(token).map_err(|_| Reason::Base64("text"))?;
    let count = text.split('.').count();
    let (signed, signature) = text.rsplit_once('.').ok_or(Reason::Parts(count))?;
    let (header, claims) = match signed.split_once('.') {
        Some(two) if count == 3 => two,
        _ => return Err(Reason::Parts(count)),
    };
    if signature.is_empty() || URL_SAFE_NO_PAD.decode(signature).is_err() {
        return Err(Reason::Base64("signature"));
    }
    Ok(Parts {
        header: object(header, Part::Header)?,
        claims: object(claims, Part::Claims)?,
        signed,
        signature,
    })
}

fn object(text: &str, part: Part) -> Result<Members, Reason> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| {
        Reason::Base64(match part {
            Part::Header => "header",
            Part::Claims => "claims",
        })
    })?;
    match serde_json::from_slice(&bytes) {
        Ok(Json::Object(members)) => Ok(Members(members)),
        Ok(_) => Err(Reason::Json(part, "it is not an object".into())),
        Err(error) => Err(Reason::Json(part, shown(&error.to_string()))),
    }
}

/// The members of an object.
pub(super) struct Members(BTreeMap<String, Json>);

impl Members {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name)
    }

    /// A string, if the member is there.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Reason> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Reason::Type(name.into(), "a string")),
        }
    }

    /// A string that must be there and say something.
    pub(super) fn required_text(&self, name: &str) -> Result<&str, Reason> {
        self.text(name)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| Reason::Missing(name.into()))
    }

    /// Whole seconds since the epoch, if the member is there. RFC 7519 also allows fractions, which no issuer needs and
    /// readers round in different ways.
    pub(super) fn seconds(&self, name: &str) -> Result<Option<u64>, Reason> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Whole(seconds)) => Ok(Some(*seconds)),
            Some(_) => Err(Reason::Type(name.into(), "a whole number of seconds")),
        }
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Members(…)")
    }
}

/// JSON, as far as a token needs it.
#[derive(Debug, PartialEq)]
pub(super) enum Json {
    Text(String),
    Whole(u64),
    List(Vec<Self>),
    Object(BTreeMap<String, Self>),
    /// Any other number, a boolean or null.
    Other,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Whole(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            all.push(one);
        }
        Ok(Json::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, value)) = members.next_entry::<String, Json>()? {
            let again = all.contains_key(&name).then(|| shown(&name));
            all.insert(name, value);
            if let Some(name) = again {
                return Err(A::Error::custom(format_args!("\"{name}\" is there twice")));
            }
        }
        Ok(Json::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(header: &str, claims: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.c2ln", encode(header), encode(claims))
    }

    fn refused(text: &str) -> Reason {
        split(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn three_parts_of_plain_base64url_are_taken_apart() {
        let text = token("{}", r#"{"a":"b","n":7}"#);
        let parts = split(text.as_bytes()).unwrap();
        assert_eq!(parts.claims.text("a"), Ok(Some("b")));
        assert_eq!(parts.claims.seconds("n"), Ok(Some(7)));
        assert_eq!(format!("{}.{}", parts.signed, parts.signature), text);
    }

    #[test]
    fn another_number_of_parts_is_refused() {
        for (text, parts) in [
            ("", 1),
            ("e30", 1),
            ("e30.e30", 2),
            ("e30.e30.e30.e30", 4),
            ("a.b.c.d.e", 5),
        ] {
            assert_eq!(refused(text), Reason::Parts(parts));
        }
        assert_eq!(refused("{\"payload\":\"e30\"}"), Reason::Parts(1));
    }

    #[test]
    fn base64_has_one_spelling() {
        for text in [
            "e30.e30.",
            "e30.e30.c2lnbg==",
            "e30.e30.c2lnbh",
            "e30.e30.+/+/",
            "e30.e30.c2ln ",
        ] {
            assert_eq!(refused(text), Reason::Base64("signature"), "{text}");
        }
        for text in ["e30=.e30.c2ln", " e30.e30.c2ln", "e31.e30.c2ln"] {
            assert_eq!(refused(text), Reason::Base64("header"), "{text}");
        }
        assert_eq!(refused("e30.e30\0.c2ln"), Reason::Base64("claims"));
        assert_eq!(split(b"e30.\xff.c2ln").unwrap_err(), Reason::Base64("text"));
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused_at_any_depth() {
        for claims in [
            r#"{"sub":"a","sub":"a"}"#,
            r#"{"sub":"a","s\u0075b":"b"}"#,
            r#"{"x":[{"y":{"z":1,"z":2}}]}"#,
        ] {
            let Reason::Json(Part::Claims, why) = refused(&token("{}", claims)) else {
                panic!("{claims}");
            };
            assert!(why.contains("twice"), "{why}");
        }
        assert!(matches!(
            refused(&token(r#"{"alg":"a","alg":"b"}"#, "{}")),
            Reason::Json(Part::Header, _)
        ));
    }

    #[test]
    fn only_objects_of_bounded_depth_are_read() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1_000), "]".repeat(1_000));
        for claims in ["[]", "1", "null", "", "{} {}", "{\"a\":1,}", &deep] {
            assert!(matches!(
                refused(&token("{}", claims)),
                Reason::Json(Part::Claims, _)
            ));
        }
        let long = token(
            "{}",
            &format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_TOKEN_BYTES)),
        );
        assert_eq!(refused(&long), Reason::TooLong(long.len()));
    }

    #[test]
    fn times_are_whole_numbers_and_names_are_strings() {
        let numbers = [
            "\"1\"",
            "1.0",
            "1e3",
            "-1",
            "18446744073709551616",
            "null",
            "true",
            "[]",
            "{}",
        ];
        for value in numbers {
            let text = token("{}", &format!("{{\"exp\":{value}}}"));
            let claims = split(text.as_bytes()).unwrap().claims;
            assert!(claims.seconds("exp").is_err(), "{value}");
            assert!(value == "\"1\"" || claims.text("exp").is_err(), "{value}");
        }
    }

    #[test]
    fn debug_shows_nothing_of_a_token() {
        let text = token(r#"{"alg":"x"}"#, r#"{"sub":"geheim"}"#);
        let parts = split(text.as_bytes()).unwrap();
        for shown in [format!("{parts:?}"), format!("{:?}", parts.claims)] {
            assert!(
                !shown.contains("geheim") && !shown.contains("c2ln"),
                "{shown}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = split(&bytes);
        }

        #[test]
        fn any_members_are_refused_or_read(header in "\\PC{0,40}", claims in "[\\[\\]{}\":,a0-9.e-]{0,40}") {
            let text = token(&header, &claims);
            let plain = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok().filter(serde_json::Value::is_object);
            if split(text.as_bytes()).is_ok() {
                prop_assert!(plain(&header).is_some() && plain(&claims).is_some());
            }
        }
    }
}
