//! A queue's policy as a client writes it (product §6).

use super::fields::Fields;
use super::fields::to_millis;
use super::problem::{Code, Problem};
use super::publish::{MAX_DELAY_SECONDS, MAX_LIFE_SECONDS};
use quita_storage::model::{Backoff, Jitter, LateAck, Millis, Policy};

/// What a policy may contain.
pub(crate) const FIELDS: &[&str] = &[
    "visibility_timeout_seconds",
    "max_attempts",
    "max_lease_expirations",
    "max_releases",
    "max_redrives",
    "backoff",
    "delay_seconds",
    "wait_seconds",
    "dedupe_window_seconds",
    "unique_key",
    "key_retention_seconds",
    "retention_seconds",
    "dead_letter_retention_seconds",
    "max_message_bytes",
    "max_depth",
    "late_ack",
];
/// A day and thirty of them: bounds of what is kept.
const DAY: f64 = 86_400.0;
const THIRTY_DAYS: f64 = 2_592_000.0;
/// Waits of a schedule: as many as anybody waits for.
const MAX_SCHEDULE: usize = 100;
/// Growth of a wait per failure; above, the second wait is the largest one anyway.
const MAX_FACTOR: f64 = 100.0;

const JITTERS: &[(&str, Jitter)] = &[
    ("none", Jitter::None),
    ("equal", Jitter::Equal),
    ("full", Jitter::Full),
];

/// `base` with everything that the fields say otherwise.
pub(crate) fn read(fields: &mut Fields<'_>, base: Policy) -> Result<Policy, Problem> {
    let mut policy = base;
    let set = |slot: &mut Millis, value: Option<Millis>| *slot = value.unwrap_or(*slot);
    set(
        &mut policy.visibility_timeout_ms,
        fields.seconds("visibility_timeout_seconds", 1.0, 43_200.0),
    );
    set(
        &mut policy.delay_ms,
        fields.seconds("delay_seconds", 0.0, MAX_DELAY_SECONDS),
    );
    set(
        &mut policy.wait_ms,
        fields.seconds("wait_seconds", 0.0, 30.0),
    );
    set(
        &mut policy.dedupe_window_ms,
        fields.seconds("dedupe_window_seconds", 60.0, THIRTY_DAYS),
    );
    set(
        &mut policy.retention_ms,
        fields.seconds("retention_seconds", 60.0, THIRTY_DAYS),
    );
    let number = |slot: &mut u32, value: Option<i64>| {
        *slot = value.map_or(*slot, |value| value as u32);
    };
    number(
        &mut policy.max_attempts,
        fields.integer("max_attempts", 1, 1_000),
    );
    number(
        &mut policy.max_lease_expirations,
        fields.integer("max_lease_expirations", 1, 1_000),
    );
    number(
        &mut policy.max_redrives,
        fields.integer("max_redrives", 0, 100),
    );
    number(
        &mut policy.max_message_bytes,
        fields.integer("max_message_bytes", 1, 262_144),
    );
    if let Some(unique_key) = fields.boolean("unique_key") {
        policy.unique_key = unique_key;
    }
    let late_ack = [("accept", LateAck::Accept), ("strict", LateAck::Strict)];
    if let Some(late_ack) = fields.choice("late_ack", &late_ack) {
        policy.late_ack = late_ack;
    }
    if let Some(backoff) = read_backoff(fields)? {
        policy.backoff = backoff;
    }
    if fields.null("max_releases") {
        policy.max_releases = None;
    } else if let Some(max) = fields.integer("max_releases", 1, 10_000) {
        policy.max_releases = Some(max as u32);
    }
    if fields.null("max_depth") {
        policy.max_depth = None;
    } else if let Some(max) = fields.integer("max_depth", 1, 1_000_000_000) {
        policy.max_depth = Some(max as u64);
    }
    if fields.null("key_retention_seconds") {
        policy.key_retention_ms = None;
    } else if let Some(kept) = fields.seconds("key_retention_seconds", DAY, MAX_LIFE_SECONDS) {
        policy.key_retention_ms = Some(kept);
    }
    if fields.null("dead_letter_retention_seconds") {
        policy.dead_letter_retention_ms = None;
    } else if let Some(kept) =
        fields.seconds("dead_letter_retention_seconds", 3_600.0, MAX_LIFE_SECONDS)
    {
        policy.dead_letter_retention_ms = Some(kept);
    }
    Ok(policy)
}

#[derive(Clone, Copy)]
enum Kind {
    Exponential,
    Fixed,
    Schedule,
}

const KINDS: &[(&str, Kind)] = &[
    ("exponential", Kind::Exponential),
    ("fixed", Kind::Fixed),
    ("schedule", Kind::Schedule),
];
/// What a backoff may contain; what each kind takes is less.
const BACKOFF_FIELDS: &[&str] = &[
    "type",
    "base_seconds",
    "factor",
    "max_seconds",
    "jitter",
    "schedule_seconds",
];

/// The member `backoff`.
pub(crate) fn read_backoff(fields: &mut Fields<'_>) -> Result<Option<Backoff>, Problem> {
    fields.object("backoff", BACKOFF_FIELDS, |backoff| {
        let kind = if backoff.has("type") {
            backoff.choice("type", KINDS)?
        } else {
            Kind::Exponential
        };
        let jitter = backoff.choice("jitter", JITTERS);
        let default = Jitter::Equal;
        Some(match kind {
            Kind::Exponential => {
                backoff.only(&["type", "base_seconds", "factor", "max_seconds", "jitter"]);
                let base_ms = backoff.seconds("base_seconds", 0.0, MAX_DELAY_SECONDS);
                let max_ms = backoff.seconds("max_seconds", 0.0, MAX_DELAY_SECONDS);
                Backoff::Exponential {
                    base_ms: base_ms.unwrap_or(2_000),
                    factor: backoff.number("factor", 1.0, MAX_FACTOR).unwrap_or(2.0),
                    max_ms: max_ms.unwrap_or(900_000),
                    jitter: jitter.unwrap_or(default),
                }
            }
            Kind::Fixed => {
                backoff.only(&["type", "base_seconds", "jitter"]);
                backoff.require("base_seconds");
                Backoff::Fixed {
                    base_ms: backoff.seconds("base_seconds", 0.0, MAX_DELAY_SECONDS)?,
                    jitter: jitter.unwrap_or(default),
                }
            }
            Kind::Schedule => {
                backoff.only(&["type", "schedule_seconds", "jitter"]);
                backoff.require("schedule_seconds");
                Backoff::Schedule {
                    schedule_ms: schedule(backoff)?,
                    jitter: jitter.unwrap_or(Jitter::None),
                }
            }
        })
    })
}

fn schedule(backoff: &mut Fields<'_>) -> Option<Vec<Millis>> {
    let name = "schedule_seconds";
    let entries = backoff.entries::<MAX_SCHEDULE>(name)?;
    if entries.more || entries.items.is_empty() {
        backoff.fault(Code::OutOfRange, name, "1 to 100 waits are allowed.");
        return None;
    }
    let mut waits = Vec::with_capacity(entries.items.len());
    for (index, entry) in entries.items.iter().enumerate() {
        match super::fields::number(entry.get(), 0.0, MAX_DELAY_SECONDS) {
            Ok(wait) => waits.push(to_millis(wait)),
            Err((code, detail)) => backoff.fault(code, &format!("{name}/{index}"), detail),
        }
    }
    Some(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Result<Policy, Problem> {
        let mut fields = Fields::open(text, String::new(), FIELDS)?;
        let policy = read(&mut fields, Policy::default())?;
        fields.finish()?;
        Ok(policy)
    }

    #[test]
    fn what_is_read_is_what_is_described_and_written() {
        use utoipa::PartialSchema;
        let (schema, backoff) = (
            super::super::wire::queue::Policy::schema(),
            super::super::wire::queue::Backoff::schema(),
        );
        super::super::fields::tests::assert_described(&schema, FIELDS);
        super::super::fields::tests::assert_described(&backoff, BACKOFF_FIELDS);
        for text in [
            "{}",
            r#"{"backoff":{"type":"fixed","base_seconds":1.5},"max_releases":3,"max_depth":10,"late_ack":"strict","key_retention_seconds":null}"#,
            r#"{"backoff":{"type":"schedule","schedule_seconds":[300,3600]},"dead_letter_retention_seconds":3600,"unique_key":true}"#,
        ] {
            let read = policy(text).unwrap();
            let written = serde_json::to_string(&super::super::wire::queue::Policy::from(&read));
            assert_eq!(policy(&written.unwrap()).unwrap(), read);
        }
    }

    #[test]
    fn every_field_has_its_range() {
        for (text, code) in [
            (r#"{"visibility_timeout_seconds":0.999}"#, Code::OutOfRange),
            (r#"{"visibility_timeout_seconds":43201}"#, Code::OutOfRange),
            (r#"{"max_attempts":0}"#, Code::OutOfRange),
            (r#"{"max_attempts":1001}"#, Code::OutOfRange),
            (r#"{"max_attempts":null}"#, Code::WrongType),
            (r#"{"max_releases":0}"#, Code::OutOfRange),
            (r#"{"max_redrives":101}"#, Code::OutOfRange),
            (r#"{"wait_seconds":31}"#, Code::OutOfRange),
            (r#"{"dedupe_window_seconds":59}"#, Code::OutOfRange),
            (r#"{"key_retention_seconds":1}"#, Code::OutOfRange),
            (r#"{"max_message_bytes":262145}"#, Code::OutOfRange),
            (r#"{"late_ack":"maybe"}"#, Code::InvalidValue),
            (r#"{"backoff":{"type":"linear"}}"#, Code::InvalidValue),
            (r#"{"backoff":{"type":"fixed"}}"#, Code::MissingField),
            (
                r#"{"backoff":{"type":"fixed","base_seconds":1,"factor":2}}"#,
                Code::UnknownField,
            ),
            (
                r#"{"backoff":{"type":"schedule","schedule_seconds":[]}}"#,
                Code::OutOfRange,
            ),
            (
                r#"{"backoff":{"type":"schedule","schedule_seconds":[1,"x"]}}"#,
                Code::WrongType,
            ),
            (r#"{"backoff":{"factor":0.5}}"#, Code::OutOfRange),
            (r#"{"backoff":7}"#, Code::WrongType),
        ] {
            assert_eq!(policy(text).unwrap_err().code(), code, "{text}");
        }
        assert_eq!(
            policy(r#"{"max_depth":null,"max_releases":null}"#).unwrap(),
            Policy::default()
        );
    }
}
