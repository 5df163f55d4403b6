//! What operators' calls have in common: a request id, and a reason.

use super::extract::{Incoming, JsonBody};
use super::fields::Fields;
use super::problem::{Code, Problem};
use super::publish::REQUEST_ID;
use super::text_rule::TextRule;
use quita_storage::backend::Call;
use std::borrow::Cow;

/// A justification, for people.
const JUSTIFICATION: TextRule = TextRule::prose(4_096);
/// Characters that a justification must have, spaces not counted.
const MIN_JUSTIFICATION: usize = 10;

/// How much must be said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A decision that cannot be taken back.
    Justified,
    /// A decision that can be taken back: anything but spaces.
    Given,
    /// Nothing, but it is kept when it is there.
    Optional,
}

impl Reason {
    /// A decision against a rule has to be explained, others may be.
    pub(crate) fn given_if(forced: bool) -> Self {
        if forced { Self::Given } else { Self::Optional }
    }
}

/// The text of a reason; what is wrong with it is noted.
pub(crate) fn reason<'a>(
    fields: &mut Fields<'a>,
    name: &str,
    wanted: Reason,
) -> Option<Cow<'a, str>> {
    let least = match wanted {
        Reason::Justified => MIN_JUSTIFICATION,
        Reason::Given => 1,
        Reason::Optional => 0,
    };
    if least > 0 && !fields.has(name) {
        fields.fault(Code::ReasonRequired, name, "The field is required.");
        return None;
    }
    let text = fields.text_in(name, JUSTIFICATION)?;
    if text
        .chars()
        .filter(|c| !c.is_whitespace())
        .take(least)
        .count()
        < least
    {
        let detail = format!("At least {least} characters that are not spaces are required.");
        fields.fault(Code::ReasonRequired, name, detail);
        return None;
    }
    Some(text)
}

/// Refuses the call when something was wrong with it, else says who calls and how a repeat is recognised.
pub(crate) fn call(
    incoming: &Incoming,
    mut fields: Fields<'_>,
    body: &JsonBody,
    reason: Option<&str>,
) -> Result<Call, Problem> {
    let request_id = fields.text_in("client_request_id", REQUEST_ID);
    fields.finish()?;
    Ok(incoming.call(body, request_id.as_deref(), reason))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whether a text says enough.
    pub(crate) fn is_reason(text: &str, wanted: Reason) -> bool {
        let body = serde_json::json!({ "reason": text }).to_string();
        let mut fields = Fields::open(&body, String::new(), &["reason"]).unwrap();
        reason(&mut fields, "reason", wanted);
        fields.finish().is_ok()
    }
}
