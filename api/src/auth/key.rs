//! The text of an API key.
//!
//! `qta_<id>_<secret><checksum>`: 12 characters of base32 that may be shown, 43 of base62 that must not, and 6 of base62 so
//! that a mistyped or cut key is refused without looking anything up. Secret scanners find keys with
//! `\bqta_[a-z2-7]{12}_[0-9A-Za-z]{49}\b` and tell real ones by the checksum: CRC-32 (IEEE) over everything before it.

use rand::TryRngCore;
use rand::rngs::OsRng;
use sha2::{Digest, Sha256};
use std::fmt;

const PREFIX: &[u8] = b"qta_";
/// Characters of the public part: 60 random bits.
pub const ID: usize = 12;
/// Characters of the secret: 62^43 > 2^256.
const SECRET: usize = 43;
/// Characters of the checksum: 62^6 > 2^32.
const CHECKSUM: usize = 6;
const BODY: usize = PREFIX.len() + ID + 1 + SECRET;
const LENGTH: usize = BODY + CHECKSUM;

const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A key as its holder has it. Its `Debug` shows the public part alone.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    text: String,
}

/// The parts of a well-formed key, borrowed from where it was sent.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) id: &'a [u8; ID],
    pub(super) secret: &'a [u8; SECRET],
}

impl ApiKey {
    /// A new key: 60 bits of id and 256 bits of secret from the operating system. `None` when it has none to give.
    pub fn generate() -> Option<Self> {
        let (mut id, mut secret) = ([0u8; ID], [0u8; 32]);
        OsRng.try_fill_bytes(&mut id).ok()?;
        OsRng.try_fill_bytes(&mut secret).ok()?;
        Self::assemble(id, secret)
    }

    fn assemble(id: [u8; ID], secret: [u8; 32]) -> Option<Self> {
        let mut text = Vec::with_capacity(LENGTH);
        text.extend_from_slice(PREFIX);
        text.extend(id.iter().map(|b| BASE32[usize::from(b & 31)]));
        text.push(b'_');
        text.extend(base62(secret));
        let sum = checksum(&text);
        text.extend(sum);
        Self::parse(std::str::from_utf8(&text).ok()?)
    }

    /// A new key whose public part is made of `seed`, so that a call that is repeated is recognised by it.
    pub fn generate_for(seed: [u8; ID]) -> Option<Self> {
        let mut secret = [0u8; 32];
        OsRng.try_fill_bytes(&mut secret).ok()?;
        Self::assemble(seed, secret)
    }

    /// `None` for anything that is not a whole key.
    pub fn parse(text: &str) -> Option<Self> {
        split(text.as_bytes()).map(|_| Self {
            text: text.to_owned(),
        })
    }

    /// The public part.
    pub fn id(&self) -> &str {
        self.text
            .get(PREFIX.len()..PREFIX.len() + ID)
            .unwrap_or_default()
    }

    /// The whole key. Show it once, to whom it belongs.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What a store may keep of it.
    pub fn secret_hash(&self) -> [u8; 32] {
        split(self.text.as_bytes()).map_or([0; 32], |parts| hash(parts.secret))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.id())
    }
}

/// Whether this was meant as one of our keys: a token begins with a brace in base64url, `e`.
pub(super) fn looks_like(text: &[u8]) -> bool {
    text.starts_with(PREFIX)
}

/// The parts of a key; `None` when length, alphabet or checksum are wrong, which costs no look-up and no hash.
pub(super) fn split(text: &[u8]) -> Option<Parts<'_>> {
    if text.len() != LENGTH || !text.starts_with(PREFIX) {
        return None;
    }
    let (body, sum) = text.split_at(BODY);
    let rest = &body[PREFIX.len()..];
    let (id, secret) = (rest.first_chunk::<ID>()?, rest.last_chunk::<SECRET>()?);
    if rest[ID] != b'_'
        || !id.iter().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
        || !secret.iter().all(u8::is_ascii_alphanumeric)
        || checksum(body) != sum
    {
        return None;
    }
    Some(Parts { id, secret })
}

/// SHA-256. The secret has 256 bits of its own, so there is nothing that a slow hash would protect.
pub(super) fn hash(secret: &[u8; SECRET]) -> [u8; 32] {
    #[cfg(test)]
    HASHED.set(HASHED.get() + 1);
    Sha256::digest(secret).into()
}

#[cfg(test)]
thread_local! {
    /// Secrets that this thread has hashed: what a test can see of how long a look-up takes.
    pub(super) static HASHED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

fn checksum(body: &[u8]) -> [u8; CHECKSUM] {
    let mut rest = crc32fast::hash(body);
    let mut digits = [0u8; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

/// 256 bits, most significant digit first.
fn base62(mut number: [u8; 32]) -> [u8; SECRET] {
    let mut digits = [0u8; SECRET];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0u32;
        for byte in &mut number {
            let value = (remainder << 8) | u32::from(*byte);
            *byte = (value / 62) as u8;
            remainder = value % 62;
        }
        *digit = BASE62[remainder as usize];
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_key_has_the_published_form_and_comes_back_as_it_was() {
        let key = ApiKey::generate().unwrap();
        let text = key.reveal();
        assert_eq!(text.len(), 66);
        assert_eq!(text, format!("qta_{}_{}", key.id(), &text[17..]));
        assert_eq!(ApiKey::parse(text), Some(key));
    }

    #[test]
    fn keys_differ() {
        let keys: HashSet<String> = (0..100)
            .map(|_| ApiKey::generate().unwrap().reveal().to_owned())
            .collect();
        assert_eq!(keys.len(), 100);
    }

    #[test]
    fn every_single_changed_character_is_noticed() {
        let text = ApiKey::generate().unwrap().reveal().to_owned();
        for position in 0..text.len() {
            let with = if text.as_bytes()[position] == b'a' {
                "b"
            } else {
                "a"
            };
            let mut changed = text.clone();
            changed.replace_range(position..=position, with);
            assert!(split(changed.as_bytes()).is_none(), "{changed}");
        }
    }

    #[test]
    fn nonsense_is_not_a_key() {
        let good = ApiKey::generate().unwrap().reveal().to_owned();
        let huge = "q".repeat(1 << 20);
        for text in ["", "qta_", &good[1..], &good[..65], &huge, "ключ"] {
            assert!(ApiKey::parse(text).is_none());
        }
        assert!(split(&[0xff; LENGTH]).is_none());
    }

    #[test]
    fn debug_shows_no_secret() {
        let key = ApiKey::generate().unwrap();
        let shown = format!("{key:?}");
        assert!(shown.contains(key.id()) && !shown.contains(&key.reveal()[17..]));
    }

    proptest! {
        #[test]
        fn any_key_comes_back(id: [u8; ID], secret: [u8; 32]) {
            let key = ApiKey::assemble(id, secret).unwrap();
            let parts = split(key.reveal().as_bytes()).unwrap();
            prop_assert_eq!(parts.id, key.id().as_bytes());
            prop_assert_eq!(ApiKey::parse(key.reveal()), Some(key));
        }

        #[test]
        fn a_key_with_one_flipped_bit_is_never_a_key(secret: [u8; 32], at in 0..LENGTH, bit in 0u8..8) {
            let mut text = ApiKey::assemble([7; ID], secret).unwrap().text.into_bytes();
            text[at] ^= 1 << bit;
            prop_assert!(split(&text).is_none());
        }

        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "(qta_)?[a-z2-7_]{0,13}[0-9A-Za-z]{0,60}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                if let Some(parts) = split(bytes) {
                    prop_assert_eq!(&parts.id[..], &bytes[4..16]);
                }
            }
        }
    }

    #[test]
    fn base62_reaches_the_largest_number() {
        assert_eq!(base62([0; 32]), [b'0'; SECRET]);
        // 2^256 − 1 in base 62.
        assert_ne!(base62([0xff; 32])[0], b'0');
    }
}
