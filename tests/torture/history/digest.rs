//! Payloads as digests and receipts as short hashes: a history holds no secret and stays small.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The first 16 bytes of the SHA-256 of a payload, as it was sent or came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest(pub(crate) u128);

/// The first 8 bytes of the SHA-256 of a receipt or of another long word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Short(pub(crate) u64);

impl Digest {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let hash = Sha256::digest(bytes);
        Self(hash[..16].iter().fold(0, |n, b| n << 8 | u128::from(*b)))
    }
}

impl Short {
    /// Of this text.
    pub(crate) fn of(text: &str) -> Self {
        let hash = Sha256::digest(text.as_bytes());
        Self(hash[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:016x}", self.0))
    }
}

/// Reads a hexadecimal word without keeping the text.
struct Hex;

impl Visitor<'_> for Hex {
    type Value = u128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hexadecimal number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u128, E> {
        u128::from_str_radix(text, 16).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Hex).map(Self)
    }
}

impl<'de> Deserialize<'de> for Short {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Hex).map(|n| Self(n as u64))
    }
}
