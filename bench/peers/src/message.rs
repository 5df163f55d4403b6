//! What is published: a kilobyte of JSON that no compressor shrinks and that says when it was made.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const BYTES: usize = 1024;

/// Stands before the time of making, in nanoseconds with 20 digits, and survives every escaping.
const STAMP: &str = "T=";
const DIGITS: usize = 20;

/// Nanoseconds since the Unix epoch.
pub fn now() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the ban is the project's, where time can be moved; here it is the wall's"
    )]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// A message that is new each time: `serial` stands in it.
pub fn make(serial: u64) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = format!(
        "{{\"id\":\"{STAMP}{:020}-{serial:012}\",\"subscription\":\"sub_0412\",\"customer\":\"Padaria Bom Grao\",\
         \"amount\":18990,\"competence\":\"2026-10\",\"pad\":\"",
        now()
    )
    .into_bytes();
    // Marsaglia's xorshift64; ten characters of each number.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64 ^ serial.wrapping_mul(0xd134_2543_de82_ef95);
    while text.len() + 2 < BYTES {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        let left = (BYTES - 2 - text.len()).min(10);
        text.extend((0..left).map(|at| ALPHABET[(noise >> (6 * at) & 63) as usize]));
    }
    text.extend_from_slice(b"\"}");
    text
}

/// How old a message is, found in its text or in any text that quotes it.
pub fn age(text: &[u8]) -> Option<Duration> {
    let at = memchr::memmem::find(text, STAMP.as_bytes())? + STAMP.len();
    let digits = std::str::from_utf8(text.get(at..at + DIGITS)?).ok()?;
    Some(Duration::from_nanos(
        now().saturating_sub(digits.parse().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_json_of_its_size_and_knows_its_age() {
        let text = make(7);
        assert_eq!(text.len(), BYTES);
        assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
        assert!(age(&text).unwrap() < Duration::from_secs(1));
        assert_ne!(text[100..], make(8)[100..]);
        assert!(age(b"T=short").is_none());
    }
}
