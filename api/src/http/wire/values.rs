//! What single values of a request may be, described once: names, ids, texts, lengths of time.
//!
//! JSON Schema counts characters where the server counts bytes: a text of other letters than ASCII may be too long although
//! its description allows it.

use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A description written as JSON Schema.
pub(crate) fn described(schema: Value) -> RefOr<Schema> {
    // Whether each one can be read is tested.
    RefOr::T(serde_json::from_value(schema).unwrap_or_default())
}

/// The description of a type as JSON, to be a part of another one.
pub(crate) fn part<T: PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).unwrap_or_default()
}

/// A right on every queue; or on one, or on those whose names begin so, each of at most 80 letters.
fn scope_forms() -> Vec<Value> {
    let form = |pattern: String, most: usize| json!({"type": "string", "pattern": pattern, "maxLength": most});
    let mut forms = vec![form("^(admin|(audit|keys)(:[*])?)$".to_owned(), 7)];
    for rights in ["publish|consume|payload|redrive|discard", "manage", "read"] {
        let length = rights.find('|').unwrap_or(rights.len());
        let name = "[A-Za-z0-9]([.]?[A-Za-z0-9_-])*[.]?";
        forms.push(form(format!("^({rights})(:{name})?$"), length + 81));
        forms.push(form(format!("^({rights}):({name})?[*]$"), length + 82));
    }
    forms
}

macro_rules! values {
    ($($(#[doc = $doc:literal])+ $name:ident = $schema:tt;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl $name {
                fn json() -> Value {
                    let mut schema = json!($schema);
                    schema["description"] = json!(concat!($($doc),+).trim());
                    schema
                }
            }

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    described(Self::json())
                }
            }

            impl ToSchema for $name {}
        )+

        #[cfg(test)]
        const ALL: &[(&str, fn() -> Value)] = &[$((stringify!($name), $name::json)),+];
    };
}

values! {
    /// Name of a queue: letters, digits, `.`, `_` and `-`, a letter or digit first, no two dots in a row.
    QueueName = {"type": "string", "maxLength": 80, "pattern": "^[A-Za-z0-9]([.]?[A-Za-z0-9_-])*[.]?$", "examples": ["orders"]};
    /// Id of a message.
    MessageId = {"type": "string", "pattern": "^msg_[0-7][0-9a-hjkmnp-tv-z]{12}$", "examples": ["msg_02mx3k8s9qv40"]};
    /// Id of a selection.
    SelectionId = {"type": "string", "pattern": "^sel_[0-7][0-9a-hjkmnp-tv-z]{12}$", "examples": ["sel_0000000000007"]};
    /// Id of a redrive.
    RedriveId = {"type": "string", "pattern": "^rdv_[0-7][0-9a-hjkmnp-tv-z]{12}$", "examples": ["rdv_0000000000003"]};
    /// Id of a key: its public part.
    KeyId = {"type": "string", "pattern": "^[a-z2-7]{12}$", "examples": ["k7f2mx3q5sv4"]};
    /// Dead letters that failed alike.
    GroupId = {"type": "string", "pattern": "^grp_[0-7][0-9a-f]{15}$", "examples": ["grp_00c3f1a9d2e45b67"]};
    /// One delivery of a message, as a receive answered it. Opaque.
    ReceiptText = {"type": "string", "examples": ["AQAAAAEAAAAB…"]};
    /// Makes a repeat recognisable. 1 to 128 bytes, compared exactly.
    ClientRequestId = {"type": "string", "minLength": 1, "maxLength": 128, "examples": ["order-4711"]};
    /// Names the business operation: one line of 1 to 256 bytes.
    BusinessKey = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", "examples": ["order-4711"]};
    /// A key that a message may have, or none has: one line of at most 256 bytes.
    KeyFilter = {"type": "string", "maxLength": 256, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", "examples": ["order-4711"]};
    /// The id that a message was published with. At most 128 bytes.
    RequestIdFilter = {"type": "string", "maxLength": 128, "examples": ["order-4711"]};
    /// One line of at most 128 bytes.
    WorkerName = {"type": "string", "maxLength": 128, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", "examples": ["billing-7"]};
    /// One line of at most 256 bytes.
    Line = {"type": "string", "maxLength": 256, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", "examples": ["mailer in production"]};
    /// At most 4 KiB of text.
    Prose = {"type": "string", "maxLength": 4096, "pattern": "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f]*$", "examples": ["the gateway is back"]};
    /// Why: at most 4 KiB, not only spaces.
    ReasonText = {"type": "string", "maxLength": 4096, "minLength": 1,
        "pattern": "^[^\\S\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f]*$",
        "examples": ["amount had a comma, ticket 7"]};
    /// Why: at least 10 characters that are not spaces, at most 4 KiB.
    Justification = {"type": "string", "maxLength": 4096, "minLength": 10,
        "pattern": "^([^\\S\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f]){10}[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f]*$",
        "examples": ["customer was refunded by hand"]};
    /// Code of a failure: at most 128 bytes.
    ErrorCode = {"type": "string", "maxLength": 128, "pattern": "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f]*$", "examples": ["gateway_timeout"]};
    /// At most 32 headers: names of 1 to 64 bytes, values of at most 1,024, each one line.
    MessageHeaders = {"type": "object", "maxProperties": 32,
        "propertyNames": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"},
        "additionalProperties": {"type": "string", "maxLength": 1024, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"},
        "examples": [{"trace": "4bf92f35"}]};
    /// What a key may do: `right`, `right:queue` or `right:prefix*`.
    ScopeText = {"anyOf": scope_forms()};
    /// Why a message is dead.
    DeadReason = {"type": "string", "enum": ["max_attempts", "permanent_failure", "lease_expired", "release_limit", "expired", "operator"]};
    /// Why a message is dead, in the words of the deliveries.
    FailureKind = {"type": "string", "enum": ["nack", "permanent", "lease_expired", "release_limit", "expired", "operator"]};
    /// Why a dead letter is left undone.
    DiscardReason = {"type": "string", "enum": ["not_applicable", "duplicate", "superseded", "written_off"]};
    /// What a late ack means.
    LateAckRule = {"type": "string", "enum": ["accept", "strict"]};
    /// States that can be browsed.
    BrowsedState = {"type": "string", "enum": ["ready", "delayed", "leased", "dead"]};
    /// States of a redrive.
    RedriveStateName = {"type": "string", "enum": ["canary", "running", "paused", "aborted", "cancelled", "done"]};
    /// By time.
    TimeOrder = {"type": "string", "enum": ["oldest", "newest"]};
    /// Length of a lease, in seconds.
    LeaseSeconds = {"type": "number", "minimum": 1, "maximum": 43_200, "examples": [30]};
    /// A delay in seconds: at most 7 days.
    DelaySeconds = {"type": "number", "minimum": 0, "maximum": 604_800, "examples": [0]};
    /// How long to wait, in seconds.
    WaitSeconds = {"type": "number", "minimum": 0, "maximum": 30, "examples": [20]};
    /// Life span in seconds: at most ten years.
    LifeSeconds = {"type": "number", "minimum": 0.001, "maximum": 315_360_000, "examples": [86_400]};
    /// Attempts allowed.
    Attempts = {"type": "integer", "minimum": 1, "maximum": 1_000, "examples": [5]};
    /// 0 to 9, higher first; 4 unless given.
    Priority = {"type": "integer", "minimum": 0, "maximum": 9, "examples": [4]};
    /// Messages per second; null = no limit.
    RatePerSecond = {"type": ["number", "null"], "minimum": 0.001, "maximum": 1_000_000, "examples": [50]};
    /// Entries of a page.
    PageSize = {"type": "integer", "minimum": 1, "maximum": 500, "examples": [50]};
    /// A place in a listing, as a page before named it. Opaque.
    PageToken = {"type": "string", "maxLength": 256, "pattern": "^[A-Za-z0-9_-]+$", "examples": [crate::http::paging::example()]};
    /// A number of attempts or redrives.
    Counter = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000, "examples": [5]};
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scopes;
    use crate::http::extract::is_queue_name;
    use crate::http::operator;
    use regex::Regex;

    fn pattern(schema: &Value) -> Regex {
        Regex::new(schema["pattern"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn every_description_is_one_that_can_be_written_and_its_examples_are_good() {
        for (name, json) in ALL {
            let json = json();
            let written = serde_json::to_value(described(json.clone())).unwrap();
            assert_eq!(written, json, "{name}");
            for example in json["examples"].as_array().into_iter().flatten() {
                if json["pattern"].is_string() {
                    assert!(pattern(&json).is_match(example.as_str().unwrap()), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_length_in_words_is_the_one_that_is_checked() {
        let said = Regex::new(r"(?:at most|1 to) ([0-9,]+) bytes").unwrap();
        let mut found = 0;
        for (name, json) in ALL {
            let json = json();
            let words = json["description"].as_str().unwrap();
            let most = json["maxLength"].as_u64();
            let (Some(length), Some(most)) = (said.captures(words), most) else {
                continue;
            };
            found += 1;
            assert_eq!(length[1].replace(',', ""), most.to_string(), "{name}");
        }
        assert!(found >= 6, "{found}");
    }

    #[test]
    fn the_pattern_of_queue_names_is_the_rule() {
        let pattern = pattern(&QueueName::json());
        for name in [
            "a", "A1", "a.b", "a.", "a..b", "a..", ".a", "-a", "_a", "a-", "a_", "a.-", "a b", "",
            "ä", "a\n",
        ] {
            assert_eq!(pattern.is_match(name), is_queue_name(name), "{name:?}");
        }
    }

    #[test]
    fn the_patterns_of_reasons_are_the_rule() {
        for text in [
            "",
            " ",
            "a",
            " a ",
            "a\u{7}",
            "\u{a0}",
            "123456789",
            "1234567890",
            "1 2 3 4 5 6 7 8 9 0",
            "\t\n1\u{2003}234567890",
            "12345678\u{b}90",
            "1234567890\u{85}",
            "zehn ÄÖÜ äöü ß",
            "1234567890\u{3000}",
        ] {
            let given = operator::tests::is_reason(text, operator::Reason::Given);
            let justified = operator::tests::is_reason(text, operator::Reason::Justified);
            assert_eq!(
                pattern(&ReasonText::json()).is_match(text),
                given,
                "{text:?}"
            );
            assert_eq!(
                pattern(&Justification::json()).is_match(text),
                justified,
                "{text:?}"
            );
        }
    }

    #[test]
    fn the_patterns_of_scopes_are_the_rule() {
        let forms = scope_forms();
        let long = |right: &str, letters: usize, end: &str| {
            format!("{right}:{}{end}", "q".repeat(letters))
        };
        let mut texts: Vec<String> = [
            "admin",
            "admin:a",
            "admin:*",
            "audit",
            "audit:*",
            "keys",
            "keys:a",
            "read",
            "read:",
            "read:*",
            "read:a",
            "read:a*",
            "read:.a",
            "read:a..b",
            "read:a..*",
            "read:a.*",
            "read:a.",
            "read:*a",
            "read:a b",
            "reed",
            "publish:mail-*",
            "manage:A_",
            "",
        ]
        .map(str::to_owned)
        .to_vec();
        for right in ["read", "manage", "discard"] {
            texts.extend([
                long(right, 80, ""),
                long(right, 80, "*"),
                long(right, 81, ""),
                long(right, 81, "*"),
            ]);
        }
        for text in texts {
            let described = forms.iter().any(|form| {
                let most = form["maxLength"].as_u64().unwrap() as usize;
                text.len() <= most && pattern(form).is_match(&text)
            });
            assert_eq!(described, Scopes::from_entries([&*text]).is_ok(), "{text}");
        }
    }
}
