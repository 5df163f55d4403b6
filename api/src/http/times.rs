//! Points in time as clients write them: RFC 3339, in any offset, to any precision.

use super::dead_filter::Values;
use super::problem::Code;
use super::text_rule::TextRule;
use jiff::Timestamp;
use quita_storage::dead_letters::Span;
use quita_storage::model::Millis;

/// Longest written time.
const TIME: TextRule = TextRule::line(0, 64);

/// The time of this name; what is wrong with it is noted.
fn time(values: &mut impl Values, name: &str) -> Option<Millis> {
    let text = values.text(name, TIME)?;
    let time = parse(&text);
    if time.is_none() {
        let detail = "A time as in RFC 3339 is expected, such as 2026-11-30T15:04:05Z.";
        values.wrong(Code::InvalidValue, name, detail.into());
    }
    time
}

/// The span from one time, inclusive, to another, exclusive. One that ends before it begins is a mistake.
pub(crate) fn span(values: &mut impl Values, from: &str, until: &str) -> Span {
    let span = Span {
        from: time(values, from),
        until: time(values, until),
    };
    if let (Some(begin), Some(end)) = (span.from, span.until)
        && begin > end
    {
        let detail = format!("Nothing is between {from} and {until}.");
        values.wrong(Code::OutOfRange, from, detail.into());
    }
    span
}

/// Milliseconds, rounded up: so that a bound with more decimals includes and excludes what it says.
fn parse(text: &str) -> Option<Millis> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')]
            .iter()
            .all(|(at, mark)| bytes[*at] == *mark)
        && matches!(bytes[10], b'T' | b't')
        && !text.contains('[');
    let time: Timestamp = text.parse().ok().filter(|_| shaped)?;
    let ms = time.as_millisecond();
    let cut = Timestamp::from_millisecond(ms).ok()?;
    Some(ms + i64::from(time > cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_rfc_3339_allows_is_read_and_nothing_else() {
        for (text, ms) in [
            ("1970-01-01T00:00:01Z", Some(1_000)),
            ("1970-01-01t00:00:01z", Some(1_000)),
            ("1970-01-01T01:00:01+01:00", Some(1_000)),
            ("1970-01-01T00:00:00.0011Z", Some(2)),
            ("1970-01-01T00:00:00.001Z", Some(1)),
            ("1969-12-31T23:59:59.9995Z", Some(0)),
            ("1970-01-01T00:00:01", None),
            ("1970-01-01 00:00:01Z", None),
            ("1970-01-01", None),
            ("19700101T000001Z", None),
            ("1970-13-01T00:00:00Z", None),
            ("1970-01-01T00:00:00Z[UTC]", None),
            ("now", None),
            ("", None),
        ] {
            assert_eq!(parse(text), ms, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}|[0-9TZ:.+tz -]{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn any_time_comes_back(ms in -62_135_596_800_000i64..253_402_300_799_000) {
            let text = Timestamp::from_millisecond(ms).unwrap().to_string();
            prop_assert_eq!(parse(&text), Some(ms), "{}", text);
        }
    }
}
