//! Numbers of messages and queues, and how numbers are written.

use super::Millis;
use serde::{Deserialize, Serialize};
use std::fmt;

/// 2024-01-01T00:00:00Z, where message ids begin to count.
const ID_EPOCH_MS: Millis = 1_704_067_200_000;

/// A message's number: 41 bits of milliseconds since 2024, 10 bits of process tag, 12 bits of counter.
///
/// Ids of one process rise in publish order; across processes they rise with time. Written as `msg_` and 13 characters
/// of lower-case Crockford base32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub i64);

const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl MessageId {
    /// Builds an id from a time, a process tag (10 bits) and a counter (12 bits).
    pub fn new(at: Millis, tag: u16, counter: u16) -> Self {
        let ms = (at - ID_EPOCH_MS).max(0);
        Self((ms << 22) | (i64::from(tag & 0x3ff) << 12) | i64::from(counter & 0xfff))
    }

    /// When the id was made: within milliseconds of the publish.
    pub fn made_at(self) -> Millis {
        (self.0 >> 22) + ID_EPOCH_MS
    }

    /// Reads the written form; `None` for anything that this type never writes.
    pub fn parse(text: &str) -> Option<Self> {
        read_number("msg_", text).map(Self)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_number("msg_", self.0, f)
    }
}

/// Writes a number as a prefix and 13 characters of lower-case Crockford base32.
pub(crate) fn write_number(prefix: &str, number: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [b'0'; 13];
    let mut rest = number as u64;
    for slot in text.iter_mut().rev() {
        *slot = BASE32[(rest & 31) as usize];
        rest >>= 5;
    }
    f.write_str(prefix)?;
    f.write_str(std::str::from_utf8(&text).unwrap_or_default())
}

/// Back from [`write_number`]; `None` for anything that it never writes.
pub(crate) fn read_number(prefix: &str, text: &str) -> Option<i64> {
    let digits = text.strip_prefix(prefix)?.as_bytes();
    if digits.len() != 13 {
        return None;
    }
    let mut value: u128 = 0;
    for digit in digits {
        let position = BASE32.iter().position(|b| b == digit)?;
        value = (value << 5) | position as u128;
    }
    i64::try_from(value).ok()
}

/// Makes [`MessageId`]s that rise, whatever the clock does.
#[derive(Debug)]
pub struct IdMaker {
    tag: u16,
    at: Millis,
    counter: u16,
}

impl IdMaker {
    /// `tag` tells processes on one store apart (10 bits).
    pub fn new(tag: u16) -> Self {
        Self {
            tag,
            at: 0,
            counter: 0,
        }
    }

    /// The next id at time `now`. More than 4,096 ids in one millisecond borrow from the next one.
    pub fn next(&mut self, now: Millis) -> MessageId {
        if now > self.at {
            self.at = now;
            self.counter = 0;
        } else if self.counter >= 0xfff {
            self.at += 1;
            self.counter = 0;
        } else {
            self.counter += 1;
        }
        MessageId::new(self.at, self.tag, self.counter)
    }
}

/// The stable number of a queue's *name*: survives purge, delete and re-creation. Request ids, keys and totals belong
/// to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct QueueUid(pub i32);
