//! A typed reader over query parameters, with the same manners as [`super::fields`].

use super::faults::{Faults, not_known, plain};
use super::fields::number;
use super::problem::{Code, Problem};
use super::text_rule::TextRule;
use std::borrow::Cow;

/// The parameters of one request.
pub(crate) struct Query {
    values: Vec<(String, String)>,
    faults: Faults,
}

impl Query {
    /// Reads `name=value&…`. Names that are not in `known`, and repeated ones, are noted as wrong.
    pub(crate) fn open(text: Option<&str>, known: &[&'static str]) -> Self {
        let mut query = Self {
            values: Vec::new(),
            faults: Faults::default(),
        };
        for pair in text
            .unwrap_or_default()
            .split('&')
            .filter(|p| !p.is_empty())
        {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), value) = (decoded(name), decoded(value)) else {
                query.fault(Code::UnknownParameter, "?", "Not known.");
                continue;
            };
            if !known.contains(&&*name) {
                query.fault(
                    Code::UnknownParameter,
                    plain(&name),
                    not_known(&name, known),
                );
            } else if let Some(value) = value {
                if query.values.iter().any(|(other, _)| *other == name) {
                    query.fault(Code::InvalidValue, &name, "The parameter is given twice.");
                } else {
                    query.values.push((name, value));
                }
            } else {
                query.fault(Code::InvalidUnicode, &name, "UTF-8 is expected.");
            }
        }
        query
    }

    /// Notes that a parameter is wrong.
    pub(crate) fn fault(&mut self, code: Code, name: &str, detail: impl Into<Cow<'static, str>>) {
        self.faults.add(code, format!("query:{name}"), detail);
    }

    /// Everything was read: refuses the request when something was wrong.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        self.faults.check()
    }

    /// The text of a parameter.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| &**value)
    }

    /// A text within a rule.
    pub(crate) fn text_in(&mut self, name: &str, rule: TextRule) -> Option<String> {
        let text = self.raw(name)?.to_owned();
        match rule.check(&text) {
            Ok(()) => Some(text),
            Err((code, detail)) => {
                self.fault(code, name, detail);
                None
            }
        }
    }

    /// A whole number, in plain digits.
    pub(crate) fn integer(&mut self, name: &str, min: i64, max: i64) -> Option<i64> {
        let text = self.raw(name)?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        let read = if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            number(text, min as f64, max as f64)
        } else {
            Err((Code::WrongType, "A whole number is expected.".into()))
        };
        match read {
            Ok(value) => Some(value as i64),
            Err((code, detail)) => {
                self.fault(code, name, detail);
                None
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        let (found, known) = match self.raw(name)? {
            "true" => (true, true),
            "false" => (false, true),
            _ => (false, false),
        };
        if !known {
            self.fault(Code::WrongType, name, "true or false is expected.");
        }
        known.then_some(found)
    }

    /// One of some words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.raw(name)?;
        let found = choices.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let detail = not_known(text, &words);
            self.fault(Code::InvalidValue, name, detail);
        }
        found.map(|(_, value)| *value)
    }
}

/// `%41+b` → `A b`; `None` when that is not UTF-8. A `%` that begins no escape stands for itself.
fn decoded(text: &str) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let escaped = escaped
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (escaped, bytes[at]) {
            (Some(byte), _) => {
                out.push(byte);
                at += 2;
            }
            (None, b'+') => out.push(b' '),
            (None, byte) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(query: Query) -> &'static str {
        query.finish().unwrap_err().code().as_str()
    }

    #[test]
    fn values_are_decoded() {
        let query = Query::open(Some("key=a%20b+c%zz&page_size="), &["key", "page_size"]);
        assert_eq!(query.raw("key"), Some("a b c%zz"));
        assert_eq!(query.raw("page_size"), Some(""));
        assert!(query.finish().is_ok());
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        assert_eq!(
            code(Query::open(Some("tenant=b"), &["key"])),
            "unknown_parameter"
        );
        assert_eq!(
            code(Query::open(Some("key=b&key=c"), &["key"])),
            "invalid_value"
        );
        assert_eq!(
            code(Query::open(Some("key=%ff"), &["key"])),
            "invalid_unicode"
        );
        assert_eq!(
            code(Query::open(Some("%ff=1"), &["key"])),
            "unknown_parameter"
        );
    }

    #[test]
    fn numbers_are_plain_digits_in_range() {
        for (value, expected) in [
            ("0", "out_of_range"),
            ("-1", "out_of_range"),
            ("501", "out_of_range"),
            ("9223372036854775808", "out_of_range"),
            ("1e3", "wrong_type"),
            ("abc", "wrong_type"),
            ("", "wrong_type"),
            ("1.0", "wrong_type"),
        ] {
            let text = format!("page_size={value}");
            let mut query = Query::open(Some(&text), &["page_size"]);
            assert_eq!(query.integer("page_size", 1, 500), None);
            assert_eq!(code(query), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_read_or_refused_and_never_repeated(text in "\\PC{0,60}|[a-z_=&%+0-9]{0,60}") {
            let mut query = Query::open(Some(&text), &["key", "page_size"]);
            let size = query.integer("page_size", 1, 500);
            prop_assert!(size.is_none_or(|size| (1..=500).contains(&size)));
            query.boolean("key");
            query.choice("key", &[("a", 1)]);
            if let Err(problem) = query.finish() {
                prop_assert!((400..500).contains(&problem.status()));
            }
        }

        #[test]
        fn any_text_comes_back_from_its_escapes(text in any::<String>()) {
            let escaped = text.bytes().fold(String::new(), |all, byte| all + &format!("%{byte:02x}"));
            prop_assert_eq!(decoded(&escaped), Some(text));
        }

        #[test]
        fn any_number_comes_back(number in 1i64..=500) {
            let text = format!("page_size={number}");
            let mut query = Query::open(Some(&text), &["page_size"]);
            prop_assert_eq!(query.integer("page_size", 1, 500), Some(number));
        }
    }
}
