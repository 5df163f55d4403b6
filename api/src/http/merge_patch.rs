//! JSON Merge Patch (RFC 7396) on JSON *text*: what the patch does not name stays as it was written, byte for byte.
//!
//! A parser for values would round large numbers, drop repeated names and refuse lone surrogates. So only objects along the
//! patch are opened, member by member, and each member that the patch leaves alone is copied. White space between the members
//! of an opened object is not kept.

use super::json::{Members, text};
use super::problem::{Code, Problem};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Why a patch was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpatched {
    /// The patch names a member twice.
    PatchRepeats,
    /// A name in the patch is no Unicode text.
    PatchUnicode,
    /// An object along the patch has a member twice, so which one is meant cannot be said.
    TargetRepeats,
    /// A name in an object along the patch is no Unicode text.
    TargetUnicode,
}

impl Unpatched {
    /// As a problem of the field `at`.
    pub(crate) fn problem(self, at: &'static str) -> Problem {
        let (code, detail) = match self {
            Self::PatchRepeats => (Code::DuplicateField, "A name is given twice."),
            Self::PatchUnicode => (Code::InvalidUnicode, "Lone surrogates are not allowed."),
            Self::TargetRepeats => (
                Code::NotPatchable,
                "An object along the patch has a name twice.",
            ),
            Self::TargetUnicode => (
                Code::NotPatchable,
                "A name in an object along the patch is not valid Unicode.",
            ),
        };
        Problem::at(code, at, detail)
    }
}

/// An object that is being changed.
#[derive(Default)]
struct Object<'a> {
    /// Name as it was written, and value; `None` = taken out.
    members: Vec<Option<(&'a str, Cow<'a, str>)>>,
    /// Where each name stands, by its text.
    places: HashMap<Cow<'a, str>, usize>,
}

impl<'a> Object<'a> {
    fn open(text: &'a str, repeats: Unpatched, unicode: Unpatched) -> Result<Self, Unpatched> {
        let mut object = Self::default();
        for (name, written, value) in members(text, unicode)? {
            if !object.push(name, written, Cow::Borrowed(value)) {
                return Err(repeats);
            }
        }
        Ok(object)
    }

    /// `false`: the name is there already.
    fn push(&mut self, name: Cow<'a, str>, written: &'a str, value: Cow<'a, str>) -> bool {
        let new = self.places.insert(name, self.members.len()).is_none();
        self.members.push(Some((written, value)));
        new
    }

    fn write(&self) -> String {
        let members = self.members.iter().flatten();
        let length = members
            .clone()
            .map(|(name, value)| name.len() + value.len() + 2);
        let mut out = String::with_capacity(length.sum::<usize>() + 2);
        out.push('{');
        for (index, (name, value)) in members.enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(name);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

/// `target` with `patch` applied. Both are JSON texts, checked before; `patch` is an object.
pub(crate) fn apply(target: &str, patch: &str) -> Result<String, Unpatched> {
    merged(Some(target), patch).map(Cow::into_owned)
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

fn merged<'a>(target: Option<&'a str>, patch: &'a str) -> Result<Cow<'a, str>, Unpatched> {
    if !is_object(patch) {
        return Ok(Cow::Borrowed(patch));
    }
    let changes = members(patch, Unpatched::PatchUnicode)?;
    // What is no object is replaced by one.
    let mut object = match target.filter(|target| is_object(target)) {
        Some(target) if changes.is_empty() => return Ok(Cow::Borrowed(target)),
        Some(target) => Object::open(target, Unpatched::TargetRepeats, Unpatched::TargetUnicode)?,
        None => Object::default(),
    };
    let mut seen = HashSet::with_capacity(changes.len());
    for (name, written, value) in changes {
        if !seen.insert(name.clone()) {
            return Err(Unpatched::PatchRepeats);
        }
        match object.places.get(&name).copied() {
            Some(place) if value == "null" => object.members[place] = None,
            None if value == "null" => {}
            Some(place) => {
                // Each name of the patch comes here once, so the value is still the target's own.
                if let Some((_, Cow::Borrowed(old))) = object.members[place] {
                    let new = merged(Some(old), value)?;
                    object.members[place] = object.members[place].take().map(|(n, _)| (n, new));
                }
            }
            None => {
                let value = merged(None, value)?;
                object.push(name, written, value);
            }
        }
    }
    Ok(Cow::Owned(object.write()))
}

/// Name as text, name as it was written, and value.
type Member<'a> = (Cow<'a, str>, &'a str, &'a str);

fn members(object: &str, unicode: Unpatched) -> Result<Vec<Member<'_>>, Unpatched> {
    let Members(raw) = serde_json::from_str(object).unwrap_or(Members(Vec::new()));
    let named = raw.into_iter().map(|(name, value)| {
        let text = text(name.get()).ok_or(unicode)?;
        Ok((text, name.get(), value.get()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            (
                r#"{"a":1}"#,
                r#"{"a":{"b":null,"c":[null]}}"#,
                r#"{"a":{"c":[null]}}"#,
            ),
        ] {
            assert_eq!(apply(target, patch).unwrap(), result, "{target} {patch}");
        }
    }

    #[test]
    fn what_the_patch_does_not_name_stays_byte_for_byte() {
        let target = r#"{"big":1e400,"n":12345678901234567890.10,"s":"\ud800","\u0061":{ "x":1, "x":2 },"o":{"k":1.50,"l":0}}"#;
        let patched = apply(target, r#"{"o":{"l":1},"new":"\u0062"}"#).unwrap();
        assert_eq!(
            patched,
            r#"{"big":1e400,"n":12345678901234567890.10,"s":"\ud800","\u0061":{ "x":1, "x":2 },"o":{"k":1.50,"l":1},"new":"\u0062"}"#
        );
        // A name is compared as text, and stays as it was written.
        assert_eq!(
            apply(r#"{"\u0061":1}"#, r#"{"a":2}"#).unwrap(),
            r#"{"\u0061":2}"#
        );
        let spaced = " { \"a\" : 1 } ";
        assert_eq!(apply(spaced, "{}").unwrap(), spaced);
    }

    #[test]
    fn what_cannot_be_patched_without_loss_is_refused() {
        for (target, patch, why) in [
            (r#"{"a":1,"a":2}"#, r#"{"b":1}"#, Unpatched::TargetRepeats),
            (
                r#"{"a":1,"\u0061":2}"#,
                r#"{"b":1}"#,
                Unpatched::TargetRepeats,
            ),
            (
                r#"{"o":{"a":1,"a":2}}"#,
                r#"{"o":{"b":1}}"#,
                Unpatched::TargetRepeats,
            ),
            (r#"{"\ud800":1}"#, r#"{"b":1}"#, Unpatched::TargetUnicode),
            ("{}", r#"{"b":1,"b":2}"#, Unpatched::PatchRepeats),
            ("{}", r#"{"c":{"b":1,"b":2}}"#, Unpatched::PatchRepeats),
            ("{}", r#"{"\udc00":1}"#, Unpatched::PatchUnicode),
        ] {
            assert_eq!(apply(target, patch), Err(why), "{target} {patch}");
        }
        // Outside the path nobody looks.
        assert!(apply(r#"{"o":{"a":1,"a":2}}"#, r#"{"b":1}"#).is_ok());
        assert!(apply(r#"{"o":{"a":1,"a":2}}"#, r#"{"o":7}"#).is_ok());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c\"\\\\é]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_texts_are_patched_or_refused(target in "[\\[\\]{}\":,a-c0-9\\\\ .e-]{0,40}", patch in "[\\[\\]{}\":,a-c0-9\\\\ .e-]{0,40}") {
            // Both are JSON when they come here; whatever is JSON must do.
            if serde_json::from_str::<&serde_json::value::RawValue>(&target).is_ok()
                && serde_json::from_str::<&serde_json::value::RawValue>(&patch).is_ok()
                && let Ok(text) = apply(&target, &patch)
            {
                prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok(), "{}", text);
            }
        }

        #[test]
        fn the_result_is_what_a_parser_for_values_makes(target in value(), patch in value()) {
            prop_assume!(patch.is_object());
            let text = apply(&target.to_string(), &patch.to_string()).unwrap();
            let mut expected = target;
            json_patch::merge(&mut expected, &patch);
            let got: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(got, expected);
        }
    }
}
