//! A typed reader over the members of a JSON object.
//!
//! It collects what is wrong with JSON pointers instead of stopping at the first fault, offers the nearest known name for an
//! unknown one, and leaves `message` as the text it was sent as.

use super::faults::{Faults, not_known, plain};
use super::json::{Entries, Members, deeper_than, text};
use super::problem::{Code, Problem};
use super::text_rule::TextRule;
use quita_storage::model::Millis;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Levels that may be nested, apart from `message`.
pub(crate) const MAX_NESTING: usize = 64;
/// Levels that may be nested inside `message` (product 4.9).
pub(crate) const MAX_MESSAGE_NESTING: usize = 128;

/// The members of one object of the request.
pub(crate) struct Fields<'a> {
    at: String,
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
    faults: Faults,
}

impl<'a> Fields<'a> {
    /// Opens the object `text`, which is at the pointer `at` of the request. A text that is JSON but no object, or that has
    /// a member twice, is refused at once; members whose name is not in `known` are noted as wrong.
    pub(crate) fn open(text: &'a str, at: String, known: &[&'static str]) -> Result<Self, Problem> {
        let Members(raw) = serde_json::from_str(text).map_err(|error| {
            if error.is_data() {
                Problem::at(
                    Code::ExpectedObject,
                    at.clone(),
                    "A JSON object is expected.",
                )
            } else {
                let place = format!("Line {}, column {}.", error.line(), error.column());
                Problem::new(Code::MalformedJson, place)
            }
        })?;
        let mut fields = Self {
            at,
            members: Vec::with_capacity(raw.len()),
            faults: Faults::default(),
        };
        for (name, value) in raw {
            // A name that is no Unicode text is none that is known.
            let name = self::text(name.get()).unwrap_or(Cow::Borrowed("\u{fffd}"));
            let inside = matches!(&*name, "message" | "merge_patch");
            if !inside && deeper_than(value.get().as_bytes(), MAX_NESTING - 1) {
                return Err(Code::NestingTooDeep.into());
            }
            if fields.members.iter().any(|(other, _)| *other == name) {
                return Err(Problem::at(
                    Code::DuplicateField,
                    fields.pointer(plain(&name)),
                    "The field is given twice.",
                ));
            }
            if known.contains(&&*name) {
                fields.members.push((name, value));
            } else {
                fields.fault(Code::UnknownField, plain(&name), not_known(&name, known));
            }
        }
        Ok(fields)
    }

    /// The pointer of a member.
    pub(crate) fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.at)
    }

    /// Notes that a member is wrong.
    pub(crate) fn fault(&mut self, code: Code, name: &str, detail: impl Into<Cow<'static, str>>) {
        let pointer = self.pointer(name);
        self.faults.add(code, pointer, detail);
    }

    /// Everything was read: refuses the object when something was wrong.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        self.faults.check()
    }

    /// Notes that something outside the object is wrong.
    pub(crate) fn fault_at(&mut self, code: Code, at: &str, detail: impl Into<Cow<'static, str>>) {
        self.faults.add(code, at.to_owned(), detail);
    }

    /// Whether the member is given; notes it when it is not.
    pub(crate) fn require(&mut self, name: &str) -> bool {
        let given = self.has(name);
        if !given {
            self.fault(Code::MissingField, name, "The field is required.");
        }
        given
    }

    /// Notes every member that is not in `known`, which is less than the object was opened with.
    pub(crate) fn only(&mut self, known: &[&'static str]) {
        let others: Vec<Cow<'a, str>> = self
            .members
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| !known.contains(&&**name))
            .collect();
        for name in others {
            self.fault(Code::UnknownField, &name, not_known(&name, known));
        }
    }

    /// The member is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(member, _)| member == name)
    }

    /// The member's JSON text, whatever it is.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        let found = self.members.iter().find(|(member, _)| member == name);
        found.map(|(_, value)| value.get())
    }

    /// The member is given as `null`, which means no bound: it is taken out and the answer is `true`.
    pub(crate) fn null(&mut self, name: &str) -> bool {
        let null = self.raw(name) == Some("null");
        if null {
            self.members.retain(|(member, _)| member != name);
        }
        null
    }

    /// A string.
    pub(crate) fn text(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let raw = self.raw(name)?;
        if !raw.starts_with('"') {
            self.fault(Code::WrongType, name, "A string is expected.");
            return None;
        }
        let text = text(raw);
        if text.is_none() {
            self.fault(
                Code::InvalidUnicode,
                name,
                "Lone surrogates are not allowed.",
            );
        }
        text
    }

    /// A string within a rule.
    pub(crate) fn text_in(&mut self, name: &str, rule: TextRule) -> Option<Cow<'a, str>> {
        let text = self.text(name)?;
        match rule.check(&text) {
            Ok(()) => Some(text),
            Err((code, detail)) => {
                self.fault(code, name, detail);
                None
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        match self.raw(name)? {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.fault(Code::WrongType, name, "true or false is expected.");
                None
            }
        }
    }

    /// A number between two bounds.
    pub(crate) fn number(&mut self, name: &str, min: f64, max: f64) -> Option<f64> {
        let raw = self.raw(name)?;
        match number(raw, min, max) {
            Ok(value) => Some(value),
            Err((code, detail)) => {
                self.fault(code, name, detail);
                None
            }
        }
    }

    /// A whole number between two bounds; `1.0` and `1e1` are whole.
    pub(crate) fn integer(&mut self, name: &str, min: i64, max: i64) -> Option<i64> {
        let value = self.number(name, min as f64, max as f64)?;
        if value.fract() != 0.0 {
            self.fault(Code::WrongType, name, "A whole number is expected.");
            return None;
        }
        Some(value as i64)
    }

    /// A length of time in seconds, as milliseconds.
    pub(crate) fn seconds(&mut self, name: &str, min: f64, max: f64) -> Option<Millis> {
        self.number(name, min, max).map(to_millis)
    }

    /// One of some words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(name)?;
        let found = choices.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.fault(Code::InvalidValue, name, not_known(&text, &words));
        }
        found.map(|(_, value)| *value)
    }

    /// An object inside this one. What `read` notes as wrong counts as wrong here.
    pub(crate) fn object<T>(
        &mut self,
        name: &str,
        known: &[&'static str],
        read: impl FnOnce(&mut Fields<'a>) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        if !raw.starts_with('{') {
            self.fault(Code::WrongType, name, "An object is expected.");
            return Ok(None);
        }
        let mut inner = Fields::open(raw, self.pointer(name), known)?;
        let value = read(&mut inner);
        self.faults.absorb(inner.faults);
        Ok(value)
    }

    /// The entries of an array, at most `MAX`.
    pub(crate) fn entries<const MAX: usize>(&mut self, name: &str) -> Option<Entries<'a, MAX>> {
        let raw = self.raw(name)?;
        let entries = serde_json::from_str(raw).ok();
        if entries.is_none() {
            self.fault(Code::WrongType, name, "An array is expected.");
        }
        entries
    }

    /// The members of an object with names of the caller's own, as (name, JSON text). A repeated name is refused.
    pub(crate) fn map(&mut self, name: &str) -> Result<Option<Vec<(String, &'a str)>>, Problem> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        let Some(Members(members)) = serde_json::from_str(raw).ok() else {
            self.fault(Code::WrongType, name, "An object is expected.");
            return Ok(None);
        };
        let mut map: Vec<(String, &'a str)> = Vec::with_capacity(members.len());
        for (member, value) in members {
            let Some(member) = text(member.get()) else {
                self.fault(
                    Code::InvalidUnicode,
                    name,
                    "Lone surrogates are not allowed.",
                );
                return Ok(None);
            };
            map.push((member.into_owned(), value.get()));
        }
        map.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if map.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(Problem::at(
                Code::DuplicateField,
                self.pointer(name),
                "A name is given twice.",
            ));
        }
        Ok(Some(map))
    }
}

/// Seconds as milliseconds.
pub(crate) fn to_millis(seconds: f64) -> Millis {
    (seconds * 1000.0).round() as Millis
}

/// Reads a JSON number.
pub(crate) fn number(raw: &str, min: f64, max: f64) -> Result<f64, (Code, Cow<'static, str>)> {
    let first = raw.as_bytes().first().copied().unwrap_or_default();
    if first != b'-' && !first.is_ascii_digit() {
        return Err((Code::WrongType, "A number is expected.".into()));
    }
    match raw.parse::<f64>() {
        Ok(value) if (min..=max).contains(&value) => Ok(value + 0.0),
        Ok(_) => Err((
            Code::OutOfRange,
            format!("{min} to {max} is allowed.").into(),
        )),
        Err(_) => Err((Code::WrongType, "A number is expected.".into())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use utoipa::openapi::{RefOr, Schema};

    /// The names that a reader knows are the properties that its description has.
    pub(crate) fn assert_described(schema: &RefOr<Schema>, read: &[&str]) {
        let json = serde_json::to_value(schema).unwrap();
        let alternatives = json["oneOf"].as_array().cloned();
        let alternatives = alternatives.unwrap_or_else(|| vec![json]);
        let members = |one: &serde_json::Value| one["properties"].as_object().unwrap().clone();
        let mut described: Vec<String> =
            alternatives.iter().flat_map(members).map(|m| m.0).collect();
        let mut read = read.to_vec();
        described.sort_unstable();
        described.dedup();
        read.sort_unstable();
        assert_eq!(described, read);
    }

    const KNOWN: &[&str] = &[
        "delay_seconds",
        "max_attempts",
        "message",
        "name",
        "inner",
        "list",
        "map",
    ];

    fn open(text: &str) -> Result<Fields<'_>, Problem> {
        Fields::open(text, String::new(), KNOWN)
    }

    fn refused(text: &str, read: impl FnOnce(&mut Fields<'_>)) -> serde_json::Value {
        let problem = match open(text) {
            Err(problem) => problem,
            Ok(mut fields) => {
                read(&mut fields);
                fields.finish().unwrap_err()
            }
        };
        serde_json::from_str(&problem.to_json(None)).unwrap()
    }

    #[test]
    fn what_is_no_object_is_refused_by_kind() {
        for (text, code) in [
            ("[]", "expected_object"),
            ("\"x\"", "expected_object"),
            ("null", "expected_object"),
            ("1", "expected_object"),
            ("{\"name\":", "malformed_json"),
            ("{} x", "malformed_json"),
            ("{}{}", "malformed_json"),
            ("{\"name\":1,}", "malformed_json"),
            ("{'name':1}", "malformed_json"),
            ("{/* */}", "malformed_json"),
            ("{\"name\":NaN}", "malformed_json"),
            ("{\"name\":-Infinity}", "malformed_json"),
            ("{\"name\":1,\"name\":2}", "duplicate_field"),
            ("{\"name\":1,\"n\\u0061me\":2}", "duplicate_field"),
        ] {
            assert_eq!(refused(text, |_| {})["code"], code, "{text}");
        }
    }

    #[test]
    fn an_unknown_field_gets_the_nearest_known_name_and_only_plain_names_are_repeated() {
        let json = refused(r#"{"dealy_seconds":1,"<script>":2}"#, |_| {});
        assert_eq!(json["code"], "unknown_field");
        assert_eq!(json["errors"][0]["pointer"], "/dealy_seconds");
        let detail = json["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("delay_seconds"), "{detail}");
        assert_eq!(json["errors"][1]["pointer"], "/?");
    }

    #[test]
    fn numbers_are_checked_by_type_and_range() {
        for (value, code) in [
            ("\"5\"", "wrong_type"),
            ("true", "wrong_type"),
            ("[5]", "wrong_type"),
            ("null", "wrong_type"),
            ("-1", "out_of_range"),
            ("604800.001", "out_of_range"),
            ("9007199254740993", "out_of_range"),
            ("18446744073709551616", "out_of_range"),
            ("1e400", "out_of_range"),
        ] {
            let text = format!("{{\"delay_seconds\":{value}}}");
            let json = refused(&text, |f| {
                assert_eq!(f.seconds("delay_seconds", 0.0, 604_800.0), None);
            });
            assert_eq!(json["code"], code, "{value}");
        }
        let long = format!("{{\"delay_seconds\":{}}}", "9".repeat(100_000));
        assert_eq!(
            refused(&long, |f| assert_eq!(
                f.seconds("delay_seconds", 0.0, 1.0),
                None
            ))["code"],
            "out_of_range"
        );
        for (value, ms) in [
            ("1.5", 1_500),
            ("-0", 0),
            ("0", 0),
            ("0.0004", 0),
            ("1e1", 10_000),
        ] {
            let text = format!("{{\"delay_seconds\":{value}}}");
            let mut fields = open(&text).unwrap();
            assert_eq!(fields.seconds("delay_seconds", 0.0, 604_800.0), Some(ms));
        }
        let mut fields = open(r#"{"max_attempts":1.0}"#).unwrap();
        assert_eq!(fields.integer("max_attempts", 1, 1000), Some(1));
        let json = refused(r#"{"max_attempts":1.5}"#, |f| {
            assert_eq!(f.integer("max_attempts", 1, 1000), None);
        });
        assert_eq!(json["code"], "wrong_type");
    }

    #[test]
    fn texts_are_checked() {
        let rule = TextRule::line(1, 3);
        for (value, code) in [
            ("\"\"", "out_of_range"),
            ("\"abcd\"", "out_of_range"),
            ("\"\\u0000\"", "control_character"),
            ("\"\\ud800\"", "invalid_unicode"),
            ("7", "wrong_type"),
        ] {
            let text = format!("{{\"name\":{value}}}");
            assert_eq!(
                refused(&text, |f| drop(f.text_in("name", rule)))["code"],
                code,
                "{value}"
            );
        }
        let mut fields = open(r#"{"name":"\u00e4b"}"#).unwrap();
        assert_eq!(fields.text_in("name", rule).as_deref(), Some("äb"));
        assert!(
            TextRule::prose(9).check("a\nb").is_ok() && TextRule::line(0, 9).check("a\nb").is_err()
        );
    }

    #[test]
    fn depth_is_64_but_for_the_message() {
        let nested = |name: &str, depth| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!("{{\"{name}\":{open}{close}}}")
        };
        assert!(open(&nested("inner", 63)).is_ok());
        assert_eq!(
            refused(&nested("inner", 64), |_| {})["code"],
            "nesting_too_deep"
        );
        assert!(open(&nested("message", 128)).is_ok());
    }

    #[test]
    fn inner_objects_report_with_their_own_pointer() {
        let json = refused(r#"{"inner":{"a":"x","b":1}}"#, |f| {
            let read = f.object("inner", &["a"], |inner| inner.boolean("a"));
            assert_eq!(read.unwrap(), None);
        });
        assert_eq!(json["errors"][0]["pointer"], "/inner/b");
        assert_eq!(json["errors"][1]["pointer"], "/inner/a");
    }

    #[test]
    fn a_message_stays_the_text_it_was() {
        let text = "{\"message\": {\"a\":1e400,\"a\":\"\\ud800\" , \"b\":[ ]} }";
        assert_eq!(
            open(text).unwrap().raw("message"),
            Some("{\"a\":1e400,\"a\":\"\\ud800\" , \"b\":[ ]}")
        );
    }
}
