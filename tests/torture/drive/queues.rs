//! The queues under load, each with what makes it different.

use quita_storage::model::{Backoff, Jitter, Policy};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Nothing special.
pub(crate) const PLAIN: &str = "plain";
/// Publishes have a delay.
pub(crate) const DELAYED: &str = "delayed";
/// Publishes expire after five seconds.
pub(crate) const EXPIRING: &str = "expiring";
/// One message per key.
pub(crate) const UNIQUE: &str = "unique";
/// Purged now and then.
pub(crate) const SCRATCH: &str = "scratch";

/// All of them.
pub(crate) const ALL: [&str; 5] = [PLAIN, DELAYED, EXPIRING, UNIQUE, SCRATCH];

/// The longest of leases, backoffs and delays here.
pub(crate) const LONGEST_MS: u64 = 3_000;

/// The policy of each queue.
pub(crate) fn policies() -> BTreeMap<String, Policy> {
    let policy = |name: &str| Policy {
        visibility_timeout_ms: 2_000,
        backoff: Backoff::Exponential {
            base_ms: 100,
            factor: 2.0,
            max_ms: 2_000,
            jitter: Jitter::Equal,
        },
        unique_key: name == UNIQUE,
        ..Policy::default()
    };
    ALL.iter()
        .map(|name| ((*name).to_owned(), policy(name)))
        .collect()
}

/// The same policy as a body of PUT.
pub(crate) fn input(policy: &Policy) -> Value {
    let seconds = |ms: i64| ms as f64 / 1_000.0;
    let mut input = json!({
        "visibility_timeout_seconds": seconds(policy.visibility_timeout_ms),
        "max_attempts": policy.max_attempts,
        "max_lease_expirations": policy.max_lease_expirations,
        "max_redrives": policy.max_redrives,
        "unique_key": policy.unique_key,
        "max_message_bytes": policy.max_message_bytes,
    });
    if let Backoff::Exponential {
        base_ms,
        factor,
        max_ms,
        jitter,
    } = &policy.backoff
    {
        input["backoff"] = json!({
            "type": "exponential", "base_seconds": seconds(*base_ms), "factor": factor,
            "max_seconds": seconds(*max_ms), "jitter": jitter,
        });
    }
    input
}
