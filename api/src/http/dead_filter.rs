//! Which dead letters: the same names and values as query parameters and as members of a selection's `filter`.

use super::docs::Describe;
use super::fields::Fields;
use super::problem::Code;
use super::query::Query;
use super::text_rule::TextRule;
use super::times;
use super::wire::values;
use quita_storage::dead_letters::{DeadFilter, KeyFilter, Range};
use quita_storage::model::Reason;
use serde_json::{Value, json};
use std::borrow::Cow;

/// What a filter may contain.
pub(crate) const FIELDS: &[&str] = &[
    "reason",
    "failure_kind",
    "error_code",
    "group",
    "key",
    "key_prefix",
    "died_after",
    "died_before",
    "published_after",
    "published_before",
    "min_attempts",
    "max_attempts",
    "min_redrive_count",
    "max_redrive_count",
    "edited",
];
/// A filter is as long as what it can match.
const KEY: TextRule = TextRule::line(0, 256);
const ERROR_CODE: TextRule = TextRule::prose(128);
/// More than a counter ever reaches.
const MOST: i64 = 1_000_000_000;
const REASONS: &[(&str, Reason)] = &[
    ("max_attempts", Reason::MaxAttempts),
    ("permanent_failure", Reason::PermanentFailure),
    ("lease_expired", Reason::LeaseExpired),
    ("release_limit", Reason::ReleaseLimit),
    ("expired", Reason::Expired),
    ("operator", Reason::Operator),
];
const KINDS: &[(&str, Reason)] = &[
    ("nack", Reason::MaxAttempts),
    ("permanent", Reason::PermanentFailure),
    ("lease_expired", Reason::LeaseExpired),
    ("release_limit", Reason::ReleaseLimit),
    ("expired", Reason::Expired),
    ("operator", Reason::Operator),
];

/// Named values of a request, wherever they stand.
pub(crate) trait Values {
    /// The value is given.
    fn given(&self, name: &str) -> bool;
    /// A text within a rule.
    fn text(&mut self, name: &str, rule: TextRule) -> Option<String>;
    /// One of some words.
    fn word<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Option<T>;
    /// A whole number between two bounds.
    fn whole(&mut self, name: &str, min: i64, max: i64) -> Option<i64>;
    /// `true` or `false`.
    fn yes(&mut self, name: &str) -> Option<bool>;
    /// Notes that a value is wrong.
    fn wrong(&mut self, code: Code, name: &str, detail: Cow<'static, str>);
}

impl Values for Query {
    fn given(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    fn text(&mut self, name: &str, rule: TextRule) -> Option<String> {
        self.text_in(name, rule)
    }

    fn word<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Option<T> {
        self.choice(name, words)
    }

    fn whole(&mut self, name: &str, min: i64, max: i64) -> Option<i64> {
        self.integer(name, min, max)
    }

    fn yes(&mut self, name: &str) -> Option<bool> {
        self.boolean(name)
    }

    fn wrong(&mut self, code: Code, name: &str, detail: Cow<'static, str>) {
        self.fault(code, name, detail);
    }
}

impl Values for Fields<'_> {
    fn given(&self, name: &str) -> bool {
        self.has(name)
    }

    fn text(&mut self, name: &str, rule: TextRule) -> Option<String> {
        self.text_in(name, rule).map(Cow::into_owned)
    }

    fn word<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Option<T> {
        self.choice(name, words)
    }

    fn whole(&mut self, name: &str, min: i64, max: i64) -> Option<i64> {
        self.integer(name, min, max)
    }

    fn yes(&mut self, name: &str) -> Option<bool> {
        self.boolean(name)
    }

    fn wrong(&mut self, code: Code, name: &str, detail: Cow<'static, str>) {
        self.fault(code, name, detail);
    }
}

/// Reads a filter; what is wrong with it is noted.
pub(crate) fn read(values: &mut impl Values) -> DeadFilter {
    let (reason, kind) = (
        values.word("reason", REASONS),
        values.word("failure_kind", KINDS),
    );
    if reason.is_some() && kind.is_some() && reason != kind {
        let detail = "No dead letter has this reason and this kind.";
        values.wrong(Code::MutuallyExclusive, "failure_kind", detail.into());
    }
    DeadFilter {
        reason: reason.or(kind),
        error_code: values.text("error_code", ERROR_CODE),
        group: group(values),
        key: key(values),
        died: times::span(values, "died_after", "died_before"),
        published: times::span(values, "published_after", "published_before"),
        attempts: range(values, "min_attempts", "max_attempts"),
        redrives: range(values, "min_redrive_count", "max_redrive_count"),
        edited: values.yes("edited"),
    }
}

fn key(values: &mut impl Values) -> Option<KeyFilter> {
    let exactly = values.text("key", KEY).map(KeyFilter::Exactly);
    let prefix = values.text("key_prefix", KEY);
    if prefix.as_deref() == Some("") {
        let detail = "1 to 256 bytes are allowed.";
        values.wrong(Code::OutOfRange, "key_prefix", detail.into());
    }
    if values.given("key") && values.given("key_prefix") {
        let detail = "Give key or key_prefix.";
        values.wrong(Code::MutuallyExclusive, "key_prefix", detail.into());
    }
    exactly.or(prefix.map(KeyFilter::Prefix))
}

fn range(values: &mut impl Values, least: &str, most: &str) -> Range {
    let (min, max) = (values.whole(least, 0, MOST), values.whole(most, 0, MOST));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let detail = format!("Nothing is between {least} and {most}.");
        values.wrong(Code::OutOfRange, least, detail.into());
    }
    let narrow = |bound: Option<i64>| bound.and_then(|n| i32::try_from(n).ok());
    Range {
        min: narrow(min),
        max: narrow(max),
    }
}

const GROUP: TextRule = TextRule::line(0, 256);

fn group(values: &mut impl Values) -> Option<i64> {
    let text = values.text("group", GROUP)?;
    let group = parse_group(&text);
    if group.is_none() {
        let detail = "grp_ and 16 hexadecimal digits are expected.";
        values.wrong(Code::InvalidValue, "group", detail.into());
    }
    group
}

/// A group's number as it is written.
pub(crate) fn write_group(group: i64) -> String {
    format!("grp_{group:016x}")
}

/// Back from [`write_group`].
fn parse_group(text: &str) -> Option<i64> {
    let digits = text.strip_prefix("grp_").filter(|d| d.len() == 16)?;
    let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let number = digits.bytes().all(plain).then_some(digits)?;
    i64::from_str_radix(number, 16).ok()
}

/// The parameters of a listing of dead letters.
pub(crate) fn described(describe: Describe) -> Describe {
    use utoipa::PartialSchema;
    let add = |describe: Describe, name: &str, what: &str, example: &Value| {
        let schema = match name {
            "reason" => values::DeadReason::schema(),
            "failure_kind" => values::FailureKind::schema(),
            "error_code" => values::ErrorCode::schema(),
            "group" => values::GroupId::schema(),
            "key" => values::KeyFilter::schema(),
            "key_prefix" => values::BusinessKey::schema(),
            "edited" => bool::schema(),
            _ if example.is_number() => values::Counter::schema(),
            _ => super::wire::Time::schema(),
        };
        describe.query(name, what, schema, example)
    };
    let time = || json!("2026-11-30T15:00:00Z");
    let parameters = [
        (
            "reason",
            "Only these: `max_attempts`, `permanent_failure`, `lease_expired`, `release_limit`, `expired` or `operator`",
            json!("max_attempts"),
        ),
        (
            "failure_kind",
            "The same in the words of the deliveries: `nack`, `permanent`, `lease_expired`, `release_limit`, `expired` or `operator`",
            json!("nack"),
        ),
        (
            "error_code",
            "Only those whose last failure had exactly this code",
            json!("gateway_timeout"),
        ),
        (
            "group",
            "Only those that failed alike",
            json!("grp_00c3f1a9d2e45b67"),
        ),
        ("key", "Only those with this key", json!("order-4711")),
        (
            "key_prefix",
            "Only those whose key begins so",
            json!("order-"),
        ),
        (
            "died_after",
            "Only those that died at this time or later",
            time(),
        ),
        (
            "died_before",
            "Only those that died before this time",
            time(),
        ),
        (
            "published_after",
            "Only those published at this time or later",
            time(),
        ),
        (
            "published_before",
            "Only those published before this time",
            time(),
        ),
        (
            "min_attempts",
            "With at least so many attempts since the last redrive",
            json!(5),
        ),
        (
            "max_attempts",
            "With at most so many attempts since the last redrive",
            json!(5),
        ),
        ("min_redrive_count", "Redriven at least so often", json!(1)),
        ("max_redrive_count", "Redriven at most so often", json!(0)),
        (
            "edited",
            "Only those that an operator changed since, or did not",
            json!(true),
        ),
    ];
    parameters
        .into_iter()
        .fold(describe, |describe, (name, what, example)| {
            add(describe, name, what, &example)
        })
        .problems(PROBLEMS)
}

/// What a filter may be refused for.
pub(crate) const PROBLEMS: &[Code] = &[
    Code::TooLong,
    Code::ControlCharacter,
    Code::InvalidValue,
    Code::InvalidUnicode,
    Code::OutOfRange,
    Code::WrongType,
    Code::MutuallyExclusive,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn from_query(text: &str) -> Result<DeadFilter, Code> {
        let mut query = Query::open(Some(text), FIELDS);
        let filter = read(&mut query);
        query.finish().map(|()| filter).map_err(|p| p.code())
    }

    fn from_json(text: &str) -> Result<DeadFilter, Code> {
        let mut fields = Fields::open(text, String::new(), FIELDS).map_err(|p| p.code())?;
        let filter = read(&mut fields);
        fields.finish().map(|()| filter).map_err(|p| p.code())
    }

    #[test]
    fn the_two_forms_read_alike() {
        let query = "failure_kind=nack&error_code=E1&group=grp_00000000000000ff&key_prefix=a%20&died_after=2026-11-30T15:00:00Z\
            &published_before=2026-11-30T16:00:00%2B01:00&min_attempts=0&max_redrive_count=3&edited=false";
        let json = r#"{"reason":"max_attempts","error_code":"E1","group":"grp_00000000000000ff","key_prefix":"a ","edited":false,
            "died_after":"2026-11-30T15:00:00.000Z","published_before":"2026-11-30T15:00:00Z","min_attempts":0,"max_redrive_count":3}"#;
        let read = from_query(query).unwrap();
        assert_eq!(from_json(json).unwrap(), read);
        assert_eq!(read.group, Some(255));
        assert_eq!(read.key, Some(KeyFilter::Prefix("a ".into())));
        assert_eq!(read.died.from, read.published.until);
        assert_eq!(from_query("").unwrap(), DeadFilter::default());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, code) in [
            ("reason=operater", Code::InvalidValue),
            ("failure_kind=max_attempts", Code::InvalidValue),
            ("reason=operator&failure_kind=nack", Code::MutuallyExclusive),
            ("key=a&key_prefix=a", Code::MutuallyExclusive),
            ("key_prefix=", Code::OutOfRange),
            ("group=grp_FF", Code::InvalidValue),
            ("group=grp_ffffffffffffffff", Code::InvalidValue),
            ("group=00000000000000ff", Code::InvalidValue),
            ("died_after=yesterday", Code::InvalidValue),
            ("died_after=2026-11-30T15:00:00", Code::InvalidValue),
            (
                "died_after=2026-11-30T15:00:00Z&died_before=2026-11-29T15:00:00Z",
                Code::OutOfRange,
            ),
            ("min_attempts=-1", Code::OutOfRange),
            ("min_attempts=3&max_attempts=2", Code::OutOfRange),
            ("edited=yes", Code::WrongType),
        ] {
            assert_eq!(from_query(text), Err(code), "{text}");
        }
        assert_eq!(from_json(r#"{"min_attempts":"1"}"#), Err(Code::WrongType));
        assert_eq!(from_json(r#"{"order":"newest"}"#), Err(Code::UnknownField));
    }

    #[test]
    fn a_group_is_written_as_it_is_read() {
        for group in [0, 1, i64::MAX] {
            assert_eq!(parse_group(&write_group(group)), Some(group));
        }
    }

    #[test]
    fn the_words_are_those_of_the_store() {
        for reason in Reason::ALL {
            assert!(REASONS.contains(&(reason.as_str(), *reason)));
            assert!(KINDS.contains(&(reason.failure_kind(), *reason)));
        }
    }
}
