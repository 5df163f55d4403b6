//! A redrive as a client asks for it.

use super::dead_letters::DISCARD_CODES;
use super::fields::Fields;
use super::operator::{self, Reason};
use super::problem::{Code, Problem};
use quita_storage::dead_letters::SelectionId;
use quita_storage::model::DiscardCode;
use quita_storage::redrives::{AbortIf, BulkAction, Canary, RedrivePlan};
use std::borrow::Cow;

/// What a request for a redrive may contain.
pub(crate) const FIELDS: &[&str] = &[
    "selection_id",
    "action",
    "expected_count",
    "max",
    "rate_per_second",
    "canary",
    "abort_if",
    "force",
    "reason",
    "code",
    "justification",
    "dry_run",
    "client_request_id",
];
const CANARY_FIELDS: &[&str] = &["count", "wait_seconds"];
const ABORT_FIELDS: &[&str] = &["failed_fraction", "min_sample"];
/// Members that make sense for one action alone.
const ONLY_REDRIVE: &[&str] = &["canary", "abort_if", "reason"];
const ONLY_DISCARD: &[&str] = &["code", "justification"];

/// Messages per second unless the request says otherwise: a worker that fails again should be noticed before many have.
const RATE: f64 = 50.0;
const RATES: (f64, f64) = (0.001, 1_000_000.0);
const DEFAULT_CANARY: Canary = Canary {
    count: 10,
    wait_ms: 60_000,
};
const DEFAULT_ABORT: AbortIf = AbortIf {
    failed_fraction: 0.2,
    min_sample: 10,
};
/// More messages than a store holds.
const MOST: i64 = 1_000_000_000_000;
const MOST_SAMPLED: i64 = 1_000_000;
/// Longest pause of a canary: a day.
const MOST_WAIT_SECONDS: f64 = 86_400.0;

/// A plan and its reason; what is wrong is noted, and without a plan something surely is.
pub(crate) fn read<'a>(
    fields: &mut Fields<'a>,
) -> Result<(Option<RedrivePlan>, Option<Cow<'a, str>>), Problem> {
    let selection = selection(fields);
    let action = action(fields);
    fields.require("expected_count");
    let expected_count = fields.integer("expected_count", 0, MOST);
    let max = fields.integer("max", 1, MOST);
    let rate = rate(fields).unwrap_or(Some(RATE));
    let force = fields.boolean("force").unwrap_or(false);
    let dry_run = fields.boolean("dry_run").unwrap_or(false);
    let discard = matches!(action, Some(BulkAction::Discard(_)));
    if discard {
        exclude(fields, ONLY_REDRIVE, "discard");
        if force {
            let detail = "A discard needs no force.";
            fields.fault(Code::MutuallyExclusive, "force", detail);
        }
    } else {
        exclude(fields, ONLY_DISCARD, "redrive");
    }
    let (canary, abort_if) = (canary(fields)?, abort_if(fields)?);
    let reason = if discard {
        operator::reason(fields, "justification", Reason::Justified)
    } else {
        operator::reason(fields, "reason", Reason::given_if(force))
    };
    let plan = selection.zip(action).zip(expected_count);
    let plan = plan.map(|((selection, action), expected_count)| RedrivePlan {
        selection,
        action,
        expected_count,
        max,
        rate,
        canary: canary.filter(|_| !discard),
        abort_if: abort_if.filter(|_| !discard),
        force,
        dry_run,
    });
    Ok((plan, reason))
}

/// What cannot be an id names nothing: the request is refused as not found, when nothing else is wrong with it.
fn selection(fields: &mut Fields<'_>) -> Option<SelectionId> {
    fields.require("selection_id");
    let text = fields.text("selection_id")?;
    let id = SelectionId::parse(&text);
    if id.is_none() {
        let detail = "There is no selection of this id.";
        fields.fault(Code::NotFound, "selection_id", detail);
    }
    id
}

fn action(fields: &mut Fields<'_>) -> Option<BulkAction> {
    let words = [("redrive", false), ("discard", true)];
    let discard = if fields.has("action") {
        fields.choice("action", &words)?
    } else {
        false
    };
    if !discard {
        return Some(BulkAction::Redrive);
    }
    fields.require("code");
    let code: DiscardCode = fields.choice("code", DISCARD_CODES)?;
    Some(BulkAction::Discard(code))
}

fn exclude(fields: &mut Fields<'_>, names: &[&'static str], action: &str) {
    for name in names {
        if fields.raw(name).is_some_and(|raw| raw != "null") {
            let detail = format!("The action {action} does not take it.");
            fields.fault(Code::MutuallyExclusive, name, detail);
        }
    }
}

/// `rate_per_second`: missing, none, or a number.
#[expect(
    clippy::option_option,
    reason = "a missing rate is the default, and null is none"
)]
pub(crate) fn rate(fields: &mut Fields<'_>) -> Option<Option<f64>> {
    if fields.null("rate_per_second") {
        return Some(None);
    }
    let rate = fields.number("rate_per_second", RATES.0, RATES.1)?;
    Some(Some(rate))
}

fn canary(fields: &mut Fields<'_>) -> Result<Option<Canary>, Problem> {
    if fields.null("canary") {
        return Ok(None);
    }
    let read = fields.object("canary", CANARY_FIELDS, |canary| {
        let count = canary.integer("count", 1, MOST_SAMPLED);
        let wait = canary.seconds("wait_seconds", 0.0, MOST_WAIT_SECONDS);
        Some(Canary {
            count: count.map_or(DEFAULT_CANARY.count, |count| count as u32),
            wait_ms: wait.unwrap_or(DEFAULT_CANARY.wait_ms),
        })
    })?;
    Ok(read.or(Some(DEFAULT_CANARY)))
}

fn abort_if(fields: &mut Fields<'_>) -> Result<Option<AbortIf>, Problem> {
    if fields.null("abort_if") {
        return Ok(None);
    }
    let read = fields.object("abort_if", ABORT_FIELDS, |abort| {
        let fraction = abort.number("failed_fraction", 0.000_001, 1.0);
        let sample = abort.integer("min_sample", 1, MOST_SAMPLED);
        Some(AbortIf {
            failed_fraction: fraction.unwrap_or(DEFAULT_ABORT.failed_fraction),
            min_sample: sample.map_or(DEFAULT_ABORT.min_sample, |sample| sample as u32),
        })
    })?;
    Ok(read.or(Some(DEFAULT_ABORT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<RedrivePlan, Code> {
        let mut fields = Fields::open(text, String::new(), FIELDS).map_err(|p| p.code())?;
        let (plan, _) = read(&mut fields).map_err(|p| p.code())?;
        fields.finish().map_err(|p| p.code())?;
        Ok(plan.unwrap())
    }

    fn with(members: &str) -> Result<RedrivePlan, Code> {
        plan(&format!(
            r#"{{"selection_id":"sel_0000000000007","expected_count":3{members}}}"#
        ))
    }

    #[test]
    fn what_is_not_said_is_careful() {
        let plan = with("").unwrap();
        assert_eq!((plan.rate, plan.max, plan.force), (Some(50.0), None, false));
        assert_eq!(plan.canary, Some(DEFAULT_CANARY));
        assert_eq!(plan.abort_if, Some(DEFAULT_ABORT));
        let plan = with(r#","canary":{"count":5},"abort_if":{"min_sample":2}"#).unwrap();
        assert_eq!(plan.canary.unwrap().wait_ms, 60_000);
        assert_eq!(plan.abort_if.unwrap().failed_fraction.to_string(), "0.2");
    }

    #[test]
    fn null_is_none() {
        let plan = with(r#","canary":null,"abort_if":null,"rate_per_second":null"#).unwrap();
        assert_eq!((plan.canary, plan.abort_if, plan.rate), (None, None, None));
    }

    #[test]
    fn a_discard_has_words_of_its_own() {
        let discard =
            r#","action":"discard","code":"duplicate","justification":"sent twice by the import""#;
        let plan = with(discard).unwrap();
        assert_eq!(plan.action, BulkAction::Discard(DiscardCode::Duplicate));
        assert_eq!((plan.canary, plan.abort_if), (None, None));
        for (more, code) in [
            (r#","reason":"because""#, Code::MutuallyExclusive),
            (r#","force":true"#, Code::MutuallyExclusive),
            (r#","canary":{}"#, Code::MutuallyExclusive),
        ] {
            assert_eq!(with(&format!("{discard}{more}")), Err(code), "{more}");
        }
        assert!(with(&format!(r#"{discard},"force":false,"canary":null"#)).is_ok());
    }

    #[test]
    fn every_member_has_its_range() {
        for (members, code) in [
            (r#","max":0"#, Code::OutOfRange),
            (r#","max":1.5"#, Code::WrongType),
            (r#","rate_per_second":0"#, Code::OutOfRange),
            (r#","rate_per_second":"fast""#, Code::WrongType),
            (r#","canary":{"count":0}"#, Code::OutOfRange),
            (r#","canary":{"wait_seconds":-1}"#, Code::OutOfRange),
            (r#","canary":{"until":1}"#, Code::UnknownField),
            (r#","canary":10"#, Code::WrongType),
            (r#","abort_if":{"failed_fraction":0}"#, Code::OutOfRange),
            (r#","abort_if":{"failed_fraction":1.1}"#, Code::OutOfRange),
            (r#","abort_if":{"min_sample":0}"#, Code::OutOfRange),
            (r#","force":true"#, Code::ReasonRequired),
            (r#","force":true,"reason":"  ""#, Code::ReasonRequired),
            (r#","action":"purge""#, Code::InvalidValue),
            (r#","action":"discard""#, Code::MissingField),
            (r#","action":"discard","code":"lost""#, Code::InvalidValue),
            (r#","code":"duplicate""#, Code::MutuallyExclusive),
            (
                r#","action":"discard","code":"duplicate","justification":"short""#,
                Code::ReasonRequired,
            ),
        ] {
            assert_eq!(with(members), Err(code), "{members}");
        }
        assert_eq!(plan(r#"{"expected_count":3}"#), Err(Code::MissingField));
        assert_eq!(
            plan(r#"{"selection_id":"sel_0000000000007"}"#),
            Err(Code::MissingField)
        );
        assert_eq!(
            plan(r#"{"selection_id":"7","expected_count":3}"#),
            Err(Code::NotFound)
        );
    }
}
