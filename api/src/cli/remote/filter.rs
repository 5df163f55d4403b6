//! Which dead letters: the same flags for listings, groups and selections, and the same names and values on the way to the
//! server as parameters of a query and as members of a selection.

use super::exit::{Failure, Outcome};
use super::path::Pairs;
use super::visible::visible;
use clap::{Args, ValueEnum};
use jiff::fmt::temporal::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

/// How the last delivery of a dead letter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum FailureKind {
    /// Its attempts were used up, and the last one ended in a nack
    #[value(alias = "max_attempts")]
    Nack,
    /// A worker said that it can never work
    #[value(alias = "permanent_failure")]
    Permanent,
    /// Its lease ran out too often
    LeaseExpired,
    /// It waited longer than it may
    Expired,
    /// It was released too often
    ReleaseLimit,
    /// An operator took it out
    Operator,
}

/// The filter.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter")]
pub(super) struct Filter {
    /// How they died
    #[arg(long, value_enum, value_name = "KIND")]
    failure_kind: Option<FailureKind>,

    /// Code of the last error, exactly
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,

    /// A group, as `quita dead groups` shows it
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,

    /// Business key, exactly
    #[arg(long, conflicts_with = "key_prefix")]
    key: Option<String>,

    /// Business keys that begin like this
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,

    /// Died at this time or later: a time as in 2026-11-30T15:04:05Z, or how long ago as in `2h` or `3d`
    #[arg(long, value_name = "TIME")]
    died_after: Option<String>,

    /// Died before this time
    #[arg(long, value_name = "TIME")]
    died_before: Option<String>,

    /// Published at this time or later
    #[arg(long, value_name = "TIME")]
    published_after: Option<String>,

    /// Published before this time
    #[arg(long, value_name = "TIME")]
    published_before: Option<String>,

    /// Attempts used, at least
    #[arg(long, value_name = "N")]
    min_attempts: Option<u32>,

    /// Attempts used, at most
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,

    /// Redriven at least this often
    #[arg(long, value_name = "N")]
    min_redrive_count: Option<u32>,

    /// Redriven at most this often
    #[arg(long, value_name = "N")]
    max_redrive_count: Option<u32>,

    /// Edited ones; with `false` the others
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    edited: Option<bool>,
}

impl Filter {
    /// As parameters of a query; times that are lengths count back from now.
    pub(super) fn query(&self) -> Outcome<Pairs> {
        self.pairs(Timestamp::from_millisecond(quita_storage::clock::wall()).unwrap_or_default())
    }

    /// As the `filter` of a selection.
    pub(super) fn members(&self) -> Outcome<Map<String, Value>> {
        let pairs = self.query()?.into_iter();
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), value))
            .collect())
    }

    fn pairs(&self, now: Timestamp) -> Outcome<Pairs> {
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::from);
        let number = |number: Option<u32>| number.map_or(Value::Null, Value::from);
        let at = |name: &str, text: &Option<String>| match text {
            Some(text) => moment(name, text, now).map(Value::from),
            None => Ok(Value::Null),
        };
        let kind = self
            .failure_kind
            .and_then(|kind| kind.to_possible_value())
            .map_or(Value::Null, |kind| kind.get_name().into());
        let mut pairs = vec![
            ("failure_kind", kind),
            ("error_code", text(&self.error_code)),
            ("group", text(&self.group)),
            ("key", text(&self.key)),
            ("key_prefix", text(&self.key_prefix)),
            ("died_after", at("--died-after", &self.died_after)?),
            ("died_before", at("--died-before", &self.died_before)?),
            (
                "published_after",
                at("--published-after", &self.published_after)?,
            ),
            (
                "published_before",
                at("--published-before", &self.published_before)?,
            ),
            ("min_attempts", number(self.min_attempts)),
            ("max_attempts", number(self.max_attempts)),
            ("min_redrive_count", number(self.min_redrive_count)),
            ("max_redrive_count", number(self.max_redrive_count)),
            ("edited", self.edited.map_or(Value::Null, Value::from)),
        ];
        pairs.retain(|(_, value)| !value.is_null());
        Ok(pairs)
    }
}

/// A time as the interface takes it. A length of time counts back from `now`.
pub(super) fn moment(option: &str, text: &str, now: Timestamp) -> Outcome<String> {
    let ago = |length: SignedDuration| now.checked_sub(length.abs()).ok();
    let days = |text: &str| {
        let days = text.trim().strip_suffix('d')?.parse::<i64>().ok()?;
        Some(SignedDuration::from_hours(days.checked_mul(24)?))
    };
    let at = match text.parse::<Timestamp>() {
        Ok(at) => Some(at),
        Err(_) => days(text).or_else(|| text.parse().ok()).and_then(ago),
    };
    match at {
        Some(at) => Ok(DateTimePrinter::new()
            .precision(Some(3))
            .timestamp_to_string(&at)),
        None => Err(Failure::usage(format!(
            "{option} {}: expected is a time as in 2026-11-30T15:04:05Z, or how long ago as in 2h, 30m or 3d",
            visible(text)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::with_query;
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: Filter,
    }

    fn pairs(line: &str) -> Outcome<Pairs> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        let now = "2026-11-30T12:00:00Z".parse().unwrap();
        Line::try_parse_from(words).unwrap().filter.pairs(now)
    }

    #[test]
    fn flags_become_parameters_and_members() {
        let all = "--failure-kind nack --error-code card_declined --group grp_0123456789abcdef --key-prefix cob- \
                   --died-after 2026-11-30T00:00:00Z --died-before 1h --published-after 3d --published-before 90m \
                   --min-attempts 1 --max-attempts 5 --min-redrive-count 0 --max-redrive-count 2 --edited=false";
        let pairs = pairs(all).unwrap();
        assert_eq!(
            with_query("", &pairs),
            "?failure_kind=nack&error_code=card_declined&group=grp_0123456789abcdef&key_prefix=cob-\
             &died_after=2026-11-30T00%3A00%3A00.000Z&died_before=2026-11-30T11%3A00%3A00.000Z\
             &published_after=2026-11-27T12%3A00%3A00.000Z&published_before=2026-11-30T10%3A30%3A00.000Z\
             &min_attempts=1&max_attempts=5&min_redrive_count=0&max_redrive_count=2&edited=false"
        );
        let members: Map<String, Value> = pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        assert_eq!(members["max_attempts"], json!(5));
        assert_eq!(members["edited"], json!(false));
    }

    #[test]
    fn the_reason_is_as_good_as_the_kind() {
        for (given, kind) in [
            ("max_attempts", "nack"),
            ("permanent_failure", "permanent"),
            ("lease_expired", "lease_expired"),
        ] {
            let pairs = pairs(&format!("--failure-kind {given}")).unwrap();
            assert_eq!(pairs, [("failure_kind", json!(kind))]);
        }
    }

    #[test]
    fn no_flags_are_no_filter() {
        assert_eq!(pairs("").unwrap(), []);
        assert_eq!(pairs("--edited").unwrap(), [("edited", json!(true))]);
        assert!(Line::try_parse_from(["x", "--key", "a", "--key-prefix", "b"]).is_err());
    }

    #[test]
    fn a_time_that_is_none_is_a_mistake() {
        for text in ["yesterday", "2026-11-30", "99999999999999d"] {
            assert!(pairs(&format!("--died-after {text}")).is_err(), "{text}");
        }
    }
}
