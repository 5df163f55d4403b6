//! `quita queue set`: a policy, field by field.

use super::Session;
use super::change::{self, Meets};
use super::client::Change;
use super::exit::{Exit, Failure, Outcome};
use super::table::text;
use super::visible::visible;
use super::{input, json, path, queue};
use clap::Args;
use http::Method;
use serde_json::{Value, json};

/// Fields of a policy, as `queue set` explains them.
pub(super) const SET_HELP: &str = "FIELDS
  visibility_timeout_seconds     length of a lease when a receive names none; 1 to 43200
  max_attempts                   deliveries that may end in a nack or an expiration; 1 to 1000
  max_lease_expirations          deliveries that may end in an expiration; 1 to 1000
  max_releases                   releases allowed; 1 to 10000, or none
  max_redrives                   redrives allowed without force; 0 to 100
  backoff                        wait between a failure and the next attempt, as JSON: type, base_seconds, factor, max_seconds, jitter
  delay_seconds                  delay of a publish that names none; 0 to 604800
  wait_seconds                   wait of a receive that names none; 0 to 30
  dedupe_window_seconds          how long a request id stays taken after its message is gone; 60 to 2592000
  unique_key                     one message per business key; true or false
  key_retention_seconds          how long a key is remembered after its message is gone; 86400 to 315360000, or none
  retention_seconds              age at which a ready message goes to the dead letters; 60 to 2592000
  dead_letter_retention_seconds  age at which an undecided dead letter ends; 3600 to 315360000, or none
  max_message_bytes              largest message with key and headers; 1 to 262144
  max_depth                      most messages ready, delayed and leased together; 1 to 1000000000, or none
  late_ack                       what a late ack means: accept or strict

EXAMPLES
  quita queue set charges max_attempts=8 late_ack=strict unique_key=true
  quita queue set charges backoff='{\"type\":\"fixed\",\"base_seconds\":5}' max_depth=none
  quita queue set charges max_attempts=8 --dry-run
  quita queue set refunds --create visibility_timeout_seconds=120";

#[derive(Args)]
pub(in crate::cli) struct SetArgs {
    /// The queue
    queue: String,

    /// Fields of the policy, listed below; a value is a number, true or false (also yes or no), null (also none), a word or JSON
    #[arg(value_name = "FIELD=VALUE", value_parser = input::pair)]
    fields: Vec<(String, String)>,

    /// Create the queue; fields that are not given have the server's defaults. Refused if it exists
    #[arg(long)]
    create: bool,

    /// Show the request and the present policy, and send nothing; the server does not check it
    #[arg(long)]
    dry_run: bool,
}

/// Does it.
pub(super) fn set(session: &mut Session, args: &SetArgs) -> Outcome {
    if args.fields.is_empty() && !args.create {
        return Err(Failure::usage("there is nothing to set"));
    }
    let mut fields = serde_json::Map::new();
    for (name, value) in &args.fields {
        if fields.insert(name.clone(), field(value)).is_some() {
            let name = visible(name);
            return Err(Failure::usage(format!("{name} is given twice")));
        }
    }
    let path = path::queue(&args.queue, "");
    let change = Change {
        method: if args.create {
            Method::PUT
        } else {
            Method::PATCH
        },
        path: path.clone(),
        body: fields
            .iter()
            .map(|(name, value)| (name.clone(), json::raw(value)))
            .collect(),
        repeatable: !args.create,
        only_new: args.create,
    };
    if args.dry_run {
        let present = match session.client.read::<Value>(&path) {
            Ok(queue) => queue,
            Err(absent) if args.create && absent.exit == Exit::NotFound => Value::Null,
            Err(failure) => return Err(failure),
        };
        let exists = present.is_object();
        let now: serde_json::Map<String, Value> = fields
            .keys()
            .map(|name| (name.clone(), present["policy"][name.as_str()].clone()))
            .collect();
        let mut state = vec![("exists", text(&exists.into()))];
        if exists {
            let fields = now
                .iter()
                .map(|(name, value)| (name.as_str(), bound(value)));
            state.extend(fields);
        }
        let meets = Meets {
            name: args.queue.clone(),
            fields: state,
            present: json!({"exists": exists, "policy": if exists { now.clone().into() } else { Value::Null }}),
            refusal: (args.create && exists).then(|| "the queue exists".to_owned()),
        };
        return session.show_dry_run(&change, &meets);
    }
    let text = change::send(&session.client, &change).map_err(|failure| {
        if args.create && failure.exit == Exit::Refused {
            failure.and("hint: the queue exists; without --create its policy is changed")
        } else {
            failure
        }
    })?;
    queue::show(session, &text)
}

/// A value of a policy as it was typed.
fn field(text: &str) -> Value {
    match text {
        "none" => Value::Null,
        "yes" => true.into(),
        "no" => false.into(),
        text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

/// A value of a policy as it is shown.
pub(super) fn bound(value: &Value) -> String {
    match value {
        Value::Null => "no bound".to_owned(),
        Value::Object(_) => json::compact(&value.to_string()),
        other => text(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_what_it_looks_like() {
        for (text, value) in [
            ("none", json!(null)),
            ("null", json!(null)),
            ("yes", json!(true)),
            ("false", json!(false)),
            ("1.5", json!(1.5)),
            ("strict", json!("strict")),
            ("\"none\"", json!("none")),
            ("{\"type\":\"fixed\"}", json!({"type": "fixed"})),
        ] {
            assert_eq!(field(text), value, "{text}");
        }
    }
}
