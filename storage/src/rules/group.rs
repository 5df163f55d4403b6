//! Which dead letters failed alike: the same reason, error code and error text, where numbers and ids in the text do not count.

use crate::model::Reason;
use regex::{Captures, Regex};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Characters of an error text that count, after normalising.
const MOST_CHARACTERS: usize = 200;
/// Bytes of an error text that are looked at.
const MOST_BYTES: usize = 1_024;

// In this order: a UUID may have a part without a digit; a long run of hexadecimal letters may, too; then every word with a
// digit in it; at last what is between two numbers, as in times, decimals and addresses.
static IDS: LazyLock<Option<[Regex; 2]>> = LazyLock::new(|| {
    let ids = r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{16,}\b|\w*\d\w*";
    let chains = r"#(?:[.,:/+-]+#)+|\s+";
    Some([Regex::new(ids).ok()?, Regex::new(chains).ok()?])
});

/// An error text without what differs from message to message: `timeout after 3021 ms for order 981` becomes
/// `timeout after # ms for order #`.
pub fn normalised(text: &str) -> String {
    let mut end = text.len().min(MOST_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    let Some([ids, chains]) = &*IDS else {
        return text.to_owned();
    };
    let without: Cow<'_, str> = ids.replace_all(text, "#");
    let joined = chains.replace_all(
        &without,
        |found: &Captures<'_>| {
            if found[0].starts_with('#') { "#" } else { " " }
        },
    );
    joined.trim().chars().take(MOST_CHARACTERS).collect()
}

/// The part of a failure's text that belongs to its group: an expiration and an operator's word have none.
pub fn text(reason: Reason, detail: Option<&str>) -> Option<String> {
    let told = matches!(
        reason,
        Reason::MaxAttempts | Reason::PermanentFailure | Reason::ReleaseLimit
    );
    detail.filter(|_| told).map(normalised)
}

/// The number of a group: 63 bits of SHA-256, never 0. Stored, so it must not change.
pub fn of(reason: Reason, error_code: Option<&str>, detail: Option<&str>) -> i64 {
    let mut hash = Sha256::new();
    hash.update(reason.code().to_be_bytes());
    for part in [error_code.map(str::to_owned), text(reason, detail)] {
        let part = part.as_deref().map_or(&b"\x00"[..], str::as_bytes);
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    (i64::from_be_bytes(first) & i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ids_do_not_count() {
        for (text, wanted) in [
            (
                "timeout after 3021 ms for order 981",
                "timeout after # ms for order #",
            ),
            (
                "no card crd_9f3kx for 550e8400-e29b-41d4-abcd-446655440000",
                "no card # for #",
            ),
            (
                "at 2026-11-30T17:02:11.004Z from 10.0.0.17:8443",
                "at # from #",
            ),
            ("took 3.5 s,  then\n 4 s", "took # s, then # s"),
            ("trace deadbeefdeadbeef", "trace #"),
            ("declined", "declined"),
            (
                "saldo insuficiente: R$ 1.200,50 é pouco",
                "saldo insuficiente: R$ # é pouco",
            ),
            ("", ""),
        ] {
            assert_eq!(normalised(text), wanted);
        }
        assert_eq!(
            normalised(&"é".repeat(2_000)).chars().count(),
            MOST_CHARACTERS
        );
    }

    #[test]
    fn a_group_is_reason_code_and_text() {
        let of = |reason, code, text| of(reason, Some(code), Some(text));
        let one = of(Reason::MaxAttempts, "503", "timeout after 3021 ms");
        assert_eq!(one, of(Reason::MaxAttempts, "503", "timeout after 7 ms"));
        assert_ne!(
            one,
            of(Reason::PermanentFailure, "503", "timeout after 7 ms")
        );
        assert_ne!(one, of(Reason::MaxAttempts, "504", "timeout after 7 ms"));
        assert_ne!(one, of(Reason::MaxAttempts, "503", "refused after 7 ms"));
        // What an expired delivery said before, it did not say about its end.
        let expired = |text| of(Reason::LeaseExpired, "503", text);
        assert_eq!(expired("a"), expired("b"));
    }
}
